"""A monitor over a stream of rows and labels: alarms when they are unlike what is remembered."""

from attnknn.drift.monitor import DriftMonitor
from attnknn.drift.record import Alarm, Track, Watched

__all__ = ["Alarm", "DriftMonitor", "Track", "Watched"]
