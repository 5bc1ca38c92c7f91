"""Folders that are damaged, foreign or hostile are refused by name, and run no code."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import sqlite3
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file, save_file

from attnknn import AttnKNNClassifier, ImageEncoder, open_for_editing
from attnknn.encoders.image import ImageTraining
from attnknn.errors import ModelFolderError, TooLargeError
from attnknn.insight import weigh_by_age
from attnknn.storage import load_notes
from attnknn.storage.store.head import head_of, write_head
from attnknn.training import TrainConfig

from .samples import (
    N,
    change_array,
    change_settings,
    labels,
    quick,
    resign,
    rows,
    same_answers,
    with_store,
)


def refuses(folder: Path, match: str = ".") -> None:
    with pytest.raises(ModelFolderError, match=match):
        AttnKNNClassifier.load(folder)


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    refuses(tmp_path / "nowhere", "no model folder at .*nowhere")


def test_a_file_is_not_a_model(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    refuses(tmp_path / "file", "is a file")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "other"}', "\x00", "[" * 100_000])
def test_a_folder_of_something_else_is_not_a_model(text: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text)
    refuses(tmp_path, "model folder")


def test_every_missing_file_is_named(saved_learned: Path, tmp_path: Path) -> None:
    for name in [p.name for p in saved_learned.iterdir() if p.name != "manifest.json"]:
        broken = tmp_path / f"without {name}"
        shutil.copytree(saved_learned, broken)
        (broken / name).unlink()
        refuses(broken, name)


def test_a_wrong_checksum_is_refused(saved: Path) -> None:
    array = np.load(saved / "sample_weight.npy")
    array[3] = 2.0
    np.save(saved / "sample_weight.npy", array)
    refuses(saved, "sample_weight.npy is not what was written")


def test_a_truncated_array_is_refused(saved: Path) -> None:
    data = (saved / "embeddings.npy").read_bytes()
    (saved / "embeddings.npy").write_bytes(data[:-5])
    refuses(saved, "embeddings.npy has")
    resign(saved, "embeddings.npy")
    refuses(saved, "shape")


def test_pickles_inside_arrays_are_never_opened(saved: Path, tmp_path: Path) -> None:
    trap = np.full(N, Trap(tmp_path / "sprung"), dtype=object)
    for name in ("embeddings", "labels", "ids", "sample_weight", "held_out", "groups", "center"):
        whole = (saved / f"{name}.npy").read_bytes()
        change_array(saved, name, trap)
        refuses(saved, f"{name}.npy ")
        (saved / f"{name}.npy").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
        resign(saved, f"{name}.npy")
        refuses(saved, f"{name}.npy is not a .npy file")
        (saved / f"{name}.npy").write_bytes(whole)
        resign(saved, f"{name}.npy")
    assert not (tmp_path / "sprung").exists()
    AttnKNNClassifier.load(saved)


@pytest.mark.parametrize("name", ["../secret.npy", "/etc/passwd", "a/b.npy", "..", "x.pkl", ""])
def test_names_that_lead_out_of_the_folder_are_refused(name: str, saved: Path) -> None:
    manifest = json.loads((saved / "manifest.json").read_text())
    manifest["files"][name] = {"bytes": 0, "sha256": "0" * 64}
    (saved / "manifest.json").write_text(json.dumps(manifest))
    refuses(saved, "invalid file name")


@pytest.mark.parametrize("name", ["embeddings.npy", "settings.json", "manifest.json"])
def test_links_are_not_followed(name: str, saved: Path, tmp_path: Path) -> None:
    (saved / name).rename(tmp_path / "elsewhere")
    (saved / name).symlink_to(tmp_path / "elsewhere")
    refuses(saved, name)


def test_pipes_are_not_waited_for(saved: Path) -> None:
    (saved / "labels.npy").unlink()
    os.mkfifo(saved / "labels.npy")
    refuses(saved, "labels.npy cannot be read")


@pytest.mark.parametrize("version", [0, 3, 6, "4", None, 4.5, True])
def test_another_version_is_refused(version: Any, saved: Path) -> None:
    manifest = json.loads((saved / "manifest.json").read_text())
    manifest["version"] = version
    (saved / "manifest.json").write_text(json.dumps(manifest))
    refuses(saved, "version")


@pytest.mark.parametrize("version", [1, 3])
def test_a_folder_of_an_older_version_must_be_fitted_again(version: int, saved: Path) -> None:
    manifest = json.loads((saved / "manifest.json").read_text())
    (saved / "manifest.json").write_text(json.dumps({**manifest, "version": version}))
    (saved / "entries.sqlite").touch()  # version 3 had a store
    refuses(saved, r"written by an older development version .* fit the model again")
    with pytest.raises(ModelFolderError, match="older development version"):
        open_for_editing(saved)
    quick().fit(rows(), labels()).save(saved)  # replaces it
    assert not (saved / "entries.sqlite").exists()
    AttnKNNClassifier.load(saved)


def header(shape: str, descr: str = "'<f4'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "shape", ["(10**12, 3)", "(99999999999999, 99999999999999)", "(-1, -3)", "(40, -3)", "(2,)"]
)
def test_a_huge_or_odd_shape_reserves_no_memory(shape: str, saved: Path) -> None:
    (saved / "embeddings.npy").write_bytes(header(shape) + bytes(16))
    resign(saved, "embeddings.npy")
    refuses(saved, "embeddings.npy")


@pytest.mark.parametrize(
    ("name", "array", "match"),
    [
        ("embeddings", np.full((N, 3), np.nan, np.float32), "finite"),
        ("embeddings", np.zeros((N + 1, 3), np.float32), "shape"),
        ("embeddings", np.zeros((N, 4), np.float32), "shape"),
        ("embeddings", np.zeros((3, N), np.float32).T, "plain numbers"),
        ("labels", np.full(N, 3), "codes from 0 to 2"),
        ("labels", np.full(N, -1), "codes from 0 to 2"),
        ("labels", np.zeros(N, np.int32), "must hold int64"),
        ("ids", np.zeros(N, np.int64), "distinct"),
        ("sample_weight", np.zeros(N), "positive"),
        ("sample_weight", np.full(N, np.inf), "positive"),
        ("center", np.full(3, np.nan), "finite"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(
    name: str, array: np.ndarray, match: str, saved: Path
) -> None:
    change_array(saved, name, array)
    refuses(saved, match)


@pytest.mark.parametrize("wrong", [0.0, 1.5, np.nan])
def test_decay_that_makes_no_sense_is_refused(wrong: float, tmp_path: Path) -> None:
    classifier = quick().fit(rows(), labels())
    weigh_by_age(classifier, 5)
    classifier.save(tmp_path / "model")
    change_array(tmp_path / "model", "decay", np.full(N, wrong))
    refuses(tmp_path / "model", "decay.npy must hold numbers above 0")


def test_a_folder_without_a_decay_setting_has_no_decay(saved: Path) -> None:
    change_settings(saved, lambda settings: settings["memory"].pop("has_decay"))
    assert AttnKNNClassifier.load(saved).memory_.entries.decay is None


def put(*path_and_value: Any) -> Callable[[dict[str, Any]], None]:
    *path, value = path_and_value

    def change(settings: dict[str, Any]) -> None:
        for step in path[:-1]:
            settings = settings[step]
        settings[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        put("params", []),
        put("params", "n_neighbors", {"class": "os.system"}),
        put("params", "attention", {"class": "Trap", "params": {}}),
        put("params", "attention", {"class": "UniformAttention", "params": {"evil": 1}}),
        put("params", "memory", {"class": ["x"], "params": {}}),
        put("params", "__class__", 1),
        put("classes", "values", ["ant", "bee", "bee"]),
        put("classes", "values", ["ant", "bee", 3]),
        put("classes", "values", []),
        put("classes", "dtype", "|O"),
        put("classes", "dtype", "<U999999999"),
        put("classes", None),
        put("n_neighbors", "8"),
        put("n_neighbors", 0),
        put("n_neighbors", True),
        put("n_features_in", 4),
        put("feature_names_in", [1, 2, 3]),
        put("feature_names_in", ["only one"]),
        put("fit_report", {}),
        put("fit_report", "accuracy", "high"),
        put("encoder", "encoder", "pickle"),
        put("encoder", "n_features_in", None),
        put("encoder", []),
        put("encoder_arrays", ["../../etc"]),
        put("attention", "temperature", 0),
        put("attention", "temperature", -1.0),
        put("attention", "prior_score", None),
        put("attention", "part", "class", "LearnedAttention"),
        put("calibration", "exponent", 0),
        put("calibration", "label_noise", 2.0),
        put("calibration", "has_transition", True),
        put("memory", "metric", "manhattan"),
        put("memory", "metric", "cosine"),
        put("memory", "has_payloads", True),
        put("memory", "has_text_ids", True),
        put("memory", "has_text_ids", 0),
        put("memory", "part", {"class": "FaissMemory", "params": {}}),
        put("memory", "part", "params", "device", ["cpu"]),
        put("memory", "part", "params", "device", "tpu"),
        put("memory", "part", "params", "exact_up_to", "many"),
        put("memory", "least_next_id", -1),
        put("format", "other"),
        put("version", 99),
    ],
)
def test_settings_of_a_wrong_type_are_refused(
    change: Callable[[dict[str, Any]], None], saved: Path
) -> None:
    change_settings(saved, change)
    refuses(saved)


@pytest.mark.parametrize(
    "change",
    [
        put("encoder", "columns", []),
        put("encoder", "columns", 0, "scale", "1"),
        put("encoder", "columns", 0, "scale", 0.0),
        put("encoder", "columns", 0, "fill", None),
        put("encoder", "columns", 0, "kind", "code"),
        put("encoder", "columns", 0, "is_constant", 0),
        put("encoder", "columns", 1, "categories", [1, 2]),
        put("encoder", "columns", 1, "categories", "cook"),
        put("encoder", "columns", 1, "evil", True),
        put("encoder", "columns", 1, "name", ["x"]),
        put("encoder", "scaling", "other"),
        put("encoder", "feature_names_in", 7),
        put("encoder", "dropped", 7),
    ],
)
def test_a_table_encoder_that_makes_no_sense_is_refused(
    change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    table = pd.DataFrame({"a": rows()[:, 0], "job": np.array(["cook", "nurse"])[np.arange(N) % 2]})
    quick(encoder="tabular").fit(table, labels()).save(tmp_path / "model")
    change_settings(tmp_path / "model", change)
    refuses(tmp_path / "model")


def test_notes_must_be_texts(saved: Path) -> None:
    change_settings(saved, put("notes", {"a": 1}))
    with pytest.raises(ModelFolderError, match="must be a text"):
        load_notes(saved)


def test_every_setting_may_be_missing_or_null_and_is_refused_or_harmless(
    saved: Path, plain: AttnKNNClassifier
) -> None:
    whole = json.loads((saved / "settings.json").read_text())
    for name in whole:
        without = {key: value for key, value in whole.items() if key != name}
        for settings in (without, {**whole, name: None}):
            (saved / "settings.json").write_text(json.dumps(settings))
            resign(saved, "settings.json")
            try:
                loaded = AttnKNNClassifier.load(saved)
            except ModelFolderError:
                continue
            assert same_answers(plain, loaded, rows(seed=1)), name


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "1" * 5000])
def test_nan_and_infinite_settings_are_refused(number: str, saved: Path) -> None:
    text = (saved / "settings.json").read_text()
    text = text.replace('"exponent": 1.0', f'"exponent": {number}')
    (saved / "settings.json").write_text(text)
    resign(saved, "settings.json")
    refuses(saved)


@pytest.mark.parametrize(
    "change",
    [
        put("attention", "fitted", "shape", "dim", 10**12),
        put("attention", "fitted", "shape", "n_heads", 10**12),
        put("attention", "fitted", "shape", "head_dim", 0),
        put("attention", "fitted", "shape", "n_classes", 4),
        put("attention", "fitted", "shape", "trust", 1),
        put("attention", "fitted", "shape", "trust", False),
        put("attention", "fitted", "shape", "temperature_bounds", [2.0, 1.0]),
        put("attention", "part", "name", "unknown"),
        put("attention", "fitted", "first_look", "temperature", -1.0),
        put("attention", "fitted", "first_look", None),
    ],
)
def test_learned_attention_of_another_shape_is_refused(
    change: Callable[[dict[str, Any]], None], saved_learned: Path
) -> None:
    change_settings(saved_learned, change)
    refuses(saved_learned)


@pytest.mark.parametrize(
    "change",
    [
        put("value_head", "shape", "dim", 10**12),
        put("value_head", "shape", "width", 10**12),
        put("value_head", "shape", "value_dim", 10**12),
        put("value_head", "shape", "n_classes", 2),
        put("value_head", "shape", "width", 0),
        put("value_head", "shape", {}),
        put("value_head", "places", [0, 1]),
        put("value_head", "places", [0, 1, 1]),
        put("value_head", "places", [0, 1, 3]),
        put("value_head", "places", [0, 1, -1]),
        put("value_head", "places", [0, 1, 2.0]),
        put("value_head", "places", "all"),
        put("value_head", "temperature", 0.0),
        put("value_head", []),
    ],
)
def test_a_value_head_of_another_shape_is_refused(
    change: Callable[[dict[str, Any]], None], saved_learned: Path
) -> None:
    change_settings(saved_learned, change)
    refuses(saved_learned)


@pytest.mark.parametrize(
    ("name", "value"), [("spread", 0.0), ("spread", -1.0), ("exit.weight", np.nan)]
)
def test_numbers_that_a_value_head_cannot_have_are_refused(
    name: str, value: float, saved_learned: Path
) -> None:
    path = saved_learned / "value_head.safetensors"
    tensors = load_file(path)
    tensors[name].fill_(value)
    save_file(tensors, path)
    resign(saved_learned, path.name)
    refuses(saved_learned, f"array `{name}` must hold")


def test_tensors_that_are_not_finite_or_not_safetensors_are_refused(saved_learned: Path) -> None:
    path = saved_learned / "attention.safetensors"
    tensors = load_file(path)
    tensors["projection"][0, 0, 0] = np.nan
    save_file(tensors, path)
    resign(saved_learned, path.name)
    refuses(saved_learned, "finite")
    path.write_bytes(pickle.dumps(Trap(saved_learned / "sprung")))
    resign(saved_learned, path.name)
    refuses(saved_learned, "not a safetensors file")
    assert not (saved_learned / "sprung").exists()


@pytest.mark.parametrize(
    "change",
    [{"m": 10**9}, {"n_lists": 10**9}, {"ef_construction": 10**12}, {"index": "gpu"}, {"m": "x"}],
)
def test_an_index_of_a_hostile_size_is_not_built(change: dict[str, Any], saved: Path) -> None:
    from attnknn import FaissMemory

    params = {**FaissMemory("hnsw").get_params(), **change}
    change_settings(saved, put("memory", "part", {"class": "FaissMemory", "params": params}))
    refuses(saved)


def test_text_ids_must_be_texts_one_per_entry(saved_learned: Path) -> None:
    path = saved_learned / "ids.jsonl"
    lines = path.read_text().splitlines()
    for changed in (lines[:-1], [*lines, '"more"'], ["7", *lines[1:]], ["{", *lines[1:]]):
        path.write_text("".join(f"{line}\n" for line in changed))
        resign(saved_learned, path.name)
        refuses(saved_learned, "ids.jsonl")


def test_flipped_and_cut_bytes_never_change_a_prediction(
    saved_learned: Path, learned: AttnKNNClassifier
) -> None:
    generator = np.random.default_rng(0)
    queries = rows(5, seed=1)
    expected = learned.predict_proba(queries).tobytes()
    for path in sorted(saved_learned.iterdir()):
        whole = path.read_bytes()
        for calibration_batch in range(12):
            damaged = bytearray(whole)
            place = int(generator.integers(len(whole)))
            if calibration_batch % 3 == 0:
                damaged = damaged[:place]
            else:
                damaged[place] ^= 1 << int(generator.integers(8))
            path.write_bytes(damaged)
            try:
                loaded = AttnKNNClassifier.load(saved_learned)
            except ModelFolderError:
                continue
            assert loaded.predict_proba(queries).tobytes() == expected, path.name
        path.write_bytes(whole)
    AttnKNNClassifier.load(saved_learned)


def test_a_file_with_holes_is_refused(saved: Path) -> None:
    """An archive of a few kB may hold a file of gigabytes that are all holes."""
    n = 1 << 22
    with open(saved / "embeddings.npy", "wb") as file:
        file.write(header(f"({n}, 3)"))
        file.truncate(len(header(f"({n}, 3)")) + 12 * n)
    manifest = json.loads((saved / "manifest.json").read_text())
    manifest["files"]["embeddings.npy"]["bytes"] = (saved / "embeddings.npy").stat().st_size
    (saved / "manifest.json").write_text(json.dumps(manifest))
    refuses(saved, r"embeddings.npy cannot be read \(a file with holes\)")


def test_a_folder_that_needs_more_memory_than_there_is_is_refused(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = json.loads((saved / "manifest.json").read_text())
    manifest["files"]["embeddings.npy"]["bytes"] = 10**15
    (saved / "manifest.json").write_text(json.dumps(manifest))
    refuses(saved, r"would need 2,000,000\.0 GB of memory")


def test_settings_of_many_bytes_are_not_parsed(saved: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("attnknn.storage.files.MAX_SETTINGS_BYTES", 1000)
    refuses(saved, "settings.json must have at most 1,000 bytes")


def many_classes(folder: Path, n: int) -> None:
    def change(settings: dict[str, Any]) -> None:
        settings["classes"] = {"dtype": "<U6", "values": [f"{i:06}" for i in range(n)]}

    change_settings(folder, change)


def test_predictions_of_many_classes_need_little_memory(saved: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("attnknn.model.CELLS_AT_ONCE", 1 << 18)
    many_classes(saved, 20_000)
    classifier = AttnKNNClassifier.load(saved)
    tracemalloc.start()
    labels_of_rows = classifier.predict(rows(400, seed=1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6 < 400 * 20_000 * 8
    assert set(labels_of_rows) <= {"000000", "000001", "000002"}


def test_a_result_that_needs_more_memory_than_there_is_is_refused(
    saved: Path, monkeypatch: Any
) -> None:
    many_classes(saved, 100_000)
    classifier = AttnKNNClassifier.load(saved)
    monkeypatch.setattr("attnknn._limits.available_bytes", lambda limit: 10**9)
    with pytest.raises(TooLargeError, match="Pass fewer rows at a time"):
        classifier.predict_proba(rows(10_000))


@pytest.mark.parametrize("limit", ["MAX_CLASSES", "MAX_CLASS_CHARACTERS"])
def test_there_is_a_limit_of_classes_and_of_their_names(
    limit: str, saved: Path, monkeypatch: Any
) -> None:
    """Each name is padded to the longest: a long one costs as much as there are classes."""
    monkeypatch.setattr(f"attnknn.storage.unpacking.{limit}", 2)
    refuses(saved, "`classes` must be at most")


def test_images_of_many_pixels_are_refused(tmp_path: Path) -> None:
    encoder = ImageEncoder(widths=(4, 4, 4), image_size=16)
    pixels = np.random.default_rng(0).integers(0, 256, (N, 16, 16), dtype=np.uint8)
    training = ImageTraining(TrainConfig(epochs=1))
    quick(encoder=encoder.set_params(training=training)).fit(pixels, labels()).save(tmp_path / "m")

    def change(settings: dict[str, Any]) -> None:
        settings["encoder"]["shape"] = [1, 4096, 4096]
        settings["encoder"]["settings"]["image_size"] = 4096
        settings["n_features_in"] = 4096 * 4096

    change_settings(tmp_path / "m", change)
    refuses(tmp_path / "m", "at most 1,048,576 pixels")


def test_a_lock_that_is_a_link_creates_no_file_elsewhere(path: Path, tmp_path: Path) -> None:
    with_store(path)
    (path / "writer.lock").unlink()
    (path / "writer.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelFolderError, match=r"writer\.lock must be a file"):
        open_for_editing(path)
    with pytest.raises(ModelFolderError, match=r"writer\.lock must be a file"):
        quick().fit(rows(), labels()).save(path, discard_history=True)
    assert not (tmp_path / "elsewhere").exists()
    (path / "writer.lock").unlink()
    os.mkfifo(path / "writer.lock")
    with pytest.raises(ModelFolderError, match=r"writer\.lock must be a file"):
        open_for_editing(path)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_files_of_a_store_that_are_links_or_pipes_are_refused(
    suffix: str, path: Path, tmp_path: Path
) -> None:
    with_store(path)
    name = path / f"entries.sqlite{suffix}"
    (name.rename if name.exists() else Path.touch)(tmp_path / "elsewhere")
    for harm in (lambda: name.symlink_to(tmp_path / "elsewhere"), lambda: os.mkfifo(name)):
        harm()
        refuses(path, name.name)
        with pytest.raises(ModelFolderError, match=name.name):
            open_for_editing(path)
        name.unlink()


def test_classes_of_a_store_that_are_a_text_are_refused(path: Path) -> None:
    with_store(path)
    with sqlite3.connect(path / "entries.sqlite") as database:
        query = "select content from parts where name = 'settings.json'"
        settings = json.loads(database.execute(query).fetchone()[0])
        for wrong in ("ant", {"dtype": "<U3", "values": "ant"}, None):
            content = json.dumps({**settings, "classes": wrong}).encode()
            sha256 = hashlib.sha256(content).hexdigest()
            change = "update parts set (content, sha256) = (?, ?) where name = 'settings.json'"
            database.execute(change, (content, sha256))
            database.commit()
            refuses(path, "classes")
            with pytest.raises(ModelFolderError, match="classes"):
                open_for_editing(path)
    database.close()


def test_a_store_whose_log_lost_a_line_is_refused_by_every_door(path: Path) -> None:
    with open_for_editing(path) as model:
        model.forget([1])
    with sqlite3.connect(path / "entries.sqlite") as database:
        database.execute("delete from log")
    database.close()
    refuses(path, "log")
    with pytest.raises(ModelFolderError, match="log"):
        open_for_editing(path)
    with pytest.raises(ModelFolderError, match="log"):
        quick().fit(rows(), labels()).save(path, discard_history=False)


def test_an_entry_of_many_versions_is_not_repeated(path: Path) -> None:
    """Each version would repeat the embedding, which may be large."""
    with_store(path)
    with sqlite3.connect(path / "entries.sqlite") as database:
        for since in range(1, 50):
            database.execute(
                "insert into versions select seq, ?, until, label, sample_weight, decay, held_out, "
                "digest from versions where seq = 3 and since = 0",
                (-since,),
            )
        database.execute("update log set n_entries = 89")
        write_head(path, head_of(database))  # as an attacker would
    database.close()
    refuses(path, "more entries than were written")
