"""What `attnknn vit train` leaves in its folder when a training stops early."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from attnknn.cli import main

from .vit_samples import write_cifar10

SMALL = (
    "--resize 32 --patch_size 16 --num_layers 1 --d_hidden 12 --d_mlp 16 --num_epochs 2 "
    "--batch_size 32 --device cpu --lr 0.01"
)


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"train {SMALL} --data_path {write_cifar10(tmp_path_factory.mktemp('data'))}"


def vit(command: str) -> Result:
    return CliRunner().invoke(main, ["vit", *shlex.split(command)])


def words(done: Result) -> str:
    return " ".join((done.output + done.stderr).split())


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_resuming_is_offered_only_where_there_is_a_checkpoint(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, lost = (f"{command} --output_dir {tmp_path / name}" for name in ("told", "lost"))
    with monkeypatch.context() as patch:
        patch.setattr("attnknn.cli.vit.train._Reporter.report_epoch", stop)
        assert "epoch 1 of 2; continue with the same command and --resume" in words(vit(told))
    assert vit(f"{told} --resume").exit_code == 0
    with monkeypatch.context() as patch:
        patch.setattr("attnknn.training.loop.save_run", stop)
        done = vit(lost)
    assert "best: epoch 1 of 1" in words(done)
    assert "there is no checkpoint to resume" in words(done)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("--train_rows 2", "too few"),
        ("--lr 1e30 --optimizer sgd --clip_grad_norm 0", "Training diverged in epoch 1"),
    ],
)
def test_a_model_goes_only_when_another_is_there(
    command: str, tmp_path: Path, wrong: str, message: str
) -> None:
    command = f"{command} --output_dir {tmp_path}"
    assert vit(command).exit_code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = vit(f"{command} {wrong} --force")
    assert done.exit_code == 1
    assert message in words(done)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert vit(f"{command} --seed 1 --force").exit_code == 0
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in after if name != "model.txt")
