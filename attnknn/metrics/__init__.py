"""How good labels and probabilities are: float64; formula, direction and example each.

Every metric takes `(y_true, probabilities)`: the true labels as codes 0..C-1 in the order of the
columns (or as any labels, with `classes=` naming the columns), and one row of probabilities per
label; `set_coverage` and `set_size` take sets instead. Probabilities must be finite, within 0..1 up
to 1e-6 and sum to one up to 1e-3, which float32 and float16 inputs do; what lies beyond by rounding
is moved to 0 or 1. The predicted class is the first of the most probable ones.
"""

from attnknn.metrics.bins import (
    Bins,
    ReliabilityBins,
    debiased_ece,
    ece,
    ece_by_class,
    mce,
    reliability_bins,
)
from attnknn.metrics.decomposition import BrierParts, brier_parts
from attnknn.metrics.labels import (
    accuracy,
    balanced_accuracy,
    brier,
    confusion_matrix,
    macro_f1,
    nll,
)
from attnknn.metrics.rows import FLOOR, row_brier, row_correct, row_nll
from attnknn.metrics.selective import RiskCoverage, aurc, risk_coverage
from attnknn.metrics.sets import set_coverage, set_size
from attnknn.metrics.smooth import smooth_ece
from attnknn.metrics.summary import HIGHER_IS_BETTER, Scores, score_all

__all__ = [
    "FLOOR",
    "HIGHER_IS_BETTER",
    "Bins",
    "BrierParts",
    "ReliabilityBins",
    "RiskCoverage",
    "Scores",
    "accuracy",
    "aurc",
    "balanced_accuracy",
    "brier",
    "brier_parts",
    "confusion_matrix",
    "debiased_ece",
    "ece",
    "ece_by_class",
    "macro_f1",
    "mce",
    "nll",
    "reliability_bins",
    "risk_coverage",
    "row_brier",
    "row_correct",
    "row_nll",
    "score_all",
    "set_coverage",
    "set_size",
    "smooth_ece",
]
