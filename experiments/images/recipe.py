"""Names of image trainings: which data, which network, from which seed, with which damage."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnknn.research.experiments.networks import Network, network_of
from attnknn.research.experiments.stresses import Stress

STRESSES = {
    "none": Stress(),
    "noise": Stress("symmetric", 0.3),
    "worst": Stress(),  # the damage is in the data
    "imbalance": Stress("imbalance", 100),
}
DATA = ("cifar10", "fashion-mnist", "mnist")


@dataclass(frozen=True)
class Recipe:
    """One training.

    Parameters
    ----------
    epochs : other than the network's own
    rows : take only the first so many training rows, for a try
    stress : a name in `STRESSES`; the damage is done before anything is fitted
    """

    data: str
    width: str
    seed: int
    epochs: int | None = None
    rows: int | None = None
    stress: str = "none"

    @property
    def name(self) -> str:
        """What its folder of results is called."""
        return "-".join([self.data, self.width, *([] if self.stress == "none" else [self.stress])])

    @classmethod
    def named(cls, name: str, seed: int) -> Recipe:
        """The recipe whose folder has this name.

        >>> Recipe.named("cifar10-narrow-noise", 1).stress
        'noise'
        """
        parts = name.split("-")
        stress = parts.pop() if parts[-1] in STRESSES else "none"
        return cls("-".join(parts[:-1]), parts[-1], seed, stress=stress)

    @property
    def source(self) -> str:
        """The data set that has its rows."""
        return "cifar10n-worst" if self.stress == "worst" else self.data

    @property
    def network(self) -> Network:
        found = network_of(self.data, self.width)
        return found if self.epochs is None else replace(found, epochs=self.epochs)
