"""A monitor over a stream of rows and labels: alarms when they are unlike what is remembered."""

from attnknn.insight.drift.monitor import DriftMonitor
from attnknn.insight.drift.record import Alarm, Track, Watched

__all__ = ["Alarm", "DriftMonitor", "Track", "Watched"]
