"""Checkpoints: any tree comes back bit for bit; a failed writing leaves the old one; no pickle."""

from __future__ import annotations

import json
import math
import os
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from attnknn.errors import InvalidInputError
from attnknn.training.checkpoints import (
    random_state_of,
    read_checkpoint,
    restore_random_state,
    write_checkpoint,
)

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(), st.floats(allow_nan=False)
)
TREES = st.recursive(
    LEAVES,
    lambda part: st.one_of(
        st.lists(part, max_size=3),
        st.tuples(part, part),
        st.dictionaries(st.one_of(st.text(max_size=5), st.integers(0, 9)), part, max_size=3),
    ),
    max_leaves=12,
)


@given(tree=TREES)
def test_any_tree_comes_back_as_it_was(tree, tmp_path):
    write_checkpoint(tmp_path / "c", {"tree": tree})
    back = read_checkpoint(tmp_path / "c")["tree"]
    assert back == tree
    assert type(back) is type(tree)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
)
def test_tensors_come_back_bit_for_bit(dtype, tmp_path):
    tensor = (10 * torch.randn(4, 3, generator=torch.Generator().manual_seed(0))).to(dtype)
    state = {"a": tensor, "scalar": tensor[0, 0], "empty": tensor[:0], "shared": [tensor, tensor.T]}
    write_checkpoint(tmp_path / "c", state)
    back = read_checkpoint(tmp_path / "c")
    assert torch.equal(back["a"], tensor)
    assert back["a"].dtype == dtype
    assert back["scalar"].shape == ()
    assert back["empty"].shape == (0, 3)
    assert torch.equal(back["shared"][1], tensor.T)


def test_names_with_dots_do_not_meet(tmp_path):
    write_checkpoint(tmp_path / "c", {"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}})
    back = read_checkpoint(tmp_path / "c")
    assert (back["a.b"].item(), back["a"]["b"].item()) == (0.0, 1.0)


def test_numbers_that_are_not_finite_come_back(tmp_path):
    write_checkpoint(tmp_path / "c", {"worst": math.inf, "none": math.nan})
    back = read_checkpoint(tmp_path / "c")
    assert back["worst"] == math.inf
    assert math.isnan(back["none"])


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_an_optimizer_goes_on_as_if_never_saved(kind, tmp_path):
    def walk(module, optimizer, n_steps):
        for _ in range(n_steps):
            optimizer.zero_grad()
            module(torch.ones(2, 3)).square().sum().backward()
            optimizer.step()

    settings = {"lr": 0.01} | ({"momentum": 0.9} if kind is torch.optim.SGD else {})
    module, other = nn.Linear(3, 2), nn.Linear(3, 2)
    optimizer, its = (kind(m.parameters(), **settings) for m in (module, other))
    walk(module, optimizer, 3)
    write_checkpoint(tmp_path / "c", {"m": module.state_dict(), "o": optimizer.state_dict()})
    saved = read_checkpoint(tmp_path / "c")
    other.load_state_dict(saved["m"])
    its.load_state_dict(saved["o"])
    walk(module, optimizer, 3)
    walk(other, its, 3)
    assert torch.equal(module.weight, other.weight)


def test_chance_goes_on_from_where_it_stood(tmp_path):
    generator = torch.Generator().manual_seed(5)
    with torch.random.fork_rng():
        write_checkpoint(tmp_path / "c", random_state_of(generator))
        first = torch.rand(3, generator=generator), torch.rand(3)
        restore_random_state(generator, read_checkpoint(tmp_path / "c"))
        second = torch.rand(3, generator=generator), torch.rand(3)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_failed_writing_leaves_the_old_checkpoint_and_nothing_else(tmp_path, monkeypatch):
    write_checkpoint(tmp_path / "c", {"epoch": 1})

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_checkpoint(tmp_path / "c", {"epoch": 2})
    monkeypatch.undo()
    assert read_checkpoint(tmp_path / "c") == {"epoch": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_what_is_no_tree_is_refused(tmp_path):
    with pytest.raises(TypeError, match="which is a Linear"):
        write_checkpoint(tmp_path / "c", {"model": nn.Linear(1, 1)})


def damaged(path, how):
    from safetensors.torch import save

    if how == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    elif how == "pickle":
        path.write_bytes(pickle.dumps({"epoch": 1}))
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "foreign":
        path.write_bytes(save({"weight": torch.zeros(2)}))
    elif how == "outline":
        outline = json.dumps({"dict": [["a", {"tensor": "missing"}]]})
        header = {"format": "attnknn-checkpoint-1", "outline": outline}
        path.write_bytes(save({"weight": torch.zeros(2)}, header))


@pytest.mark.parametrize("how", ["cut", "pickle", "empty", "foreign", "outline"])
def test_damaged_and_foreign_files_are_refused(how, tmp_path):
    write_checkpoint(tmp_path / "c", {"a": torch.zeros(2)})
    damaged(tmp_path / "c", how)
    with pytest.raises(InvalidInputError, match="not a checkpoint, or a damaged one"):
        read_checkpoint(tmp_path / "c")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match="No checkpoint found at"):
        read_checkpoint(tmp_path / "nothing")
