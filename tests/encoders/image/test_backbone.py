"""Networks of timm and torchvision work end to end, where these are installed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PYTHON = os.environ.get("ATTNKNN_IMAGES_PYTHON")


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
