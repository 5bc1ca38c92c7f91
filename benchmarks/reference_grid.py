"""The numbers of a fixed grid of models, stored once and compared with later.

    python -m benchmarks.reference_grid save numbers.npz
    python -m benchmarks.reference_grid compare numbers.npz --tolerance 1e-6

A safety net for refactorings: whatever is renamed, moved or merged, models that are fitted on the
same data with the same random state must predict the same. Floating-point arrays may differ by up
to the tolerance; decisions (labels, sets, ids of neighbors, chosen attention: arrays of integers,
booleans and strings) must be equal. `--only PREFIX` takes the arrays whose keys begin so.

The names of the library stand in "The library's names" and in the functions of "What is read from
results": after a rename only these change. The keys of the arrays never change.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy, torch and FAISS start their threads

import argparse
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from attnknn import AttnKNNClassifier, metrics, open_for_editing
from attnknn.attention import (
    AdaptiveAttention,
    DistanceAttention,
    KEnsembleAttention,
    LearnedAttention,
    PowerDistanceAttention,
    UniformAttention,
)
from attnknn.conformal import Raps
from attnknn.encoders import ImageEncoder, LearnedTableEncoder, TableEncoder, TfidfEncoder
from attnknn.encoders.image import ImageInference, ImageTraining
from attnknn.insight import (
    AddedRows,
    DriftMonitor,
    audit,
    drop_least_valuable,
    entry_values,
    keep_newest,
    weigh_by_age,
    what_if,
)
from attnknn.memory import AutoMemory, FaissMemory, NumpyMemory, TorchMemory
from attnknn.training import LossTerms, TrainConfig
from attnknn.training.augmentation import Augmentation, Mixing
from attnknn.training.views import Views
from attnknn.vit import extract_attention_maps
from attnknn.vit import layers as vit_layers
from attnknn.vit.model import VisionTransformer, count_operations, replace_attention
from attnknn.vit.training import (
    ImagePreprocessor,
    StoredVit,
    VitTrainConfig,
    evaluate,
    load_vit,
    save_vit,
    train_vit,
)

Arrays = dict[str, NDArray[Any]]
Scene = Callable[[], Mapping[str, Any]]

# --- The library's names ------------------------------------------------------------------------

# Arguments and attributes as the keys of this file call them, and as the library does.
ARGUMENTS = {
    "sample_weight": "sample_weight",
    "novelty_level": "novelty_level",
    "calibration_set": "calibration_rows",
    "false_alarm_rate": "false_alarm_rate",
}
ATTRIBUTES = {
    "held_out": "held_out_",
    "n_neighbors": "n_neighbors_",
    "label_noise": "label_noise_",
    "classes": "classes_",
}
# The attention in use, by its class.
CHOSEN = {
    "UniformAttention": "uniform",
    "DistanceAttention": "distance",
    "PowerDistanceAttention": "power",
    "LearnedAttention": "learned",
    "KEnsembleAttention": "k-ensemble",
    "AdaptiveAttention": "adaptive",
}
# What the attentions fitted; an attention has some of them.
FITTED = {
    "temperature": "temperature_",
    "prior_score": "prior_score_",
    "power": "power_",
    "sizes": "sizes_",
    "size_weights": "weights_",
    "threshold": "threshold_",
    "size_model": "model_",
}
QUICK = TrainConfig(epochs=4)
ATTENTIONS: dict[str, Callable[[], Any]] = {
    "auto": lambda: "auto",
    "uniform": lambda: "uniform",
    "distance": lambda: "distance",
    "power": lambda: "power",
    "learned": lambda: LearnedAttention(training=QUICK),
    "k-ensemble-equal": lambda: KEnsembleAttention(weighting="equal"),
    "k-ensemble-fitted": lambda: KEnsembleAttention(weighting="fitted"),
    "adaptive-entropy": lambda: AdaptiveAttention(),
    "adaptive-learned": lambda: AdaptiveAttention(rule="learned"),
}
LEARNED_VARIANTS: dict[str, dict[str, Any]] = {
    "self_attention": {"terms": ("support", "prototypes", "self_attention")},
    "without_prototypes": {"terms": ("support",)},
    "without_support": {"terms": ("prototypes",)},
    "without_trust": {"trust": False},
    "distance_bias": {"terms": ("distance_bias", "support", "prototypes"), "temperature": 0.5},
    "query_prior": {
        "terms": ("support", "prototypes", "query_prior"),
        "loss": LossTerms(entropy_weight=0.01),
    },
    "heads": {
        "n_heads": 3,
        "head_dim": 8,
        "max_rows": 200,
        "training": TrainConfig(epochs=4, weight_decay=0.01),
    },
}
FIXED_VARIANTS: dict[str, Callable[[], Any]] = {
    "uniform-prior": lambda: UniformAttention(prior_weight=0.1),
    "distance-given": lambda: DistanceAttention(temperature=2.0, prior_score=-3.0),
    "power-given": lambda: PowerDistanceAttention(power=0.5),
    "k-ensemble-sizes": lambda: KEnsembleAttention(sizes=(2, 8, 24), weighting="fitted"),
    "adaptive-threshold": lambda: AdaptiveAttention(sizes=(4, 16), threshold=0.3),
}
MEMORIES: dict[str, Callable[[], Any]] = {
    "numpy": NumpyMemory,
    "torch": TorchMemory,
    "faiss-flat": lambda: FaissMemory("flat"),
    "faiss-ivf": lambda: FaissMemory("ivf", n_lists=6, n_probe=2),
    "faiss-hnsw": lambda: FaissMemory("hnsw", m=8, ef_construction=16, ef_search=16),
    "auto-exact": AutoMemory,
    "auto-index": lambda: AutoMemory(exact_up_to=1000, recall=0.9, n_neighbors=16),
}


def named(**settings: Any) -> dict[str, Any]:
    """Arguments under the names that the library gives them."""
    return {ARGUMENTS.get(name, name): value for name, value in settings.items()}


def attribute(thing: Any, name: str) -> Any:
    """An attribute under the name that the library gives it."""
    return getattr(thing, ATTRIBUTES[name])


def made(attention: Any = "distance", **settings: Any) -> AttnKNNClassifier:
    """An unfitted classifier; short names of attentions are those of this file."""
    if isinstance(attention, str):
        attention = ATTENTIONS[attention]()
    return AttnKNNClassifier(attention=attention, **{"random_state": 0, **settings})


# --- What is read from results ------------------------------------------------------------------


def of_classifier(
    clf: AttnKNNClassifier, X: Any, *, everyone: bool = True, neighbors: bool = True
) -> Arrays:
    """What a fitted classifier says of rows, and everything that was fitted."""
    proba = clf.predict_proba(X)
    found = {
        "predict": clf.predict(X),
        "predict_proba": proba,
        "predict_proba_of_one": clf.predict_proba(X[:1]),
        "embed": clf.embed(X),
        **{name: attribute(clf, name) for name in ATTRIBUTES},
        **under("explain", of_evidence(clf.explain(X))),
        **under("fitted", of_fitted(clf)),
    }
    if neighbors:
        distances, ids = clf.kneighbors(X)
        near_distances, near_ids = clf.kneighbors(X[:5], 3)
        found |= under("kneighbors", {"distances": distances, "ids": ids})
        found |= under("kneighbors_3", {"distances": near_distances, "ids": near_ids})
    if everyone:
        found["leave_one_out_proba"] = clf.leave_one_out_proba()
    return found


def of_answers(clf: AttnKNNClassifier, X: Any) -> Arrays:
    """The short form, for states between edits."""
    return {
        "predict": clf.predict(X),
        "predict_proba": clf.predict_proba(X),
        "classes": attribute(clf, "classes"),
        "kneighbors/ids": clf.kneighbors(X)[1],
        "leave_one_out_proba": clf.leave_one_out_proba(),
        **under("entries", of_entries(clf)),
    }


def of_fitted(clf: AttnKNNClassifier) -> Arrays:
    """Attention, calibration, report and trainings."""
    attention, calibration, report = clf.attention_, clf.calibration_, clf.fit_report_
    found: dict[str, Any] = {
        "attention": CHOSEN[type(attention).__name__],
        "exponent": calibration.exponent,
        "label_noise": calibration.label_noise,
        "views_factor": clf.model_.views_factor,
        "accuracy": report.accuracy,
        "log_loss": report.log_loss,
        "oracle_accuracy": report.oracle_accuracy,
        "effective_neighbors": report.effective_neighbors,
        "duplicates": report.duplicates,
        "n_rows": report.n_rows,
    }
    if calibration.transition is not None:
        found["transition"] = calibration.transition
    for name, own in FITTED.items():
        if hasattr(attention, own):
            found[name] = getattr(attention, own)
    if hasattr(attention, "module_"):
        found["attention_parameters"] = parameters_of(attention.module_)
    if clf.value_head_ is not None:
        found["value_head_parameters"] = parameters_of(clf.value_head_.net)
    training = getattr(clf, "encoder_training_", None)
    if training is not None:
        found["train_losses"] = training.train_losses
        found["validation_losses"] = training.validation_losses
    return found


def of_entries(clf: AttnKNNClassifier) -> Arrays:
    """What is remembered beside embeddings."""
    entries = clf.memory_.entries
    subjects = [""] * len(entries) if entries.subjects is None else entries.subjects.tolist()
    return {
        "ids": entries.ids,
        "labels": entries.labels,
        "groups": entries.groups,
        "sample_weight": entries.effective_weight,
        "held_out": entries.held_out,
        "subjects": subjects,
    }


def of_evidence(evidence: list[Any]) -> Arrays:
    """All rows one after the other; `n_neighbors` says where one ends."""
    return {
        "n_neighbors": [len(one.ids) for one in evidence],
        "label": [one.label for one in evidence],
        "probabilities": [one.probabilities for one in evidence],
        "shares": [one.shares for one in evidence],
        "prior_weight": [one.prior_weight for one in evidence],
        "prior": [one.prior for one in evidence],
        "exponent": [one.exponent for one in evidence],
        "is_exact": [one.is_exact for one in evidence],
        "ids": joined(one.ids for one in evidence),
        "labels": joined(one.labels for one in evidence),
        "weights": joined(one.weights for one in evidence),
        "distances": joined(one.distances for one in evidence),
        "payloads": joined(np.array(one.payloads or [], dtype=str) for one in evidence),
    }


def of_sets(sets: Any) -> Arrays:
    found = {"members": sets.members, "sizes": sets.sizes, "classes": sets.classes}
    return found if sets.thresholds is None else found | {"thresholds": sets.thresholds}


def of_decisions(decisions: Any) -> Arrays:
    """Reasons as numbers: 0 answered, 1 unsure, 2 novel."""
    reasons = [0 if not r else 1 if r.startswith("unsure") else 2 for r in decisions.reasons]
    return {
        "predict": decisions.predicted,
        "is_answered": decisions.is_answered,
        "reason": reasons,
        "confidence": decisions.confidence,
        "novelty_p_value": decisions.novelty_p_values,
        "min_confidence": decisions.min_confidence,
    }


def of_audit(found: Any) -> Arrays:
    return {
        "ids": found.ids,
        "labels": found.labels,
        "wrong": found.wrong,
        "suspicion": found.label_error_score,
        "suggested": found.suggested,
        "suggested_probability": found.suggested_probability,
        "value": found.value,
        "ranking": found.ranking,
        "n_contradicting": [len(those) for those in found.contradicted_by],
        "contradicted_by": joined(found.contradicted_by),
        "exact_duplicates": listed(found.exact_duplicates),
        "near_duplicates": listed(found.near_duplicates),
        "conflicts": listed(found.conflicts),
        "reach": found.near_distance,
        "label_noise": found.label_noise,
        "held_out": found.held_out,
    }


def of_watched(watched: Any) -> Arrays:
    """What a drift monitor saw in one call."""
    return {
        "rows_p_values": watched.rows.p_values,
        "rows_log_capital": watched.rows.log_martingale,
        "labels_p_values": watched.labels.p_values,
        "labels_log_capital": watched.labels.log_martingale,
        "n_labels": watched.n_labels,
        "first_alarm": -1 if watched.alarm is None else watched.alarm,
        "alarm_rows": np.array([alarm.row for alarm in watched.alarms], dtype=np.int64),
        "alarm_is_of_labels": np.array([a.kind == "labels" for a in watched.alarms], dtype=bool),
        "alarm_is_novelty": np.array([alarm.is_novel for alarm in watched.alarms], dtype=bool),
    }


def of_forgetting(done: Any) -> Arrays:
    """What a policy of forgetting dropped, and its cost."""
    found = {"dropped": done.dropped}
    if done.decay is not None:
        found["decay"] = done.decay
    for name, change in (("held_out", done.held_out), ("validation", done.validation)):
        if change is not None:
            found |= {
                f"{name}/n_rows": change.n_rows,
                f"{name}/accuracy_before": change.accuracy_before,
                f"{name}/accuracy_after": change.accuracy_after,
                f"{name}/log_loss_before": change.log_loss_before,
                f"{name}/log_loss_after": change.log_loss_after,
            }
    return found


def of_what_if(found: Any) -> Arrays:
    return {
        "classes": found.classes,
        "before": found.before,
        "after": found.after,
        "changed": found.changed,
        "shift": found.shift,
    }


def of_log(model: Any) -> Arrays:
    """The log and the snapshots of a stored model, without times and words."""
    edits, snapshots = model.log(), model.snapshots()
    return {
        "edits": [edit.edit for edit in edits],
        "states": [edit.undo_target for edit in edits],
        "snapshot_names": np.array([snapshot.name for snapshot in snapshots], dtype=str),
        "snapshot_edits": np.array([snapshot.edit for snapshot in snapshots], dtype=np.int64),
        "touched": [len(model.changes(edit.edit)) for edit in edits],
    }


def of_receipt(receipt: Any) -> Arrays:
    return {
        "ids": receipt.ids,
        "n_answers": receipt.n_compared,
        "answers_agree": receipt.predictions_agree,
        "is_checked": receipt.is_verified,
        "n_found": len(receipt.found_in),
    }


def of_lesson(lesson: Any) -> Arrays:
    """The epochs of the training of a Vision Transformer, without seconds."""
    epochs = lesson.epochs
    return {
        "best_epoch": lesson.best_epoch,
        "train_loss": [epoch.train_loss for epoch in epochs],
        "train_accuracy": [epoch.train_top1 for epoch in epochs],
        "validation_loss": [epoch.validation_loss for epoch in epochs],
        "validation_accuracy": [epoch.validation_top1 for epoch in epochs],
        "validation_top5": [epoch.validation_top5 for epoch in epochs],
    }


def parameters_of(module: nn.Module) -> NDArray[Any]:
    """All numbers of a module in ascending order, whatever its parts are called."""
    values = [value.double().flatten() for value in module.state_dict().values()]
    return torch.cat(values).sort().values.numpy() if values else np.zeros(0)


def under(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def joined(parts: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """Arrays of different lengths one after the other."""
    present = [np.asarray(part) for part in parts if len(part)]
    return np.concatenate(present) if present else np.zeros(0)


def listed(sets: Iterable[Iterable[Any]]) -> NDArray[Any]:
    """Sets of ids as sorted texts."""
    return np.array(sorted(" ".join(map(str, sorted(those))) for those in sets), dtype=str)


def plain(value: Any) -> NDArray[Any]:
    """A value as an array that an npz holds: float64, integers, booleans or texts."""
    if isinstance(value, Tensor):
        value = value.detach().numpy()
    array = np.asarray(value)
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    return array.astype(str) if array.dtype.kind == "O" else array


# --- Data ---------------------------------------------------------------------------------------


class Data(NamedTuple):
    """Rows to fit on, and rows to ask about."""

    X: Any
    y: NDArray[Any]
    X_test: Any
    y_test: NDArray[Any]


def split(X: Any, y: NDArray[Any], n_train: int, n_test: int) -> Data:
    """A fixed random choice of rows."""
    order = np.random.default_rng(0).permutation(len(y))[: n_train + n_test]
    train, test = order[:n_train], order[n_train:]
    rows = X.iloc if isinstance(X, pd.DataFrame) else X
    return Data(rows[train], y[train], rows[test], y[test])


@cache
def iris() -> Data:
    return split(*load_iris(return_X_y=True), n_train=110, n_test=40)


@cache
def wine() -> Data:
    X, y = load_wine(return_X_y=True)
    return split(
        StandardScaler().fit_transform(X),
        np.array(["class_0", "class_1", "class_2"])[y],
        n_train=130,
        n_test=40,
    )


@cache
def cancer() -> Data:
    X, y = load_breast_cancer(return_X_y=True)
    return split(StandardScaler().fit_transform(X), y, n_train=320, n_test=40)


@cache
def copied() -> Data:
    """Some rows have near copies: distances of two kinds, which ask for a power below 1."""
    data = cancer()
    near = data.X[:96] + np.random.default_rng(7).normal(0, 0.02, (96, data.X.shape[1]))
    return data._replace(X=np.concatenate([data.X, near]), y=np.concatenate([data.y, data.y[:96]]))


@cache
def digits() -> Data:
    return split(*load_digits(return_X_y=True), n_train=500, n_test=40)


@cache
def large() -> Data:
    """Enough rows that search does not take the plain way, on a lattice with many ties."""
    rng = np.random.default_rng(8)
    y = rng.integers(0, 3, 2640)
    X = (2 * rng.normal(size=(3, 16))[y] + 1.5 * rng.normal(size=(len(y), 16))).round()
    return split(X, y, n_train=2600, n_test=40)


@cache
def table() -> Data:
    """Numbers, categories, dates and booleans, some of them missing."""
    rng = np.random.default_rng(1)
    n = 440
    age, income = rng.normal(40, 12, n), rng.lognormal(3, 0.6, n)
    job = rng.choice(["cook", "nurse", "pilot", "smith"], n)
    town = rng.choice([f"town {i}" for i in range(12)], n)
    score = (age - 40) / 12 + np.log(income) - 3 + (job == "nurse") - (town == "town 3")
    y = np.select([score < -0.6, score < 0.6], ["low", "mid"], "high")
    rows = pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, np.nan, age),
            "income": income,
            "job": pd.Series(job, dtype=object).where(rng.random(n) > 0.05, None),
            "town": pd.Categorical(town),
            "is_member": rng.random(n) < 0.3,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "constant": 1,
        }
    )
    return split(rows, y, n_train=400, n_test=40)


@cache
def texts() -> Data:
    words = {
        "card": ["card", "lost", "stolen", "block", "new", "pin"],
        "fee": ["fee", "charge", "cost", "price", "monthly", "account"],
        "transfer": ["transfer", "send", "money", "abroad", "account", "pending"],
    }
    rng = np.random.default_rng(2)
    common = ["my", "the", "please", "is", "a", "why"]
    y = np.array(list(words))[np.arange(150) % 3]
    rows = [" ".join([*rng.choice(words[label], 3), *rng.choice(common, 3)]) for label in y]
    return split(np.array(rows, dtype=object), y, n_train=120, n_test=30)


@cache
def images() -> Data:
    """Disks, frames, crosses and stripes of 16 × 16 pixels in noise."""
    rng, n = np.random.default_rng(3), 190
    codes = np.arange(n) % 4
    y, x = np.mgrid[:16, :16][:, None] - rng.integers(5, 11, (2, n, 1, 1))
    far = np.maximum(np.abs(x), np.abs(y))
    shown = np.select(
        [codes[:, None, None] == code for code in range(4)],
        [
            x**2 + y**2 <= 12,
            far == 4,
            (far <= 4) & ((x == 0) | (y == 0)),
            (far <= 4) & (x % 2 == 0),
        ],
    )
    color = rng.integers(120, 256, (n, 3, 1, 1))
    noise = rng.integers(0, 110, (n, 3, 16, 16))
    pixels = np.where(shown[:, None].astype(bool), color, noise).astype(np.uint8)
    return split(pixels.transpose(0, 2, 3, 1), codes, n_train=160, n_test=30)


def noisy(y: NDArray[Any], kind: str) -> NDArray[Any]:
    """Labels of which a fifth are wrong: 'symmetric' any other class, 'by_class' the next."""
    classes, codes = np.unique(y, return_inverse=True)
    rng = np.random.default_rng(4)
    is_wrong = rng.random(len(y)) < 0.2
    step = rng.integers(1, len(classes), len(y)) if kind == "symmetric" else 1
    return classes[np.where(is_wrong, (codes + step) % len(classes), codes)]


NOISE: dict[str, tuple[Callable[[NDArray[Any]], NDArray[Any]], str | None]] = {
    "clean": (lambda y: y, "auto"),
    "symmetric": (lambda y: noisy(y, "symmetric"), "auto"),
    "by_class": (lambda y: noisy(y, "by_class"), "by_class"),
}


@cache
def on_wine() -> AttnKNNClassifier:
    """A fitted classifier that scenes copy before they edit it."""
    data = wine()
    return made("distance").fit(data.X, data.y)


@cache
def on_noisy_cancer() -> AttnKNNClassifier:
    data = cancer()
    return made("distance").fit(data.X, noisy(data.y, "symmetric"))


# --- Scenes -------------------------------------------------------------------------------------

SCENES: dict[str, Scene] = {}


def scene(name: str) -> Callable[[Scene], Scene]:
    """Add a scene; its arrays are stored under its name."""

    def added(run: Scene) -> Scene:
        if name in SCENES:
            raise ValueError(f"There are two scenes {name!r}.")
        SCENES[name] = run
        return run

    return added


def add_fit(name: str, make: Callable[[], tuple[AttnKNNClassifier, Data]], **reads: bool) -> None:
    """A scene that fits a classifier and reads everything from it."""

    @scene(name)
    def run() -> Mapping[str, Any]:
        clf, data = make()
        return of_classifier(clf.fit(data.X, data.y), data.X_test, **reads)


def _attentions() -> None:
    for attention in ATTENTIONS:
        for noise, (spoil, label_noise) in NOISE.items():

            def make(
                attention: str = attention,
                spoil: Callable[[NDArray[Any]], NDArray[Any]] = spoil,
                label_noise: str | None = label_noise,
            ) -> tuple[AttnKNNClassifier, Data]:
                own = {"auto": digits, "learned": digits, "distance": digits, "power": copied}
                data = own.get(attention, cancer)()
                data = data._replace(y=spoil(data.y))
                return made(attention, label_noise=label_noise), data

            add_fit(f"{attention}/identity/{noise}", make)
    for name, settings in LEARNED_VARIANTS.items():
        add_fit(
            f"learned/identity/{name}",
            lambda settings=settings: (
                made(LearnedAttention(**{"training": QUICK, **settings})),
                digits(),
            ),
        )
    add_fit(
        "learned/identity/many_queries",  # few are scored in NumPy, many in torch
        lambda: (made("learned"), digits()._replace(X_test=digits().X)),
    )
    add_fit(
        "k-ensemble-equal/identity/many_neighbors",  # label noise is seen by the nearest of them
        lambda: (
            made("k-ensemble-equal", n_neighbors=128, label_noise="symmetric"),
            cancer()._replace(y=noisy(cancer().y, "symmetric")),
        ),
    )
    for name, variant in FIXED_VARIANTS.items():
        add_fit(f"{name}/identity/clean", lambda variant=variant: (made(variant()), wine()))


def _calibrations() -> None:
    for name, settings in {
        "none": {"calibration": None},
        "scores": {"calibration": "scores"},
        "without_label_noise": {"label_noise": None},
        "symmetric": {"label_noise": "symmetric"},
        "n_neighbors": {"n_neighbors": 7},
    }.items():
        add_fit(
            f"calibration/{name}",
            lambda settings=settings: (
                made("distance", **settings),
                wine()._replace(y=noisy(wine().y, "symmetric")),
            ),
        )

    add_fit("calibration/none-learned", lambda: (made("learned", calibration=None), wine()))


@scene("distance/identity/large")
def _large() -> Mapping[str, Any]:
    data = large()
    clf = made("distance", n_neighbors=100, label_noise="symmetric")
    found = of_classifier(clf.fit(data.X, noisy(data.y, "symmetric")), data.X_test)
    clf.add(data.X_test[:1], data.y_test[:1]).forget([7])
    return {**found, **under("edited", of_answers(clf, data.X_test[20:]))}


def _encoders() -> None:
    short = TrainConfig(epochs=3, batch_size=64)
    encoders: dict[str, tuple[str, Callable[[], Any], Callable[[], Data]]] = {
        "tabular": ("distance", lambda: "tabular", table),
        "tabular-auto": ("auto", lambda: "tabular", table),
        "tabular-quantile": ("distance", lambda: TableEncoder("quantile", 5), table),
        "tabular-normal": ("power", lambda: TableEncoder("normal"), table),
        "learned-tabular": ("distance", lambda: small_table(holdout=0.3, training=short), table),
        "learned-tabular-nearest": (
            "learned",
            lambda: small_table(
                network="deep",
                candidates="nearest",
                n_candidates=32,
                holdout=0.3,
                training=replace(short, label_smoothing=0.1),
            ),
            table,
        ),
        "tfidf": ("distance", lambda: "tfidf", texts),
        "tfidf-narrow": ("learned", lambda: TfidfEncoder(dim=12), texts),
        "transformer": ("distance", lambda: make_pipeline(StandardScaler(), PCA(5)), cancer),
        "function": ("distance", lambda: np.sqrt, digits),
    }
    for name, (attention, encoder, data) in encoders.items():
        add_fit(
            f"{attention}/{name}/clean",
            lambda attention=attention, encoder=encoder, data=data: (
                made(attention, encoder=encoder()),
                data(),
            ),
        )


def small_table(**settings: Any) -> LearnedTableEncoder:
    """A learned encoder of tables that is trained in seconds."""
    given = {"embed_dim": 8, "width": 16, "training": TrainConfig(epochs=2), **settings}
    return LearnedTableEncoder(**given)


def small_images(**settings: Any) -> ImageEncoder:
    """An image encoder that is trained in seconds."""
    training = {"epochs": 2, "batch_size": 32, "patience": 2, **settings.pop("training", {})}
    inference = ImageInference(device="cpu")
    given = {"widths": (8, 16, 16), "holdout": 0.4, "inference": inference, **settings}
    return ImageEncoder(training=ImageTraining.of(**training), **given)


def _images() -> None:
    helpers = {
        "contrastive_weight": 0.5,
        "negatives_weight": 1.0,
        "boundary_share": 0.25,
        "entropy_weight": 0.01,
        "calibration_weight": 0.1,
        "average": 0.99,
        "optimizer": "adamw",
        "learning_rate": 0.003,
        "schedule": "cosine",
        "augmentation": Augmentation(
            horizontal_flip="alternating", shift=1, rotation=10.0, brightness=0.1, cutout=3
        ),
        "mixing": Mixing(mixup=0.5, cutmix=0.5),
    }
    colors = Augmentation(crop=1, contrast=0.2, saturation=0.2, hue=0.1)
    encoders: dict[str, Callable[[], ImageEncoder]] = {
        "image": small_images,
        "image-wide": lambda: small_images(  # wide enough for Winograd's convolutions
            widths=(64, 64, 64), training={"epochs": 1, "augmentation": colors}
        ),
        "image-views": lambda: small_images(views=Views(("original", "flip", "shift"), count=4)),
        "image-crops": lambda: small_images(embed_dim=6, views=Views(("original", "crop"))),
        "image-helpers": lambda: small_images(
            network="resnet18", widths=(4, 4, 8, 8), training=helpers
        ),
    }
    for name, encoder in encoders.items():
        add_fit(
            f"distance/{name}/clean",
            lambda encoder=encoder: (made("distance", encoder=encoder(), n_neighbors=16), images()),
        )
    add_fit(
        "learned/image-views/symmetric",
        lambda: (
            made("learned", encoder=encoders["image-views"](), n_neighbors=16),
            images()._replace(y=noisy(images().y, "symmetric")),
        ),
    )


def _metrics_and_memories() -> None:
    for metric in ("cosine", "inner_product"):
        for attention in ("distance", "learned", "adaptive-entropy"):
            add_fit(
                f"{attention}/identity/{metric}",
                lambda attention=attention, metric=metric: (made(attention, metric=metric), wine()),
            )
    for name in MEMORIES:
        for metric in ("euclidean", "cosine", "inner_product"):

            @scene(f"memory/{name}/{metric}")
            def run(name: str = name, metric: str = metric) -> Mapping[str, Any]:
                data = digits()
                clf = made("distance", memory=MEMORIES[name](), metric=metric, n_neighbors=16)
                clf.fit(data.X, data.y, groups=np.arange(len(data.y)) // 3)
                found = of_classifier(clf, data.X_test)
                clf.forget(np.arange(0, 60, 2)).add(data.X_test[20:], data.y_test[20:])
                return {**found, **under("edited", of_answers(clf, data.X_test[:20]))}


@scene("value_head/clean")
def _value_head() -> Mapping[str, Any]:
    data = wine()
    clf = made("distance", value_head=True, n_neighbors=16).fit(data.X, data.y)
    found = of_classifier(clf, data.X_test)
    clf.add(data.X_test[30:] + 3, np.repeat("class_1b", 10)).forget([0, 1, 2])
    return {**found, **under("edited", of_answers(clf, data.X_test[:30]))}


# Rows with groups, weights and subjects


def told(y: NDArray[Any]) -> dict[str, dict[str, Any]]:
    """What a user may tell of rows beside their labels."""
    n = len(y)
    rng = np.random.default_rng(5)
    subjects = np.array([f"person {i}" if i % 4 else "" for i in rng.integers(0, 30, n)])
    return {
        "groups": {"groups": np.arange(n) // 4},
        "sample_weight": {"sample_weight": rng.uniform(0.2, 3.0, n)},
        "subjects": {"subjects": subjects},
        "everything": {
            "ids": np.array([f"row {i:03d}" for i in range(n)]),
            "groups": rng.integers(-1, 40, n),
            "sample_weight": rng.uniform(0.2, 3.0, n),
            "payloads": [f"page {i}" for i in range(n)],
            "subjects": subjects,
        },
    }


def _told() -> None:
    for attention in ("distance", "learned", "adaptive-learned", "uniform"):
        for name in ("groups", "sample_weight", "subjects", "everything"):

            @scene(f"{attention}/identity/{name}")
            def run(attention: str = attention, name: str = name) -> Mapping[str, Any]:
                data = wine()
                clf = made(attention).fit(data.X, data.y, **named(**told(data.y)[name]))
                found = {**of_classifier(clf, data.X_test), **under("entries", of_entries(clf))}
                if name == "subjects":
                    clf.forget(subject="person 5")
                    found |= under("forgotten", of_answers(clf, data.X_test))
                return found


@scene("learned-tabular/groups")
def _table_groups() -> Mapping[str, Any]:
    data = table()
    clf = made("power", encoder=small_table(network="waves", n_candidates=0))
    clf.fit(data.X, data.y, groups=np.arange(len(data.y)) // 3)
    return of_classifier(clf, data.X_test)


# Edits


def edited(clf: AttnKNNClassifier, data: Data) -> dict[str, Any]:
    """The state after each of several edits, the classifier being left as the last one made it."""
    X, new = data.X_test[:20], data.X_test[20:]
    before = clf.classes_.tolist()
    weights = named(sample_weight=np.linspace(0.5, 2, 10))
    edits: dict[str, Callable[[], Any]] = {
        "add": lambda: clf.add(new[:10], data.y_test[20:30], **weights),
        "add_class": lambda: clf.add(new[10:16] + 2.5, np.repeat("class_1b", 6)),
        "forget": lambda: clf.forget(clf.memory_.entries.ids[5:25]),
        "relabel": lambda: clf.relabel([30, 31, 32], [before[0], before[1], "class_2b"]),
        "refit": clf.refit,
    }
    found: dict[str, Any] = {}
    for name, edit in edits.items():
        edit()
        found |= under(name, of_answers(clf, X))
    return found


def _edits() -> None:
    for attention in ("distance", "learned", "k-ensemble-fitted", "power"):

        @scene(f"edits/{attention}")
        def run(attention: str = attention) -> Mapping[str, Any]:
            data = wine()
            return edited(made(attention).fit(data.X, data.y), data)

    @scene("edits/by_class")
    def by_class() -> Mapping[str, Any]:
        data = wine()
        clf = made("distance", label_noise="by_class")
        return edited(clf.fit(data.X, noisy(data.y, "by_class")), data)

    @scene("edits/partial_fit")
    def partial_fit() -> Mapping[str, Any]:
        data = wine()
        clf = made("distance")
        classes = [*np.unique(data.y), "class_9"]
        clf.partial_fit(data.X[:60], data.y[:60], classes=classes)
        found = under("first", of_answers(clf, data.X_test))
        clf.partial_fit(data.X[60:], data.y[60:])
        found |= under("second", of_answers(clf, data.X_test))
        return {**found, **under("refit", of_classifier(clf.refit(), data.X_test))}

    @scene("edits/learned-tabular")
    def encoder() -> Mapping[str, Any]:
        data = table()
        clf = made("distance", encoder=small_table(network="sparing")).fit(data.X, data.y)
        found = under("fit", of_answers(clf, data.X_test))
        clf.add(data.X_test[20:], data.y_test[20:]).forget([3, 4, 5])
        found |= under("edited", of_answers(clf, data.X_test[:20]))
        return {**found, **under("refit", of_answers(clf.refit(), data.X_test[:20]))}


# Sets and decisions


@cache
def promising() -> dict[str, tuple[AttnKNNClassifier, Data]]:
    """Classifiers that sets and decisions are asked of."""
    data, other = wine(), cancer()
    noise = other._replace(y=noisy(other.y, "symmetric"))
    weighed = named(sample_weight=np.linspace(0.5, 2, len(data.y)), groups=np.arange(130) // 2)
    return {
        "distance": (on_wine(), data),
        "noisy": (on_noisy_cancer(), other),
        "learned": (made("learned").fit(noise.X, noise.y), other),
        "by_class_noise": (made("distance", label_noise="by_class").fit(noise.X, noise.y), other),
        "weighed": (made("adaptive-entropy").fit(data.X, data.y, **weighed), data),
    }


SETS: dict[str, dict[str, Any]] = {
    "lac": {},
    "aps": {"score": "aps"},
    "raps": {"score": "raps"},
    "aps_random": {"score": "aps", "random_state": 0},
    "raps_given": {"score": Raps(k_reg=2, penalty=0.1), "random_state": 1, "coverage": 0.8},
    "by_class": {"by_class": True},
    "aps_by_class": {"by_class": True, "score": "aps", "coverage": 0.8},
    "jackknife": {"method": "jackknife+"},
    "jackknife_by_class": {"method": "jackknife+", "by_class": True, "coverage": 0.8},
    "jackknife_aps": {"method": "jackknife+", "score": "aps", "random_state": 0},
}


def _promises() -> None:
    for name in ("distance", "noisy", "learned", "by_class_noise", "weighed"):

        @scene(f"sets/{name}")
        def sets(name: str = name) -> Mapping[str, Any]:
            clf, data = promising()[name]
            found: dict[str, Any] = {}
            for kind, settings in SETS.items():
                found |= under(kind, of_sets(clf.predict_set(data.X_test, **settings)))
            rows = named(calibration_set=(data.X_test[:30], data.y_test[:30]))
            for kind, settings in {"split": {}, "split_aps": {"score": "aps"}}.items():
                asked = clf.predict_set(data.X_test, method="split", **rows, **settings)
                found |= under(kind, of_sets(asked))
            return found

        @scene(f"decide/{name}")
        def decide(name: str = name) -> Mapping[str, Any]:
            clf, data = promising()[name]
            X = np.concatenate([data.X_test, data.X_test[:5] + 6, data.X_test[5:10] * 0.2])
            found = {}
            for kind, settings in {
                "default": {},
                "max_risk": {"max_risk": 0.25},
                "min_confidence": {"min_confidence": 0.9},
                "novelty": {"novelty_level": 0.1},
                "novelty_of_3": {"novelty_level": 0.1, "n_nearest": 3, "max_risk": 0.3},
                "no_novelty": {"novelty_level": 0},
            }.items():
                found |= under(kind, of_decisions(clf.decide(X, **named(**settings))))
            return found

    @scene("sets/image-views")
    def views() -> Mapping[str, Any]:
        data = images()
        encoder = small_images(views=Views(("original", "flip")))
        clf = made("distance", encoder=encoder, n_neighbors=16).fit(data.X, data.y)
        return {
            **under("lac", of_sets(clf.predict_set(data.X_test))),
            **under("decide", of_decisions(clf.decide(data.X_test, **named(novelty_level=0.1)))),
        }


# What-if, audit, drift, forgetting


@scene("what_if")
def _what_if() -> Mapping[str, Any]:
    data, clf = wine(), on_wine()
    X, new = data.X_test[:20], data.X_test[20:30]
    rows = AddedRows(new, np.repeat("class_1b", 10), **named(sample_weight=np.full(10, 2.0)))
    tried: dict[str, dict[str, Any]] = {
        "forget": {"forget": [1, 2, 3, 4, 5]},
        "relabel": {"relabel": {7: "class_0", 8: "class_2", 9: "class_0b"}},
        "relabel_many": {"relabel": dict.fromkeys(np.flatnonzero(data.y == "class_1")[:45], "x")},
        "add": {"add": (new, data.y_test[20:30])},
        "add_told": {"add": rows},
        "all": {"forget": [1, 2], "relabel": {7: "class_0"}, "add": (new, data.y_test[20:30])},
    }
    found: dict[str, Any] = {}
    for name, settings in tried.items():
        found |= under(name, of_what_if(what_if(clf, X, **settings)))
    learned = made("learned").fit(data.X, data.y)
    found |= under("learned", of_what_if(what_if(learned, X, **tried["all"])))
    return {**found, **under("unchanged", of_answers(clf, X))}


def _audits() -> None:
    for name in ("distance", "noisy", "learned", "by_class_noise", "weighed"):

        @scene(f"audit/{name}")
        def run(name: str = name) -> Mapping[str, Any]:
            clf, _ = promising()[name]
            return {
                **of_audit(audit(clf)),
                "entry_values": entry_values(clf),
                **under("near_is_far", of_audit(audit(clf, near=0.8))),
            }

    @scene("audit/copies")
    def copies() -> Mapping[str, Any]:
        data = iris()
        X, y = np.concatenate([data.X, data.X[:12] + 1e-3]), np.concatenate([data.y, data.y[:12]])
        X, y = np.concatenate([X, data.X[:5]]), np.concatenate([y, (data.y[:5] + 1) % 3])
        return of_audit(audit(made("distance").fit(X, y)))


@scene("drift")
def _drift() -> Mapping[str, Any]:
    data, clf = wine(), on_wine()
    found: dict[str, Any] = {}
    monitor = DriftMonitor(clf, **named(false_alarm_rate=0.05), random_state=0)
    found |= under("same", of_watched(monitor.watch(data.X_test, data.y_test)))
    wrong = np.roll(np.unique(data.y), 1)[np.searchsorted(np.unique(data.y), data.y_test)]
    found |= under("wrong_labels", of_watched(monitor.watch(data.X_test, wrong)))
    monitor = DriftMonitor.from_dict(clf, monitor.to_dict())
    found |= under("novel_rows", of_watched(monitor.watch(data.X_test + 2.5)))
    monitor.restart()
    found |= under("restarted", of_watched(monitor.watch(data.X_test[::2])))
    rows = named(calibration_set=(data.X_test[:20], data.y_test[:20]))
    given = DriftMonitor(clf, **rows, random_state=1)
    return {**found, **under("given", of_watched(given.watch(data.X_test[20:], data.y_test[20:])))}


@scene("forgetting")
def _forgetting() -> Mapping[str, Any]:
    data = cancer()
    times = np.random.default_rng(6).permutation(len(data.y)).astype(float)
    validation = (data.X_test, data.y_test)
    policies: dict[str, Callable[[AttnKNNClassifier], Any]] = {
        "newest": lambda clf: keep_newest(clf, 100, validation=validation),
        "newest_by_time": lambda clf: keep_newest(clf, 100, times=times),
        "valuable": lambda clf: drop_least_valuable(clf, 120, rounds=4, validation=validation),
        "decay": lambda clf: weigh_by_age(clf, 50.0, validation=validation),
        "decay_by_time": lambda clf: weigh_by_age(clf, 80.0, times=times),
    }
    found: dict[str, Any] = {}
    for name, policy in policies.items():
        clf = copy(on_noisy_cancer())
        found |= under(name, of_forgetting(policy(clf)))
        found |= under(name, of_answers(clf, data.X_test))
    found |= under("decay_ended", of_forgetting(weigh_by_age(clf, None)))
    learned = copy(promising()["learned"][0])
    found |= under("learned", of_forgetting(drop_least_valuable(learned, 250, rounds=2)))
    return {**found, **under("learned", of_answers(learned, data.X_test))}


# Storage


def _storage() -> None:
    def stored(clf: AttnKNNClassifier, X: Any) -> Mapping[str, Any]:
        with TemporaryDirectory() as folder:
            clf.save(f"{folder}/model")
            loaded = AttnKNNClassifier.load(f"{folder}/model")
            return {**of_classifier(loaded, X), **under("entries", of_entries(loaded))}

    for attention in ("distance", "power", "learned", "k-ensemble-fitted", "adaptive-learned"):

        @scene(f"save/{attention}")
        def attentions(attention: str = attention) -> Mapping[str, Any]:
            data = wine()
            rows = named(**told(data.y)["everything"])
            return stored(made(attention).fit(data.X, data.y, **rows), data.X_test)

    @scene("save/power-fitted")
    def power() -> Mapping[str, Any]:
        data = copied()
        return stored(made("power").fit(data.X, data.y), data.X_test)

    encoders: dict[str, tuple[Callable[[], Any], Callable[[], Data]]] = {
        "tabular": (lambda: TableEncoder("quantile"), table),
        "learned-tabular": (lambda: small_table(network="deep"), table),
        "tfidf": (lambda: "tfidf", texts),
        "image": (lambda: small_images(views=Views(("original", "flip"))), images),
    }
    for name, (encoder, data_of) in encoders.items():

        @scene(f"save/{name}")
        def of_encoders(
            encoder: Callable[[], Any] = encoder, data_of: Callable[[], Data] = data_of
        ) -> Mapping[str, Any]:
            data = data_of()
            clf = made("distance", encoder=encoder(), n_neighbors=16)
            return stored(clf.fit(data.X, data.y), data.X_test)

    @scene("save/value_head")
    def value_head() -> Mapping[str, Any]:
        data = iris()
        clf = made("distance", value_head=True, label_noise="by_class", n_neighbors=8)
        return stored(clf.fit(data.X, noisy(data.y, "by_class")), data.X_test)

    @scene("save/faiss")
    def faiss() -> Mapping[str, Any]:
        data = wine()
        clf = made("distance", memory=FaissMemory("hnsw"), metric="cosine")
        return stored(clf.fit(data.X, data.y), data.X_test)


def _durable() -> None:
    for attention in ("distance", "learned"):

        @scene(f"durable/{attention}")
        def run(attention: str = attention) -> Mapping[str, Any]:
            data = wine()
            X, new, y_new = data.X_test[:20], data.X_test[20:], data.y_test[20:]
            clf = made(attention)
            clf.fit(data.X, data.y, **named(**told(data.y)["subjects"]))
            found: dict[str, Any] = {}
            with TemporaryDirectory() as folder:
                path = f"{folder}/model"
                clf.save(path)
                with open_for_editing(path, by="grid") as model:
                    edits: dict[str, Callable[[], Any]] = {
                        "opened": lambda: None,
                        "add": lambda: model.add(new[:8], y_new[:8]),
                        "relabel": lambda: model.relabel([1, 2], "class_9"),
                        "undo": model.undo,
                        "snapshot": lambda: model.snapshot("here"),
                        "forget": lambda: model.forget([3, 4, 5, 6]),
                        "refit": model.refit,
                        "rollback": lambda: model.rollback("here"),
                    }
                    for name, edit in edits.items():
                        edit()
                        found |= under(name, of_answers(model.classifier, X))
                    with model.edit() as inside:
                        inside.add(new[8:12] + 2, np.repeat("class_1b", 4)).forget([9])
                    found |= under("both", of_answers(model.classifier, X))
                    with model.edit() as inside:
                        weigh_by_age(inside, 60.0)
                    found |= under("decay", of_answers(model.classifier, X))
                    found |= under("log", of_log(model))
                found |= under("read", of_answers(AttnKNNClassifier.load(path), X))
                with open_for_editing(path, by="grid") as model:
                    found |= under("receipt", of_receipt(model.forget(subject="person 5")))
                    found |= under("erased", of_answers(model.classifier, X))
                    found |= under("log_after", of_log(model))
            return found


# Vision Transformers

DIM, HEADS, N_TOKENS = 12, 3, 13
PLACES = {"grid_size": (3, 4), "num_prefix_tokens": 1}
RANDOM = {"sampling_type": "random", "num_samples": 5}
SPATIAL = {"sampling_type": "spatial", "num_samples": 2}
VIT_LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "attention": ("Attention", {}),
    "attention_key_drop": ("Attention", {"key_drop": 0.3, "num_prefix_tokens": 1}),
    "kvt": ("KvtAttention", {"n_neighbors": 4}),
    "local": ("LocalAttention", {"window_size": 2}),
    "local_plain": ("LocalAttention", {"window_size": 2, "is_rotary": False}),
    "neighborhood_1d": ("NeighborhoodAttention1D", {"kernel_size": 3, "dilation": 2}),
    "neighborhood_2d": ("NeighborhoodAttention2D", PLACES),
    "sparse_local": ("SparseAttention", {"mode": "local", "context_window": 4}),
    "sparse_strided": ("SparseAttention", {"mode": "strided", "context_window": 4}),
    "conv_1d": ("TokenConv1d", {"kernel_size": 3}),
    "conv_2d": ("TokenConv2d", PLACES),
    "branching_attention": ("BranchingAttention", {"n_neighbors": 4}),
    "branching_conv_1d": ("BranchingConv", {"n_neighbors": 4, "n_axes": 1, "kernel_size": 3}),
    "branching_conv_2d": ("BranchingConv", {"n_neighbors": 4, "n_axes": 2, **PLACES}),
    **{
        f"convnn{name}": ("ConvNNAttention", {"n_neighbors": 4, **PLACES, **settings})
        for name, settings in {
            "": {},
            "_cosine_raw": {"magnitude_type": "cosine", "weights": "raw"},
            "_euclidean": {"magnitude_type": "euclidean"},
            "_ones": {"weights": "ones"},
            "_random": RANDOM,
            "_random_euclidean": {**RANDOM, "magnitude_type": "euclidean"},
            "_spatial": SPATIAL,
            "_standard": {"convolution_type": "standard"},
            "_separable": {"convolution_type": "depthwise-separable"},
            "_coordinates": {"coordinate_encoding": True},
            "_loc": {"similarity_type": "Loc"},
            "_of_places": {"aggregation_type": "Loc"},
            "_legacy": {"legacy": True},
            "_legacy_random": {"legacy": True, **RANDOM},
            "_legacy_coordinates": {
                "legacy": True,
                "coordinate_encoding": True,
                "convolution_type": "standard",
            },
        }.items()
    },
}
MASKED = (
    "attention",
    "kvt",
    "local",
    "neighborhood_2d",
    "sparse_local",
    "convnn",
    "convnn_euclidean",
    "convnn_random",
)


def vit_layer(name: str, **more: Any) -> nn.Module:
    torch.manual_seed(0)
    kind, settings = VIT_LAYERS[name]
    return getattr(vit_layers, kind)(DIM, num_heads=HEADS, **settings, **more)


def tokens() -> Tensor:
    return torch.randn(2, N_TOKENS, DIM, generator=torch.Generator().manual_seed(1))


def passed(layer: nn.Module, *masks: Any, is_training: bool = False) -> Arrays:
    """Outputs and gradients, those of the parameters in ascending order."""
    x = tokens().requires_grad_()
    layer.train(is_training)
    torch.manual_seed(2)
    output = layer(x, *masks)
    weights = torch.linspace(-1, 1, output.numel()).view_as(output)
    (output * weights).sum().backward()
    gradients = [p.grad.flatten() for p in layer.parameters() if p.grad is not None]
    return {
        "output": plain(output),
        "gradient": plain(x.grad),
        "parameter_gradients": plain(torch.cat(gradients).sort().values),
    }


def _vit_layers() -> None:
    for name in VIT_LAYERS:

        @scene(f"vit/layers/{name}")
        def run(name: str = name) -> Mapping[str, Any]:
            found = under("eval", passed(vit_layer(name)))
            return found | under("train", passed(vit_layer(name), is_training=True))

    @scene("vit/masks")
    def masks() -> Mapping[str, Any]:
        chance = torch.Generator().manual_seed(3)
        added = torch.randn(2, 1, N_TOKENS, N_TOKENS, generator=chance)
        allowed = (added > -0.5) | torch.eye(N_TOKENS, dtype=torch.bool)
        found: dict[str, Any] = {}
        for name in MASKED:
            found |= under(f"{name}/allowed", passed(vit_layer(name), allowed))
            found |= under(f"{name}/added", passed(vit_layer(name), added))
            found |= under(f"{name}/causal", passed(vit_layer(name), None, True))
        return found


class Pictures:
    """Images that a training reads in parts."""

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        return self.pixels[np.asarray(rows)]


def small_vit(layer: Any, **settings: Any) -> dict[str, Any]:
    return {
        "image_size": 8,
        "patch_size": 2,
        "dim": DIM,
        "depth": 2,
        "num_heads": HEADS,
        "num_classes": 4,
        "layer": layer,
        **settings,
    }


VITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "attention": (small_vit("attention", drop=0.1, attn_drop=0.1), {}),
    "convnn": (small_vit("convnn", layer_settings={"n_neighbors": 5}), {"augment": True}),
    "kvt": (
        small_vit("kvt", layer_settings={"n_neighbors": 5}, pool="mean", positions="fixed"),
        {"optimizer": "sgd", "scheduler": "step", "lr_step": 1},
    ),
    "mixed": (
        small_vit(
            ["convnn", "branching_conv"],
            layer_settings=[{"sampling_type": "random", "num_samples": 8}, {"n_axes": 2}],
        ),
        {"scheduler": "cosine", "warmup": 0.2, "label_smoothing": 0.1, "noise": 0.05},
    ),
    "local": (
        small_vit("local", layer_settings={"window_size": 3}),
        {"optimizer": "adam", "scheduler": "plateau", "lr_step": 1, "criterion": "MSE"},
    ),
}


def _vits() -> None:
    for name in VITS:

        @scene(f"vit/training/{name}")
        def run(name: str = name) -> Mapping[str, Any]:
            settings, training = VITS[name]
            data = images()
            shown = Pictures(np.ascontiguousarray(data.X[:96].transpose(0, 3, 1, 2)))
            classes = data.y[:96]
            pixels = ImagePreprocessor.from_images(shown, (8, 8), noise=training.get("noise", 0.0))
            quick = VitTrainConfig(
                **{"epochs": 2, "batch_size": 32, "validation": 0.25, "device": "cpu", **training}
            )
            model, lesson = train_vit(
                lambda: VisionTransformer(**settings), shown, classes, pixels, quick
            )
            judged = evaluate(model, shown, torch.as_tensor(classes), pixels, seed=0)
            with TemporaryDirectory() as folder:
                names = ("disk", "frame", "cross", "stripes")
                save_vit(f"{folder}/vit.pt", StoredVit(model, settings, pixels, names))
                read = load_vit(f"{folder}/vit.pt").model
            asked = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(4))
            with torch.no_grad():
                outputs, again = model.eval()(asked), read(asked)
            looks = extract_attention_maps(model, asked)
            return {
                **under("lesson", of_lesson(lesson)),
                "parameters": parameters_of(model),
                "score": [judged.loss, judged.top1, judged.top5],
                "outputs": outputs,
                "outputs_read": again,
                "n_operations": count_operations(model, asked).total,
                **{f"looks_{i}/tokens": look.tokens for i, look in enumerate(looks)},
                **{f"looks_{i}/weights": look.weights for i, look in enumerate(looks)},
            }

    @scene("vit/replace_attention")
    def replaced() -> Mapping[str, Any]:
        asked = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(4))
        found: dict[str, Any] = {}
        for layer, settings in {
            "convnn": {"n_neighbors": 4},
            "kvt": {"n_neighbors": 4},
            "local": {"window_size": 3},
        }.items():
            torch.manual_seed(0)
            model = VisionTransformer(**small_vit("attention")).eval()
            model = replace_attention(model, layer, blocks=[1], **settings).eval()
            with torch.no_grad():
                found[layer] = model(asked)
        return found


@scene("metrics")
def _metrics() -> Mapping[str, Any]:
    data, clf = wine(), on_wine()
    proba = clf.predict_proba(data.X_test)
    codes = np.searchsorted(attribute(clf, "classes"), data.y_test)
    sets = clf.predict_set(data.X_test).members
    parts, curve = metrics.brier_parts(codes, proba), metrics.risk_coverage(codes, proba)
    return {
        "brier_parts": [parts.reliability, parts.resolution, parts.uncertainty, parts.within],
        "risk_coverage": [curve.threshold, curve.coverage, curve.risk],
        **under("all", metrics.score_all(codes, proba).to_dict()),
        "mce": metrics.mce(codes, proba),
        "smooth_ece": metrics.smooth_ece(codes, proba),
        "ece_by_class": metrics.ece_by_class(codes, proba),
        "aurc": metrics.aurc(codes, proba),
        "row_brier": metrics.row_brier(codes, proba),
        "row_nll": metrics.row_nll(codes, proba),
        "set_coverage": metrics.set_coverage(codes, sets),
        "set_size": metrics.set_size(sets),
    }


for add_scenes in (
    _attentions,
    _calibrations,
    _encoders,
    _images,
    _metrics_and_memories,
    _told,
    _edits,
    _promises,
    _audits,
    _storage,
    _durable,
    _vit_layers,
    _vits,
):
    add_scenes()


# --- Running, storing and comparing -------------------------------------------------------------


def run_grid(only: str = "", *, verbose: bool = False, keep_going: bool = False) -> Arrays:
    """All arrays whose keys begin with `only`, by the scenes that have them.

    With `keep_going` a scene that fails is reported, and its arrays are missing.
    """
    torch.set_num_threads(1)
    found: Arrays = {}
    for name, run in SCENES.items():
        if not (name.startswith(only) or only.startswith(f"{name}/")):
            continue
        started = time.perf_counter()
        torch.manual_seed(0)  # nothing should need it: every scene has its own random states
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                arrays = {f"{name}/{key}": plain(value) for key, value in run().items()}
        except Exception:
            if not keep_going:
                print(f"The scene {name!r} failed.", file=sys.stderr)
                raise
            print(f"{name}: failed\n{traceback.format_exc(limit=-3)}")
            continue
        found |= {key: array for key, array in arrays.items() if key.startswith(only)}
        if verbose:
            seconds = time.perf_counter() - started
            print(f"{seconds:6.2f} s  {len(arrays):4} arrays  {name}", file=sys.stderr)
    return found


def difference(old: NDArray[Any], new: NDArray[Any]) -> tuple[float, str]:
    """How far two arrays are apart, and in words: 0 for equal ones, infinity for decisions."""
    if old.shape != new.shape:
        return np.inf, f"shape {old.shape} became {new.shape}"
    if old.dtype.kind != new.dtype.kind:
        return np.inf, f"dtype {old.dtype} became {new.dtype}"
    if old.dtype.kind != "f":
        n_apart = int((old != new).sum())
        return (np.inf, f"{n_apart} of {old.size} decisions differ") if n_apart else (0.0, "")
    if np.array_equal(old, new, equal_nan=True):
        return 0.0, ""
    same = (old == new) | (np.isnan(old) & np.isnan(new))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(old - new))
    largest = np.inf if np.isnan(apart).any() else float(apart.max())
    return largest, f"max absolute difference {largest:.3g} ({int((~same).sum())} of {old.size})"


def compare(stored: Arrays, found: Arrays, tolerance: float) -> bool:
    """Print what differs; True if nothing differs by more than the tolerance."""
    n_equal = n_within = n_different = 0
    for key, old in stored.items():
        gap, words = difference(old, found[key]) if key in found else (np.inf, "missing")
        n_equal += gap == 0
        n_within += 0 < gap <= tolerance
        n_different += gap > tolerance
        if gap:
            print(f"{key}: {words}")
    for key in found.keys() - stored.keys():
        print(f"{key}: new, not in the file")
    print(
        f"{len(stored)} arrays: {n_equal} bit-equal, {n_within} within {tolerance:.0e}, "
        f"{n_different} different"
    )
    return not n_different


def main() -> None:
    """Run the grid, and store its numbers or compare them with stored ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("action", choices=["save", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--tolerance", type=float, default=1e-6)
    parser.add_argument("--only", default="", metavar="PREFIX", help="of the keys of the arrays")
    parser.add_argument("--verbose", action="store_true", help="print the time of each scene")
    options = parser.parse_args()
    if not any(name.startswith(options.only) or options.only.startswith(name) for name in SCENES):
        parser.error(f"No scene begins with {options.only!r}.")
    if options.action == "save":
        found = run_grid(options.only, verbose=options.verbose)
        np.savez_compressed(options.file, allow_pickle=False, **found)
        print(f"{len(found)} arrays written to {options.file}")
        return
    with np.load(options.file, allow_pickle=False) as stored:
        wanted = {key: stored[key] for key in stored.files if key.startswith(options.only)}
    found = run_grid(options.only, verbose=options.verbose, keep_going=True)
    sys.exit(not compare(wanted, found, options.tolerance))


if __name__ == "__main__":
    main()
