"""Reports on disk: one JSON file and one npz file for all cells and seeds of a study.

`report.json` holds settings, versions, scores, times and trainings; `report.npz` holds what
intervals need of every test row (see `_encode`). Runs add to a report seed by seed. A file is
written whole or not at all, the JSON file last, so that a crash leaves the state before.
"""

from __future__ import annotations

import json
import lzma
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_LZMA, BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from attnknn._output_files import publish, refuse_model_folder
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.metrics import Scores
from attnknn.records import Booleans, Floats
from attnknn.research.evaluation.error_analysis import ErrorAnalysis
from attnknn.research.evaluation.illustrations import Illustrations
from attnknn.research.evaluation.measurements import Measurements, MeasurementSet
from attnknn.research.evaluation.table import ROW_FIELDS, Run, Table, joined
from attnknn.storage.locking import folder_lock
from attnknn.training.checkpoints import write_atomically

REPORT = "report.json"
UNREADABLE = (  # what a truncated file, or one of another program, raises
    *(OSError, EOFError, BadZipFile, NotImplementedError, zlib.error, lzma.LZMAError),
    *(ValueError, KeyError, TypeError, AttributeError, IndexError),
)
N_BINS = 15  # of calibration errors; no confidence changes its bin when it is stored
MANY_ROWS = 3500  # test rows from which on one byte for each confidence is enough
Codes = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, eq=False)
class Report:
    """What a study has measured so far."""

    # the table of each cell, with all of its seeds; the name of a cell is '' where a study has only
    # one
    tables: Mapping[str, Table] = field(default_factory=dict)
    # how the encoder was trained, by cell and seed
    trainings: Mapping[str, Mapping[int, dict[str, Any]]] = field(default_factory=dict)
    # confusions and mistakes of the methods, by cell and seed
    error_analyses: Mapping[str, Mapping[int, list[ErrorAnalysis]]] = field(default_factory=dict)
    # embeddings in two dimensions and small images, by cell and seed
    illustrations: Mapping[str, Mapping[int, Illustrations]] = field(default_factory=dict)
    # times, recalls and other numbers that are not predictions, by seed
    measurements: Mapping[int, Measurements] = field(default_factory=dict)

    def table(self, cell: str, seed: int) -> Table | None:
        """The table of one cell and seed, if it was measured."""
        table = self.tables.get(cell)
        return None if table is None or seed not in table.seeds else table.with_seeds([seed])

    @property
    def measurement_set(self) -> MeasurementSet | None:
        """The measurements of all seeds, if there are any."""
        found = [self.measurements[seed] for seed in sorted(self.measurements)]
        return MeasurementSet(tuple(found)) if found else None


def read_report(path: str | os.PathLike[str]) -> Report:
    """Read a report; a missing file is an empty report, a damaged or foreign one is an error."""
    path = Path(path)
    if not path.exists():
        return Report()
    with _naming(path):
        content = _read_content(path)
        arrays = _read_arrays(path) if _has_rows(content) else {}
        rows = _decode(arrays) if arrays else []
        return Report(
            tables={cell: _table(stored, rows) for cell, stored in content["tables"].items()},
            trainings=_by_seed(content["trainings"], dict),
            error_analyses=_by_seed(content["error_analyses"], _analyses),
            illustrations=_by_seed(content["illustrations"], Illustrations.from_dict),
            measurements={m["seed"]: Measurements.from_dict(m) for m in content["measurements"]},
        )


def add_table(
    path: str | os.PathLike[str],
    table: Table,
    cell: str = "",
    *,
    training: Mapping[str, Any] | None = None,
    error_analyses: Sequence[ErrorAnalysis] = (),
    illustrations: Illustrations | None = None,
) -> None:
    """Add the seeds of a table to a cell of a report; seeds that are there are replaced.

    `path`: of the JSON file; the npz file is written beside it; `training`, `error_analyses`,
    `illustrations`: of the first seed of `table`.
    """
    with _editing(Path(path)) as (content, arrays):
        rows = _decode(arrays) if arrays else []
        if cell in content["tables"]:
            before = _table(content["tables"][cell], rows)
            others = [seed for seed in before.seeds if seed not in table.seeds]
            if others:
                joined([before.with_seeds(others), table])  # refuses what does not go together
        known = content["tables"].get(cell, {"runs": []})["runs"]
        runs = [run for run in known if run["seed"] not in table.seeds]
        runs += [{**_record(run), "rows": _append(arrays, run)} for run in table.runs]
        skipped = {"runs"} if table.settings else {"runs", "settings"}
        stored = {f.name: getattr(table, f.name) for f in fields(table) if f.name not in skipped}
        content["tables"][cell] = {**stored, "runs": runs}
        for name, value in (
            ("trainings", training),
            ("error_analyses", [analysis.to_dict() for analysis in error_analyses]),
            ("illustrations", illustrations and illustrations.to_dict()),
        ):
            if value:
                content[name].setdefault(cell, {})[str(table.seeds[0])] = value


