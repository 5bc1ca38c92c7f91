"""Metrics of predicted probabilities, computed in float64.

- Quality: `accuracy`, `balanced_accuracy`, `macro_f1`, `nll` (log-loss), `brier`; per row
  `row_correct`, `row_nll`, `row_brier`; all at once `score_all`.
- Calibration: `ece`, `debiased_ece` (use it for few rows), `smooth_ece` (without bins), `mce`,
  `ece_by_class`, `reliability_bins` for a diagram, `brier_parts` for the decomposition.
- Abstention and sets: `risk_coverage`, `aurc`, `set_coverage`, `set_size`.

Every metric takes `(y_true, probabilities)`: the true labels as integer codes from 0 in the order
of the columns (or any labels, with `classes=` naming the columns), and one row of probabilities per
label. `set_coverage` and `set_size` take sets instead. Probabilities must be finite, within 0..1 up
to 1e-6, and sum to one up to 1e-3, as float32 and float16 inputs do; rounding errors are clipped.
The predicted class is the most probable one, the first if several are equal.
"""

from attnknn.metrics.calibration import (
    Bins,
    BrierParts,
    ReliabilityBins,
    brier_parts,
    debiased_ece,
    ece,
    ece_by_class,
    mce,
    reliability_bins,
    smooth_ece,
)
from attnknn.metrics.classification import (
    FLOOR,
    HIGHER_IS_BETTER,
    Scores,
    accuracy,
    balanced_accuracy,
    brier,
    confusion_matrix,
    macro_f1,
    nll,
    row_brier,
    row_correct,
    row_nll,
    score_all,
)
from attnknn.metrics.selective import RiskCoverage, aurc, risk_coverage, set_coverage, set_size

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
