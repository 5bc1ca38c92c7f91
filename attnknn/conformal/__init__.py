"""Conformal prediction: prediction sets with a coverage, and abstention with a bounded risk.

`AttnKNNClassifier.predict_set` and `AttnKNNClassifier.decide` are the usual way in. This package
holds their parts:

- `PredictionSets` and `Decisions` are the results.
- `Lac`, `Aps` and `Raps` score how badly a label fits a row. `Lac` gives the smallest sets on
  average, `Aps` larger sets for uncertain rows, `Raps` fewer very large ones. `make_score` finds
  them by name.
- `thresholds` turns the scores of calibration rows into the largest score of a member, `members`
  turns scores and thresholds into sets. `min_examples` is the number of rows that a coverage needs.
"""

from attnknn.conformal.coverage_spec import min_examples, thresholds
from attnknn.conformal.decisions import Decisions
from attnknn.conformal.scores import Aps, Lac, Raps, SetScore, make_score
from attnknn.conformal.sets import PredictionSets, members

__all__ = [
    "Aps",
    "Decisions",
    "Lac",
    "PredictionSets",
    "Raps",
    "SetScore",
    "make_score",
    "members",
    "min_examples",
    "thresholds",
]
