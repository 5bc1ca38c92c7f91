"""`--set` and `--device`: settings of parts that have no option of their own."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from attnknn import AttnKNNClassifier, LearnedAttention
from attnknn.cli.settings import Setting, on_device, with_settings
from attnknn.encoders import ImageEncoder, LearnedTableEncoder

from .samples import run


def changed(kind: str, part: object, name: str, *texts: str) -> object:
    return with_settings(kind, part, name, [Setting.parse(text) for text in texts])


def test_settings_reach_attention_memory_and_encoder(train: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    given = (
        *(
            "attention.n_heads=2",
            "attention.training.epochs=1",
            "attention.loss.entropy_weight=0.1",
        ),
        *("memory.index=hnsw", "encoder.scaling=quantile"),
    )
    chosen = ("--attention", "learned", "--memory", "faiss", "--encoder", "tabular")
    sets = [word for text in given for word in ("--set", text)]
    done = run("fit", train, "-t", "kind", *chosen, *sets, "-o", tmp_path / "model")
    assert done.exit_code == 0, done.output
    clf = AttnKNNClassifier.load(tmp_path / "model")
    assert clf.attention.n_heads == 2
    assert clf.attention.training.epochs == 1
    assert clf.attention.loss.entropy_weight == 0.1
    assert clf.memory.index == "hnsw"
    assert clf.encoder.scaling == "quantile"


def test_records_inside_of_records_are_reached() -> None:
    texts = ("encoder.training.mixing.mixup=0.2", "encoder.training.loss.contrastive_weight=0.5")
    encoder = changed("encoder", "image", "image", *texts)
    assert isinstance(encoder, ImageEncoder)
    assert encoder.training.mixing.mixup == 0.2
    assert encoder.training.loss.contrastive_weight == 0.5
    table = changed(
        "encoder", LearnedTableEncoder(32), "learned-tabular", "encoder.layers.n_blocks=1"
    )
    assert (table.embed_dim, table.layers.n_blocks) == (32, 1)


def test_settings_join_those_of_other_options() -> None:
    found = changed("attention", LearnedAttention(3), "learned", "attention.terms=[support]")
    assert (found.n_heads, found.terms) == (3, "[support]")
    lists = changed("attention", "learned", "learned", 'attention.terms=["support", "prototypes"]')
    assert lists.terms == ("support", "prototypes")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("attention.nheads=2", "Did you mean 'n_heads'?"),
        ("attention.training.epoch=2", "Did you mean 'epochs'?"),
        ("attention.training.epochs=-1", "`epochs` must be an integer of at least 1"),
        ("attention.n_heads.x=2", "'n_heads' has no settings of its own"),
        ("attention.n_heads", "KIND.NAME=VALUE"),
        ("heads=2", "KIND.NAME=VALUE"),
        ("attention.n_heads=many", "`n_heads` must be an integer of at least 1, got 'many'"),
    ],
)
def test_wrong_settings_are_refused(text: str, message: str, train: Path, tmp_path: Path) -> None:
    options = ("--attention", "learned", "--set", text, "-o", tmp_path / "model")
    done = run("fit", train, "-t", "kind", *options)
    assert done.exit_code != 0
    assert message in done.output
    assert not (tmp_path / "model").exists()


def test_a_part_that_is_chosen_automatically_takes_no_settings() -> None:
    with pytest.raises(click.UsageError, match="add --attention learned"):
        changed("attention", "auto", "auto", "attention.n_heads=2")


def test_all_settings_are_listed() -> None:
    output = run("fit", "--set", "list").stdout
    for words in ("attention learned", "n_heads", "memory faiss", "ef_search", "….training.mixing"):
        assert words in output


def test_the_device_reaches_the_training_and_the_memory(train: Path, tmp_path: Path) -> None:
    encoder = on_device(ImageEncoder(embed_dim=8), "cpu")
    assert (encoder.training.device, encoder.inference.device) == ("cpu", "cpu")
    assert encoder.embed_dim == 8
    assert on_device("tabular", "cpu") == "tabular"
    assert on_device("image", None) == "image"
    options = ("--attention", "distance", "--device", "cpu", "-o", tmp_path / "model")
    assert run("fit", train, "-t", "kind", *options).exit_code == 0
    assert AttnKNNClassifier.load(tmp_path / "model").memory.device == "cpu"
