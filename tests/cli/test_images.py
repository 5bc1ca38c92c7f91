"""Images, in folders and NPZ files, through every command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from attnknn import AttnKNNClassifier
from attnknn.cli.rows import npz, open_rows
from attnknn.cli.rows.sources import ImageSource
from attnknn.encoders import ImageEncoder
from attnknn.encoders.image import ImageTraining, read_image_folder
from attnknn.encoders.image.networks import NETWORKS
from tests.fitting.shapes import shapes
from tests.storage.samples import change_settings

from .samples import QUICK, animals, refused, run, write

NAMES = ["disk", "frame", "cross", "stripes"]
BRIEF = ("--epochs", "1", "--embed-dim", "8", *QUICK)


@pytest.fixture(scope="module", autouse=True)
def narrow_network() -> Iterator[None]:
    """The usual network has millions of weights; what is tested here does not depend on them."""
    narrow = replace(NETWORKS["resnet9"], widths=(8, 16, 16))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(NETWORKS, "resnet9", narrow)
        yield


def write_images(folder: Path, n: int = 24, seed: int = 0, *, flat: bool = False) -> Path:
    images, codes = shapes(n, seed)
    for row, (image, code) in enumerate(zip(images, codes, strict=True)):
        path = folder / ("" if flat else NAMES[code]) / f"{row:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return folder


def write_npz(path: Path, n: int = 24, seed: int = 0) -> Path:
    images, codes = shapes(n, seed)
    np.savez(path, X=images, y=np.array(NAMES)[codes], shot=np.arange(n) * 10)
    return path


def fit_images(train: Path, model: Path, *arguments: Any) -> str:
    result = run("fit", train, "-o", model, *BRIEF, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    fit_images(write_images(folder / "train"), folder / "model")
    return folder / "model"


def answers_of(model: Path, rows: Path, *arguments: Any) -> list[dict[str, Any]]:
    result = run("predict", model, rows, "--proba", "--format", "json", *arguments)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def chances(answers: list[dict[str, Any]]) -> np.ndarray:
    return np.array([[answer[f"p({name})"] for name in sorted(NAMES)] for answer in answers])


def test_a_classifier_learns_images_and_comes_back_from_its_folder(tmp_path: Path) -> None:
    images, codes = shapes(200)
    queries, truth = shapes(60, seed=5)
    training = ImageTraining.of(epochs=8, batch_size=32, learning_rate=0.05)
    classifier = AttnKNNClassifier(encoder=ImageEncoder(training=training), random_state=0)
    groups = np.repeat(np.arange(100), 2)
    names = [f"{row}.png" for row in range(200)]
    classifier.fit(images, codes, groups=groups, payloads=names)
    assert classifier.score(queries, truth) > 0.9
    assert (classifier.held_out_[::2] == classifier.held_out_[1::2]).all()  # groups stay whole
    assert 0 < classifier.held_out_.sum() < 50
    classifier.save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert loaded.predict_proba(queries).tobytes() == classifier.predict_proba(queries).tobytes()
    assert loaded.encoder.training == training
    evidence = loaded.explain(queries[:1])[0]
    assert evidence.payloads is not None
    assert set(evidence.payloads) <= set(names)
    assert 9 in loaded.add(queries[:1], [9]).classes_


def test_a_column_of_paths_is_learned_and_stored_too(tmp_path: Path) -> None:
    folder = read_image_folder(write_images(tmp_path / "train"))
    table = pd.DataFrame({"path": [str(path) for path in folder.paths]})
    encoder = ImageEncoder(training=ImageTraining.of(epochs=1))
    classifier = AttnKNNClassifier(encoder=encoder, random_state=0).fit(table, folder.labels)
    classifier.save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert loaded.predict(table).tolist() == classifier.predict(folder.paths).tolist()


@pytest.mark.parametrize(
    "change", [{"config": {"epochs": 0}}, {"window": "many"}, {"mixing": 3}, {"more": 1}]
)
def test_a_stored_training_is_checked(change: dict[str, Any], model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "model")

    def tamper(settings: dict[str, Any]) -> None:
        settings["params"]["encoder"]["params"]["training"].update(change)

    change_settings(tmp_path / "model", tamper)
    assert "stored training" in refused("predict", tmp_path / "model", model.parent / "train")


def test_a_folder_is_learned_and_its_files_are_shown(tmp_path: Path) -> None:
    train = write_images(tmp_path / "train", 200)
    output = run("fit", train, "-o", tmp_path / "model", "--epochs", "12").stdout
    assert f"rows              200 from {train}, target 'class'" in output
    assert "encoder           image: embedding trained on the labels, resnet9" in output
    rows = write_images(tmp_path / "rows", 40, seed=1)
    result = json.loads(run("evaluate", tmp_path / "model", rows, "--format", "json").stdout)
    assert result["scores"]["accuracy"] > 0.8
    shown = run("explain", tmp_path / "model", rows, "--row-numbers", "3", "-n", "2").stdout
    assert shown.startswith("file cross/014.png: ")
    assert shown.count(".png") == 3


def test_the_settings_reach_the_encoder(tmp_path: Path) -> None:
    train = write_images(tmp_path / "train")
    size = ("--image-size", "20x24", "--network", "resnet9", "--batch-size", "16")
    views = ("--views", "original,flip", "--n-views", "2", "--workers", "1")
    fit_images(train, tmp_path / "model", *size, *views)
    encoder = AttnKNNClassifier.load(tmp_path / "model").encoder_
    assert isinstance(encoder, ImageEncoder)
    assert (encoder.embed_dim, encoder.image_size) == (8, (20, 24))
    assert encoder.training is not None
    assert (encoder.training.config.epochs, encoder.training.config.batch_size) == (1, 16)
    assert encoder.views is not None
    assert (encoder.views.kinds, encoder.views.count) == (("original", "flip"), 2)
    assert encoder.inference.workers == 1
    small = write_images(tmp_path / "rows", 4, flat=True)
    Image.new("RGB", (9, 7)).save(small / "other.png")
    assert len(answers_of(tmp_path / "model", small)) == 5


def test_folders_with_classes_flat_ones_and_arrays_get_the_same_answers(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npz, "CHUNK_BYTES", 5 * 16 * 16 * 3)
    monkeypatch.setattr(ImageSource.chunks, "__defaults__", (3,))
    images, _ = shapes(8, seed=1)
    flat = answers_of(model, write_images(tmp_path / "flat", 8, seed=1, flat=True))
    assert [answer["file"] for answer in flat] == [f"{row:03d}.png" for row in range(8)]
    arrays = answers_of(model, write_npz(tmp_path / "rows.npz", 8, seed=1))
    assert [answer["row"] for answer in arrays] == list(range(8))
    expected = AttnKNNClassifier.load(model).predict_proba(images)
    assert chances(flat) == pytest.approx(expected, abs=1e-4)
    assert chances(arrays) == pytest.approx(expected, abs=1e-4)
    foldered = answers_of(model, write_images(tmp_path / "sorted", 8, seed=1))
    assert foldered[0]["file"] == "cross/002.png"
    assert chances(foldered[:1]) == pytest.approx(expected[2:3], abs=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
def test_arrays_are_learned_with_ids_and_payloads(channels: int, tmp_path: Path) -> None:
    images, codes = shapes(24, channels=channels)
    np.savez(tmp_path / "train.npz", train_images=images, train_labels=codes, shot=codes + 100)
    shown = ("--payload-columns", "shot")
    output = fit_images(tmp_path / "train.npz", tmp_path / "model", *shown)
    assert "target 'train_labels'" in output
    explained = run("explain", tmp_path / "model", write_gray(tmp_path, images)).stdout
    assert "shot=10" in explained


def write_gray(folder: Path, images: np.ndarray) -> Path:
    np.savez(folder / "rows.npz", test_images=images[:2])
    return folder / "rows.npz"


def test_parts_of_a_folder_are_found(tmp_path: Path) -> None:
    write_images(tmp_path / "all" / "train")
    write_images(tmp_path / "all" / "test", 8)
    assert open_rows(tmp_path / "all", part="train").path == tmp_path / "all" / "train"
    assert open_rows(tmp_path / "all").path == tmp_path / "all" / "test"
    shutil.rmtree(tmp_path / "all" / "test")
    with pytest.raises(ValueError, match="must have a subfolder test or val"):
        open_rows(tmp_path / "all")


def test_other_files_are_left_out_with_a_warning(tmp_path: Path) -> None:
    train = write_images(tmp_path / "train")
    (train / "disk" / "notes.txt").write_text("x")
    with pytest.warns(UserWarning, match=r"not images: 1, such as .*notes.txt"):
        open_rows(train, part="train")


def refused_fit(train: Path, *arguments: Any) -> str:
    model = train.parent / "new"
    line = refused("fit", train, "-o", model, *BRIEF, *arguments)
    assert not model.exists()
    return line


def test_an_unreadable_image_is_named(model: Path, tmp_path: Path) -> None:
    train = write_images(tmp_path / "train")
    whole = (train / "disk" / "000.png").read_bytes()
    for data in (b"no image", whole[: len(whole) // 2]):
        (train / "disk" / "000.png").write_bytes(data)
        assert "disk/000.png cannot be read as an image" in refused_fit(train)
        assert "disk/000.png cannot be read as an image" in refused("predict", model, train)


def test_images_of_several_sizes_need_one(model: Path, tmp_path: Path) -> None:
    train = write_images(tmp_path / "train")
    Image.new("RGB", (9, 7)).save(train / "disk" / "000.png")
    line = refused_fit(train)
    assert "disk/000.png is 7 × 9" in line
    assert line.endswith("Set --image-size to resize them.")
    line = refused("predict", model, train)
    assert "disk/000.png has 7 × 9 pixels, the encoder was fitted on 16 × 16" in line
    assert "--image-size" in line


def test_folders_without_classes_or_images_are_named(model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert f"{tmp_path / 'empty'} must have a subfolder" in refused_fit(tmp_path / "empty")
    assert f"{tmp_path / 'empty'} has no images" in refused("predict", model, tmp_path / "empty")
    flat = write_images(tmp_path / "flat", 4, flat=True)
    assert "flat/000.png is in no class" in refused_fit(flat)
    line = refused("evaluate", model, flat)
    assert "must be in a subfolder named after its class; 000.png is not" in line
    (flat / "disk").mkdir()
    (flat / "disk" / "x.png").write_bytes((flat / "000.png").read_bytes())
    assert len(answers_of(model, flat)) == 5


def test_one_image_of_a_class_is_enough(tmp_path: Path) -> None:
    train = write_images(tmp_path / "train")
    for name in ("frame", "cross"):
        shutil.rmtree(train / name)
    for file in sorted((train / "stripes").iterdir())[1:]:
        file.unlink()
    fit_images(train, tmp_path / "model")


def test_what_a_model_reads_is_said(model: Path, train: Path, tmp_path: Path) -> None:
    assert "This model reads images" in refused("predict", model, train)
    table = write(animals(), tmp_path / "table.csv")
    run("fit", table, "-t", "kind", "-o", tmp_path / "plain", "--drop-columns", "name", *QUICK)
    folder = write_images(tmp_path / "images", 4)
    assert "was not fitted on images" in refused("predict", tmp_path / "plain", folder)
    np.savez(tmp_path / "bad.npz", X=np.zeros((4, 8, 8)), y=[0, 1, 0, 1])
    assert "uint8 images" in refused_fit(tmp_path / "bad.npz")


def test_options_that_do_not_fit_are_wrong_usage(train: Path, tmp_path: Path) -> None:
    arguments = ("fit", train, "-t", "kind", "-o", tmp_path / "m")
    assert run(*arguments, "--network", "resnet9").exit_code == 2
    assert run(*arguments, "--image-size", "32").exit_code == 2
    assert run(*arguments, "--views", "flip").exit_code == 2
    assert run(*arguments, "--encoder", "image").exit_code == 2
    folder = write_images(tmp_path / "images", 4)
    assert run("fit", folder, "-o", tmp_path / "m", "--image-size", "big").exit_code == 2
    assert run("fit", folder, "-o", tmp_path / "m", "--encoder", "tabular").exit_code == 2
    assert run("fit", folder, "-o", tmp_path / "m", "--n-views", "2").exit_code == 2
    upside = run("fit", folder, "-o", tmp_path / "m", "--views", "upside-down")
    assert (upside.exit_code, "kind of view" in upside.stderr) == (2, True)
    assert "resnet9" in refused_fit(folder, "--network", "resnet7")
