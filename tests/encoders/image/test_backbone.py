"""Pretrained networks: weights from files are data, and timm's networks work end to end."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from attnknn.encoders.image.backbone import read_weights
from attnknn.errors import InvalidInputError

PYTHON = os.environ.get("ATTNKNN_IMAGES_PYTHON")


def test_weights_are_read_from_both_kinds_of_files(tmp_path):
    state = {"weight": torch.arange(3.0)}
    save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "a.pt")
    for name in ("a.safetensors", "a.pt"):
        assert torch.equal(read_weights(tmp_path / name)["weight"], state["weight"])


class Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_code_in_weights_is_not_run(tmp_path):
    trap = Trap()
    trap.path = tmp_path / "sprung"
    (tmp_path / "a.pt").write_bytes(pickle.dumps({"weight": trap}))
    torch.save({"weight": trap}, tmp_path / "b.pt")
    for name in ("a.pt", "b.pt"):
        with pytest.raises(InvalidInputError, match=f"{name} must hold weights"):
            read_weights(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


def test_files_without_weights_are_named(tmp_path):
    (tmp_path / "a.safetensors").write_text("no weights")
    (tmp_path / "b.pt").write_text("no weights")
    torch.save({"epoch": 3}, tmp_path / "c.pt")
    torch.save([1, 2], tmp_path / "d.pt")
    for name in ("a.safetensors", "b.pt", "c.pt", "d.pt"):
        with pytest.raises(InvalidInputError, match=f"{name} must hold weights"):
            read_weights(tmp_path / name)
    with pytest.raises(InvalidInputError, match="there is no file at"):
        read_weights(tmp_path / "e.pt")


@pytest.mark.slow
@pytest.mark.skipif(
    PYTHON is None,
    reason="ATTNKNN_IMAGES_PYTHON must name a python with attnknn, torch, torchvision and timm",
)
def test_a_pretrained_network_is_loaded_by_path_tuned_frozen_and_stored(tmp_path):
    script = Path(__file__).with_name("in_timm.py")
    done = subprocess.run(
        [PYTHON, str(script), str(tmp_path)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "all is well" in done.stdout
