"""Where and on what experiments run: a data set, the encoder of its rows, a folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from attnknn.research.datasets import Dataset
from attnknn.research.evaluation.protocol import versions
from attnknn.research.experiments.fewer_rows import fewer_rows
from attnknn.research.experiments.networks import Network
from attnknn.research.experiments.pictures import is_pictures
from attnknn.research.experiments.scenes import (
    Scene,
    damage_words,
    fixed_scene,
    fixed_settings,
    fixed_words,
    image_scene,
    network_words,
)
from attnknn.research.experiments.stresses import NO_SHIFT, Shift, Stress

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Bench:
    """A data set, the encoder of its rows, and the folder of what is measured.

    Parameters
    ----------
    folder : of all claims; trained encoders are kept in its `trainings`, which claims share
    network : for images; None embeds rows as they are
    n_rows : take only so many training rows, drawn by class
    encoder : of tables and vectors
    preset : whose set-up this is, if it is one of the research's
    """

    data: Dataset
    folder: Path
    network: Network | None = None
    n_rows: int | None = None
    encoder: str = "auto"
    preset: str | None = None
    progress: Progress = field(default=lambda _: None)

    @cached_property
    def rows(self) -> Dataset:
        """The data set with the training rows that are taken."""
        return fewer_rows(self.data, self.n_rows)

    @property
    def trained(self) -> Network | None:
        """The network that is trained, if one is."""
        return self.network if is_pictures(self.data) else None

    @property
    def encoder_words(self) -> str:
        """What the reports of this bench say of their encoder."""
        if self.trained is None:
            return fixed_words(self.data, self.encoder, self.n_rows)
        return network_words(self.trained, self.n_rows)

    @property
    def settings(self) -> dict[str, Any]:
        """All that embeddings depend on, for reports."""
        network = self.trained
        return {
            "preset": self.preset,
            "rows": self.n_rows,
            "encoder": None if network else fixed_settings(self.data, self.encoder),
            "network": network.settings if network else None,
        }

    def damage(self, stress: Stress, shift: Shift = NO_SHIFT) -> str:
        """What the reports of a scene say of its damage."""
        return damage_words(self.rows, stress, shift)

    def n_entries(self, stress: Stress) -> int:
        """How many rows are left to vote; the same for every seed."""
        return len(stress.apply(self.rows.y_train, len(self.rows.classes), seed=0).rows)

    def scene(self, stress: Stress, seed: int, shift: Shift = NO_SHIFT) -> Scene:
        """Rows damaged and embedded; images after the training of their encoder."""
        if self.trained is None:
            return fixed_scene(self.data, stress, seed, encoder=self.encoder, n_rows=self.n_rows)
        words = f", {stress.words}" if stress.words else ""
        self.progress(f"{self.data.name}{words}: encoder, seed {seed}")
        return image_scene(
            self.data,
            stress,
            seed,
            self.trained,
            self.training_folder(stress, seed),
            n_rows=self.n_rows,
            shift=shift,
        )

    def training_folder(self, stress: Stress, seed: int) -> Path:
        """The checkpoint of a training is here."""
        assert self.network is not None
        rows = [f"{self.n_rows}-rows"] if self.n_rows else []
        damage = [] if self._leaves_all(stress) else [stress.name]
        parts = [self.data.name, self.network.name, *rows, *damage]
        return self.folder / "trainings" / "-".join(parts) / str(seed)

    def _leaves_all(self, stress: Stress) -> bool:
        """Whether every row stays with its label, as when classes of one size are to be alike."""
        return stress.does_nothing or (
            not stress.is_about_noise and self.n_entries(stress) == len(self.rows.y_train)
        )


def surroundings() -> dict[str, str]:
    """Versions, and what times depend on besides: FAISS, threads and cores."""
    found = {**versions(), "threads": str(torch.get_num_threads()), "cores": str(os.cpu_count())}
    for package in ("faiss-cpu", "faiss-gpu", "faiss"):
        try:
            found["faiss"] = version(package)
        except PackageNotFoundError:
            continue
    return found
