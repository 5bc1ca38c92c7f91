"""Ctrl-C and SIGTERM, sent to a real process while it trains."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attnknn.cli import predict

from .samples import run
from .test_outputs import contents

LONG = ("--encoder", "learned-tabular", "--epochs", "100000", "--verbose")


def stop(by: signal.Signals, *arguments: Any) -> tuple[int, str]:
    """The exit code and the error stream of a command that gets a signal after two epochs."""
    command = [sys.executable, "-m", "attnknn", *map(str, arguments)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
        assert child.stderr is not None
        seen = b""
        while b"epoch 2 of" not in seen:
            line = child.stderr.readline()
            assert line, seen
            seen += line
        child.send_signal(by)
        seen += child.stderr.read()
        return child.wait(timeout=60), seen.decode()


@pytest.mark.parametrize(
    ("by", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_an_interrupted_fit_leaves_the_old_model(
    by: signal.Signals, code: int, model: Path, train: Path
) -> None:
    before = contents(model)
    exit_code, shown = stop(by, "fit", train, "-t", "kind", "-o", model, "--force", *LONG)
    assert exit_code == code
    last = "No model was saved, and an existing one was not changed.\nInterrupted.\n"
    assert shown.endswith(last)
    assert "Traceback" not in shown
    assert contents(model) == before
    assert sorted(p.name for p in model.parent.iterdir()) == ["model", "train.csv"]


def test_an_interrupted_fit_keeps_its_best_state_on_request(
    model: Path, train: Path, rows: Path
) -> None:
    before = contents(model)
    options = ("-t", "kind", "-o", model, "--force", "--keep-partial")
    exit_code, shown = stop(signal.SIGINT, "fit", train, *options, *LONG)
    assert exit_code == 130
    assert shown.endswith(
        "Interrupted: the model was saved with the best epoch of the training so far.\n"
    )
    assert contents(model) != before
    assert run("predict", model, rows).exit_code == 0


def test_every_command_ends_with_code_130(
    model: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    usual = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(predict, "_predictions", interrupt)
    result = run("predict", model, rows, "-o", tmp_path / "out.csv")
    assert (result.exit_code, result.stderr) == (130, "Interrupted.\n")
    assert not (tmp_path / "out.csv").exists()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == usual
