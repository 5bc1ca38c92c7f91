"""Trainings of `attnknn vit`: interruptions, options without effect, and kept models."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image
from torch import nn

from attnknn.cli import main
from attnknn.cli.vit.options import READ, layer_options
from attnknn.training.checkpoints import write_checkpoint
from attnknn.vit.training import load_vit

from .vit_samples import write_cifar10

SMALL = (
    "--resize 32 --patch_size 8 --num_layers 1 --d_hidden 12 --d_mlp 16 --num_epochs 2 "
    "--batch_size 32 --device cpu --lr 0.01"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cifar10(tmp_path_factory.mktemp("data"))


def vit(command: str) -> Result:
    return CliRunner().invoke(main, ["vit", *shlex.split(command)])


def words(done: Result) -> str:
    return " ".join((done.output + done.stderr).split())


@pytest.fixture
def begun(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    """A command, and the folder in which its training was killed."""
    command, folder = f"train {SMALL} --data_path {data}", tmp_path / "out"

    def killed(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("attnknn.cli.vit.train._finish", killed)
        assert vit(f"{command} --output_dir {folder}").exit_code == 1
    return command, folder


@pytest.mark.parametrize(
    "other", ["--layer KvtAttention --K 2", "--dropout 0.5", "--num_heads 1", "--pool mean"]
)
def test_another_model_is_not_resumed(begun: tuple[str, Path], other: str) -> None:
    command, folder = begun
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = vit(f"{command} {other} --output_dir {folder} --resume")
    assert done.exit_code == 1
    assert "belongs to another training" in words(done)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_resuming_and_beginning_again_exclude_each_other(begun: tuple[str, Path]) -> None:
    command, folder = begun
    done = vit(f"{command} --output_dir {folder} --resume --force")
    assert done.exit_code == 2
    assert "Give either --resume" in words(done)
    assert (folder / "checkpoint.safetensors").exists()


def test_what_is_no_training_is_not_resumed(begun: tuple[str, Path]) -> None:
    command, folder = begun
    write_checkpoint(folder / "checkpoint.safetensors", {"model": 1})
    done = vit(f"{command} --output_dir {folder} --resume")
    assert "is not the checkpoint of a training" in words(done)


def test_a_model_goes_only_when_another_can_be_trained(data: Path, tmp_path: Path) -> None:
    command = f"train {SMALL} --data_path {data} --output_dir {tmp_path}"
    assert vit(command).exit_code == 0
    before = (tmp_path / "model.safetensors").read_bytes()
    assert vit(f"{command} --layer KvtAttention --K 99 --force").exit_code == 1
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert vit(f"{command} --layer KvtAttention --K 4 --force").exit_code == 0
    assert (tmp_path / "model.safetensors").read_bytes() != before


def test_interrupting_a_training_reports_what_is_left(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attnknn.vit.training.trainer import _Trainer

    usual, n_steps = _Trainer.compute_loss, 0
    command = f"train {SMALL} --data_path {data} --output_dir {tmp_path / 'o'}"

    def stopped(schedule: _Trainer, rows: object) -> object:
        nonlocal n_steps
        n_steps += 1
        if n_steps == last:
            raise KeyboardInterrupt
        return usual(schedule, rows)

    with monkeypatch.context() as patch:
        patch.setattr(_Trainer, "compute_loss", stopped)
        last = 2
        done = vit(command)
        assert done.exit_code == 130
        assert "no model was saved" in words(done)
        assert not (tmp_path / "o" / "model.safetensors").exists()
        n_steps, last = 0, 5
        done = vit(command)
    assert done.exit_code == 130
    assert "Interrupted after epoch 1 of 2; continue with the same command and --resume" in words(
        done
    )
    done = vit(f"{command} --resume")
    assert done.exit_code == 0
    report = json.loads((tmp_path / "o" / "report.json").read_text())
    assert len(report["epochs"]) == 2
    assert not report["was_interrupted"]


def test_a_training_that_diverges_says_so(data: Path, tmp_path: Path) -> None:
    wild = f"train {SMALL} --data_path {data} --output_dir {tmp_path} --lr 1e30 --optimizer sgd"
    done = vit(f"{wild} --clip_grad_norm 0")
    assert done.exit_code == 1
    assert "Training diverged in epoch 1" in words(done)
    assert not (tmp_path / "model.safetensors").exists()


def test_a_folder_that_was_named_is_where_images_come_from(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = f"train {SMALL} --data_path {tmp_path / 'nowhere'} --output_dir {tmp_path / 'o'}"
    assert "nowhere holds none of" in words(vit(named))
    monkeypatch.setenv("ATTNKNN_DATA", str(data))
    assert "nowhere holds none of" in words(vit(named))
    trained = f"train {SMALL} --num_epochs 1 --data_path {data} --output_dir {tmp_path / 'o'}"
    assert f"from {data}" in words(vit(trained))
    assert json.loads((tmp_path / "o" / "report.json").read_text())["source"] == str(data)
    assert "nowhere holds none of" in words(vit(f"test {tmp_path / 'o'} --data_path nowhere"))


def test_test_only_tests_as_it_was_trained(data: Path, tmp_path: Path) -> None:
    trained = f"train {SMALL} --layer ConvNNAttention --K 4 --noise 0.6 --data_path {data}"
    assert vit(f"{trained} --output_dir {tmp_path}").exit_code == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["args"]["num_heads"] == report["model"]["num_heads"] == 1
    again = vit(f"train --test_only --device cpu --output_dir {tmp_path}")
    assert f"test: loss {report['test']['loss']:.4f}" in words(again)


def test_options_that_no_layer_reads_are_reported(data: Path, tmp_path: Path) -> None:
    flags = "--layer KvtAttention --K 4 --key_drop 0.5 --branch_ratio 0.2 --num_epochs 1"
    done = vit(f"train {SMALL} --data_path {data} --output_dir {tmp_path} {flags}")
    assert done.exit_code == 0
    assert "--branch-ratio is not used by KvtAttention." in words(done)
    assert "--key-drop is not used by KvtAttention." in words(done)
    assert "--K is not read" not in words(done)


def test_every_option_of_layers_is_read_by_one() -> None:
    def command() -> None: ...

    options = {parameter.name for parameter in click.command()(layer_options(command)).params}
    assert frozenset().union(*READ.values()) == options


def test_blocks_are_shown_by_their_numbers(data: Path, tmp_path: Path) -> None:
    flags = "--layer BranchConv,KvtAttention --num_layers 2 --K 4 --branch_ratio 0 --num_epochs 1"
    assert vit(f"train {SMALL} {flags} --data_path {data} --output_dir {tmp_path}").exit_code == 0
    Image.fromarray(np.full((32, 32, 3), 255, dtype=np.uint8)).save(tmp_path / "white.png")
    shown = f"show {tmp_path} {tmp_path / 'white.png'} -o {tmp_path / 'o.png'}"
    assert vit(f"{shown} --blocks 2").exit_code == 0
    drawn = np.asarray(Image.open(tmp_path / "o.png").convert("RGB"))
    assert len(np.unique(drawn.reshape(-1, 3), axis=0)) > 50  # seen and unseen patches differ
    assert "blocks with attention (2), got 1" in words(vit(f"{shown} --blocks 1 --force"))


def test_a_model_is_not_tested_as_another_one(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    command = f"train {SMALL} --data_path {data} --output_dir {folder}"
    assert vit(f"{command} --num_epochs 1").exit_code == 0
    same = vit(f"{command} --layer Attention --test_only")
    assert same.exit_code == 0, words(same)
    for other in ("--layer KvtAttention", "--d-hidden 24", "--resize 64"):
        done = vit(f"{command} {other} --test_only")
        assert done.exit_code == 2
        assert "which was trained with " + other.split()[0] in words(done)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--layer NeighborhoodAttention --K 100", "--K times `dilation` must be at most"),
        ("--layer KvtAttention --K 18", "--K must be at most"),
        ("--resize 30", "--resize"),
        ("--d_hidden 13", "--d-hidden"),
        ("--validation 0", "0<x<1"),
        ("--momentum 1", "0<=x<1"),
    ],
)
def test_what_a_model_refuses_is_called_by_its_flag(
    data: Path, tmp_path: Path, options: str, said: str
) -> None:
    done = vit(f"train {SMALL} --data_path {data} --output_dir {tmp_path / 'out'} {options}")
    assert done.exit_code in (1, 2)
    assert said in words(done)


def test_samples_without_effect_are_reported(data: Path, tmp_path: Path) -> None:
    command = f"train {SMALL} --num_epochs 1 --data_path {data} --layer ConvNNAttention --K 3"
    done = vit(f"{command} --num_samples 5 --output_dir {tmp_path / 'out'}")
    assert done.exit_code == 0
    assert "--num-samples has no effect with --sampling-type all." in words(done)


@pytest.mark.parametrize(
    ("options", "n_neighbors"),
    [
        ("--sampling_type random --num_samples 4", 6),  # as in the note of the research's README
        ("--sampling_type random --num_samples 4 --K 9 --pool mean", 5),
        ("--sampling_type spatial --num_samples 2 --layer BranchAttention", 6),
        ("--sampling_type random --num_samples 4 --K 6", None),
        ("--sampling_type random --layer KvtAttention --num_samples 4", None),
    ],
)
def test_k_is_reduced_to_what_the_samples_allow(
    data: Path, tmp_path: Path, options: str, n_neighbors: int | None
) -> None:
    folder = tmp_path / "out"
    base = f"train {SMALL} --num_epochs 1 --data_path {data} --layer ConvNNAttention"
    done = vit(f"{base} {options} --output_dir {folder}")
    assert done.exit_code == 0, words(done)
    report = json.loads((folder / "report.json").read_text())
    if n_neighbors is None:
        assert "allows at most" not in words(done)
        return
    assert report["args"]["K"] == 9
    assert report["model"]["layer_settings"]["n_neighbors"] == n_neighbors
    assert f"allows at most {n_neighbors} neighbors" in words(done)
    assert f"K is {n_neighbors}, not 9." in words(done)
    again = vit(f"{base} {options} --output_dir {folder} --test_only")
    assert again.exit_code == 0, words(again)


def test_only_the_settings_that_differ_are_named_when_resuming(begun: tuple[str, Path]) -> None:
    command, folder = begun
    said = words(vit(f"{command} --seed 5 --lr 0.5 --output_dir {folder} --resume"))
    assert "`seed` is 0 there and 5 here" in said
    assert "`lr` is 0.01 there and 0.5 here" in said
    assert "batch_size" not in said


def test_defaults_that_depend_on_others_stand_in_the_report(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    layer = "--layer BranchConv --K 3"
    done = vit(f"train {SMALL} --num_epochs 1 --data_path {data} {layer} --output_dir {folder}")
    assert done.exit_code == 0, words(done)
    report = json.loads((folder / "report.json").read_text())
    assert report["args"]["kernel_size"] == 3
    assert report["model"]["layer_settings"]["kernel_size"] == 3


def test_branch_ratio_zero_is_conv2d_alone(data: Path, tmp_path: Path) -> None:
    """As the notes of the research's README say."""
    folder = tmp_path / "out"
    layer = "--layer BranchConv --branch_ratio 0.0"
    base = f"train {SMALL} --num_epochs 1 --data_path {data} {layer}"
    done = vit(f"{base} --output_dir {folder}")
    assert done.exit_code == 0, words(done)
    assert "--pool is mean: a class token would not see the patches" in words(done)
    model = load_vit(folder / "model.safetensors").model
    (conv,) = (m for m in model.blocks.modules() if isinstance(m, nn.Conv2d))
    assert (conv.in_channels, conv.out_channels, conv.kernel_size) == (12, 12, (3, 3))
    assert {n for n, _ in model.blocks[0].attn.named_parameters()} == {
        *("other.conv.weight", "other.conv.bias"),
    }
    refused = vit(f"{base} --pool token --output_dir {tmp_path / 'token'}")
    assert refused.exit_code != 0
    assert "class token does not attend to any patch" in words(refused)


@pytest.fixture(scope="module")
def command(data: Path) -> str:
    return f"train {SMALL} --patch_size 16 --data_path {data}"


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
