"""`attnknn vit`: flags as the research documents them, what is written, what is refused."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from attnknn.cli import main
from attnknn.cli.vit.options import LAYERS
from attnknn.cli.vit.train import train as train_command
from attnknn.vit.training import load_vit

from .vit_samples import write_cifar10

SMALL = (
    "--resize 32 --patch_size 8 --num_layers 1 --d_hidden 12 --d_mlp 16 --num_epochs 2 "
    "--batch_size 32 --device cpu --lr 0.01"
)
WRITTEN = (
    *("args.txt", "model.txt", "train_eval_results.txt"),
    *("report.json", "curves.png", "model.safetensors"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_cifar10(tmp_path_factory.mktemp("data"))


def vit(command: str):
    return CliRunner().invoke(main, ["vit", *shlex.split(command)])


def good(command: str) -> str:
    done = vit(command)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "out"
    good(f"train --layer ConvNNAttention --K 4 {SMALL} --data_path {data} --output_dir {folder}")
    return folder


def test_a_training_writes_what_the_research_says_and_more(model):
    assert sorted(path.name for path in model.iterdir()) == sorted(WRITTEN)
    report = json.loads((model / "report.json").read_text())
    assert report["args"]["K"] == 4
    assert [epoch["number"] for epoch in report["epochs"]] == [1, 2]
    assert report["test"]["n_rows"] == 20
    assert "layer: ConvNNAttention\n" in (model / "args.txt").read_text()
    results = (model / "train_eval_results.txt").read_text()
    assert results.count("epoch ") == 3  # two of them, and the one that was kept
    assert "test: loss" in results


def test_the_summary_is_of_the_model(model):
    """B21, B22: it was a list of attributes, and sizes were asked without channels."""
    summary = (model / "model.txt").read_text()
    assert "(attn): ConvNNAttention(" in summary
    assert re.search(r"parameters: [\d,]+\n", summary)
    assert "selection" in summary


def test_one_head_unless_asked(model):
    assert json.loads((model / "report.json").read_text())["model"]["num_heads"] == 1


def test_a_test_gives_the_scores_of_the_training(model, data):
    known = json.loads((model / "report.json").read_text())["test"]
    assert json.loads(good(f"test {model} --format json")) == pytest.approx(known)
    shown = good(f"train --test_only --output_dir {model} --data_path {data} --device cpu")
    assert f"top-1 {known['top1']:.2%}" in shown


@pytest.mark.slow
@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_is_trained_by_its_name(layer, data, tmp_path):
    asked = "--K 9 --num_heads 2 --num_epochs 1 --kernel_size 3"
    good(f"train --layer {layer} {SMALL} {asked} --data_path {data} --output_dir {tmp_path / 'o'}")


@pytest.mark.parametrize(
    "flags",
    [
        "--softmax_topk_val False --magnitude_type cosine",
        "--softmax-topk-val True --sampling-type random --num-samples 6",
        "--sampling_type spatial --num_samples 3 --sample_padding 0",
        "--coordinate_encoding True --convolution_type standard",
        "--similarity_type Loc --aggregation_type Loc_Col",
        "--augment --noise 0.1 --use_amp --criterion MSE --scheduler plateau",
        "--optimizer sgd --momentum 0.5 --scheduler step --lr_step 1 --lr_gamma 0.5",
        "--pool mean --positions fixed --clip_grad_norm 0 --validation 0.3",
        "--layer Attention --key_drop 0.5 --train_rows 40 --test_rows 10",
    ],
)
def test_flags_work_with_dashes_and_underscores(flags, data, tmp_path, monkeypatch):
    monkeypatch.setattr("attnknn.vit.plots.plot_training", lambda *_: None)
    base = f"train --layer ConvNNAttention --K 4 {SMALL} --num_epochs 1 --data_path {data}"
    good(f"{base} --output_dir {tmp_path / 'o'} {flags}")


def test_defaults_are_those_of_the_research_except_the_device():
    """README of the research, where its code says otherwise too."""
    known = {
        "layer": ("Attention",), "patch_size": 16, "num_layers": 12, "num_heads": 3,
        "d_hidden": 192, "d_mlp": 768, "dropout": 0.1, "attention_dropout": 0.1,
        "convolution_type": "depthwise", "softmax_topk_val": True, "K": 9, "sampling_type": "all",
        "num_samples": -1, "sample_padding": 0, "magnitude_type": "matmul",
        "coordinate_encoding": False, "kernel_size": 9, "branch_ratio": 0.5, "dataset": "cifar10",
        "data_path": Path("Data"), "resize": 224, "augment": False, "noise": 0.0,
        "batch_size": 256, "num_epochs": 150, "use_amp": False, "use_compiled": False,
        "compile_mode": "default", "clip_grad_norm": 1.0, "criterion": "CrossEntropy",
        "optimizer": "adamw", "lr": 1e-3, "weight_decay": 1e-6, "momentum": 0.9,
        "scheduler": "none", "lr_step": 20, "lr_gamma": 0.1, "device": "auto", "seed": 0,
        "output_dir": Path("Output/VGG/ConvNN"), "test_only": False,
    }  # fmt: skip
    context = train_command.make_context("train", [])
    assert {name: context.params[name] for name in known} == known


def test_choices_are_those_of_the_research_and_those_that_the_page_lists():
    research = {
        "layer": "Attention ConvNNAttention KvtAttention LocalAttention NeighborhoodAttention "
        "BranchConv BranchAttention",
        "convolution_type": "standard depthwise depthwise-separable",
        "sampling_type": "all random spatial",
        "magnitude_type": "cosine euclidean matmul",
        "dataset": "cifar10 cifar100 imagenet",
        "compile_mode": "default reduce-overhead reduce-memory max-autotune",
        "criterion": "CrossEntropy MSE",
        "optimizer": "adam sgd adamw",
        "scheduler": "step cosine plateau none",
        "device": "cpu cuda mps",
    }
    added = {
        *("NeighborhoodAttention2D", "SparseAttention", "mnist", "fashion-mnist", "auto"),
        "max-autotune-no-cudagraphs",
    }
    types = {parameter.name: parameter.type for parameter in train_command.params}
    for name, choices in research.items():
        known = set(LAYERS if name == "layer" else types[name].choices)
        assert set(choices.split()) - known <= {"reduce-memory"}, name
        assert known - set(choices.split()) <= added, name
    page = (Path(__file__).parents[2] / "docs" / "vit.md").read_text()
    assert all(f"`{name}`" in page for name in added)


def test_blocks_may_have_layers_of_their_own(data, tmp_path):
    asked = "--layer Attention,KvtAttention --num_layers 2 --num_epochs 1"
    good(f"train {SMALL} {asked} --data_path {data} --output_dir {tmp_path / 'o'}")
    report = json.loads((tmp_path / "o" / "report.json").read_text())
    assert report["model"]["layer"] == ["attention", "kvt"]


def test_a_training_that_was_killed_is_resumed(data, tmp_path, monkeypatch):
    base = f"train {SMALL} --data_path {data} --dropout 0.2"
    good(f"{base} --output_dir {tmp_path / 'whole'}")

    def killed(*_):
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("attnknn.cli.vit.train._finish", killed)
        assert vit(f"{base} --output_dir {tmp_path / 'o'}").exit_code == 1
    refused = vit(f"{base} --output_dir {tmp_path / 'o'}")
    assert "interrupted training" in refused.output
    good(f"{base} --output_dir {tmp_path / 'o'} --resume")
    one, other = (
        json.loads((tmp_path / name / "report.json").read_text())["test"] for name in ("whole", "o")
    )
    assert one == other


def test_gray_images_and_folders_are_data_too(tmp_path):
    chance = np.random.default_rng(0)
    images = chance.integers(0, 255, (60, 28, 28), dtype=np.uint8)
    labels = np.arange(60) % 10
    arrays = {"x_train": images, "y_train": labels, "x_test": images[:9], "y_test": labels[:9]}
    np.savez(tmp_path / "mnist.npz", **arrays)
    small = f"train {SMALL} --num_epochs 1 --data_path {tmp_path}"
    good(f"{small} --dataset mnist --output_dir {tmp_path / 'gray'}")
    for part in ("train", "val"):
        for name in ("cat", "dog"):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for number in range(10):
                Image.fromarray(images[number]).save(folder / f"{number}.png")
    good(f"{small} --dataset imagenet --workers 2 --augment --output_dir {tmp_path / 'folder'}")


def test_what_tokens_look_at_is_drawn(model, tmp_path):
    Image.fromarray(np.full((40, 30, 3), 99, dtype=np.uint8)).save(tmp_path / "image.png")
    said = good(f"show {model} {tmp_path / 'image.png'} -o {tmp_path / 'looks.png'}")
    assert "1 blocks" in said
    with Image.open(tmp_path / "looks.png") as drawn:
        assert drawn.size[0] > 600
    good(f"show {model} {tmp_path / 'image.png'} -o {tmp_path / 'looks.json'}")
    found = json.loads((tmp_path / "looks.json").read_text())
    tokens = np.array(found["layers"][0]["tokens"])
    assert tokens.shape == (1, 17, 4)
    assert found["grid"] == {"height": 4, "width": 4, "n_prefix": 1}
    some = f"show {model} {tmp_path / 'image.png'} -o {tmp_path / 'some.png'}"
    good(f"{some} --token class --token 1,2 --blocks 1 --head 0")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--token 9,9", "outside the grid of 4 rows and 4 columns"),
        ("--token nine", "--token must be class, or row,column"),
        ("--blocks 2", "--blocks must be blocks with attention (1), got 2"),
        ("--blocks x", "--blocks must be numbers"),
        ("--head 1", "--head must be from 0 to 0"),
    ],
)
def test_bad_looks_are_named(model, tmp_path, flags, message):
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / "image.png")
    done = vit(f"show {model} {tmp_path / 'image.png'} -o {tmp_path / 'o.png'} {flags}")
    assert done.exit_code != 0
    assert message in done.output


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--layer Atention", "'Atention' is not one of Attention, ConvNNAttention"),
        ("--compile_mode reduce-memory", "not a mode of torch.compile; it has default"),
        ("--device cuda", "torch finds no GPU it can use (or was built without CUDA). Use "
         "'cpu'"),
        ("--num_samples 0 --layer ConvNNAttention --sampling_type random", "num-samples"),
        ("--K 99 --layer KvtAttention", "--K must be at most 17"),
        ("--K 8 --layer NeighborhoodAttention2D", "9 is 3x3"),
        ("--patch_size 5", "do not fill"),
        ("--branch_ratio 2", "2"),
        ("--num_heads 5", "--num-heads must divide --d-hidden 12"),
        ("--layer Attention,Attention", "--layer has 2 layers but --num-layers is 1"),
        ("--dataset cifar100", "cifar-100-python"),
        ("--data_path nowhere --dataset imagenet", "must have a folder 'train'"),
        ("--resume", "no interrupted training"),
        ("--test_only", "no trained model"),
    ],
)  # fmt: skip
def test_bad_settings_are_one_line(data, tmp_path, flags, message):
    done = vit(f"train {SMALL} --data_path {data} --output_dir {tmp_path / 'o'} {flags}")
    assert done.exit_code != 0
    assert message in " ".join(done.output.split())


def test_a_trained_model_is_not_overwritten(model, data):
    again = f"train {SMALL} --data_path {data} --output_dir {model}"
    done = vit(again)
    assert done.exit_code != 0
    assert "has a trained model" in " ".join(done.output.split())


EXAMPLES = {
    "attention": """train \
    --layer Attention \
    --num_layers 12 \
    --num_heads 3 \
    --d_hidden 192 \
    --d_mlp 768 \
    --dataset cifar10 \
    --optimizer adamw \
    --lr 1e-3 \
    --num_epochs 150 \
    --output_dir ./Output/ViT/Attention""",
    "convnn": """train \
    --layer ConvNNAttention \
    --convolution_type depthwise \
    --num_layers 12 \
    --d_hidden 192 \
    --d_mlp 768 \
    --K 9 \
    --sampling_type spatial \
    --num_samples 8 \
    --similarity_type Col \
    --aggregation_type Col \
    --dataset cifar10 \
    --optimizer adamw \
    --lr 1e-3 \
    --num_epochs 150 \
    --output_dir ./Output/ViT/ConvNNAttention""",
}


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_training_examples_of_the_research_run_as_written(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_cifar10(tmp_path / "Data")
    less = "--device cpu --num_epochs 1 --train_rows 24 --test_rows 8"
    good(f"{EXAMPLES[example]} {less}")


@pytest.mark.slow
def test_the_example_of_testing_runs_as_written(tmp_path, monkeypatch):
    """It names no folder, and so tests what was trained without naming one."""
    monkeypatch.chdir(tmp_path)
    write_cifar10(tmp_path / "Data")
    good("train --layer Attention --device cpu --num_epochs 1 --train_rows 24 --test_rows 8")
    assert "torch finds no GPU" in vit("train --layer Attention --test_only --device cuda").output
    good("train --layer Attention --test_only --device cpu")


@pytest.mark.slow
def test_two_processes_train_the_model_of_one(data, tmp_path):
    """Without dropout, whose draws are each process's own; the second process starts late."""
    flags = f"vit train {SMALL} --layer KvtAttention --dropout 0 --attention_dropout 0"
    flags = f"{flags} --data_path {data} --output_dir"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    late = f'while [ "$RANK" = 1 ] && [ ! -e {tmp_path}/two/args.txt ]; do sleep 0.1; done'
    shell = ["bash", "-c", f'{late}; exec "$0" "$@"', sys.executable]
    ways = {"one": [sys.executable], "two": [*torchrun, "--standalone", "--no-python", *shell]}
    for name, way in ways.items():
        command = [*way, "-m", "attnknn", *shlex.split(f"{flags} {tmp_path / name}")]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("epoch 1 of 2: train") == 1  # the first process speaks for all
    one, two = (json.loads((tmp_path / name / "report.json").read_text()) for name in ways)
    for known, found in zip(one["epochs"], two["epochs"], strict=True):
        assert found["train_loss"] == pytest.approx(known["train_loss"], rel=1e-4)
        assert found["validation_loss"] == pytest.approx(known["validation_loss"], rel=1e-4)
    states = [load_vit(tmp_path / name / "model.safetensors").model.state_dict() for name in ways]
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, atol=1e-4, rtol=1e-3)
