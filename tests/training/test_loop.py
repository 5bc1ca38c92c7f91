"""The training loop: best state kept, weight decay and rates at work, stopped by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from attnknn.errors import InvalidSettingError
from attnknn.training import loop
from attnknn.training.config import DEFAULTS, TrainConfig
from attnknn.training.devices import Precision
from attnknn.training.loop import Run, train
from attnknn.training.processes import Processes
from attnknn.training.weight_average import make_average


class Point(nn.Module):
    """Two numbers to be moved."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.tensor([2.0, 2.0]))


def run(point, loss_of=None, validate=None, *, n_rows=8, hooks=None, **settings):
    rate, decay = settings.pop("lr", 0.1), settings.pop("weight_decay", 0.0)
    groups = [{"params": [point.place], "lr": rate, "weight_decay": decay}]
    config = TrainConfig(**({"epochs": 4, "batch_size": 4} | settings))
    loss_of = loss_of or (lambda rows: point.place.square().sum() + 0 * rows.sum())
    validate = validate or (lambda: point.place.square().sum().item())
    generator = torch.Generator().manual_seed(0)
    return train(point, loss_of, validate, n_rows, config, groups, generator, **(hooks or {}))


def test_training_goes_downhill_and_counts_its_epochs():
    point = Point()
    result = run(point)
    assert point.place.square().sum() < 8.0
    assert len(result.train_losses) == 4
    assert len(result.validation_losses) == 5
    assert result.best_epoch == 4
    assert result.seconds > 0


def test_the_state_with_the_lowest_validation_loss_is_kept():
    point = Point()
    losses = iter([5.0, 1.0, 3.0, 4.0, 9.0])
    seen = []

    def validate():
        seen.append(point.place.detach().clone())
        return next(losses)

    result = run(point, validate=validate)
    assert result.best_epoch == 1
    assert torch.equal(point.place.detach(), seen[1])


def test_a_later_state_is_kept_if_it_is_about_as_good():
    point = Point()
    losses = iter(
        [5.0, 1.0, 1.015, 1.04, 1.03]
    )  # each within 2 % of the one before, not of the best
    seen = []

    def validate():
        seen.append(point.place.detach().clone())
        return next(losses)

    result = run(point, validate=validate, hooks={"tolerance": 0.02})
    assert result.best_epoch == 2
    assert torch.equal(point.place.detach(), seen[2])


def test_a_training_that_only_harms_changes_nothing():
    point = Point()
    losses = iter([1.0, 2.0, 3.0, 4.0, 5.0])
    run(point, validate=lambda: next(losses))
    assert point.place.tolist() == [2.0, 2.0]


def test_every_row_is_seen_once_in_each_epoch():
    point, seen = Point(), []

    def loss_of(rows):
        seen.extend(rows.tolist())
        return point.place.sum()

    run(point, loss_of, n_rows=10, batch_size=4, epochs=3)
    assert [sorted(seen[i : i + 10]) for i in (0, 10, 20)] == [list(range(10))] * 3
    assert seen[:10] != seen[10:20]


def test_one_row_alone_joins_the_batch_before():
    sizes = []

    def loss_of(rows):
        sizes.append(len(rows))
        return point.place.sum()

    for n_rows in (9, 10, 1):
        point = Point()
        run(point, loss_of, n_rows=n_rows, batch_size=4, epochs=1)
    assert sizes == [4, 5, 4, 4, 2, 1]


def test_a_config_can_be_used_again():
    points = Point(), Point()
    module = nn.ModuleList(points)
    groups = [{"params": list(module.parameters()), "lr": 0.1}]
    config = TrainConfig(epochs=3, batch_size=4)
    losses = []

    def loss(*_):
        return sum(point.place.square().sum() for point in points)

    for _ in range(2):
        with torch.no_grad():
            for point in points:
                point.place.fill_(2.0)
        generator = torch.Generator().manual_seed(0)
        result = train(module, loss, lambda: loss().item(), 8, config, groups, generator)
        losses.append(result.validation_losses)
    assert losses[0] == losses[1]
    assert groups[0]["lr"] == 0.1


def test_weight_decay_pulls_what_no_loss_moves():
    point = Point()
    run(point, lambda rows: point.place[0] * 0, validate=Falling(), weight_decay=0.5)
    assert (point.place < 2.0).all()
    point = Point()
    run(point, lambda rows: point.place[0] * 0, validate=Falling())
    assert point.place.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "setting",
    [
        {"lr": 0.01},
        {"epochs": 1},
        {"batch_size": 8},
        {"warmup": 0.9},
        {"optimizer": "sgd"},
        {"schedule": "constant"},
        {"optimizer": "sgd", "clip": 0.1},
    ],
)
def test_every_setting_moves_the_result(setting):
    plain, moved = Point(), Point()
    run(plain)
    run(moved, **setting)
    assert not torch.allclose(plain.place, moved.place)


