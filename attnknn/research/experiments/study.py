"""One claim on one data set: from settings to tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attnknn._validation import check_choice
from attnknn.errors import InvalidSettingError
from attnknn.research import datasets
from attnknn.research.datasets.base import Source
from attnknn.research.datasets.image_folder import read_images
from attnknn.research.evaluation.measurements import MeasurementSet
from attnknn.research.evaluation.protocol import Progress
from attnknn.research.evaluation.report import check_folder
from attnknn.research.evaluation.table import Table
from attnknn.research.experiments.claims import MEASURED, cells_of, settings_of
from attnknn.research.experiments.data import Setup
from attnknn.research.experiments.methods import MethodSettings, learned_attention
from attnknn.research.experiments.networks import (
    Network,
    NetworkChoice,
    as_images,
    has_images,
    is_image_network,
    network_of,
    weights_checksum,
)
from attnknn.research.experiments.presets import SEEDS, Preset, differences, preset_of
from attnknn.research.experiments.running import run_cells, run_measurements

KINDS = {
    "table": "a table",
    "vectors": "a set of vectors",
    "images": "a set of images",
    "texts": "a set of texts",
}


@dataclass(frozen=True)
class Study:
    """One claim on one data set, to be measured."""

    claim: str  # one of `claims.CLAIMS`
    dataset: str = "digits"  # a name that `datasets.load` takes, or a folder of images
    folder: Path = Path("attnknn-experiments")  # for reports and trained encoders
    seeds: Sequence[int] | None = None  # None takes five, or those of the preset
    preset: str | None = None  # an experiment of the research, whose setup is used
    is_full: bool = False  # use the original network of the preset, not one for two cores
    # image encoder: "narrow", "wide" or a network of `ImageEncoder`; "none" takes raw pixels; None
    # is "narrow" for images
    network: str | None = None
    weights: str | None = None  # file of pretrained weights of a network of `ImageEncoder`
    backbone: str = "tuned"  # or "frozen", as in `ImageEncoder`
    cache: bool = False  # whether features of a frozen network are cached on disk
    # resolution of a network of `ImageEncoder`, and side to which images of a folder are resized
    image_size: int | None = None
    n_rows: int | None = None  # size of a stratified subset of the training rows
    encoder: str = "auto"  # encoder of tables and vectors, as `make_encoder` takes it
    device: str = "auto"  # that trains image networks, as `ImageTraining` takes it
    # settings of the claim that differ from `claims.toml`
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_folder(self) -> bool:
        """Whether the data set is a folder of images, and not one with a name."""
        return self.dataset not in datasets.SOURCES and Path(self.dataset).is_dir()

    @property
    def dataset_name(self) -> str:
        """Name of the data set in reports."""
        return Path(self.dataset).resolve().name if self.is_folder else self.dataset

    @property
    def place(self) -> Path:
        """The folder of the report; each preset has its own."""
        return self._root / self.claim / self.dataset_name

    @property
    def _root(self) -> Path:
        if self.preset is None:
            return self.folder
        return self.folder / (f"{self.preset}-full" if self.is_full else self.preset)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was measured: tables by their position on the axis of the claim, or measurements."""

    study: Study
    title: str
    tables: Mapping[float | None, Table]
    measurements: MeasurementSet | None = None


def measure(study: Study, progress: Progress = lambda _: None) -> Outcome:
    """Run the cells and seeds that the report does not have, and read the others.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = measure(Study("k-sweep", "iris", Path(folder), [0], changes={"neighbors": [5]}))
    >>> found.tables[5].methods
    ['uniform', 'distance', 'learned']
    """
    settings = settings_of(study.claim, study.changes)
    check_options(study)
    check_folder(study.place)
    setup, options, seeds = set_up(study, progress)
    if setup.joint is not None and "methods" in settings:  # its CNN is trained apart
        names = ["cnn" if name == "head" else name for name in settings["methods"]]
        settings = {**settings, "methods": names}
    if study.claim in MEASURED:
        measurements = run_measurements(setup, study.claim, settings, seeds)
        return Outcome(study, settings["title"], {}, measurements)
    cells = cells_of(study.claim, settings, options)
    return Outcome(study, settings["title"], run_cells(setup, study.claim, cells, seeds))


