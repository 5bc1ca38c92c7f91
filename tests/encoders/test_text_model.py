"""Models behind the text encoder: what is refused before it can run, fingerprints, the hub."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

from attnknn.encoders import TextEncoder
from attnknn.encoders.text_model import TextModel, check_is_data, fingerprint_of
from attnknn.errors import AttnKNNError, InvalidSettingError, ModelFolderError

from .conftest import TEXTS

COMMIT = "a" * 40


@pytest.fixture
def copy(bert_folder, tmp_path):
    """A real model that may be damaged."""
    return shutil.copytree(bert_folder, tmp_path / "copy")


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_a_plain_model_is_data(plain_folder):
    check_is_data(plain_folder)


@pytest.mark.parametrize(
    "kind", ["evil.Transformer", "sentence_transformers.models.Router", "os.system", "Transformer"]
)
def test_modules_that_are_not_on_the_list_are_refused(kind, plain_folder):
    (plain_folder / "modules.json").write_text(json.dumps([{"type": kind, "path": ""}]))
    with pytest.raises(InvalidSettingError, match=f"only plain modules are run, not {kind}"):
        check_is_data(plain_folder)


@pytest.mark.parametrize(
    "modules",
    [
        [],
        {},
        7,
        ["x"],
        [{"type": "sentence_transformers.models.Pooling"}],
        [{"type": "sentence_transformers.models.Pooling", "path": "../elsewhere"}],
        [{"type": "sentence_transformers.models.Pooling", "path": "/etc"}],
    ],
)
def test_lists_of_modules_that_make_no_sense_are_refused(modules, plain_folder):
    (plain_folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InvalidSettingError, match=r"modules\.json must list modules"):
        check_is_data(plain_folder)


def test_a_folder_without_modules_is_no_model(tmp_path):
    with pytest.raises(InvalidSettingError, match=r"modules\.json cannot be read"):
        TextEncoder(tmp_path).fit(TEXTS)


def test_pickled_weights_are_refused(plain_folder):
    (plain_folder / "model.safetensors").rename(plain_folder / "pytorch_model.bin")
    with pytest.raises(InvalidSettingError, match="weights must be safetensors"):
        check_is_data(plain_folder)


@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("config.json", "auto_map"),
        ("config.json", "quantization_config"),
        ("config.json", "attn_implementation"),
        ("tokenizer_config.json", "auto_map"),
        ("sentence_bert_config.json", "model_args"),
        ("1_Pooling/config.json", "auto_map"),
    ],
)
def test_configurations_that_name_code_are_refused(file, key, plain_folder):
    (plain_folder / file).write_text(json.dumps({"inner": [{key: "someone/code"}]}))
    with pytest.raises(InvalidSettingError, match=f"sets `{key}`, which can run code"):
        check_is_data(plain_folder)


def test_adapters_are_refused(plain_folder):
    (plain_folder / "adapter_config.json").write_text("{}")
    with pytest.raises(InvalidSettingError, match="adapter"):
        check_is_data(plain_folder)


def test_python_files_of_a_model_never_run(copy, tmp_path):
    trace = tmp_path / "trace"
    (copy / "evil.py").write_text(f"open({str(trace)!r}, 'w')\nclass Evil: pass\n")
    modules = json.loads((copy / "modules.json").read_text())
    modules.append({"idx": 2, "name": "2", "path": "", "type": "evil.Evil"})
    (copy / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InvalidSettingError, match="only plain modules"):
        TextEncoder(copy).fit(TEXTS)
    assert not trace.exists()


def test_a_damaged_model_is_one_clear_error(copy):
    (copy / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(InvalidSettingError, match=r"cannot be used: it does not load"):
        TextEncoder(copy).fit(TEXTS)


def test_a_device_that_is_not_there_is_one_clear_error(bert_folder):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is such a device")
    with pytest.raises(InvalidSettingError, match="device='cuda'"):
        TextEncoder(bert_folder, device="cuda").fit(TEXTS)


def test_the_fingerprint_is_of_names_and_contents_of_the_model_only(plain_folder):
    before = fingerprint_of(plain_folder)
    (plain_folder / "README.md").write_text("about")
    (plain_folder / "onnx").mkdir()
    (plain_folder / "onnx" / "config.json").write_text("{}")
    assert fingerprint_of(plain_folder) == before
    (plain_folder / "vocab.txt").write_text("a")
    added = fingerprint_of(plain_folder)
    (plain_folder / "vocab.txt").rename(plain_folder / "vocabulary.txt")
    assert len({before, added, fingerprint_of(plain_folder)}) == 3


def test_the_fingerprint_does_not_depend_on_where_the_model_lies(plain_folder, tmp_path):
    moved = shutil.copytree(plain_folder, tmp_path / "moved")
    assert fingerprint_of(moved) == fingerprint_of(plain_folder)


@pytest.fixture
def hub(bert_folder, tmp_path, monkeypatch):
    """The hub's own cache with one model in it, and no network."""
    snapshot = tmp_path / "hub" / "models--someone--tiny" / "snapshots" / COMMIT
    shutil.copytree(bert_folder, snapshot)
    reference = snapshot.parent.parent / "refs" / "main"
    reference.parent.mkdir()
    reference.write_text(COMMIT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return snapshot


def test_a_hub_name_is_pinned_to_its_commit_and_found_again(hub, bert_folder, tmp_path):
    encoder = TextEncoder("someone/tiny").fit(TEXTS)
    assert (encoder.model_.source, encoder.model_.revision) == ("hub", COMMIT)
    assert encoder.model_.fingerprint == fingerprint_of(bert_folder)
    loaded = TextEncoder.from_settings(*encoder.to_settings())
    (hub.parent.parent / "refs" / "main").write_text("b" * 40)  # the hub has moved on
    assert np.array_equal(loaded.transform(TEXTS), encoder.transform(TEXTS))
    change(hub / "tokenizer_config.json", model_max_length=3)
    again = TextEncoder.from_settings(*encoder.to_settings())
    with pytest.raises(ModelFolderError, match="got another"):
        again.transform(TEXTS)


def test_a_name_that_neither_folder_nor_hub_know_is_one_clear_error(hub):
    with pytest.raises(InvalidSettingError, match="no folder someone/other, and the hub says"):
        TextEncoder("someone/other").fit(TEXTS)


def test_a_stored_folder_never_becomes_a_name_of_the_hub(plain_folder, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "someone").mkdir()
    plain_folder.rename(tmp_path / "someone" / "tiny")
    stored = TextModel.find("someone/tiny").to_settings()
    (tmp_path / "someone" / "tiny").rename(tmp_path / "gone")
    with pytest.raises(ModelFolderError, match="is missing"):
        TextModel.from_settings(stored).folder()


def harm_by_pipe(path, tmp_path):
    os.mkfifo(path)


def harm_by_device(path, tmp_path):
    path.symlink_to("/dev/zero")


def harm_by_link(path, tmp_path):
    path.symlink_to(tmp_path / "moved")  # the right content


@pytest.mark.parametrize("harm", [harm_by_pipe, harm_by_device, harm_by_link])
@pytest.mark.parametrize("name", ["modules.json", "config.json"])
def test_a_stored_model_is_read_from_plain_files_only(harm, name, plain_folder, tmp_path):
    """Whoever wrote the model folder may have put anything where its text model should be."""
    stored = TextModel.find(str(plain_folder)).to_settings()
    (plain_folder / name).rename(tmp_path / "moved")
    harm(plain_folder / name, tmp_path)
    with pytest.raises(AttnKNNError, match=r"cannot be (read|used)|must be the one"):
        TextModel.from_settings(stored)


def test_a_stored_folder_that_is_a_link_is_not_followed(plain_folder, tmp_path):
    stored = TextModel.find(str(plain_folder)).to_settings()
    plain_folder.rename(tmp_path / "elsewhere")
    plain_folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelFolderError, match="is missing"):
        TextModel.from_settings(stored)
    given_by_user = TextModel.find(str(plain_folder))  # a link of the user is stored as its target
    assert given_by_user.given == str(tmp_path / "elsewhere")
    TextModel.from_settings(given_by_user.to_settings())


