"""What a memory holds that a person should look at: wrong labels, copies, harmful entries."""

from attnknn.insight.audit.auditing import audit, entry_values
from attnknn.insight.audit.record import Audit

__all__ = ["Audit", "audit", "entry_values"]
