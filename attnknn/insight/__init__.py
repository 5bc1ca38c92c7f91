"""Inspect and maintain a fitted classifier: audit, what-if, drift and forgetting.

- `audit` ranks the entries of a memory by how likely their labels are wrong, and finds duplicates
  and harmful entries. Use it before trusting labels that you did not check.
- `what_if` computes the predictions after an edit without making it. Use it before an edit.
- `DriftMonitor` watches a stream of rows and labels and raises an alarm when they differ from the
  memory, with a guaranteed rate of false alarms. Use it in production.
- `suggest` chooses the unlabeled rows whose labels are worth most. Use it to label few rows.
- `label_studio_tasks` and `cleanlab_issues` write results for these tools, `read_label_studio` and
  `read_cleanlab` read the decisions of reviewers back.
- `layout` places the entries on a map in two dimensions. Use it to see groups, gaps and strays.
- `keep_newest`, `drop_least_valuable` and `weigh_by_age` keep a memory small or recent, and measure
  the change of accuracy and log-loss.

All of them follow from two computations: predictions for new rows, and leave-one-out predictions
for the entries.
"""

from attnknn.insight.audit_result import Audit
from attnknn.insight.auditing import audit, entry_values
from attnknn.insight.cleanlab_tables import cleanlab_issues, read_cleanlab
from attnknn.insight.drift import Alarm, DriftMonitor, DriftReport
from attnknn.insight.entry_layout import Layout, layout
from attnknn.insight.forgetting import (
    Change,
    Forgetting,
    drop_least_valuable,
    keep_newest,
    weigh_by_age,
)
from attnknn.insight.hypothetical_edits import AddedRows, WhatIf, what_if
from attnknn.insight.label_studio import (
    label_studio_config,
    label_studio_tasks,
    read_label_studio,
)
from attnknn.insight.martingale import ScoreTrack
from attnknn.insight.pool import Pool
from attnknn.insight.reviews import Review, Reviewed, ReviewEdits
from attnknn.insight.suggesting import suggest
from attnknn.insight.suggestions import Suggestions

__all__ = [
    "AddedRows",
    "Alarm",
    "Audit",
    "Change",
    "DriftMonitor",
    "DriftReport",
    "Forgetting",
    "Layout",
    "Pool",
    "Review",
    "ReviewEdits",
    "Reviewed",
    "ScoreTrack",
    "Suggestions",
    "WhatIf",
    "audit",
    "cleanlab_issues",
    "drop_least_valuable",
    "entry_values",
    "keep_newest",
    "label_studio_config",
    "label_studio_tasks",
    "layout",
    "read_cleanlab",
    "read_label_studio",
    "suggest",
    "weigh_by_age",
    "what_if",
]
