"""Runs methods on the same rows, labels and seeds, and adds what they predict to a report."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import FunctionTransformer

from attnknn.encoders import make_encoder
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.metrics import row_correct, row_nll, score_all
from attnknn.model import Answer
from attnknn.records import Floats, Integers
from attnknn.research.datasets import Dataset
from attnknn.research.evaluation.error_analysis import ErrorAnalysis
from attnknn.research.evaluation.illustrations import Illustrations
from attnknn.research.evaluation.report import REPORT, Report, add_table, read_report
from attnknn.research.evaluation.table import Run, Table, joined

Corrupt = Callable[[Integers, int], Integers]
Progress = Callable[[str], None]
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
PACKAGES = (
    *("attnknn", "numpy", "scipy", "scikit-learn", "torch", "pandas"),
    *("lightgbm", "catboost", "xgboost"),
)
REQUESTED = "requested"  # in the settings of a run: the name of the method that was asked for


@dataclass(frozen=True)
class Method:
    """A named way to make an unfitted classifier from a seed.

    Parameters
    ----------
    name : str
        Name of the method in tables.
    make : callable
        Takes a seed, which fixes everything random in a run, and returns an estimator.
    is_random : bool, default=True
        False for a method that ignores its seed. It is run on the first seed only, unless each
        seed has a split or corrupted labels of its own.

    Examples
    --------
    >>> from attnknn.research.evaluation.baselines import LinearProbe
    >>> Method("linear", lambda seed: LinearProbe(random_state=seed)).make(3)
    LinearProbe(random_state=3)
    """

    name: str
    make: Callable[[int], Any]
    is_random: bool = True


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a method predicted for the test rows."""

    method: str
    probabilities: Floats  # (n_test, n_classes)
    # what the fit chose, such as `n_neighbors_`
    chosen: Mapping[str, Any] = field(default_factory=dict)
    # times without training an encoder and embedding rows where methods share these
    fit_seconds: float = 0.0
    predict_seconds: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)  # settings of the method, written out
    answer: Answer | None = None  # the vote behind the probabilities, if it was a single one


@dataclass(frozen=True, eq=False)
class CellRun:
    """The table of one cell on one seed, with how its encoder was trained and error analyses."""

    table: Table
    training: Mapping[str, Any] | None = None
    error_analyses: Sequence[ErrorAnalysis] = ()
    illustrations: Illustrations | None = None


def run_cells(
    path: Path | None,
    cells: Sequence[str],
    seeds: Sequence[int],
    run_cell: Callable[[str, int], CellRun],
    requested: Callable[[str, int], Mapping[str, Any]],
) -> dict[str, Table]:
    """Tables of all cells and seeds: read from the report where it has them, run otherwise.

    Parameters
    ----------
    path : Path or None
        Of the report; None writes none.
    cells : sequence of str
        Names of the cells.
    run_cell : callable
        Runs a cell on a seed.
    requested : callable
        For a cell and seed, the fields of `described` that a table in the report must have. Tables
        with other ones are an error before anything runs.
    """
    report = Report() if path is None else read_report(path)
    tables: dict[tuple[str, int], Table] = {}
    for cell in cells:
        for seed in seeds:
            table = report.table(cell, seed)
            if table is not None and path is not None:
                check_same(path, described(table), requested(cell, seed))
                tables[cell, seed] = table
    for seed in seeds:
        for cell in cells:
            if (cell, seed) in tables:
                continue
            done = run_cell(cell, seed)
            tables[cell, seed] = done.table
            if path is not None:
                add_table(
                    path,
                    done.table,
                    cell,
                    training=done.training,
                    error_analyses=done.error_analyses,
                    illustrations=done.illustrations,
                )
    return {cell: joined([tables[cell, seed] for seed in seeds]) for cell in cells}