def check_options(study: Study) -> None:
    """Raise an error for options that exclude each other."""
    if study.is_full and study.preset is None:
        raise InvalidSettingError("The full network is that of a preset; name a preset.")
    check_choice("backbone", study.backbone, ("tuned", "frozen"))
    from attnknn.training.devices import device_of

    device_of(study.device)  # raises if it is not available
    is_chosen = study.network is not None and is_image_network(study.network)
    has_size = study.image_size is not None and not study.is_folder
    has_settings = study.weights is not None or study.backbone != "tuned" or has_size
    if has_settings and not is_chosen:
        raise InvalidSettingError(
            "`weights`, `backbone` and `image_size` are for a network of `ImageEncoder`: name one "
            "as `network`, such as 'mobilenet-v2'."
        )
    if study.cache and study.backbone != "frozen":
        raise InvalidSettingError("`cache` needs `backbone='frozen'`: trained features change.")
    if study.weights is not None:
        weights_checksum(study.weights)  # raises if there is no such file
    if study.network is None:
        return
    if study.preset is not None and not is_chosen:
        raise InvalidSettingError(
            f"The preset {study.preset!r} has a network of its own; leave out {study.network!r}."
        )
    source = datasets.SOURCES.get(study.dataset)
    if source is not None and not has_images(source):
        raise InvalidSettingError(f"{study.dataset} is {KINDS[source.kind]}; omit `network`.")


def set_up(study: Study, progress: Progress) -> tuple[Setup, MethodSettings, Sequence[int]]:
    """The data with its encoder, settings of methods, and seeds of a study."""
    preset = None if study.preset is None else preset_of(study.preset, is_full=study.is_full)
    if study.is_folder:
        data = read_images(datasets.load_folder(study.dataset), study.image_size)
    else:
        data = datasets.load(study.dataset)
    network = network_for(study, data)
    if network is not None:
        network = replace(network, device=study.device)
    options, seeds, n_rows = MethodSettings(), study.seeds or SEEDS, study.n_rows
    if preset is not None:
        options, seeds = preset.options, study.seeds or preset.seeds
        if n_rows is None and preset.n_rows is not None and preset.n_rows < len(data.y_train):
            n_rows = preset.n_rows
    if len(set(seeds)) < len(seeds):
        raise InvalidSettingError(f"`seeds` must name each seed once, got {list(seeds)}.")
    setup = Setup(data, study._root, network, n_rows, study.encoder, study.preset, progress)
    if preset is not None and network is not None:
        is_gray = as_images(data, data.X_test[:1]).ndim == 3
        if is_gray and "saturation" in network.augmentation:
            network = replace(network, augmentation={**network.augmentation, "saturation": 0.0})
        differs = differences(replace(preset, network=network, n_rows=n_rows))
        joint = learned_attention(preset.options.attention)
        setup = replace(setup, network=network, joint=joint, differs=differs)
    return setup, options, seeds


def network_for(study: Study, data: datasets.Dataset | Source) -> Network | None:
    """The network that is trained on a data set; None without training."""
    if study.preset is not None:
        preset = preset_of(study.preset, is_full=study.is_full)
        _check_preset(study, preset, data)
        network: Network | None = preset.network
        if data.kind != "images":  # smaller ones
            network = replace(preset.network, image_size=network_of(data.name).image_size)
        if study.network is not None:
            network = _choice(study).in_place_of(network or preset.network)
    elif has_images(data) and study.network is not None and is_image_network(study.network):
        network = _choice(study).in_place_of(network_of(study.dataset))
    elif has_images(data) and study.network != "none":
        network = network_of(study.dataset, study.network or "narrow")
    else:
        network = None
    if network is not None and study.encoder != "auto":
        raise InvalidSettingError(
            f"`encoder` is for rows that no network is trained on; set `network='none'` for "
            f"{study.encoder!r} on {study.dataset!r}."
        )
    return network


def _choice(study: Study) -> NetworkChoice:
    assert study.network is not None
    is_frozen = study.backbone == "frozen"
    return NetworkChoice(study.network, study.weights, is_frozen, study.image_size, study.cache)


def _check_preset(study: Study, preset: Preset, data: datasets.Dataset | Source) -> None:
    if not has_images(data):
        raise InvalidSettingError(
            f"The preset {study.preset!r} trains an image encoder; {study.dataset!r} has none."
        )
    if study.claim not in preset.claims and study.claim not in MEASURED:
        raise InvalidSettingError(
            f"With the preset {study.preset!r} one can measure "
            f"{', '.join((*preset.claims, *MEASURED))}; got {study.claim!r}."
        )
