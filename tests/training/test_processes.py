"""Processes: alone nothing changes; two give what one gives with the whole batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from attnknn.training.processes import Processes, joined, synchronize_batch_norms

SCRIPT = Path(__file__).with_name("in_processes.py")
ALONE = Processes()


@given(n_rows=st.integers(0, 30), count=st.integers(1, 5))
def test_shares_are_even_and_make_up_the_batch(n_rows, count):
    rows = torch.arange(n_rows)
    shares = [Processes(rank, count).share(rows) for rank in range(count)]
    assert torch.equal(torch.cat(shares), rows)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_alone_everything_stays_as_it_is():
    tensor, module = torch.randn(3, 2), nn.BatchNorm1d(2)
    for same in (ALONE.share, ALONE.total, ALONE.gather, ALONE.from_first):
        assert same(tensor) is tensor
    assert synchronize_batch_norms(module, ALONE) is module
    module.weight.grad = torch.ones(2)
    ALONE.average_gradients(module.parameters())
    assert module.weight.grad.tolist() == [1.0, 1.0]
    assert module.bias.grad is None
    assert ALONE.is_first


def test_without_torchrun_there_is_one_process(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with joined(torch.device("cpu")) as processes:
        assert processes == Processes(rank=0, count=1)


def test_replaced_batch_norms_keep_names_and_parameters():
    module = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3)))
    module.eval()
    names, weight = list(module.state_dict()), module[1][0].weight
    rows = torch.randn(4, 2)
    expected = module(rows)
    synchronize_batch_norms(module, Processes(0, 2))
    assert list(module.state_dict()) == names
    assert module[1][0].weight is weight
    assert torch.equal(module(rows), expected)


def run(n_processes: int, what: str, result: Path) -> None:
    words = [sys.executable, str(SCRIPT), what, str(result)]
    if n_processes > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        words[1:1] = [*launcher, str(n_processes)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("what", ["by_hand", "by_loop"])
def test_two_processes_give_the_result_of_one_with_the_doubled_batch(what, tmp_path):
    run(1, what, tmp_path / "one")
    run(2, what, tmp_path / "two")
    one = load_file(tmp_path / "one.0")
    two = [load_file(tmp_path / f"two.{rank}") for rank in (0, 1)]
    for name, value in one.items():
        assert torch.equal(two[0][name], two[1][name]), name
        assert torch.allclose(two[0][name], value, atol=2e-5), name


@pytest.mark.slow
def test_two_processes_stopped_and_resumed_give_the_same_bits(tmp_path):
    run(2, "by_loop", tmp_path / "whole")
    run(2, "by_loop_resumed", tmp_path / "parts")
    for rank in (0, 1):
        whole, parts = (load_file(tmp_path / f"{name}.{rank}") for name in ("whole", "parts"))
        assert whole.keys() == parts.keys()
        for name, value in whole.items():
            assert torch.equal(parts[name], value), name