def add_measurements(path: str | os.PathLike[str], measurements: Measurements) -> None:
    """Add the measurements of a seed to a report, or replace them."""
    with _editing(Path(path)) as (content, _):
        others = [m for m in content["measurements"] if m["seed"] != measurements.seed]
        content["measurements"] = [*others, asdict(measurements)]


def write_json(path: Path, content: Any) -> None:
    """Write `content` as JSON; a crash at any moment leaves the old file or the new one."""
    write_atomically(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def check_folder(folder: Path) -> None:
    """Raise an error if reports could not be written to `folder`."""
    refuse_model_folder(folder)
    there = next(part for part in (folder, *folder.absolute().parents) if part.exists())
    if not there.is_dir():
        raise InvalidSettingError(f"Reports need a folder, but {there} is a file.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InvalidSettingError(f"Reports need a folder, but {there} may not be written to.")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Errors while reading name the file, and say what to do."""
    try:
        yield
    except UNREADABLE as error:
        if isinstance(error, InvalidInputError) and str(path) in str(error):
            raise
        raise InvalidInputError(
            f"{path} is no report of an experiment, or it or the npz file beside it is damaged "
            f"({type(error).__name__}: {error}). Remove both and run the experiment again."
        ) from error


@contextmanager
def _editing(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The content and arrays of a report, which are written when they were changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with folder_lock(path.parent):
        with _naming(path):
            content = _read_content(path) if path.exists() else _empty()
            arrays = _read_arrays(path) if _has_rows(content) else {}
        yield content, arrays
        if arrays:
            rows = path.with_suffix(".unfinished.npz")
            with ZipFile(rows, "w", ZIP_LZMA) as archive:  # smaller than `savez_compressed`
                for name, values in arrays.items():
                    with archive.open(f"{name}.npy", "w") as file:
                        np.lib.format.write_array(file, values)
            publish(rows, path.with_suffix(".npz"))
        write_json(path, {name: value for name, value in content.items() if value})


def _empty() -> dict[str, Any]:
    return {
        **{name: {} for name in ("tables", "trainings", "error_analyses", "illustrations")},
        "measurements": [],
    }


def _read_content(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not content.keys() & {"tables", "measurements"}:
        raise InvalidInputError(
            f"{path} is no report of an experiment: it has neither `tables` nor `measurements`. "
            "Remove it, or choose another folder."
        )
    return _empty() | content


def _has_rows(content: Mapping[str, Any]) -> bool:
    return any(table["runs"] for table in content["tables"].values())


def _read_arrays(path: Path) -> dict[str, Any]:
    beside = path.with_suffix(".npz")
    if not beside.exists():
        raise InvalidInputError(
            f"{path} has lost its rows: {beside.name} is not beside it. Put it back, or remove the "
            "report and run the experiment again."
        )
    with ZipFile(beside) as archive:  # read whole, so that checksums are compared
        return {
            name.removesuffix(".npy"): np.load(BytesIO(archive.read(name)), allow_pickle=False)
            for name in archive.namelist()
        }


def _by_seed(stored: Mapping[str, Mapping[str, Any]], make: Any) -> dict[str, dict[int, Any]]:
    return {
        cell: {int(seed): make(value) for seed, value in by_seed.items()}
        for cell, by_seed in stored.items()
    }


def _analyses(stored: Any) -> list[ErrorAnalysis]:
    """The error analyses of all methods; earlier versions stored that of one method only."""
    found = stored if isinstance(stored, list) else [stored]
    return [ErrorAnalysis.from_dict(analysis) for analysis in found]


def _record(run: Run) -> dict[str, Any]:
    return {name: value for name, value in asdict(run).items() if name not in ROW_FIELDS}


def _table(stored: Mapping[str, Any], rows: list[_Rows]) -> Table:
    runs = [
        Run(
            **{
                **{name: value for name, value in run.items() if name != "rows"},
                "scores": Scores(**run["scores"]),
                **vars(rows[run["rows"]]),
            }
        )
        for run in stored["runs"]
    ]
    return Table(**{**stored, "runs": tuple(runs)})


@dataclass(frozen=True, eq=False)
class _Rows:
    """What is stored of the test rows of a run, (n,) each."""

    row_nll: Floats
    row_correct: Booleans
    row_confidence: Floats


def _append(arrays: dict[str, Any], run: Run) -> int:
    """Store the rows of a run unless there are equal ones; gives their place."""
    encoded = _encode(run)
    if arrays and arrays["confidence"].shape[1] != len(run.row_nll):
        raise InvalidInputError(
            f"All tables of a report must have the same test rows: it has "
            f"{arrays['confidence'].shape[1]:,}, got {len(run.row_nll):,}."
        )
    starts = _starts(arrays) if arrays else [0]
    for place in range(len(starts) - 1):
        wrong = arrays["wrong_nll"][starts[place] : starts[place + 1]]
        stored = (arrays["confidence"][place], arrays["correct"][place], wrong)
        if all(map(np.array_equal, stored, encoded.values())):
            return place
    for name, values in encoded.items():
        new = values if name == "wrong_nll" else values[None]
        arrays[name] = np.concatenate([arrays[name], new]) if name in arrays else new
    return len(starts) - 1


def _encode(run: Run) -> dict[str, Codes]:
    """Rows in few bytes: bits for correct, 8 or 16 bits for confidence, and log-loss of errors.

    A confidence is its calibration bin and its position in there. Errors of rounding are carried
    over to the next row of the bin, so that means stay what they were. The log-loss of a correct
    prediction is −log(confidence) and is not stored.
    """
    n_steps, scale, kind = _precision(len(run.row_nll))
    scaled = np.clip(run.row_confidence, 0.0, 1.0) * N_BINS
    bins = np.minimum(scaled.astype(int), N_BINS - 1)
    steps = np.empty(len(bins))
    for number in np.unique(bins):
        steps[bins == number] = _carried((scaled - bins)[bins == number] * n_steps)
    wrong = _carried(run.row_nll[~run.row_correct] * scale)
    return {
        "confidence": (bins * (n_steps + 1) + steps).astype(kind),
        "correct": np.packbits(run.row_correct),
        "wrong_nll": np.clip(wrong, 0, 65535).astype(np.uint16),
    }


def _precision(n_rows: int) -> tuple[int, int, type[np.unsignedinteger[Any]]]:
    """Positions in a bin, and steps of log-loss in one unit; 15 · 17 and 15 · 4,097 codes fit."""
    return (16, 64, np.uint8) if n_rows >= MANY_ROWS else (4096, 1800, np.uint16)


def _carried(values: Floats) -> Floats:
    """Values rounded up or down so that all partial sums are right to one half.

    >>> _carried(np.array([0.4, 0.4, 0.4, 2.0])).tolist()
    [0.0, 1.0, 0.0, 2.0]
    """
    return np.diff(np.round(np.cumsum(values)), prepend=0.0)


def _starts(arrays: Mapping[str, Any]) -> list[int]:
    """Where the errors of each run start in `wrong_nll`, and where the last ones end."""
    n_rows = arrays["confidence"].shape[1]
    correct = np.unpackbits(arrays["correct"], axis=1, count=n_rows)
    return [0, *np.cumsum(n_rows - correct.sum(axis=1, dtype=np.int64)).tolist()]


def _decode(arrays: Mapping[str, Any]) -> list[_Rows]:
    codes, starts = arrays["confidence"], _starts(arrays)
    n_rows = codes.shape[1]
    n_steps, scale, _ = _precision(n_rows)
    bins, steps = np.divmod(codes.astype(np.int64), n_steps + 1)
    inside = np.clip(steps / n_steps, 1e-9, 1 - 1e-9)  # in its bin, whatever is rounded
    inside[(bins == N_BINS - 1) & (steps == n_steps)] = 1.0
    confidence = (bins + inside) / N_BINS
    correct = np.unpackbits(arrays["correct"], axis=1, count=n_rows).astype(bool)
    nll = -np.log(confidence)
    rows = []
    for place in range(len(codes)):
        wrong = arrays["wrong_nll"][starts[place] : starts[place + 1]]
        nll[place, ~correct[place]] = wrong / scale
        rows.append(_Rows(nll[place], correct[place], confidence[place]))
    return rows
