"""The candidates of a fit and the parts inside parts, through a model folder."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from attnknn import AttnKNNClassifier
from attnknn.attention import BlockAttention, BoostingAttention, MixtureAttention
from attnknn.encoders import ScaledEncoder, UnionEncoder
from attnknn.errors import ModelFolderError
from attnknn.fitting.report import Candidate
from attnknn.storage.parts import from_plain, part_from_plain, part_to_plain

from .samples import change_array, change_settings, labels, quick, resign, rows, same_answers

CANDIDATES = (
    Candidate("distance", 0.25, 0.75, 0.1),
    Candidate("forest", 0.5, 0.25, 1.5),
    Candidate("lernte «Gewichte»\n", note="not tried: fewer than 300 rows"),
)


def union() -> UnionEncoder:
    return UnionEncoder((("raw", "identity"), ("scaled", ScaledEncoder())))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with candidates, whose attention and encoder have parts of their own."""
    boosting = BoostingAttention(2, 2, min_samples_leaf=5)
    attention = MixtureAttention(
        (BlockAttention("scaled"), boosting, BlockAttention("raw", boosting))
    )
    clf = quick(encoder=union(), attention=attention, calibration="auto").fit(rows(), labels())
    report = replace(clf.fit_report_, candidates=CANDIDATES)
    clf.model_ = replace(clf.model_, report=report)
    path = tmp_path_factory.mktemp("candidates") / "model"
    clf.save(path)
    return path


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "model")
    return tmp_path / "model"


def refuses(folder: Path, match: str = ".") -> None:
    with pytest.raises(ModelFolderError, match=match):
        AttnKNNClassifier.load(folder)


def test_candidates_come_back_as_they_were(folder: Path) -> None:
    found = AttnKNNClassifier.load(folder).fit_report_.candidates
    assert found[:2] == CANDIDATES[:2]
    assert repr(found) == repr(CANDIDATES)  # NaN is not equal to itself
    stored = json.loads((folder / "settings.json").read_text())["fit_report"]["candidates"]
    assert stored[2]["log_loss"] is None


def test_parts_inside_parts_come_back_with_their_settings(folder: Path) -> None:
    loaded = AttnKNNClassifier.load(folder)
    (raw, identity), (scaled, made) = loaded.encoder.encoders
    assert (raw, identity, scaled) == ("raw", "identity", "scaled")
    assert isinstance(made, ScaledEncoder)
    block, boosting, other = loaded.attention.heads
    assert (block.block, block.attention) == ("scaled", "distance")
    assert (boosting.n_folds, boosting.min_samples_leaf) == (2, 5)
    assert other.attention.get_params() == boosting.get_params()
    again = AttnKNNClassifier.load(folder)
    again.save(folder.parent / "again")
    assert same_answers(loaded, AttnKNNClassifier.load(folder.parent / "again"), rows(seed=1))


def candidate(**changes: Any) -> dict[str, Any]:
    whole = {"name": "a", "log_loss": 0.5, "weight": 0.5, "seconds": 1.0, "note": ""}
    return {name: value for name, value in {**whole, **changes}.items() if value is not ...}


@pytest.mark.parametrize(
    "stored",
    [
        None,
        {},
        "distance",
        [None],
        [[]],
        ["distance"],
        [candidate(name=5)],
        [candidate(name=...)],
        [candidate(log_loss="low")],
        [candidate(log_loss=True)],
        [candidate(log_loss=1e400)],
        [candidate(log_loss=math.nan)],
        [candidate(log_loss=...)],
        [candidate(weight=-0.1)],
        [candidate(weight=1.1)],
        [candidate(weight=None)],
        [candidate(seconds=-1)],
        [candidate(seconds=math.inf)],
        [candidate(note=None)],
        [candidate(), candidate(note={})],
    ],
    ids=lambda stored: json.dumps(stored)[:60],
)
def test_hostile_candidates_are_refused(stored: Any, saved: Path) -> None:
    change_settings(saved, lambda settings: settings["fit_report"].update(candidates=stored))
    refuses(saved)


def test_candidates_must_be_there(saved: Path) -> None:
    change_settings(saved, lambda settings: settings["fit_report"].pop("candidates"))
    refuses(saved, "candidates")


def test_hostile_names_of_candidates_are_escaped_in_pages(saved: Path) -> None:
    hostile = [candidate(name="<script>", note="</td><b>")]
    change_settings(saved, lambda settings: settings["fit_report"].update(candidates=hostile))
    page = AttnKNNClassifier.load(saved).fit_report_._repr_html_()
    assert "<script>" not in page
    assert "</td><b>" not in page
    assert "&lt;script&gt;" in page


def part(place: int, *keys: str) -> Callable[[dict[str, Any], Any], None]:
    """Set a value of one part of the stored union."""

    def change(settings: dict[str, Any], value: Any) -> None:
        found = settings["encoder"]["parts"][place]
        for key in keys[:-1]:
            found = found[key]
        found[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "value"),
    [
        (part(0, "settings"), None),
        (part(0, "settings"), {"encoder": "pickle"}),
        (part(0, "settings", "n_features_in"), 2),
        (part(1, "settings", "n_features_in"), -3),
        (part(1, "name"), "raw"),
        (lambda settings, value: settings["encoder"].update(widths=value), [1, 5]),
        (lambda settings, value: settings["encoder"].update(widths=value), [1e9, 1e9]),
        (lambda settings, value: settings["encoder"].update(scales=value), [0.0, 1.0]),
        (lambda settings, value: settings["encoder"].update(parts=value), 7),
        (lambda settings, value: settings.update(encoder_arrays=value), []),
        (lambda settings, value: settings["attention"]["part"].update(name=value), "union"),
        (lambda settings, value: settings["attention"]["fitted"].update(mixing=value), [2.0]),
        (lambda settings, value: settings["attention"]["fitted"].update(kept=value), [9]),
        (lambda settings, value: settings["attention"]["fitted"].update(heads=value), "x"),
    ],
)
def test_hostile_parts_are_refused(change: Any, value: Any, folder: Path) -> None:
    change_settings(folder, lambda settings: change(settings, value))
    refuses(folder)


def test_a_union_of_unions_without_end_is_refused(folder: Path) -> None:
    def nest(settings: dict[str, Any]) -> None:
        for _ in range(150):
            inner = {"name": "a", "settings": settings["encoder"]}
            nested = {"encoder": "union", "parts": [inner], "widths": [6], "scales": [1.0]}
            settings["encoder"] = nested

    change_settings(folder, nest)
    refuses(folder)


def test_stored_arrays_of_a_part_are_checked(folder: Path) -> None:
    change_array(folder, "encoder_1_scale", np.zeros(3))
    refuses(folder, "'scaled' cannot be read")


def test_stored_trees_of_a_part_are_checked(folder: Path) -> None:
    path = folder / "attention.safetensors"
    tensors = load_file(path)
    names = [name for name in tensors if name.endswith("child")]
    assert names
    save_file({**tensors, names[0]: tensors[names[0]] * 0 + 10_000}, path)
    resign(folder, path.name)
    refuses(folder, "trees")


def test_encoders_and_attentions_do_not_take_the_place_of_each_other() -> None:
    stored = part_to_plain("encoder", union())
    again = part_from_plain("encoder", json.loads(json.dumps(stored)))
    assert part_to_plain("encoder", again) == stored
    with pytest.raises(ModelFolderError, match="stored attention must be one of"):
        from_plain("heads", stored)
    with pytest.raises(ModelFolderError, match="stored encoder must be one of"):
        from_plain("encoders", part_to_plain("attention", BlockAttention()))
