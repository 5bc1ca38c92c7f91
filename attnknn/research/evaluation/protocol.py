"""Runs all methods of a table on the same rows, labels and seeds, and opens the test rows once."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import FunctionTransformer

from attnknn.encoders import make_encoder
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.metrics import row_correct, row_nll, score_all
from attnknn.records import Floats, Integers
from attnknn.research.datasets import Dataset
from attnknn.research.evaluation.report import REPORT, Report, add_table, read_report
from attnknn.research.evaluation.table import Run, Table, joined

Corrupt = Callable[[Integers, int], Integers]
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
PACKAGES = ("attnknn", "numpy", "scipy", "scikit-learn", "torch", "pandas")


@dataclass(frozen=True)
class Method:
    """A named way to get an unfitted classifier from a seed.

    The seed fixes everything random in a run. A method that ignores it (`is_random` False) gives
    the same on every seed and is run on the first one only, unless labels are corrupted: then each
    seed has labels of its own, the same for every method.

    >>> from attnknn.research.evaluation.baselines import LinearProbe
    >>> Method("linear", lambda seed: LinearProbe(random_state=seed)).make(3)
    LinearProbe(random_state=3)
    """

    name: str
    make: Callable[[int], Any]
    is_random: bool = True


def run(
    dataset: Dataset,
    methods: Sequence[Method],
    seeds: Iterable[int],
    *,
    corrupt: Corrupt | None = None,
    encoder: Any = "auto",
    folder: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Table:
    """Every method on every seed, all with the same embeddings and labels.

    For each seed: the training labels are corrupted, the encoder is fitted, every method is
    fitted; only then are the test rows embedded, and each method answers once. Answers are judged
    against the clean test labels.

    Parameters
    ----------
    corrupt : from training labels and seed to new training labels, e.g. `stress.LabelNoise(0.3)`
    encoder : what `make_encoder` takes, fitted on the training rows; "auto" means the table
        encoder for tables, pixels / 255 for images, vectors as they are; None hands out raw rows
    folder : where `report.json` is written; seeds that it has are not run again
    progress : told which method of which seed runs next

    Examples
    --------
    >>> from attnknn.research import datasets
    >>> from attnknn.research.evaluation.baselines import UniformKNN
    >>> table = run(datasets.load("iris"), [Method("uniform", lambda seed: UniformKNN())], [0])
    >>> round(table.mean("accuracy", "uniform"), 3)
    0.967
    """
    names = [method.name for method in methods]
    if not names or len(set(names)) != len(names):
        raise InvalidSettingError(f"`methods` must have names of their own, got {names}.")
    if folder is not None and ADDRESS.search(repr(corrupt)):
        raise InvalidSettingError(
            "With `folder`, `corrupt` must tell its settings, as `stress.LabelNoise` does: reports "
            f"of two others could not be told apart; got {corrupt!r}."
        )
    tables: list[Table] = []
    path = None if folder is None else Path(folder) / REPORT
    report = Report() if path is None else read_report(path)
    for seed in seeds:
        table = report.table("", seed)
        if table is not None and path is not None:
            _check_same(table, dataset, methods, corrupt, encoder, seed, path)
        else:
            known = () if corrupt is not None or not tables else tables[0].runs
            table = _run_seed(dataset, methods, seed, corrupt, encoder, progress, known)
            if path is not None:
                add_table(path, table)
        tables.append(table)
    if not tables:
        raise InvalidSettingError("`seeds` must hold at least one seed, got none.")
    return joined(tables)


def _run_seed(
    dataset: Dataset,
    methods: Sequence[Method],
    seed: int,
    corrupt: Corrupt | None,
    encoder: Any,
    progress: Callable[[str], None] | None,
    known: tuple[Run, ...],
) -> Table:
    y_train = dataset.y_train if corrupt is None else _corrupted(dataset, corrupt, seed)
    chosen = encoder_for(dataset, encoder).fit(dataset.X_train, y_train)
    embeddings = _embedded(chosen, dataset.X_train)
    same = {m.name for m in methods if not m.is_random} & {run.method for run in known}
    fitted = []
    for method in methods:
        if method.name in same:
            continue
        if progress is not None:
            progress(f"{dataset.name}: {method.name}, seed {seed}")
        fitted.append(_timed(method.make(seed).fit, embeddings, y_train.copy()))
    queries = _embedded(chosen, dataset.X_test)
    ran = [method for method in methods if method.name not in same]
    left_out = {
        method.name: _judge(method.name, seed, model, seconds, queries, dataset)
        for method, (model, seconds) in zip(ran, fitted, strict=True)
    }
    left_out |= {run.method: replace(run, seed=seed) for run in known if run.method in same}
    runs = [left_out[method.name] for method in methods]
    return Table(
        dataset=dataset.name,
        checksum=dataset.checksum,
        n_train=len(dataset.y_train),
        n_test=len(dataset.y_test),
        corruption="" if corrupt is None else _written(corrupt),
        encoder=_encoder_name(dataset, encoder),
        versions=versions(),
        runs=tuple(runs),
    )


def _judge(name: str, seed: int, model: Any, seconds: float, queries: Any, dataset: Dataset) -> Run:
    answers, predict_seconds = _timed(model.predict_proba, queries)
    probabilities = _all_columns(np.asarray(answers), model.classes_, len(dataset.classes))
    return Run(
        method=name,
        seed=seed,
        scores=score_all(dataset.y_test, probabilities),
        row_nll=row_nll(dataset.y_test, probabilities),
        row_correct=row_correct(dataset.y_test, probabilities),
        row_confidence=probabilities.max(axis=1),
        fit_seconds=round(seconds, 4),
        predict_seconds=round(predict_seconds, 4),
        settings=_settings(model),
        chosen=_chosen(model),
    )


def _timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - start


def _corrupted(dataset: Dataset, corrupt: Corrupt, seed: int) -> Integers:
    labels = np.asarray(corrupt(dataset.y_train.copy(), seed))
    if labels.shape != dataset.y_train.shape or labels.dtype.kind not in "iu":
        raise InvalidInputError(
            f"`corrupt` must give {len(dataset.y_train)} label codes, "
            f"got shape {labels.shape} of {labels.dtype}."
        )
    return labels.astype(np.int64)


def _all_columns(answers: Floats, classes: NDArray[Any], n_classes: int) -> Floats:
    """Probabilities for all classes, zero for those that the training labels did not have."""
    probabilities = np.zeros((len(answers), n_classes))
    probabilities[:, classes] = answers
    return probabilities


def encoder_for(dataset: Dataset, encoder: Any) -> Any:
    """The unfitted encoder that `run` means by `encoder`; one that is trained is refused."""
    if encoder is None:
        return FunctionTransformer()  # hands on what it gets
    if isinstance(encoder, str) and encoder == "auto":
        if dataset.kind == "images" and dataset.X_train.dtype.kind == "O":
            raise InvalidSettingError(
                "`encoder='auto'` takes images that are arrays, got paths. Name an encoder, as "
                "`ImageEncoder(image_size=32)`."
            )
        kinds = {"table": "tabular", "vectors": "identity", "images": flat_pixels}
        return make_encoder(kinds[dataset.kind])
    chosen = make_encoder(encoder)
    if getattr(chosen, "is_trained", False):
        raise InvalidSettingError(
            f"`encoder` must be one that is not trained for the vote, got {encoder!r}. "
            "`encoder=None` hands out raw rows, and each method may train one of its own."
        )
    return chosen


def _embedded(encoder: Any, X: Any) -> Any:
    output = encoder.transform(X)
    return output if isinstance(encoder, FunctionTransformer) else np.asarray(output)


def _encoder_name(dataset: Dataset, encoder: Any) -> str:
    """The name of an encoder, with the settings that are not its own."""
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
    """Fitted numbers and names: what ends in one underscore and is a plain value."""
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


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _check_same(
    table: Table,
    dataset: Dataset,
    methods: Sequence[Method],
    corrupt: Corrupt | None,
    encoder: Any,
    seed: int,
    report: Path,
) -> None:
    """An existing report may stand in for a run only if it would say the same."""
    asked = {
        "data": (dataset.name, dataset.checksum),
        "seeds": [seed],
        "corruption": "" if corrupt is None else _written(corrupt),
        "encoder": _encoder_name(dataset, encoder),
        "methods": {method.name: _settings(method.make(seed)) for method in methods},
    }
    found = {
        "data": (table.dataset, table.checksum),
        "seeds": table.seeds,
        "corruption": table.corruption,
        "encoder": table.encoder,
        "methods": {run.method: run.settings for run in table.runs},
    }
    for name, value in asked.items():
        if found[name] != value:
            raise InvalidInputError(
                f"{report} was made with other {name}: {found[name]}, asked for {value}. "
                "Remove it to run again, or choose another folder."
            )
