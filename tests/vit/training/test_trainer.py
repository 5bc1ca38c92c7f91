"""Trainings of small Vision Transformers: they learn, resume, and select on validation rows."""

from __future__ import annotations

import signal

import numpy as np
import pytest
import torch
from torch import nn

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.training import loop
from attnknn.training.loop import BestState
from attnknn.training.schedules import Plateau
from attnknn.vit.model import VisionTransformer
from attnknn.vit.training import (
    Evaluation,
    ImagePreprocessor,
    VitTrainConfig,
    evaluate,
    load_vit,
    save_vit,
    train_vit,
)
from attnknn.vit.training.storage import StoredVit
from attnknn.vit.training.trainer import split_validation

SMALL = {
    "image_size": 8, "patch_size": 4, "dim": 16, "depth": 1, "num_heads": 2, "num_classes": 3,
    "layer": "convnn", "layer_settings": {"n_neighbors": 3},
}  # fmt: skip
QUICK = {"epochs": 3, "batch_size": 32, "lr": 0.01, "device": "cpu"}


class Bright:
    """Images of three classes that differ in brightness."""

    def __init__(self, n: int = 120, seed: int = 0) -> None:
        chance = np.random.default_rng(seed)
        self.classes = torch.from_numpy(chance.integers(0, 3, n))
        level = 40 + 80 * self.classes.numpy()[:, None, None, None]
        noise = chance.integers(-30, 30, (n, 3, 8, 8))
        self.images = np.clip(level + noise, 0, 255).astype(np.uint8)

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows):
        return self.images[rows]


@pytest.fixture(scope="module")
def bright():
    return Bright()


@pytest.fixture(scope="module")
def preprocessor(bright):
    return ImagePreprocessor.from_images(bright, (8, 8))


def trained(bright, preprocessor, model=SMALL, checkpoint=None, on_epoch=None, **settings):
    return train_vit(
        lambda: VisionTransformer(**model),
        bright,
        bright.classes,
        preprocessor,
        VitTrainConfig(**{**QUICK, **settings}),
        checkpoint=checkpoint,
        on_epoch=on_epoch,
    )


def state_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"criterion": "MSE"},
        {"optimizer": "adam", "lr": 0.01},
        {"optimizer": "sgd", "lr": 0.1, "momentum": 0.8},
        {"scheduler": "cosine", "warmup": 0.2},
        {"scheduler": "step", "lr_step": 2},
        {"use_amp": True},
        {"augment": True, "noise": 0.02, "label_smoothing": 0.1},
        {"workers": 2},
    ],
    ids=str,
)
def test_a_model_learns(bright, preprocessor, settings):
    model, result = trained(bright, preprocessor, **{"epochs": 6, **settings})
    other = Bright(seed=1)
    assert evaluate(model, other, other.classes, preprocessor).top1 > 0.8
    assert len(result.epochs) == 6
    assert 1 <= result.best_epoch <= 6


def test_the_seed_determines_everything_including_initial_weights(bright, preprocessor):
    """B19: weights were made before the seed was set."""
    first, again, other = (
        state_of(trained(bright, preprocessor, epochs=1, augment=True, seed=seed)[0])
        for seed in (0, 0, 1)
    )
    assert_same(first, again)
    assert not torch.equal(first["head.weight"], other["head.weight"])


@pytest.mark.parametrize("scheduler", ["cosine", "plateau"])
def test_a_killed_training_resumes_bit_for_bit(bright, preprocessor, tmp_path, scheduler):
    path = tmp_path / "checkpoint"
    dropped = {**SMALL, "drop": 0.2}
    settings = {"scheduler": scheduler, "lr_step": 1, "augment": True}
    whole, result = trained(bright, preprocessor, dropped, **settings)

    def stop(epoch):
        if epoch.number == 2:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        trained(bright, preprocessor, dropped, path, stop, **settings)
    resumed, again = trained(bright, preprocessor, dropped, path, **settings)
    assert_same(state_of(whole), state_of(resumed))
    assert [e.validation_loss for e in result.epochs] == [e.validation_loss for e in again.epochs]


