"""Which encoder a file gets, and parts of other packages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnknn import AttnKNNClassifier, registry
from attnknn.cli.fit import fit
from attnknn.encoders import IdentityEncoder, LearnedTableEncoder
from attnknn.memory import NumpyMemory
from attnknn.training import TrainConfig

from .samples import QUICK, animals, refused, run, write

SHORT = ("--epochs", "1", "--embed-dim", "8")


def fitted(n_rows: int, folder: Path, *arguments: Any) -> str:
    path = write(animals(n_rows), folder / "train.csv")
    roles = ("-t", "kind", "--id-column", "name", "-o", folder / "model")
    result = run("fit", path, *roles, *QUICK, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_table_is_embedded_by_training_on_request(tmp_path: Path) -> None:
    output = fitted(300, tmp_path, "--encoder", "learned-tabular", *SHORT)
    assert "encoder           learned-tabular: requested" in output
    encoder = AttnKNNClassifier.load(tmp_path / "model").encoder_
    assert isinstance(encoder, LearnedTableEncoder)
    assert (encoder.training.epochs, encoder.embed_dim) == (1, 8)


def test_the_encoder_follows_the_rows_unless_one_is_requested(tmp_path: Path) -> None:
    assert "encoder           tabular: a table of several types" in fitted(60, tmp_path)


def test_a_trained_model_reads_rows_as_any_other(tmp_path: Path) -> None:
    fitted(300, tmp_path, "--encoder", "learned-tabular", *SHORT, "--seed", "3")
    table = animals(300)
    encoder = LearnedTableEncoder(8, training=TrainConfig(epochs=1))
    classifier = AttnKNNClassifier(
        5, encoder=encoder, attention="distance", calibration=None, random_state=3
    ).fit(table[["weight", "legs", "home"]], table["kind"], ids=table["name"])
    queries = animals(20, seed=1).astype(object)
    path = write(queries[["home", "kind", "weight", "legs", "name"]], tmp_path / "rows.csv")
    answers = json.loads(
        run("predict", tmp_path / "model", path, "--proba", "--format", "json").stdout
    )
    rows = animals(20, seed=1)[["weight", "legs", "home"]]
    assert [a["p(bird)"] for a in answers] == classifier.predict_proba(rows)[:, 0].tolist()
    assert "weight=" in run("explain", tmp_path / "model", path).stdout
    assert "accuracy" in run("evaluate", tmp_path / "model", path).stdout
    queries.loc[3, "weight"] = "heavy"
    line = refused("predict", tmp_path / "model", write(queries, tmp_path / "rows.csv"))
    assert "line 5 has 'heavy'" in line


def test_vectors_can_be_trained_on_too(tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    np.savez(tmp_path / "train.npz", X=X, y=y)
    arguments = ("--encoder", "learned-tabular", *SHORT, *QUICK)
    assert run("fit", tmp_path / "train.npz", "-o", tmp_path / "m", *arguments).exit_code == 0
    assert run("predict", tmp_path / "m", tmp_path / "train.npz").exit_code == 0


@pytest.mark.parametrize("n_rows", [300, 60])
def test_a_class_with_one_example_is_learned_too(n_rows: int, tmp_path: Path) -> None:
    table = animals(n_rows)
    table.loc[7, "kind"] = "unicorn"
    path = write(table, tmp_path / "train.csv")
    arguments = ("-t", "kind", "--drop-columns", "name", "-o", tmp_path / "model")
    chosen = ("--encoder", "learned-tabular", *SHORT)
    assert run("fit", path, *arguments, *chosen).exit_code == 0
    assert "unicorn" in AttnKNNClassifier.load(tmp_path / "model").classes_


def test_settings_of_a_training_are_wrong_usage_without_one(tmp_path: Path) -> None:
    path = write(animals(30), tmp_path / "train.csv")
    result = run("fit", path, "-t", "kind", "-o", tmp_path / "m", "--epochs", "1")
    assert result.exit_code == 2
    assert (
        "--epochs is an option of --encoder image or learned-tabular, not of 'auto'"
        in result.stderr
    )


def test_the_curves_of_a_training_are_drawn_and_its_epochs_printed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    train = write(animals(60), tmp_path / "train.csv")
    arguments = ("fit", train, "-t", "kind", "-o", tmp_path / "m", *SHORT, *QUICK)
    learned = ("--encoder", "learned-tabular", "--curves", tmp_path / "c.png", "--verbose")
    told = run(*arguments, *learned)
    assert told.exit_code == 0, told.output
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert "epoch 1 of 1, loss " in told.stderr
    assert "epoch" not in told.stdout
    gif = run(*arguments, *learned[:2], "--curves", tmp_path / "c.gif", "--force")
    assert (gif.exit_code, "must end in .png" in gif.stderr) == (2, True)
    plain = run("fit", train, "-t", "kind", "-o", tmp_path / "n", *QUICK, *learned[2:4], "--force")
    assert (plain.exit_code, "--curves needs an encoder" in plain.stderr) == (2, True)


@pytest.fixture
def plugin() -> Iterator[None]:
    """An encoder and a memory with options, as another package registers them."""
    before = {kind: dict(classes) for kind, classes in registry._CLASSES.items()}

    @registry.register("encoder", "doubling")
    class Doubling(IdentityEncoder):
        options = (registry.Option("--factor", "factor", "Factor of all columns.", float),)

        def __init__(self, factor: float = 2.0) -> None:
            self.factor = factor

        def transform(self, X: Any) -> Any:
            return self.factor * super().transform(X)

        def to_settings(self) -> Any:
            settings, arrays = super().to_settings()
            return {**settings, "factor": self.factor}, arrays

        @classmethod
        def from_settings(cls, settings: Any, arrays: Any) -> Any:
            settings = dict(settings)
            factor = settings.pop("factor")
            encoder = super().from_settings(settings, arrays)
            encoder.factor = factor
            return encoder

    @registry.register("memory", "other")
    class Other(NumpyMemory):
        pass

    vars(fit).pop("_all_params", None)  # the command has read the registry before
    yield
    vars(fit).pop("_all_params", None)
    for kind, classes in before.items():
        registry._CLASSES[kind].clear()
        registry._CLASSES[kind].update(classes)


def test_parts_of_other_packages_are_chosen_by_name_with_their_options(
    plugin: None, tmp_path: Path
) -> None:
    assert "--factor FLOAT" in run("fit", "--help").stdout
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    np.savez(tmp_path / "train.npz", X=X, y=y)
    arguments = ("fit", tmp_path / "train.npz", "-o", tmp_path / "m", *QUICK, "--factor", "3")
    done = run(*arguments, "--encoder", "doubling", "--memory", "other")
    assert done.exit_code == 0, done.output
    assert "encoder           doubling: requested" in done.stdout
    classifier = AttnKNNClassifier.load(tmp_path / "m")
    assert (classifier.encoder_.name, classifier.encoder_.factor) == ("doubling", 3.0)
    assert type(classifier.memory_).registered_name == "other"
    assert run("predict", tmp_path / "m", tmp_path / "train.npz").exit_code == 0
    wrong = run(*arguments, "--force")
    assert "--factor is an option of --encoder doubling, not of 'auto'" in wrong.stderr


def test_an_encoder_that_joins_others_cannot_be_chosen_by_its_name(tmp_path: Path) -> None:
    path = write(animals(), tmp_path / "train.csv")
    result = run("fit", path, "-t", "kind", "--encoder", "union")
    assert result.exit_code == 2
    assert "'union' is not one of 'auto'" in result.stderr
    chooser = next(option for option in fit.params if option.name == "encoder")
    assert "scaled" in chooser.type.choices
    assert "union" not in chooser.type.choices


@pytest.mark.parametrize("encoder", ["identity", "scaled"])
def test_numbers_are_read_by_the_encoder_that_is_requested(encoder: str, tmp_path: Path) -> None:
    train = write(animals()[["weight", "kind"]].assign(size=range(60)), tmp_path / "train.csv")
    path = tmp_path / "model"
    result = run("fit", train, "-t", "kind", "-o", path, *QUICK, "--encoder", encoder)
    assert f"encoder           {encoder}: requested" in result.stdout
    assert AttnKNNClassifier.load(path).encoder_.name == encoder


def test_vectors_with_gaps_are_refused_by_name(tmp_path: Path) -> None:
    X = np.ones((40, 3))
    X[3, 1] = np.nan
    np.savez(tmp_path / "train.npz", X=X, y=np.arange(40) % 2)
    assert "row" in refused("fit", tmp_path / "train.npz", "-o", tmp_path / "model")
