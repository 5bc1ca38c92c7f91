"""Save, then load: the same classifier."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnknn import (
    AttnKNNClassifier,
    DistanceAttention,
    FaissMemory,
    TableEncoder,
    UniformAttention,
    open_for_editing,
)
from attnknn.attention import (
    AdaptiveAttention,
    KEnsembleAttention,
    LearnedAttention,
)
from attnknn.calibration import Calibration
from attnknn.errors import InvalidInputError, InvalidSettingError, ModelFolderError
from attnknn.memory import NumpyMemory
from attnknn.model import FittedModel
from attnknn.registry import registered
from attnknn.storage import load_notes, save_classifier
from attnknn.storage.parts import part_from_plain, part_to_plain
from attnknn.training import LossTerms, TrainConfig

from .samples import N, change_array, labels, quick, rows, same_answers


def fitted_names(classifier: AttnKNNClassifier) -> set[str]:
    """What a classifier is made of, without what can be computed again."""
    return set(classifier.__getstate__())


def round_trip(classifier: AttnKNNClassifier, folder: Path) -> AttnKNNClassifier:
    classifier.save(folder / "model")
    return AttnKNNClassifier.load(folder / "model")


BRIEF = LearnedAttention(n_heads=2, training=TrainConfig(epochs=1))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"metric": "cosine", "memory": "numpy"},
        {"metric": "inner_product", "memory": "torch"},
        {"attention": "uniform"},
        {"attention": UniformAttention(0.1), "memory": FaissMemory(index="flat")},
        {"attention": DistanceAttention(temperature=0.5, prior_score=-2.0)},
        {"memory": FaissMemory(index="ivf", n_lists=1)},
        {"attention": KEnsembleAttention(sizes=(2, 5)), "n_neighbors": 5},
        {"attention": KEnsembleAttention(weighting="fitted"), "calibration": "auto"},
        {"attention": AdaptiveAttention(threshold=0.3)},
        {"attention": AdaptiveAttention(rule="learned"), "calibration": "auto"},
        {"attention": AdaptiveAttention(by="confidence", attention=BRIEF), "calibration": "auto"},
        {"attention": KEnsembleAttention(attention=BRIEF)},
    ],
)
def test_save_then_load_predicts_the_same_bytes(settings: dict[str, Any], tmp_path: Path) -> None:
    classifier = quick(**settings).fit(rows(), labels())
    loaded = round_trip(classifier, tmp_path)
    assert same_answers(classifier, loaded, rows(seed=1))
    assert str(loaded.get_params()) == str(classifier.get_params())


@pytest.mark.parametrize("kind", ["attention", "encoder", "memory"])
def test_every_registered_part_can_be_stored(kind) -> None:
    for cls in registered(kind).values():
        part = cls()
        assert str(part_from_plain(kind, part_to_plain(kind, part))) == str(part)


def test_learned_attention_predicts_the_same_bytes(
    learned: AttnKNNClassifier, tmp_path: Path
) -> None:
    loaded = round_trip(learned, tmp_path)
    assert same_answers(learned, loaded, rows(seed=1))
    assert learned.leave_one_out_proba().tobytes() == loaded.leave_one_out_proba().tobytes()
    assert fitted_names(loaded) == fitted_names(learned)


def test_a_value_head_survives_with_its_evidence(
    learned: AttnKNNClassifier, tmp_path: Path
) -> None:
    loaded = round_trip(learned, tmp_path)
    assert loaded.value_head_ is not None
    assert repr(loaded.fit_report_) == repr(learned.fit_report_)  # NaN differs from itself
    evidence = loaded.explain(rows(1, seed=1))[0]
    assert not evidence.is_exact
    assert evidence.to_dict() == learned.explain(rows(1, seed=1))[0].to_dict()


def test_ids_groups_sample_weight_payloads_and_held_out_flags_survive(
    learned: AttnKNNClassifier, tmp_path: Path
) -> None:
    loaded = round_trip(learned, tmp_path)
    before, after = learned.memory_.entries, loaded.memory_.entries
    for name in ("ids", "groups", "sample_weight", "held_out", "labels", "payloads"):
        first, second = getattr(before, name), getattr(after, name)
        assert first.dtype == second.dtype
        assert first.tolist() == second.tolist()


def test_everything_that_fit_sets_survives(plain: AttnKNNClassifier, tmp_path: Path) -> None:
    loaded = round_trip(plain, tmp_path)
    assert fitted_names(loaded) == fitted_names(plain)
    assert repr(loaded.fit_report_) == repr(plain.fit_report_)  # NaN differs from itself
    assert loaded.n_neighbors_ == plain.n_neighbors_


def test_calibration_and_noise_by_class_survive(plain: AttnKNNClassifier, tmp_path: Path) -> None:
    transition = np.full((3, 3), 0.1) + 0.7 * np.eye(3)
    plain.model_ = replace(plain.model_, calibration=Calibration(1.3, 0.2, transition))
    loaded = round_trip(plain, tmp_path)
    assert same_answers(plain, loaded, rows(seed=1))
    for field in fields(Calibration):
        before, after = (getattr(c.calibration_, field.name) for c in (plain, loaded))
        assert np.array_equal(before, after)


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["ä b", "long class name", ""]),
        np.array([-5, 0, 2**40]),
        np.array([1, 2, 250], dtype=np.uint8),
        np.array([0.5, 1.0, 3.25], dtype=np.float32),
        np.array([False, True, False]),
    ],
)
def test_classes_keep_their_type_and_values(classes: np.ndarray, tmp_path: Path) -> None:
    y = classes[np.arange(N) % 3]
    if classes.dtype.kind == "f":  # halves are refused as labels by scikit-learn
        y = np.round(y * 4).astype(np.float32)
    classifier = quick().fit(rows(), y)
    loaded = round_trip(classifier, tmp_path)
    assert loaded.classes_.dtype == classifier.classes_.dtype
    assert loaded.predict(rows(seed=1)).tolist() == classifier.predict(rows(seed=1)).tolist()


@pytest.mark.parametrize("encoder", ["tabular", TableEncoder("quantile", max_categories=2)])
def test_a_table_encoder_survives_with_its_columns(encoder: Any, tmp_path: Path) -> None:
    table = pd.DataFrame(rows(), columns=["a", "b", "c"])
    table["job"] = np.array(["cook", "nurse", None, "pilot"], dtype=object)[np.arange(N) % 4]
    classifier = quick(encoder=encoder).fit(table, labels())
    loaded = round_trip(classifier, tmp_path)
    assert same_answers(classifier, loaded, table[["job", "c", "b", "a"]].iloc[::-1][table.columns])
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c", "job"]


def test_a_loaded_classifier_can_be_edited_fitted_again_and_saved_over(
    saved_learned: Path,
) -> None:
    loaded = AttnKNNClassifier.load(saved_learned)
    loaded.forget(["row 3"]).relabel(["row 4"], "bee")
    loaded.add([[0.0, 0.0, 0.0]], ["new class"], ids=["new row"])
    loaded.save(saved_learned)
    again = AttnKNNClassifier.load(saved_learned)
    assert same_answers(loaded, again, rows(seed=1))
    assert again.classes_.tolist() == ["ant", "bee", "cat", "new class"]


def test_ids_of_forgotten_entries_are_not_reused(plain: AttnKNNClassifier, tmp_path: Path) -> None:
    loaded = round_trip(plain.forget([N - 1]), tmp_path)
    loaded.add(rows(1), ["ant"])
    assert loaded.memory_.entries.ids[-1] == N


def test_an_emptied_memory_can_be_stored(plain: AttnKNNClassifier, tmp_path: Path) -> None:
    plain.forget(np.arange(N))
    loaded = round_trip(plain, tmp_path)
    assert len(loaded.memory_) == 0
    assert loaded.add(rows(), labels()).predict(rows()[:1]).tolist() == ["ant"]


@pytest.mark.parametrize(
    "payload", [object(), {1: "int key"}, (1, 2), {"deep": [{"set": {1}}]}, b"bytes"]
)
def test_a_payload_that_is_not_json_is_refused_before_anything_is_written(
    payload: Any, tmp_path: Path
) -> None:
    payloads = ["fine"] * (N - 1) + [payload]
    classifier = quick().fit(rows(), labels(), payloads=payloads)
    with pytest.raises(InvalidInputError, match=f"payload of entry {N - 1} "):
        classifier.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_payloads_may_be_any_json_and_numpy_numbers(tmp_path: Path) -> None:
    payloads: list[Any] = [None, 1.5, [1, {"a": None}], float("inf"), np.int64(7), True]
    classifier = quick().fit(rows(6), labels(6), payloads=payloads)
    loaded = round_trip(classifier, tmp_path)
    assert loaded.memory_.entries.payloads.tolist() == payloads
    missing = quick().fit(rows(6), labels(6), payloads=[{"score": float("nan")}] * 6)
    back = round_trip(missing, tmp_path / "missing").memory_.entries.payloads
    assert all(np.isnan(payload["score"]) for payload in back)


class MyMemory(NumpyMemory):
    pass


class MyAttention(DistanceAttention):
    pass


@pytest.mark.parametrize(
    ("setting", "match"),
    [
        ({"memory": MyMemory()}, "`memory=MyMemory"),
        ({"attention": MyAttention(1.0, 0.0)}, "`attention=MyAttention"),
        ({"encoder": np.sqrt}, "your own code"),
        ({"random_state": np.random.RandomState(0)}, "`random_state` must be a number"),
    ],
)
def test_code_of_the_users_own_is_refused_before_anything_is_written(
    setting: dict[str, Any], match: str, tmp_path: Path
) -> None:
    settings = {"attention": "distance", "calibration": None, "n_neighbors": 4, **setting}
    classifier = AttnKNNClassifier(**settings).fit(np.abs(rows()), labels())
    with pytest.raises(InvalidSettingError, match=match):
        classifier.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_notes_are_kept_beside_the_classifier(plain: AttnKNNClassifier, tmp_path: Path) -> None:
    save_classifier(plain, tmp_path / "model", notes={"target": "species"})
    assert load_notes(tmp_path / "model") == {"target": "species"}


def test_arrays_are_plain_npy_files_and_the_settings_are_json(saved: Path) -> None:
    assert np.load(saved / "embeddings.npy", allow_pickle=False).shape == (N, 3)
    assert json.loads((saved / "settings.json").read_text())["format"] == "attnknn-model"
    assert not [p for p in saved.iterdir() if p.suffix in (".pkl", ".joblib", ".pt")]


def test_a_loaded_model_predicts_without_leave_one_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    terms = LossTerms(calibration_weight=0.1)
    learned = LearnedAttention(loss=terms, training=TrainConfig(epochs=1))
    before = AttnKNNClassifier(attention=learned, random_state=0).fit(X, X[:, 0] > 0)
    before.save(tmp_path / "model")
    after = AttnKNNClassifier.load(tmp_path / "model")
    monkeypatch.setattr(FittedModel, "leave_one_out", lambda self: pytest.fail("computed again"))
    assert (after.predict_proba(X) == before.predict_proba(X)).all()


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan])
def test_a_trust_that_is_no_share_is_refused(tmp_path: Path, value: float) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = AttnKNNClassifier(
        attention=LearnedAttention(training=TrainConfig(epochs=1)), random_state=0
    )
    model.fit(X, X[:, 0] > 0)
    model.save(tmp_path / "model")
    change_array(tmp_path / "model", "trust", np.full(60, value))
    with pytest.raises(ModelFolderError, match="from 0 to 1"):
        AttnKNNClassifier.load(tmp_path / "model")


def test_what_load_would_refuse_is_not_saved_and_the_old_model_stays(saved: Path) -> None:
    before = AttnKNNClassifier.load(saved)
    broken = AttnKNNClassifier.load(saved)
    broken.attention_.temperature_ = 0.0
    with pytest.raises(InvalidInputError, match=r"cannot be stored.*temperature"):
        broken.save(saved)
    assert same_answers(before, AttnKNNClassifier.load(saved), rows(seed=1))
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_what_load_would_refuse_is_not_committed(saved: Path) -> None:
    with open_for_editing(saved) as model:
        with pytest.raises(InvalidInputError, match="cannot be stored"), model.edit() as edited:
            edited.attention_.temperature_ = 0.0
        assert len(model.log()) == 1
    AttnKNNClassifier.load(saved)
