"""FitReport: what `fit` chose and its leave-one-out quality."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnknn import _display
from attnknn.calibration.probability_map import noise_words
from attnknn.leave_one_out import LeaveOneOutBatch
from attnknn.model import FittedModel
from attnknn.records import Floats

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


MAX_ROWS_OF_VOTERS = 300


@dataclass(frozen=True)
class Candidate:
    """An attention or encoder that `fit` considered.

    Attributes
    ----------
    name : str
        Its name.
    log_loss : float
        Leave-one-out log-loss; NaN if it was not tried.
    weight : float
        Weight in the mixture that is used; 0 if it is not part of it.
    seconds : float
        Time of fitting it.
    note : str
        Why it was not tried or not used.

    Examples
    --------
    >>> Candidate("forest", 0.31, 0.6, 1.2).name
    'forest'
    """

    name: str
    log_loss: float = math.nan
    weight: float = 0.0
    seconds: float = 0.0
    note: str = ""

    def __str__(self) -> str:
        if math.isnan(self.log_loss):
            return f"{self.name}: {self.note}"
        note = f"; {self.note}" if self.note else ""
        return (
            f"{self.name}: log-loss {self.log_loss:.4f}, weight {self.weight:.2f}, "
            f"{self.seconds:.1f} s{note}"
        )


@dataclass(frozen=True)
class FitReport:
    """The result of `fit`: the attention in use, and its leave-one-out quality on held-out rows.

    Attributes
    ----------
    attention : str
        Short name of the attention in use.
    reason : str
        Why this attention was chosen.
    n_neighbors : int
        Number of neighbors in use.
    n_rows : int
        Held-out rows on which the numbers below were computed.
    effective_neighbors : float
        Mean effective number of voters, 1 / Σ weight², with the prior as one of them. It is the
        number of voters with equal weights that would be as concentrated.
    oracle_accuracy : float
        Share of rows with at least one neighbor of their label: the accuracy that the best weights
        of these neighbors could reach, without the prior.
    accuracy, log_loss : float
        Accuracy and log-loss of the observed labels.
    label_noise : float
        Estimated share of wrong labels; 0 if no wrong labels were found, NaN without an estimate.
    label_noise_error : float
        Standard error of the estimate. If no wrong labels were found, twice the error is the
        largest share that the labels allow.
    no_estimate : str
        Why label noise was not estimated; empty if it was.
    exponent : float
        Exponent γ of the probability map: probabilities are vote shares to this power, normalized.
    duplicates : float
        Share of rows with an exact duplicate among the other entries.
    value_head : str, default=""
        Comparison of the value head (a network in place of the vote) with the vote. All other
        attributes describe the vote. Empty without a value head.
    encoder : str, default=""
        The encoder and why it was chosen.
    candidates : tuple of Candidate, default=()
        What was compared if an attention or encoder was chosen.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> clf.fit_report_.attention, clf.fit_report_.n_rows
    ('distance', 3)
    """

    attention: str
    reason: str
    n_neighbors: int
    n_rows: int
    effective_neighbors: float
    oracle_accuracy: float
    accuracy: float
    log_loss: float
    label_noise: float
    label_noise_error: float
    no_estimate: str
    exponent: float
    duplicates: float
    value_head: str = ""
    encoder: str = ""
    candidates: tuple[Candidate, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """Convert to a DataFrame with a single row.

        Returns
        -------
        pandas.DataFrame
            One column per attribute, so that reports of several fits can be concatenated.
        """
        import pandas as pd

        fields = asdict(self)
        fields["candidates"] = "; ".join(map(str, self.candidates))
        return pd.DataFrame([fields])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw accuracy, oracle accuracy, label noise and duplicates as horizontal bars.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; None creates new axes.

        Returns
        -------
        matplotlib.axes.Axes
            The axes, with shares from 0 to 1.
        """
        ax = _display.axes(ax, "`FitReport.plot`")
        shares = self._shares()
        ax.barh(range(len(shares)), list(shares.values()))
        ax.set_yticks(range(len(shares)), list(shares))
        ax.invert_yaxis()
        ax.set_xlim(0, 1)
        ax.set_title(f"{self.attention} attention, {self.n_rows:,} held-out rows")
        return ax

    def _shares(self) -> dict[str, float]:
        shares = {
            "accuracy": self.accuracy,
            "oracle accuracy": self.oracle_accuracy,
            "label noise": self.label_noise,
            "exact duplicates": self.duplicates,
        }
        if self.no_estimate:
            del shares["label noise"]
        return shares

    def _lines(self) -> dict[str, str]:
        lines = {"encoder": self.encoder} if self.encoder else {}
        lines |= {
            "attention": f"{self.attention}: {self.reason}",
            "neighbors": f"{self.n_neighbors} (effective number {self.effective_neighbors:.1f})",
            "leave-one-out": f"accuracy {self.accuracy:.4f}, log-loss {self.log_loss:.4f}, "
            f"{self.n_rows} held-out rows",
            "oracle accuracy": f"{self.oracle_accuracy:.4f} (rows with a neighbor of their label)",
            "label noise": noise_words(self.label_noise, self.label_noise_error, self.no_estimate),
            "exact duplicates": f"{self.duplicates:.1%} of rows",
        }
        lines |= {f"candidate {n}": str(c) for n, c in enumerate(self.candidates, 1)}
        return lines | ({"value head": self.value_head} if self.value_head else {})

    def _repr_html_(self) -> str:
        shares, texts = self._shares(), self._lines()
        lines = {name: text for name, text in texts.items() if name not in shares}
        bars = {name: _display.bar(share) for name, share in shares.items()}
        if "label noise" in bars:
            with_error = bars["label noise"] + _display.note(f" ({texts['label noise']})")
            bars["label noise"] = _display.Html(with_error)
        title = f"Fit report: {self.n_rows:,} held-out rows"
        return _display.page(title, _display.table([], [*lines.items(), *bars.items()]))

    def __str__(self) -> str:
        return "\n".join(f"{name:<17} {text}" for name, text in self._lines().items())


