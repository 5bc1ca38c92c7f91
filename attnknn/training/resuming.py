"""A run is saved after each epoch, and goes on from there as if it had never stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnknn.errors import InvalidInputError
from attnknn.training.checkpoints import (
    chance_state,
    read_checkpoint,
    restore_chance,
    write_checkpoint,
)
from attnknn.training.run import Keeps, Run
from attnknn.training.schedules import Factor

PLACES = 20  # at which the factors of a schedule are compared


def save_run(run: Run, path: Path) -> None:
    """Write everything that moves to one file; the first process does it for all."""
    chance = {
        name: run.processes.gather(state[None])  # one row per process
        for name, state in chance_state(run.generator).items()
    }
    if run.processes.is_first:
        parts = {name: part.state_dict() for name, part in _parts(run).items()}
        outcome = {"train": run.outcome.train_losses, "left_out": run.outcome.validation_losses}
        progress = {"step": run.step, "seconds": run.outcome.seconds, **outcome}
        write_checkpoint(
            path, {"training": _marks(run), "progress": progress, "parts": parts, "chance": chance}
        )


def resume_run(run: Run, path: Path) -> None:
    """Put `run` where the one at `path` was, chance included."""
    saved = read_checkpoint(path)
    if saved.keys() != {"training", "progress", "parts", "chance"}:
        raise InvalidInputError(f"{path} is not the checkpoint of a training.")
    _check_same_training(saved["training"], _marks(run), path)
    for name, part in _parts(run).items():
        part.load_state_dict(saved["parts"][name])
    progress = saved["progress"]
    run.step, run.outcome.seconds = progress["step"], progress["seconds"]
    run.outcome.train_losses = progress["train"]
    run.outcome.validation_losses = progress["left_out"]
    # Clones, because torch reads a generator's state from the start of its storage.
    own = {name: states[run.processes.rank].clone() for name, states in saved["chance"].items()}
    restore_chance(run.generator, own)


def _parts(run: Run) -> dict[str, Keeps]:
    parts: dict[str, Any] = {
        "module": run.module,
        "optimizer": run.optimizer,
        "scaler": run.scaler,
        "best": run.best,
    }
    if run.average is not None:
        parts["average"] = run.average
    return parts | {f"also {name}": part for name, part in run.keeps.items()}


def _marks(run: Run) -> dict[str, Any]:
    """What a training must share with a checkpoint to go on from it."""
    course = run.course
    names = ("epochs", "batch_size", "warmup", "patience", "tolerance", "optimizer", "clip")
    shapes = {name: list(value.shape) for name, value in run.module.state_dict().items()}
    return {
        **{name: getattr(course, name) for name in names},
        "schedule": _shape_of(course.schedule, run.n_steps),
        "numbers": course.precision.numbers,
        "rows": run.n_rows,
        "learning rates": run.heights,
        "weight decays": [group.get("weight_decay", 0.0) for group in course.groups],
        "processes": run.processes.count,
        "parts": sorted(_parts(run)),
        "shapes": shapes,
        **run.marks,
    }


def _shape_of(schedule: str | Factor, n_steps: int) -> str | list[float]:
    """A schedule as another process knows it again: its name, or its factors on the way."""
    if isinstance(schedule, str):
        return schedule
    if hasattr(schedule, "state_dict"):
        return repr(schedule)  # its factors move with the training
    places = {round(n_steps * part / PLACES) for part in range(PLACES + 1)}
    return [float(schedule(step)) for step in sorted(places)]


def _check_same_training(there: dict[str, Any], here: dict[str, Any], path: Path) -> None:
    """What differs is named; that the module is another one follows from it, and is said last."""
    differing = [name for name, value in here.items() if there.get(name) != value]
    if not differing:
        return
    reasons = [
        reason
        for name in differing
        if name != "shapes"
        for reason in _differences(name, there.get(name), here[name])
    ]
    raise InvalidInputError(
        f"The checkpoint {path} belongs to another training: "
        f"{'; '.join(reasons) or 'the module is another one'}. "
        "Train with the settings it was begun with, or remove it to begin again."
    )


def _differences(name: str, there: Any, here: Any) -> list[str]:
    """A difference in words; of groups of settings, those that differ."""
    if isinstance(there, dict) and isinstance(here, dict):
        names = [key for key in here if there.get(key) != here[key]]
        return [words for key in names for words in _differences(key, there.get(key), here[key])]
    return [f"`{name}` is {there} there and {here} here"]