@pytest.mark.parametrize("moment", ["reported", "left_out", "saved"])
def test_interruption_after_the_first_epoch_keeps_it_and_resumes(
    bright, preprocessor, tmp_path, monkeypatch, moment
):
    whole, _ = trained(bright, preprocessor, epochs=2)
    path, first = tmp_path / "checkpoint", []

    def stop(*_):
        if not first:
            first.append(True)
            signal.raise_signal(signal.SIGINT)

    if moment == "left_out":
        monkeypatch.setattr(BestState, "keep", before(stop, BestState.keep, skip=1))
    elif moment == "saved":
        monkeypatch.setattr(loop, "save_run", before(stop, loop.save_run))
    on_epoch = stop if moment == "reported" else None
    _, result = trained(bright, preprocessor, checkpoint=path, on_epoch=on_epoch, epochs=2)
    assert result.was_interrupted
    assert (result.best_epoch, len(result.epochs)) == (1, 1)
    resumed, result = trained(bright, preprocessor, checkpoint=path, epochs=2)
    assert len(result.epochs) == 2
    assert_same(state_of(whole), state_of(resumed))


def before(stop, usual, skip=0):
    """Call `stop` before `usual`, except for the first `skip` times."""
    calls = []

    def both(*arguments):
        calls.append(1)
        if len(calls) > skip:
            stop()
        return usual(*arguments)

    return both