def describe(
    parts: FittedModel, left_out: LeaveOneOutBatch, reason: str, shares: Floats | None = None
) -> FitReport:
    """The report for a fitted model, measured on leave-one-out entries.

    `shares` are their vote shares (B, C), if they are known.
    """
    left_out = left_out.nearest(parts.n_neighbors)
    neighbors = left_out.batch.neighbors
    shares = parts.left_out_shares(left_out) if shares is None else shares
    n_rows = min(parts.rows_at_once, MAX_ROWS_OF_VOTERS)  # more would not change the means below
    some = left_out.part(slice(n_rows))
    voters = parts.answer_left_out(some)
    found = voters.neighbors
    has_own = ((found.labels == some.own[:, None]) & found.mask).any(axis=1)
    nearest = left_out.batch.vectors[neighbors.positions[:, :1]]  # (B, 1, D)
    is_copy = (nearest == left_out.batch.queries[:, None]).all(axis=2) & neighbors.mask[:, :1]
    return FitReport(
        attention=type(parts.attention).__name__.removesuffix("Attention").lower(),
        reason=reason,
        n_neighbors=min(parts.n_neighbors, len(parts.memory)),
        n_rows=len(left_out),
        effective_neighbors=_mean(voters.weights.effective_neighbors),
        oracle_accuracy=_mean(has_own),
        accuracy=_mean(parts.calibration.probabilities(shares).argmax(axis=1) == left_out.own),
        log_loss=_mean(parts.calibration.losses(shares, left_out.own)),
        label_noise=parts.calibration.estimated_noise,
        label_noise_error=parts.calibration.noise_error,
        no_estimate=parts.calibration.no_estimate,
        exponent=parts.calibration.exponent,
        duplicates=_mean(is_copy.any(axis=1)),
    )


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
