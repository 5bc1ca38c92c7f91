"""Names of image trainings: which data, which network, with which corruption."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnknn.research.evaluation.corruption import Corruption
from attnknn.research.experiments.networks import Network, network_of

CORRUPTIONS = {
    "none": Corruption(),
    "noise": Corruption("symmetric", 0.3),
    "worst": Corruption(),  # the wrong labels are in the data
    "imbalance": Corruption("imbalance", 100),
}
DATA = ("cifar10", "fashion-mnist", "mnist")


@dataclass(frozen=True)
class Recipe:
    """One training.

    Parameters
    ----------
    epochs : int, optional
        Other than those of the network.
    rows : int, optional
        Number of training rows, for a quick try.
    corruption : str, default="none"
        A name in `CORRUPTIONS`, applied before anything is fitted.
    """

    data: str
    width: str
    epochs: int | None = None
    rows: int | None = None
    corruption: str = "none"

    @property
    def name(self) -> str:
        """Name of its folder of results."""
        ending = [] if self.corruption == "none" else [self.corruption]
        return "-".join([self.data, self.width, *ending])

    @classmethod
    def named(cls, name: str) -> Recipe:
        """The recipe whose folder has this name.

        >>> Recipe.named("cifar10-narrow-noise").corruption
        'noise'
        """
        parts = name.split("-")
        corruption = parts.pop() if parts[-1] in CORRUPTIONS else "none"
        return cls("-".join(parts[:-1]), parts[-1], corruption=corruption)

    @property
    def source(self) -> str:
        """Name of the data set that has its rows."""
        return "cifar10n-worst" if self.corruption == "worst" else self.data

    @property
    def network(self) -> Network:
        found = network_of(self.data, self.width)
        return found if self.epochs is None else replace(found, epochs=self.epochs)