def test_links_inside_the_cache_of_the_hub_are_followed(hub):
    blob = hub.parent.parent / "blobs" / "modules"
    blob.parent.mkdir()
    (hub / "modules.json").rename(blob)
    (hub / "modules.json").symlink_to("../../blobs/modules")
    assert TextModel.find(str(hub)).source == "folder"


def test_a_stored_model_connects_to_the_hub_only_if_that_is_allowed(monkeypatch):
    import huggingface_hub

    asked = []

    def download(name, *, local_files_only=False, **settings):
        asked.append(local_files_only)
        raise OSError("not here")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    model = TextModel("someone/tiny", "hub", COMMIT, "0" * 64)
    with pytest.raises(ModelFolderError, match="ATTNKNN_ALLOW_DOWNLOADS=1"):
        model.folder()
    assert asked == [True]
    monkeypatch.setenv("ATTNKNN_ALLOW_DOWNLOADS", "1")
    with pytest.raises(ModelFolderError, match="the hub says"):
        model.folder()
    assert asked == [True, True, False]


def test_a_model_that_cannot_encode_is_one_clear_error(copy):
    modules = json.loads((copy / "modules.json").read_text())
    (copy / "modules.json").write_text(json.dumps(modules[1:]))  # nothing takes texts
    with pytest.raises(InvalidSettingError, match="cannot be used: it does not encode texts"):
        TextEncoder(copy).fit(TEXTS)
