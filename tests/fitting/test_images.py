"""Image encoders learn by the vote, from labels alone, and can be stopped and resumed."""

from __future__ import annotations

import threading
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from attnknn.encoders.image import (
    ImageEncoder,
    ImageInference,
    ImageLoss,
    ImageTraining,
    ImageVoters,
)
from attnknn.encoders.image.networks import build_network
from attnknn.errors import InvalidInputError
from attnknn.fitting.images import train_images
from attnknn.training import TrainConfig, WarmRestarts
from attnknn.training.augmentation import Augmentation, Mixing
from attnknn.training.devices import Precision
from attnknn.training.views import Views
from tests.fitting.shapes import shapes

N_ROWS = 240
IMAGES, CODES = shapes(N_ROWS)
IS_TRAINED_ON = np.arange(N_ROWS) // 4 % 5 != 0  # four fifths, all classes alike
NO_GROUPS = np.full(N_ROWS, -1)
SETTINGS = {
    "epochs": 10,
    "batch_size": 32,
    "learning_rate": 0.05,
    "queue_size": 96,
    "device": "cpu",
}
QUICK = ImageTraining.of(**SETTINGS)


def changed(**changes):
    return ImageTraining.of(**SETTINGS | changes)


def encoder_of(training=QUICK, X=IMAGES, **settings):
    settings = {"widths": (8, 16, 16)} | settings
    settings = {"inference": ImageInference(device="cpu"), **settings}
    return ImageEncoder(training=training, **settings).fit(X)


def trained_on(encoder, codes=CODES, groups=NO_GROUPS, X=IMAGES, seed=0):
    return train_images(
        encoder,
        X,
        codes,
        n_classes=4,
        groups=groups,
        is_trained_on=IS_TRAINED_ON,
        random_state=seed,
    )


def others_agree(embeddings, codes, groups=NO_GROUPS, is_asked=None):
    """Share of rows whose nearest other row, of another group, has their label."""
    cosines = embeddings @ embeddings.T
    is_kin = (groups[:, None] == groups) & (groups[:, None] >= 0)
    cosines[is_kin | np.eye(len(codes), dtype=bool)] = -np.inf
    hits = codes[cosines.argmax(axis=1)] == codes
    return float(hits[slice(None) if is_asked is None else is_asked].mean())


def test_training_brings_rows_of_one_class_together():
    encoder = encoder_of()
    before = others_agree(encoder.transform(IMAGES), CODES, is_asked=~IS_TRAINED_ON)
    trained = trained_on(encoder)
    after = others_agree(encoder.transform(IMAGES), CODES, is_asked=~IS_TRAINED_ON)
    assert before < 0.9
    assert after > 0.95
    losses = trained.result.validation_losses
    assert min(losses) < losses[0] / 3
    assert len(losses) == len(trained.result.train_losses) + 1


def test_random_labels_stay_random(rng):
    codes = rng.permutation(CODES)
    encoder = encoder_of()
    trained_on(encoder, codes)
    embeddings = encoder.transform(IMAGES)
    assert others_agree(embeddings, codes, is_asked=~IS_TRAINED_ON) < 0.45
    assert others_agree(embeddings, codes, is_asked=IS_TRAINED_ON) < 0.55  # 6 epochs, no leak


