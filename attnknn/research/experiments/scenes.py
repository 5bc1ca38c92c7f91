"""What all methods of a run are given: one embedding of the same rows, and what is fresh in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.records import Booleans, Integers
from attnknn.research.datasets import Dataset
from attnknn.research.evaluation.protocol import encoder_for
from attnknn.research.experiments.fewer_rows import fewer_rows
from attnknn.research.experiments.found import Found
from attnknn.research.experiments.networks import Network
from attnknn.research.experiments.stresses import NO_SHIFT, Shift, Stress
from attnknn.training.config import TrainResult

PLAIN = (bool, int, float, str, type(None))
Seen = NDArray[np.float32]  # (V, n, D): what each view of n rows became


@dataclass(frozen=True, eq=False)
class Scene:
    """One data set, damaged and embedded from one seed.

    Parameters
    ----------
    damage : what was done to training rows and test images, in words
    encoder : what made the embeddings, in words
    entries, codes : (N, D) and (N,) the training rows
    held_out : (N,) rows that no encoder was trained on; None: it was trained on none
    asked : (V, n, D) the test rows in each view, the first as they are
    seen : (V, n_fresh, D) the held-out rows likewise, empty where there is one view only
    truth : (n,) clean labels of the test rows
    heads : answers of the CNN head of the same training, if there is one
    training : of the encoder, if it was trained
    """

    data: Dataset
    seed: int
    damage: str
    encoder: str
    entries: NDArray[np.float32]
    codes: Integers
    held_out: Booleans | None
    asked: Seen
    seen: Seen
    truth: Integers
    heads: tuple[Found, ...] = ()
    training: TrainResult | None = None

    @property
    def n_classes(self) -> int:
        return len(self.data.classes)


def fixed_scene(
    data: Dataset,
    stress: Stress,
    seed: int,
    *,
    encoder: Any = "auto",
    n_rows: int | None = None,
) -> Scene:
    """Tables by the fixed table encoder, vectors and pixels as they are: nothing is trained.

    Parameters
    ----------
    n_rows : take only so many training rows, drawn by class
    """
    data = fewer_rows(data, n_rows)
    chosen = encoder_for(data, encoder)
    damaged = stress.apply(data.y_train, len(data.classes), seed)
    rows = damaged.take(data.X_train)
    chosen.fit(rows, damaged.codes)
    asked = np.asarray(chosen.transform(data.X_test), dtype=np.float32)[None]
    return Scene(
        data=data,
        seed=seed,
        damage=damage_words(data, stress),
        encoder=fixed_words(data, encoder, n_rows),
        entries=np.asarray(chosen.transform(rows), dtype=np.float32),
        codes=damaged.codes,
        held_out=None,
        asked=asked,
        seen=np.empty((1, 0, asked.shape[2]), dtype=np.float32),
        truth=data.y_test,
    )


def image_scene(
    data: Dataset,
    stress: Stress,
    seed: int,
    network: Network,
    folder: Path,
    *,
    n_rows: int | None = None,
    shift: Shift = NO_SHIFT,
    verbose: int = 0,
) -> Scene:
    """Images by an encoder that is trained for them; its checkpoint in `folder` is gone on with.

    Parameters
    ----------
    n_rows : take only so many training rows, drawn by class
    """
    from attnknn.research.experiments.heads import head_answers
    from attnknn.research.experiments.pictures import pictures, trained_encoder

    data = fewer_rows(data, n_rows)
    damaged = stress.apply(data.y_train, len(data.classes), seed)
    trained = trained_encoder(
        network,
        damaged.take(pictures(data, data.X_train)),
        damaged.codes,
        len(data.classes),
        seed=seed,
        checkpoint=folder / "checkpoint",
        verbose=verbose,
    )
    encoder, views = trained.encoder, network.views
    asked = encoder.features(shift.apply(pictures(data, data.X_test), seed), views)
    seen = encoder.features(trained.images[trained.held_out], views)
    has_noise = stress.is_about_noise or has_wrong_labels(data)
    return Scene(
        data=data,
        seed=seed,
        damage=damage_words(data, stress, shift),
        encoder=network_words(network, n_rows),
        entries=encoder.transform(trained.images),
        codes=damaged.codes,
        held_out=trained.held_out,
        asked=encoder.embed(asked),
        seen=encoder.embed(seen),
        truth=data.y_test,
        heads=tuple(head_answers(trained, asked, seen, has_noise=has_noise)),
        training=trained.training.result,
    )


def has_wrong_labels(data: Dataset) -> bool:
    """Whether training labels are known to be wrong in part, as people's are."""
    return "y_true" in data.extras


def damage_words(data: Dataset, stress: Stress, shift: Shift = NO_SHIFT) -> str:
    """What is wrong with training rows and test images, for people; '' for nothing."""
    real = ""
    if has_wrong_labels(data):
        wrong = (data.y_train != data.extras["y_true"]).mean()
        real = f"{100 * wrong:.1f} % wrong labels as they came"
    return "; ".join(filter(None, [real, stress.words, shift.words]))


def network_words(network: Network, n_rows: int | None) -> str:
    """What an image scene says of its encoder."""
    return _with_rows(network.words, n_rows)


def fixed_settings(data: Dataset, encoder: Any) -> dict[str, Any]:
    """The encoder of a fixed scene with its plain settings."""
    chosen = encoder_for(data, encoder)
    inner = getattr(chosen, "inner", chosen)
    settings = inner.get_params(deep=False) if hasattr(inner, "get_params") else {}
    plain = {name: value for name, value in settings.items() if isinstance(value, PLAIN)}
    return {"name": fixed_words(data, encoder, None), **plain}


def fixed_words(data: Dataset, encoder: Any, n_rows: int | None) -> str:
    """What a fixed scene says of its encoder."""
    chosen = encoder_for(data, encoder)
    return _with_rows(getattr(chosen, "name", type(chosen).__name__), n_rows)


def _with_rows(words: str, n_rows: int | None) -> str:
    return words if n_rows is None else f"{words}, {n_rows:,} rows only"
