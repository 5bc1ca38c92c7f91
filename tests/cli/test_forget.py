"""`attnknn forget` by a policy: what it costs, what it changes, and how it is taken back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from attnknn import AttnKNNClassifier
from attnknn.insight import drop_least_valuable

from .samples import refused, run


def state_of(model: Path) -> tuple[list[str], list[float]]:
    entries = AttnKNNClassifier.load(model).memory_.entries
    return entries.ids.tolist(), entries.effective_weight.tolist()


def test_the_newest_are_kept_and_the_edit_is_taken_back(model: Path) -> None:
    old = state_of(model)
    said = run("forget", model, "--keep-newest", 20).stdout.splitlines()
    assert said[0].startswith("Leave-one-out, 60 held-out entries: accuracy 0.")
    assert said[1] == "Forgot 40 of 60 entries, the oldest; model now holds 20 entries (edit 1)."
    ids = AttnKNNClassifier.load(model).memory_.entries.ids.tolist()
    assert ids == [f"id-0-{row:03d}" for row in range(40, 60)]
    said = run("undo", model).stdout
    assert said == ("Undid edit 1, forgot 40 entries; model now holds 60 entries (edit 2).\n")
    assert state_of(model) == old


def test_a_budget_drops_the_least_valuable(model: Path) -> None:
    expected = AttnKNNClassifier.load(model)
    drop_least_valuable(expected, 25)
    assert "those of least value; " in run("forget", model, "--budget", 25).stdout
    ids = AttnKNNClassifier.load(model).memory_.entries.ids.tolist()
    assert ids == expected.memory_.entries.ids.tolist()


def test_a_half_life_is_stored_and_taken_back(model: Path) -> None:
    old = state_of(model)
    said = run("forget", model, "--half-life", "10").stdout
    assert "Halved the sample weight of entries with every 10 of age; " in said
    decay = AttnKNNClassifier.load(model).memory_.entries.decay
    assert decay is not None
    assert np.allclose(decay, 0.5 ** (np.arange(59, -1, -1) / 10))
    head, first, *_ = run("log", model, "--edit", 1).stdout.splitlines()
    assert head.split() == [
        *("id", "label_before", "label_after", "sample_weight_before", "sample_weight_after"),
        "payload",
    ]
    assert first.split()[3:5] == ["1", f"{0.5**5.9:.4g}"]
    last = json.loads(run("log", model, "--edit", 1, "--format", "json").stdout)[-1]
    assert last["sample_weight_after"] == pytest.approx(0.5**0.1)
    assert "Undid edit 1, changed the weight of 59 entries; " in run("undo", model).stdout
    assert state_of(model) == old


@pytest.mark.parametrize("policy", [("--keep-newest", 9), ("--budget", 9), ("--half-life", 3)])
def test_a_dry_run_says_what_it_costs_and_changes_nothing(model: Path, policy) -> None:
    old = state_of(model)
    said = run("forget", model, *policy, "--dry-run").stdout
    assert "Leave-one-out, 60 held-out entries: accuracy" in said
    assert said.splitlines()[-1].startswith("Dry run: would ")
    assert said.endswith(". Nothing was changed.\n")
    assert state_of(model) == old
    assert "Nothing to undo: " in refused("undo", model)


def test_a_budget_that_is_kept_already_saves_nothing(model: Path) -> None:
    old = state_of(model)
    said = run("forget", model, "--budget", 60).stdout
    assert said.endswith("Forgot nothing: there are only 60 entries.\n")
    assert state_of(model) == old


def test_classes_are_emptied_only_if_asked(model: Path) -> None:
    assert "must be at least 3 to keep" in refused("forget", model, "--keep-newest", 2)
    assert run("forget", model, "--keep-newest", 2, "--empty-classes").exit_code == 0
    assert len(AttnKNNClassifier.load(model).memory_) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("id-0-000", "--budget", 9),
        ("--budget", 9, "--keep-newest", 9),
        ("id-0-000", "--dry-run"),
        ("id-0-000", "--empty-classes"),
        ("--half-life", 9, "--empty-classes"),
        ("--half-life", 0),
        ("--budget", 0),
    ],
)
def test_one_thing_is_asked_at_a_time(model: Path, arguments) -> None:
    old = state_of(model)
    assert run("forget", model, *arguments).exit_code == 2
    assert state_of(model) == old
