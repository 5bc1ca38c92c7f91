"""A training killed at any moment and begun again ends with the same bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from attnknn.errors import InvalidInputError
from attnknn.training import WarmRestarts

from .in_steps import Training

SCRIPT = Path(__file__).with_name("in_steps.py")
N_STEPS = 16


class Killed(BaseException):
    """What stands for a kill inside one process."""


def killer(after: int):
    steps = []

    def after_step() -> None:
        steps.append(1)
        if len(steps) == after:
            raise Killed

    return after_step


@pytest.fixture(autouse=True)
def _own_chance():
    with torch.random.fork_rng():
        yield


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@settings(max_examples=6)
@given(
    kills=st.lists(st.integers(1, N_STEPS), min_size=1, max_size=3),
    optimizer=st.sampled_from(["adamw", "sgd"]),
    average=st.sampled_from(["none", "moving", "lookahead"]),
)
def test_killed_and_resumed_is_as_never_killed(kills, optimizer, average, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "checkpoint"
    whole = Training(optimizer, average)
    expected = whole.state(whole.run(None))
    for after in kills:
        try:
            Training(optimizer, average).run(path, killer(after))
        except Killed:
            continue
    training = Training(optimizer, average)
    assert_same(training.state(training.run(path)), expected)


def test_a_finished_training_is_not_trained_again(tmp_path):
    first = Training()
    result = first.run(tmp_path / "c")
    again = Training()
    read, reread = again.run(tmp_path / "c", killer(1)), Training().run(tmp_path / "c")
    assert_same(again.state(read), first.state(result))
    assert read.seconds == reread.seconds


def test_early_stopping_is_remembered(tmp_path):
    first = Training(patience=1, epochs=30)
    result = first.run(tmp_path / "c")
    assert len(result.train_losses) < 30
    again = Training(patience=1, epochs=30).run(tmp_path / "c", killer(1))
    assert again.validation_losses == result.validation_losses


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"batch_size": 5}, "`batch_size` is 6 there and 5 here"),
        ({"optimizer": "sgd"}, "`optimizer` is adamw there and sgd here"),
        ({"average": "none"}, "`parts`"),
        ({"weight_decay": 0.02}, "`weight decays` is .*0.01.* there and .*0.02"),
        ({"schedule": "linear"}, "`schedule` is cosine there and linear here"),
        ({"schedule": WarmRestarts(1)}, "`schedule` is cosine there and "),
        ({"schedule": lambda step: 1 / (1 + step)}, "`schedule` is cosine there and "),
        ({"fingerprint": {"seed": 1}}, "`seed` is None there and 1 here"),
    ],
)
def test_the_checkpoint_of_another_training_is_refused(change, reason, tmp_path):
    Training().run(tmp_path / "c")
    with pytest.raises(InvalidInputError, match=reason):
        Training(**change).run(tmp_path / "c")


def test_a_schedule_of_ones_own_is_known_again_by_its_factors(tmp_path):
    def schedule(shift):
        return lambda step: 1 / (1 + shift + step)  # another object each time

    check_known_again(tmp_path, schedule(0), schedule(0), schedule(1))


def test_cycles_are_known_again_by_their_factors(tmp_path):
    check_known_again(tmp_path, WarmRestarts(1), WarmRestarts(1, 2.0), WarmRestarts(1, 1.0))


def check_known_again(folder, schedule, same, other):
    first = Training(schedule=schedule)
    expected = first.state(first.run(folder / "c"))
    again = Training(schedule=same)
    assert_same(again.state(again.run(folder / "c", killer(1))), expected)
    with pytest.raises(InvalidInputError, match="`schedule` is "):
        Training(schedule=other).run(folder / "c")


def test_the_checkpoint_of_another_module_is_refused(tmp_path):
    Training().run(tmp_path / "c")
    other = Training()
    other.module.append(torch.nn.Linear(2, 2))
    with pytest.raises(InvalidInputError, match="the module is another one"):
        other.run(tmp_path / "c")


def start(checkpoint: Path, result: Path) -> subprocess.Popen[str]:
    words = [sys.executable, str(SCRIPT), str(checkpoint), str(result)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_process_killed_by_the_system_goes_on_with_the_same_bits(tmp_path):
    whole = start(tmp_path / "never-killed", tmp_path / "expected")
    assert len(whole.communicate(timeout=120)[0].splitlines()) == N_STEPS
    for n_steps in (2, 7, 5, 3):  # before the first checkpoint, then within later epochs
        process = start(tmp_path / "c", tmp_path / "found")
        for _ in range(n_steps):
            assert process.stdout.readline() == "step\n"
        process.kill()  # SIGKILL
        process.communicate(timeout=60)
        assert process.returncode == -9
    last = start(tmp_path / "c", tmp_path / "found")
    n_left = len(last.communicate(timeout=120)[0].splitlines())
    assert last.returncode == 0
    assert 0 < n_left < N_STEPS
    assert_same(load_file(tmp_path / "found"), load_file(tmp_path / "expected"))