def test_copies_in_one_group_do_not_vouch_for_each_other(rng):
    """Four copies of each image share a random label: without groups that label can be read off."""
    rows = np.repeat(np.arange(N_ROWS // 4), 4)
    images, codes = IMAGES[rows], rng.integers(0, 4, N_ROWS // 4)[rows]
    still = changed(augmentation=Augmentation(), head_weight=0.0)
    losses = {}
    for name, groups in (("apart", rows), ("together", NO_GROUPS)):
        encoder = encoder_of(still, images)
        losses[name] = trained_on(encoder, codes, groups, images).result.train_losses
    assert losses["together"][0] < 1.0
    assert losses["apart"][0] > 1.3


def test_the_same_seed_gives_the_same_bytes():
    first, same, other = (encoder_of(changed(epochs=4)) for _ in range(3))
    for encoder, seed in ((first, 3), (same, 3), (other, 4)):
        trained_on(encoder, seed=seed)
    assert np.array_equal(first.transform(IMAGES), same.transform(IMAGES))
    assert not np.array_equal(first.transform(IMAGES), other.transform(IMAGES))


def test_a_trained_encoder_is_stored_to_the_last_bit():
    encoder = encoder_of(changed(epochs=1, schedule=WarmRestarts(1)))
    trained_on(encoder)
    again = ImageEncoder.from_settings(*encoder.to_settings())
    assert again.training == encoder.training
    assert np.array_equal(again.transform(IMAGES), encoder.transform(IMAGES))


class Killed(Exception):
    """In place of a power cut."""


ALL_AT_ONCE = changed(
    epochs=4,
    contrastive_weight=0.5,
    negatives_weight=1.0,
    boundary_share=0.3,
    refresh_every=2,
    mixing=Mixing(mixup=0.3, cutmix=0.3),
    augmentation=Augmentation(horizontal_flip="alternating", crop=1),
)


WITH_BANK = changed(epochs=4, bank=True, k_train=5, refresh_steps=3, momentum=0.9)


@pytest.fixture(scope="module", params=[ALL_AT_ONCE, WITH_BANK], ids=["queue", "bank"])
def whole_training(request):
    """A training that was not killed: its settings, encoder and result."""
    whole = encoder_of(request.param)
    return request.param, whole, trained_on(whole).result


@pytest.mark.parametrize("killed_in", [1, 3])
def test_a_killed_training_goes_on_as_if_nothing_had_happened(
    tmp_path, monkeypatch, killed_in, whole_training
):
    from attnknn.fitting.image_objective import ImageObjective

    settings, whole, expected = whole_training
    training = replace(settings, checkpoint=str(tmp_path / "checkpoint"))
    begin = ImageObjective.begin

    def killed(objective, epoch):
        if epoch == killed_in:
            raise Killed
        begin(objective, epoch)

    with monkeypatch.context() as patched:
        patched.setattr(ImageObjective, "begin", killed)
        with pytest.raises(Killed):
            trained_on(encoder_of(training))
    resumed = encoder_of(training)
    result = trained_on(resumed).result
    assert result.train_losses == expected.train_losses
    assert result.validation_losses == expected.validation_losses
    assert result.components == expected.components
    assert np.array_equal(resumed.transform(IMAGES), whole.transform(IMAGES))


CHANGES = {
    "epochs": 1,
    "batch_size": 16,
    "learning_rate": 0.2,
    "weight_decay": 0.1,
    "optimizer": "adamw",
    "schedule": "cosine",
    "warmup": 0.6,
    "clip": 0.01,
    "bias_lr_scale": 1.0,
    "whitening_epochs": 0,
    "vote_weight": 0.2,
    "vote_label_smoothing": 0.3,
    "temperature": 0.5,
    "prior_score": 0.0,
    "queue_size": 0,
    "bank": True,
    "k_train": 3,
    "momentum": 0.9,
    "head_weight": 0.2,
    "label_smoothing": 0.0,
    "head_scale": 1.0,
    "contrastive_weight": 1.0,
    "entropy_weight": 0.5,
    "calibration_weight": 1.0,
    "selective_weight": 1.0,
    "negatives_weight": 2.0,
    "boundary_share": 0.5,
    "average": 0.5,
    "lookahead": 1,
    "window": (12, 1),
    "augmentation": Augmentation(rotation=20.0),
    "mixing": Mixing(mixup=1.0),
    "precision": Precision(dtype="bfloat16", is_channels_last=True),
}
WITH = {
    "contrastive_temperature": (0.5, {"contrastive_weight": 1.0}),
    "contrastive_margin": (0.3, {"contrastive_weight": 1.0}),
    "n_negatives": (1, {"negatives_weight": 2.0}),
    "refresh_every": (2, {"negatives_weight": 2.0}),
    "refresh_steps": (1, {"bank": True}),
    "selective_coverage": (0.3, {"selective_weight": 1.0}),
}
OF_PRETRAINED = {"backbone_lr_scale": 1.0, "layer_decay": 0.3}
ELSEWHERE = {"patience", "validation_entries", "checkpoint", "device"}
RECORDS = (ImageTraining, TrainConfig, ImageLoss, ImageVoters)


@cache
def losses_after(**changes):
    """Validation losses after each epoch of a short training."""
    encoder = encoder_of(changed(**{"epochs": 2, **changes}))
    some = slice(N_ROWS // 2)
    return train_images(
        encoder,
        IMAGES[some],
        CODES[some],
        n_classes=4,
        groups=NO_GROUPS[some],
        is_trained_on=IS_TRAINED_ON[some],
        random_state=0,
    ).result.validation_losses[1:]


@pytest.mark.parametrize("name", CHANGES)
def test_every_setting_moves_what_is_learned(name):
    moved = losses_after(**{name: CHANGES[name]})
    assert moved != pytest.approx(losses_after(), rel=1e-4)


@pytest.mark.parametrize("name", WITH)
def test_every_setting_of_a_term_moves_what_is_learned(name):
    value, term = WITH[name]
    plain = losses_after(**term)
    assert losses_after(**{**term, name: value}) != pytest.approx(plain, rel=1e-4)


def test_smoothing_the_vote_leaves_the_head_as_it_is():
    by_head = {"vote_weight": 0.0}
    assert losses_after(**by_head, vote_label_smoothing=0.3) == losses_after(**by_head)


def test_no_setting_is_forgotten_here():
    names = {field.name for record in RECORDS for field in fields(record)}
    assert names - {"config", "loss", "voters"} == {*CHANGES, *WITH, *OF_PRETRAINED, *ELSEWHERE}


def test_patience_ends_a_training_that_does_not_get_better(rng):
    training = changed(epochs=8, patience=1, learning_rate=1e-6)
    result = trained_on(encoder_of(training), rng.permutation(CODES)).result
    assert len(result.train_losses) < 8


def test_fewer_entries_vote_in_validation():
    first, second = (
        trained_on(encoder_of(changed(epochs=1, validation_entries=n))).result for n in (20, 4096)
    )
    assert first.validation_losses[0] != second.validation_losses[0]
    assert first.train_losses == second.train_losses


def test_the_module_is_left_in_the_state_with_the_lowest_validation_loss():
    encoder = encoder_of(changed(learning_rate=100.0, epochs=2, clip=None))
    start = encoder.transform(IMAGES)
    result = trained_on(encoder).result
    assert result.best_epoch == 0
    assert np.array_equal(encoder.transform(IMAGES), start)


def brief(tmp_path, **changes):
    return changed(epochs=1, checkpoint=str(tmp_path / "checkpoint"), **changes)


@pytest.mark.parametrize("what", ["seed", "settings", "labels", "images", "nothing"])
def test_the_checkpoint_of_another_training_is_not_taken(tmp_path, what):
    encoder = encoder_of(brief(tmp_path))
    trained_on(encoder)
    changes = {"label_smoothing": 0.1} if what == "settings" else {}
    other, seed = encoder_of(brief(tmp_path, **changes)), 1 if what == "seed" else 0
    codes = CODES[::-1].copy() if what == "labels" else CODES
    images = 255 - IMAGES if what == "images" else IMAGES
    if what == "nothing":
        trained_on(other)
        assert np.array_equal(other.transform(IMAGES), encoder.transform(IMAGES))
        return
    name = {"settings": "label_smoothing", "seed": "seed"}.get(what, "rows and labels")
    with pytest.raises(InvalidInputError, match=f"belongs to another training: `{name}` is "):
        trained_on(other, codes, X=images, seed=seed)


def test_the_seed_decides_what_a_network_of_ones_own_drops():
    found = []
    for _ in range(2):
        layers = nn.Flatten(), nn.Linear(IMAGES[0].size, 16), nn.Dropout(0.5), nn.Linear(16, 8)
        encoder = encoder_of(changed(epochs=1), network=nn.Sequential(*layers))
        with torch.no_grad():
            for parameter in encoder.module_.parameters():
                parameter.fill_(0.01).add_(torch.arange(parameter.numel()).view_as(parameter) % 7)
        found.append(trained_on(encoder).result.train_losses)
    assert found[0] == found[1]


def test_adam_trains_too():
    trained = trained_on(encoder_of(changed(epochs=1, optimizer="adam", learning_rate=0.01)))
    assert trained.result.train_losses


def test_the_mode_of_the_compiler_is_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(nn.Module, "compile", lambda _, **settings: asked.append(settings))
    monkeypatch.setattr("attnknn.fitting.images.check_compiler", lambda _: None)
    precision = Precision(is_compiled=True, compile_mode="reduce-overhead")
    trained_on(encoder_of(changed(epochs=1, precision=precision)))
    assert asked == [{"mode": "reduce-overhead"}]


def test_a_rest_too_small_for_a_batch_is_left_out():
    n_trained = int(IS_TRAINED_ON.sum())
    training = changed(epochs=1, batch_size=n_trained - 1)
    assert np.isfinite(trained_on(encoder_of(training)).result.train_losses).all()


def test_the_head_is_the_baseline_and_gets_a_temperature():
    baseline = trained_on(encoder_of(changed(head_scale=1.0))).baseline
    held_out, codes = IMAGES[~IS_TRAINED_ON], CODES[~IS_TRAINED_ON]
    assert (baseline.predict(held_out) == codes).mean() > 0.9

    def loss():
        return -np.log(baseline.predict_proba(held_out)[np.arange(len(codes)), codes]).mean()

    assert np.allclose(baseline.predict_proba(held_out).sum(axis=1), 1)
    before = loss()
    baseline.fit_temperature(held_out, codes)
    assert baseline.temperature != 1
    assert loss() < before
    twice = baseline.with_views(Views(("original", "flip")))
    assert not np.allclose(twice.predict_proba(held_out), baseline.predict_proba(held_out))
    assert baseline.predict_proba(held_out[:0]).shape == (0, 4)


def test_without_a_head_there_is_no_baseline():
    trained = trained_on(encoder_of(changed(epochs=1, head_weight=0.0)))
    assert trained.baseline is None


def test_the_encoder_trains_itself_and_returns_the_losses():
    result = encoder_of(changed(epochs=1)).train(
        IMAGES,
        CODES,
        n_classes=4,
        groups=NO_GROUPS,
        is_trained_on=IS_TRAINED_ON,
        random_state=0,
    )
    assert len(result.train_losses) == 1


def test_files_gray_images_and_own_modules_are_trained(tmp_path):
    from PIL import Image

    gray, codes = shapes(N_ROWS, channels=1)
    paths = []
    for row, image in enumerate(gray):
        paths.append(tmp_path / f"{row}.png")
        Image.fromarray(image).save(paths[-1])
    by_file, by_array = (
        encoder_of(changed(epochs=1), paths),
        encoder_of(changed(epochs=1), gray),
    )
    trained_on(by_file, codes, X=paths)
    trained_on(by_array, codes, X=gray)
    assert np.array_equal(by_file.transform(paths), by_array.transform(gray))
    own = nn.Sequential(nn.Flatten(), nn.Linear(256, 8))
    encoder = encoder_of(changed(epochs=1), gray, network=own, widths=None)
    losses = trained_on(encoder, codes, X=gray).result.validation_losses
    assert losses[1] != losses[0]


def test_images_that_cannot_be_held_are_read_for_every_batch(monkeypatch):
    from attnknn.fitting import images

    once, pictures = changed(epochs=1), list(IMAGES)
    held, read = (encoder_of(once, pictures) for _ in range(2))
    trained_on(held, X=pictures)
    monkeypatch.setattr(images, "MAX_BYTES_IN_MEMORY", 0)
    trained_on(read, X=pictures)
    assert np.array_equal(read.transform(IMAGES), held.transform(IMAGES))


def test_reading_ahead_changes_nothing_but_who_reads(monkeypatch):
    from attnknn.encoders.image.rows import ListRows

    readers = set()
    monkeypatch.setattr("attnknn.fitting.images.MAX_BYTES_IN_MEMORY", 0)
    take = ListRows.take

    def noted(self, rows, shape, **options):
        readers.add(threading.current_thread().name.partition("_")[0])
        return take(self, rows, shape, **options)

    monkeypatch.setattr(ListRows, "take", noted)
    training = changed(epochs=1)
    found = []
    for workers in (0, 2):
        encoder = encoder_of(
            training, X=list(IMAGES), inference=ImageInference(workers=workers, device="cpu")
        )
        readers.clear()
        trained = trained_on(encoder, X=list(IMAGES))
        found.append((trained.result.train_losses, encoder.transform(list(IMAGES))))
        assert ("read-ahead" in readers) == bool(workers)
    assert found[0][0] == found[1][0]
    np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize(("network", "widths"), [("resnet18", (8,) * 4), ("resnet50", (4,) * 4)])
def test_larger_networks_are_trained_with_a_projection(network, widths):
    training = changed(epochs=1, learning_rate=0.02)
    encoder = encoder_of(training, network=network, widths=widths, embed_dim=6)
    losses = trained_on(encoder).result.validation_losses
    assert encoder.transform(IMAGES).shape == (N_ROWS, 6)
    assert losses[1] != losses[0]


def pretrained_file(folder, network="resnet18-cifar", widths=(4, 4, 8, 8)):
    """A file with random weights of a small network."""
    state = build_network(network, 3, widths, None).state_dict()
    torch.save(state, folder / "weights.pt")
    return {"network": network, "widths": widths, "weights": folder / "weights.pt"}


def test_pretrained_layers_are_trained_at_their_own_rate(tmp_path):
    torch.manual_seed(0)
    settings = pretrained_file(tmp_path)
    slow = encoder_of(changed(epochs=1, backbone_lr_scale=0.0), **settings)
    before = {n: p.detach().clone() for n, p in slow.module_.network.named_parameters()}
    trained_on(slow)
    after = dict(slow.module_.network.named_parameters())
    assert all(torch.equal(after[name], value) for name, value in before.items())
    quick = encoder_of(changed(epochs=1), **settings)
    trained_on(quick)
    assert not torch.equal(quick.module_.network.conv1.weight, before["conv1.weight"])


@pytest.mark.parametrize("name", OF_PRETRAINED)
def test_every_setting_of_pretrained_layers_moves_what_is_learned(name, tmp_path):
    torch.manual_seed(0)
    settings = pretrained_file(tmp_path)
    plain, moved = (
        trained_on(encoder_of(changed(epochs=1, **change), **settings)).result.validation_losses[1]
        for change in ({}, {name: OF_PRETRAINED[name]})
    )
    assert moved != pytest.approx(plain, rel=1e-4)


def test_early_stages_of_a_pretrained_network_change_less(tmp_path):
    torch.manual_seed(0)
    settings = pretrained_file(tmp_path)
    quick = {"epochs": 3, "optimizer": "adamw", "learning_rate": 0.01, "backbone_lr_scale": 1.0}
    encoder = encoder_of(changed(layer_decay=0.5, **quick), **settings)
    before = {n: p.detach().clone() for n, p in encoder.module_.network.named_parameters()}
    trained_on(encoder)
    after = dict(encoder.module_.network.named_parameters())
    names = ("conv1.weight", "layer1.0.conv1.weight", "layer4.0.conv1.weight")
    change = [(after[name] - before[name]).abs().mean().item() for name in names]
    assert 0 < change[0] < change[1] < change[2] / 8


def test_layers_that_a_file_does_not_hold_are_trained_at_the_full_rate(tmp_path):
    settings = pretrained_file(tmp_path)
    state = torch.load(settings["weights"], weights_only=True)
    torch.save(state | {"conv1.weight": torch.zeros(4, 3, 7, 7)}, settings["weights"])
    encoder = encoder_of(changed(epochs=1, backbone_lr_scale=0.0), **settings)
    before = {n: p.detach().clone() for n, p in encoder.module_.network.named_parameters()}
    trained_on(encoder)
    after = dict(encoder.module_.network.named_parameters())
    moved = {name for name, value in before.items() if not torch.equal(after[name], value)}
    assert moved == {"conv1.weight"}


def test_training_and_validation_rows_are_needed():
    for is_trained_on in (np.ones(N_ROWS, bool), np.zeros(N_ROWS, bool)):
        with pytest.raises(InvalidInputError, match="2 training rows and 1 validation row"):
            train_images(
                encoder_of(),
                IMAGES,
                CODES,
                n_classes=4,
                groups=NO_GROUPS,
                is_trained_on=is_trained_on,
                random_state=0,
            )


def test_one_class_and_a_class_with_one_row_are_trained():
    lonely = CODES.copy()
    lonely[0] = 3
    for codes in (np.zeros(N_ROWS, np.int64), np.where(np.arange(N_ROWS) == 5, 1, 0)):
        result = trained_on(encoder_of(changed(epochs=1)), codes).result
        assert np.isfinite(result.validation_losses).all()


def test_chance_of_the_user_is_left_alone():
    before = torch.get_rng_state()
    trained_on(encoder_of(changed(epochs=1)))
    assert torch.equal(torch.get_rng_state(), before)


def test_terms_of_the_loss_are_kept_by_epoch_and_sum_to_it():
    settings = {"contrastive_weight": 0.3, "entropy_weight": 0.1, "calibration_weight": 0.2}
    result = trained_on(encoder_of(changed(epochs=2, **settings))).result
    entropies = result.components["attention entropy"]
    terms = {n: v for n, v in result.components.items() if n != "attention entropy"}
    assert set(terms) == {"head", "vote", "contrastive", "entropy", "calibration"}
    assert np.sum(list(terms.values()), axis=0) == pytest.approx(result.train_losses, rel=1e-4)
    assert [-0.1 * value for value in entropies] == pytest.approx(terms["entropy"], rel=1e-4)