def run(
    dataset: Dataset,
    methods: Sequence[Method],
    seeds: Iterable[int],
    *,
    corrupt: Corrupt | None = None,
    encoder: Any = "auto",
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> Table:
    """Compare methods on the same embeddings and labels, over several seeds.

    For each seed, the data set is split if its split depends on the seed, training labels are
    corrupted, the encoder and every method are fitted, and only
    then are the test rows embedded and predicted, once by each method. Predictions are compared
    with the clean test labels.

    Parameters
    ----------
    dataset : Dataset
    methods : sequence of Method
    seeds : iterable of int
    corrupt : callable, optional
        From training labels and seed to new training labels, such as `LabelNoise(0.3)`.
    encoder : str, transformer or None, default="auto"
        What `make_encoder` takes, fitted on the training rows. "auto" is the table encoder for
        tables, pixels / 255 for images, TF-IDF for texts, and nothing for vectors; None passes raw
        rows on.
    folder : path-like, optional
        Where `report.json` is written. Seeds that it has already are not run again.
    progress : callable, optional
        Called with the name of the method and seed that run next.

    Returns
    -------
    Table
        Every method on every seed.

    Examples
    --------
    >>> from attnknn.research import datasets
    >>> from attnknn.research.evaluation.baselines import UniformKNN
    >>> table = run(datasets.load("iris"), [Method("uniform", lambda seed: UniformKNN())], [0])
    >>> round(table.mean("accuracy", "uniform"), 3)
    0.967
    """
    names, seeds = [method.name for method in methods], list(seeds)
    if not names or len(set(names)) != len(names):
        raise InvalidSettingError(f"`methods` must have different names, got {names}.")
    if not seeds:
        raise InvalidSettingError("`seeds` must hold at least one seed, got none.")
    if folder is not None and ADDRESS.search(repr(corrupt)):
        raise InvalidSettingError(
            "With `folder`, the repr of `corrupt` must show its settings, as that of `LabelNoise` "
            f"does: reports could not be distinguished otherwise; got {corrupt!r}."
        )
    corruption = "" if corrupt is None else _written(corrupt)
    encoder_name = _encoder_name(dataset, encoder)
    known: dict[str, Predictions] = {}  # of methods that ignore their seed

    def run_seed(_: str, seed: int) -> CellRun:
        rows = dataset.for_seed(seed)
        found = _predictions(rows, methods, seed, corrupt, encoder, progress, known)
        if corrupt is None and rows is dataset:
            known.update({m.name: found[m.name] for m in methods if not m.is_random})
        ordered = [found[name] for name in names]
        return CellRun(table_of(rows, ordered, seed, corruption=corruption, encoder=encoder_name))

    def requested(_: str, seed: int) -> dict[str, Any]:
        return {
            "data": (dataset.name, dataset.checksum),
            "corruption": corruption,
            "encoder": encoder_name,
            "methods": {method.name: _settings(method.make(seed)) for method in methods},
        }

    path = None if folder is None else Path(folder) / REPORT
    return run_cells(path, [""], seeds, run_seed, requested)[""]


def _predictions(
    dataset: Dataset,
    methods: Sequence[Method],
    seed: int,
    corrupt: Corrupt | None,
    encoder: Any,
    progress: Progress | None,
    known: Mapping[str, Predictions],
) -> dict[str, Predictions]:
    y_train = dataset.y_train if corrupt is None else _corrupted(dataset, corrupt, seed)
    chosen = encoder_for(dataset, encoder).fit(dataset.X_train, y_train)
    embeddings = _embedded(chosen, dataset.X_train)
    fitted = {}
    for method in methods:
        if method.name not in known:
            if progress is not None:
                progress(f"{dataset.name}: {method.name}, seed {seed}")
            fitted[method.name] = _timed(method.make(seed).fit, embeddings, y_train.copy())
    queries = _embedded(chosen, dataset.X_test)
    found = dict(known)
    for name, (model, seconds) in fitted.items():
        output, predict_seconds = _timed(model.predict_proba, queries)
        probabilities = all_columns(np.asarray(output), model.classes_, len(dataset.classes))
        found[name] = Predictions(
            name, probabilities, _chosen(model), seconds, predict_seconds, _settings(model)
        )
    return found


def table_of(
    dataset: Dataset,
    predictions: Sequence[Predictions],
    seed: int,
    *,
    corruption: str,
    encoder: str,
    n_train: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Table:
    """The table of one seed: predictions compared with the clean labels of the test rows.

    `n_train` is the number of training rows, where these are not all of the data set.
    """
    return Table(
        dataset=dataset.name,
        checksum=dataset.checksum,
        n_train=len(dataset.y_train) if n_train is None else n_train,
        n_test=len(dataset.y_test),
        corruption=corruption,
        encoder=encoder,
        versions=environment(),
        runs=tuple(_run(dataset.y_test, found, seed) for found in predictions),
        settings=dict(settings or {}),
    )


def _run(y_test: Integers, found: Predictions, seed: int) -> Run:
    return Run(
        method=found.method,
        seed=seed,
        scores=score_all(y_test, found.probabilities),
        row_nll=row_nll(y_test, found.probabilities),
        row_correct=row_correct(y_test, found.probabilities),
        row_confidence=found.probabilities.max(axis=1),
        fit_seconds=round(found.fit_seconds, 4),
        predict_seconds=round(found.predict_seconds, 4),
        settings=dict(found.settings),
        chosen=dict(found.chosen),
    )


def described(table: Table) -> dict[str, Any]:
    """What a table was made with: data, corruption, encoder, settings, and those of its methods."""
    return {
        "data": (table.dataset, table.checksum),
        "corruption": table.corruption,
        "encoder": table.encoder,
        "methods": method_settings(table),
        "settings": table.settings,
    }


def method_settings(table: Table) -> dict[str, dict[str, Any]]:
    """The settings of each method that was requested; one method may have several runs."""
    return {
        run.settings.get(REQUESTED, run.method): {
            name: value for name, value in run.settings.items() if name != REQUESTED
        }
        for run in table.runs
    }


def check_same(path: Path, found: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
    """Raise an error that names the first difference between a report and what is requested."""
    for name, value in requested.items():
        if found[name] != value:
            raise InvalidInputError(
                f"{path} was made with other {name}: {_difference(found[name], value)}. "
                "Remove it to run again, or choose another folder."
            )


def _difference(found: Any, requested: Any) -> str:
    if not isinstance(requested, Mapping):
        return f"{found}, asked for {requested}"
    ours, theirs = _flat(requested), _flat(found)
    return "; ".join(
        f"{name} {theirs.get(name, 'missing')}, asked for {ours.get(name, 'nothing')}"
        for name in dict.fromkeys([*ours, *theirs])
        if name not in ours or name not in theirs or ours[name] != theirs[name]
    )


def _flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested settings by names with dots."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        inside = _flat(value, f"{above}{name}.") if isinstance(value, Mapping) else {}
        found |= inside or {f"{above}{name}": value}
    return found


def _timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - start


def _corrupted(dataset: Dataset, corrupt: Corrupt, seed: int) -> Integers:
    labels = np.asarray(corrupt(dataset.y_train.copy(), seed))
    if labels.shape != dataset.y_train.shape or labels.dtype.kind not in "iu":
        raise InvalidInputError(
            f"`corrupt` must return {len(dataset.y_train)} label codes, "
            f"got shape {labels.shape} of {labels.dtype}."
        )
    return labels.astype(np.int64)


def all_columns(found: Floats, classes: NDArray[Any], n_classes: int) -> Floats:
    """Probabilities of all classes, zero for those that the training labels did not have."""
    probabilities = np.zeros((len(found), n_classes))
    probabilities[:, classes] = found
    return probabilities


def encoder_for(dataset: Dataset, encoder: Any) -> Any:
    """The unfitted encoder that `run` means by `encoder`; one that needs training is refused."""
    if encoder is None:
        return FunctionTransformer()  # passes rows on
    if isinstance(encoder, str) and encoder == "auto":
        if dataset.kind == "images" and dataset.X_train.dtype.kind == "O":
            raise InvalidSettingError(
                "`encoder='auto'` takes images that are arrays, got paths. Name an encoder, as "
                "`ImageEncoder(image_size=32)`."
            )
        kinds = {
            "table": "tabular",
            "vectors": "identity",
            "images": flat_pixels,
            "texts": "tfidf",
        }
        return make_encoder(kinds[dataset.kind])
    chosen = make_encoder(encoder)
    if chosen.is_trained or chosen.is_cross_fitted:
        raise InvalidSettingError(
            f"`encoder` must be one that is not trained for the vote, got {encoder!r}. "
            "`encoder=None` passes raw rows on, and each method may train one of its own."
        )
    return chosen


def _embedded(encoder: Any, X: Any) -> Any:
    output = encoder.transform(X)
    return output if isinstance(encoder, FunctionTransformer) else np.asarray(output)


def _encoder_name(dataset: Dataset, encoder: Any) -> str:
    """The name of an encoder, with settings that are not its defaults."""
    chosen = encoder_for(dataset, encoder)
    name: str = getattr(chosen, "name", "none")
    inner = getattr(chosen, "inner", chosen)
    written = _written(inner) if isinstance(inner, BaseEstimator) else "()"
    return name if name == "none" or written.endswith("()") else f"{name}, {written}"


def flat_pixels(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Each image as one row of numbers in 0..1.

    >>> flat_pixels(np.full((1, 2, 2), 255, dtype=np.uint8))
    array([[1., 1., 1., 1.]], dtype=float32)
    """
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255)


def _settings(model: Any) -> dict[str, str]:
    parameters = model.get_params(deep=False) if hasattr(model, "get_params") else {}
    return {name: _written(value) for name, value in sorted(parameters.items())}


def _written(value: Any) -> str:
    return ADDRESS.sub("", repr(value))  # addresses differ from run to run


def _chosen(model: Any) -> dict[str, Any]:
    """Fitted numbers and names: attributes that end in one underscore and are plain values."""
    found = {}
    properties = [n for n in dir(type(model)) if isinstance(getattr(type(model), n), property)]
    values = vars(model) | {n: getattr(model, n, None) for n in properties if n.endswith("_")}
    for name, value in sorted(values.items()):
        plain = value.item() if isinstance(value, np.generic) else value
        is_fitted_name = name.endswith("_") and not name.startswith("_")
        if is_fitted_name and isinstance(plain, bool | int | float | str):
            is_number = not isinstance(plain, float) or np.isfinite(plain)
            found[name] = plain if is_number else str(plain)
    return found


def environment() -> dict[str, str]:
    """Versions of Python and packages, and what times depend on: threads and cores."""
    found = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "threads": str(torch.get_num_threads()),
        "cores": str(os.cpu_count()),
    }
    for package in (*PACKAGES, "faiss-cpu", "faiss-gpu", "faiss"):
        try:
            found[package.split("-")[0] if "faiss" in package else package] = version(package)
        except PackageNotFoundError:
            continue
    return found