class Falling:
    """A validate that likes each state better than the one before."""

    def __init__(self) -> None:
        self.value = 0.0

    def __call__(self) -> float:
        self.value -= 1.0
        return self.value


def test_a_stop_by_hand_keeps_the_best_and_says_so():
    point, calls = Point(), []

    def loss_of(rows):
        calls.append(point.place.detach().clone())
        if len(calls) == 4:  # in the second step of the second epoch
            raise KeyboardInterrupt
        return point.place.square().sum()

    result = run(point, loss_of)
    assert result.was_interrupted
    assert len(result.validation_losses) == 2
    assert torch.equal(point.place.detach(), calls[2])


def test_a_loss_that_is_not_a_number_never_becomes_the_best():
    point = Point()
    losses = iter([1.0, math.nan, math.nan, 0.5, math.nan])
    result = run(point, validate=lambda: next(losses))
    assert torch.isfinite(point.place).all()
    assert result.validation_losses[result.best_epoch] == 0.5


def test_the_default_is_adamw_under_a_cosine_bit_for_bit():
    """Published numbers depend on it."""
    point, other, n_steps = Point(), Point(), 4 * 3
    run(point, lambda rows: (point.place * (1 + rows.sum())).square().sum(), n_rows=10)
    groups = [{"params": [other.place], "lr": 0.1, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0)

    def factor(step):
        n_rising = int(0.2 * n_steps)
        if step < n_rising:
            return (step + 1) / (n_rising + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - n_rising) / (n_steps - n_rising)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        for rows in torch.randperm(10, generator=generator).split(4):
            optimizer.zero_grad()
            (other.place * (1 + rows.sum())).square().sum().backward()
            optimizer.step()
            schedule.step()
    assert torch.equal(point.place, other.place)


def test_clipping_bounds_the_step():
    point = Point()
    run(point, lambda rows: 1e6 * point.place.sum(), epochs=1, optimizer="sgd", clip=1.0, lr=0.01)
    assert 0 < (2.0 - point.place).abs().max() < 0.1


def test_steps_compute_in_the_configured_dtype():
    point, seen = Point(), []

    def loss_of(rows):
        product = point.place[None] @ point.place[:, None]
        seen.append(product.dtype)
        return product.float().sum()

    run(point, loss_of, hooks={"precision": Precision(dtype="bfloat16")}, epochs=1)
    assert set(seen) == {torch.bfloat16}
    assert point.place.dtype == torch.float32


def test_a_scaled_loss_gives_the_step_of_the_plain_one_clipped_or_not():
    for clip in (None, 0.5):
        places = []
        for scaler in (torch.amp.GradScaler("cpu", enabled=False), torch.amp.GradScaler("cpu")):
            point = Point()
            groups = [{"params": [point.place], "lr": 0.1}]
            config = TrainConfig(1, 4, optimizer="sgd", clip=clip).filled(DEFAULTS)
            steps = Run(point, 8, config, groups, torch.Generator())
            steps.scaler = scaler
            for _ in range(2):
                steps.descend(point.place.square().sum())
            places.append(point.place.detach())
        assert torch.allclose(*places, atol=1e-5)


@pytest.mark.parametrize("setting", [{"average": 0.9}, {"lookahead": 2}])
def test_averaged_weights_are_validated_and_kept(setting, monkeypatch):
    point, validated, made = Point(), [], []
    falling = Falling()
    monkeypatch.setattr(loop, "make_average", lambda *a: made.append(make_average(*a)) or made[0])

    def validate():
        validated.append(point.place.detach().clone())
        assert torch.equal(validated[-1], made[0].state["place"])
        return falling()

    run(point, validate=validate, **setting)
    assert made[0].n_updates == 8
    assert torch.equal(point.place.detach(), validated[-1])
    plain = Point()
    run(plain, validate=Falling())
    assert not torch.equal(point.place, plain.place)


def test_hooks_get_the_epoch_before_and_the_result_after():
    called = []
    hooks = {
        "before_epoch": lambda epoch: called.append(epoch),
        "on_epoch": lambda result: called.append((len(result.train_losses), result.best_epoch)),
    }
    run(Point(), hooks=hooks, epochs=2)
    assert called == [0, (1, 1), 1, (2, 2)]


def test_a_last_batch_too_small_for_all_processes_is_refused():
    with pytest.raises(InvalidSettingError, match="last batch of 2 of 10 rows, too few for 3"):
        run(Point(), n_rows=10, hooks={"processes": Processes(0, 3)})


def test_unknown_names_are_refused():
    with pytest.raises(InvalidSettingError, match="No optimizer is called 'adma'"):
        run(Point(), optimizer="adma")
    with pytest.raises(InvalidSettingError, match="No schedule is called"):
        run(Point(), schedule="cosinus")
