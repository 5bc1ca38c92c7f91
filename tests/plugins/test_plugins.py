"""Classes of another package are found through entry points and used by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

from attnknn._stored import Fields
from attnknn.attention import PowerDistanceAttention
from attnknn.errors import ModelFolderError
from attnknn.storage.parts import attention_from_plain, attention_to_plain
from attnknn.testing import check_attention, check_encoder, check_memory

from . import attnknn_toys as toys

HERE = Path(__file__).parent
METADATA = "Metadata-Version: 2.1\nName: attnknn-toys\nVersion: 1.0\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables of a process in which the toys are an installed distribution."""
    site = tmp_path_factory.mktemp("site")
    (site / "attnknn_toys.py").write_text((HERE / "attnknn_toys.py").read_text())
    info = site / "attnknn_toys-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(toys.ENTRY_POINTS)
    paths = [str(site), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run(environment: dict[str, str], *arguments: object) -> str:
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("kind", "name", "class_name"),
    [
        ("encoder", "toy", "ToyEncoder"),
        ("encoder", "toy-trained", "ToyTrainedEncoder"),
        ("memory", "toy", "ToyMemory"),
        ("attention", "toy", "ToyAttention"),
    ],
)
def test_a_toy_of_another_package_is_fitted_explained_stored_and_edited(
    kind, name, class_name, environment, tmp_path
):
    run(environment, HERE / "use_toy.py", kind, name, class_name, tmp_path / "model")


def test_toys_are_reached_from_the_command_line(environment, tmp_path):
    model, rows = tmp_path / "model", tmp_path / "iris.csv"
    load_iris(as_frame=True).frame.to_csv(rows, index=False)
    parts = ["--encoder", "toy", "--memory", "toy", "--attention", "toy"]
    options = ["--toy-factor", "3", "--toy-power", "1.2"]
    fit = ["-m", "attnknn", "fit", rows, "--target", "target", "--out", model]
    assert "toy: requested" in run(environment, *fit, *parts, *options)
    stored = json.loads((model / "settings.json").read_text())["params"]
    assert stored["encoder"] == {"name": "toy", "params": {"factor": 3.0}}
    assert stored["attention"] == {"name": "toy", "params": {"power": 1.2}}
    explained = run(environment, "-m", "attnknn", "explain", model, rows, "--row-numbers", "0")
    assert "distance" in explained


@pytest.mark.parametrize("kind", [toys.ToyEncoder, toys.ToyTrainedEncoder])
def test_toy_encoders_keep_the_contract(kind, monkeypatch):
    monkeypatch.setattr(kind, "registered_name", "toy", raising=False)
    rows = np.random.default_rng(0).normal(size=(20, 3))
    check_encoder(kind(), rows, np.arange(20) % 2)


def test_the_toy_memory_keeps_the_contract():
    check_memory(toys.ToyMemory())


def test_the_toy_attention_keeps_the_contract():
    check_attention(toys.ToyAttention())


@pytest.mark.parametrize("fitted", [{}, {"unit": "wide"}, {"unit": None}])
def test_fitted_values_that_an_attention_cannot_read_are_damaged(fitted, monkeypatch):
    monkeypatch.setattr(PowerDistanceAttention, "restore", toys.ToyAttention.restore)
    stored, tensors = attention_to_plain(PowerDistanceAttention())
    with pytest.raises(ModelFolderError, match="stored attention cannot be read"):
        attention_from_plain(Fields({**stored, "fitted": fitted}, "attention"), tensors, 4, 3)