def test_interruption_before_the_first_validation_keeps_nothing(bright, preprocessor, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("attnknn.vit.training.trainer.evaluate", stop)
    _, result = trained(bright, preprocessor)
    assert (result.best_epoch, result.epochs) == (0, [])


def test_the_epoch_with_the_best_validation_accuracy_is_kept(bright, preprocessor):
    model, result = trained(bright, preprocessor, epochs=4)
    _, held_out = split_validation(bright.classes, 0.1, 0)
    kept = evaluate(model, bright, bright.classes, preprocessor, rows=held_out).top1
    assert kept == max(epoch.validation_top1 for epoch in result.epochs)
    assert kept == result.epochs[result.best_epoch - 1].validation_top1


def test_initial_weights_are_never_kept_and_loss_breaks_ties(bright, preprocessor):
    """A model that learns nothing has the accuracy of its initial weights."""
    _, result = trained(bright, preprocessor, epochs=3, lr=1e-9)
    assert result.best_epoch >= 1
    rights = {epoch.validation_top1 for epoch in result.epochs}
    losses = [epoch.validation_loss for epoch in result.epochs]
    assert len(rights) == 1
    assert losses[result.best_epoch - 1] == min(losses)


def test_each_image_needs_a_class(bright, preprocessor):
    with pytest.raises(InvalidInputError, match="but 5 classes"):
        train_vit(lambda: VisionTransformer(**SMALL), bright, bright.classes[:5], preprocessor)


def test_validation_rows_are_not_trained_on(bright, preprocessor):
    """B25: models were selected on test rows."""
    seen: set[int] = set()

    class Watched(Bright):
        def take(self, rows):
            if not torch.is_grad_enabled():
                return super().take(rows)
            seen.update(rows.tolist())
            return super().take(rows)

    trained(Watched(), preprocessor, epochs=1)
    of_training, held_out = split_validation(bright.classes, 0.1, 0)
    assert seen == set(of_training.tolist())
    assert not seen & set(held_out.tolist())


def test_a_plateau_lowers_the_rate_when_the_loss_stops_falling(bright, preprocessor):
    """B17: it was given accuracies as if they were losses, so progress lowered it."""
    plateau = Plateau(0.1, 3)
    for loss in np.linspace(1.0, 0.1, 20):
        plateau.update(loss)
    assert plateau(0) == 1.0
    for _ in range(3):
        plateau.update(0.5)
    assert plateau(0) == pytest.approx(0.1)


def test_a_plateau_gets_the_validation_loss_of_each_epoch(bright, preprocessor, monkeypatch):
    """B17: it was given accuracies."""
    losses, usual = [], Plateau.update

    def update(plateau, loss):
        losses.append(loss)
        usual(plateau, loss)

    monkeypatch.setattr(Plateau, "update", update)
    _, result = trained(bright, preprocessor, scheduler="plateau", lr_step=1)
    assert losses == [epoch.validation_loss for epoch in result.epochs]


def test_every_image_counts_once(bright, preprocessor):
    """B20: a last batch of sixteen images counted as much as one of 256."""
    model = VisionTransformer(**SMALL).eval()
    whole, in_parts = (
        evaluate(model, bright, bright.classes, preprocessor, batch_size=size) for size in (120, 50)
    )
    assert whole.top1 == in_parts.top1
    assert whole.loss == pytest.approx(in_parts.loss, rel=1e-6)
    scores = Evaluation()
    scores.add(torch.eye(3), torch.tensor([0, 1, 2]), 1.0)
    scores.add(torch.eye(3)[:1], torch.tensor([1]), 0.0)
    assert (scores.top1, scores.top5, scores.loss, scores.n_rows) == (0.75, 1.0, 0.75, 4)


def test_mse_compares_with_one_hot_targets():
    """B18: class numbers were compared with scores."""
    from attnknn.vit.training.evaluation import make_criterion

    outputs = torch.tensor([[0.5, 0.0]])
    assert make_criterion("MSE")(outputs, torch.tensor([0])).item() == pytest.approx(0.125)


def test_images_are_normalized_by_training_statistics(bright, preprocessor):
    seen = preprocessor.transform(torch.from_numpy(bright.images), torch.Generator())
    assert abs(seen.mean((0, 2, 3))).max() < 1e-4
    assert abs(seen.std((0, 2, 3)) - 1).max() < 1e-2
    larger = ImagePreprocessor((16, 16), preprocessor.mean, preprocessor.std)
    assert larger.transform(torch.from_numpy(bright.images[:2]), torch.Generator()).shape[2:] == (
        16,
        16,
    )


def test_noise_is_added_in_training_and_evaluation(bright, preprocessor):
    noisy = ImagePreprocessor(preprocessor.size, preprocessor.mean, preprocessor.std, noise=0.2)
    shown = torch.from_numpy(bright.images)
    clean, seen = (
        p.transform(shown, torch.Generator().manual_seed(0)) for p in (preprocessor, noisy)
    )
    added = (seen - clean) * torch.tensor(preprocessor.std)[:, None, None]
    assert added.std() == pytest.approx(0.2, rel=0.02)


def test_a_stored_model_gives_the_same_outputs(bright, preprocessor, tmp_path):
    model, _ = trained(bright, preprocessor, epochs=1)
    save_vit(tmp_path / "model", StoredVit(model, SMALL, preprocessor, ("a", "b", "c")))
    stored = load_vit(tmp_path / "model")
    assert stored.classes == ("a", "b", "c")
    assert stored.preprocessor == preprocessor
    before, after = (
        evaluate(each, bright, bright.classes, preprocessor, keep_outputs=True).outputs
        for each in (model, stored.model)
    )
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_other_files_are_refused(tmp_path):
    from attnknn.training.checkpoints import write_checkpoint

    write_checkpoint(tmp_path / "other", {"kind": "else"})
    with pytest.raises(InvalidInputError, match="does not contain a Vision Transformer"):
        load_vit(tmp_path / "other")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "`epochs`"),
        ({"lr": 0.0}, "`lr`"),
        ({"validation": 0.0}, "`validation`"),
        ({"scheduler": "cosinus"}, "No scheduler is called"),
        ({"optimizer": "adamax"}, "No optimizer is called"),
        ({"criterion": "Hinge"}, "No criterion is called"),
        ({"device": "tpu"}, "No device is called"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(InvalidSettingError, match=message):
        VitTrainConfig(**settings)


def test_too_few_images_for_validation_are_refused():
    with pytest.raises(InvalidInputError, match="too few"):
        split_validation(torch.tensor([0, 1]), 0.01, 0)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_validation_is_stratified_by_class(share):
    classes = torch.arange(1000) % 7
    trained_on, held_out = split_validation(classes, share, 0)
    assert sorted(torch.cat([trained_on, held_out]).tolist()) == list(range(1000))
    counts = classes[held_out].bincount(minlength=7)
    assert (counts - share * classes.bincount()).abs().max() <= 1


def test_any_module_can_be_trained(bright, preprocessor):
    model, _ = train_vit(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 3)),
        bright,
        bright.classes,
        preprocessor,
        VitTrainConfig(**QUICK),
    )
    assert isinstance(model, nn.Sequential)


def test_mirroring_can_be_turned_off() -> None:
    shown = torch.zeros(16, 1, 8, 8, dtype=torch.uint8)
    shown[:, :, :, 6:] = 255  # bright on the right
    preprocessor = ImagePreprocessor((8, 8), (0.0,), (1.0,))
    for is_mirrored in (True, False):
        chance = torch.Generator().manual_seed(0)
        seen = preprocessor.transform(
            shown, chance, with_augmentation=True, with_mirroring=is_mirrored
        )
        is_bright_left = seen[:, 0, :, :3].mean((1, 2)) > seen[:, 0, :, 5:].mean((1, 2))
        assert is_bright_left.any() == is_mirrored


def test_arrays_are_images(bright, preprocessor):
    assert ImagePreprocessor.from_images(bright.images, (8, 8)) == preprocessor
    model = VisionTransformer(**SMALL)
    source, array = (
        evaluate(model, images, bright.classes, preprocessor) for images in (bright, bright.images)
    )
    assert source == array
