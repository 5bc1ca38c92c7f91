"""What options mean for a model and its training."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.vit.options import LAYERS
from attnknn.errors import InvalidSettingError

if TYPE_CHECKING:
    from attnknn.vit.training import VitTrainConfig


NEAR = frozenset(
    {
        *("K", "softmax_topk_val", "convolution_type", "sampling_type", "num_samples"),
        *("sample_padding", "magnitude_type", "similarity_type", "aggregation_type"),
        "coordinate_encoding",
    }
)
READ: dict[str, frozenset[str]] = {  # options of each layer
    "Attention": frozenset({"key_drop"}),
    "ConvNNAttention": NEAR,
    **dict.fromkeys(
        ("KvtAttention", "LocalAttention", "NeighborhoodAttention", "NeighborhoodAttention2D"),
        frozenset({"K"}),
    ),
    "SparseAttention": frozenset({"sparse_mode", "sparse_context_window"}),
    "BranchConv": NEAR | {"branch_ratio", "conv_axes", "kernel_size"},
    "BranchAttention": NEAR | {"branch_ratio"},
}


def as_meant(options: dict[str, Any], asked: Collection[str]) -> dict[str, Any]:
    """Options with defaults that depend on others; `asked` are those that were given."""
    meant = {}
    if set(options["layer"]) == {"ConvNNAttention"}:
        meant["num_heads"] = 1  # the research's "no head splitting"
    if options["conv_axes"] == 2:
        meant["kernel_size"] = 3  # along each axis
    return {**options, **{name: value for name, value in meant.items() if name not in asked}}


def model_settings(options: dict[str, Any], *, in_chans: int, num_classes: int) -> dict[str, Any]:
    """Settings of `VisionTransformer`, fit for JSON."""
    names = options["layer"]
    depth = options["num_layers"]
    if len(names) not in (1, depth):
        raise click.UsageError(
            f"--layer names {len(names)} layers, --num_layers says {depth}: name one, or one for "
            "each block."
        )
    settings = [layer_settings(name, options) for name in names]
    is_one = len(names) == 1
    return {
        "image_size": options["resize"],
        "patch_size": options["patch_size"],
        "in_chans": in_chans,
        "num_classes": num_classes,
        "dim": options["d_hidden"],
        "depth": depth,
        "num_heads": options["num_heads"],
        "mlp_dim": options["d_mlp"],
        "layer": LAYERS[names[0]] if is_one else [LAYERS[name] for name in names],
        "layer_settings": settings[0] if is_one else settings,
        "drop": options["dropout"],
        "attn_drop": options["attention_dropout"],
        "pool": options["pool"],
        "positions": options["positions"],
    }


def layer_settings(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Settings of one layer."""
    n_neighbors = options["K"]
    near = {
        "n_neighbors": n_neighbors,
        "weights": "softmax" if options["softmax_topk_val"] else "raw",
        **{
            key: options[key]
            for key in (
                *("convolution_type", "sampling_type", "num_samples", "sample_padding"),
                *("magnitude_type", "similarity_type", "aggregation_type", "coordinate_encoding"),
            )
        },
    }
    beside = {"branch_ratio": options["branch_ratio"]}
    conv = {"n_axes": options["conv_axes"], "kernel_size": options["kernel_size"]}
    sparse = {"mode": options["sparse_mode"], "context_window": options["sparse_context_window"]}
    return {
        "Attention": {"key_drop": options["key_drop"]},
        "ConvNNAttention": near,
        "KvtAttention": {"n_neighbors": n_neighbors},
        "LocalAttention": {"window_size": n_neighbors},
        "NeighborhoodAttention": {"kernel_size": n_neighbors},
        "NeighborhoodAttention2D": {"kernel_size": _side(name, n_neighbors)},
        "SparseAttention": sparse,
        "BranchConv": {**near, **beside, **conv},
        "BranchAttention": {**near, **beside},
    }[name]


def not_read(names: Sequence[str], asked: Collection[str]) -> list[str]:
    """Options of layers that were asked for and that none of these layers reads.

    >>> not_read(["KvtAttention"], {"K", "key_drop", "lr"})
    ['key_drop']
    """
    known, used = (frozenset().union(*parts) for parts in (READ.values(), [READ[n] for n in names]))
    return sorted((known - used) & set(asked))


def without_effect(options: dict[str, Any]) -> list[str]:
    """What is said of options that the other options leave without effect.

    >>> without_effect({"sampling_type": "all", "num_samples": 5, "sample_padding": 0})
    ['--num_samples has no effect with --sampling_type all.']
    """
    kind = options["sampling_type"]
    idle = {
        "num_samples": kind == "all" and options["num_samples"] != -1,
        "sample_padding": kind != "spatial" and options["sample_padding"] != 0,
    }
    return [
        f"--{name} has no effect with --sampling_type {kind}."
        for name, is_idle in idle.items()
        if is_idle
    ]


OWN = frozenset(  # settings that have the same name on the command line
    {
        *("patch_size", "num_heads", "kernel_size", "branch_ratio", "key_drop", "num_samples"),
        *("sample_padding", "sampling_type", "magnitude_type", "similarity_type"),
        *("aggregation_type", "convolution_type", "coordinate_encoding", "pool", "positions"),
        *("batch_size", "lr", "momentum", "warmup", "label_smoothing", "validation", "device"),
    }
)
FLAGS = {  # settings of Python that options of another name give
    "n_neighbors": "K",
    "window_size": "K",
    "image_size": "resize",
    "dim": "d_hidden",
    "depth": "num_layers",
    "mlp_dim": "d_mlp",
    "drop": "dropout",
    "attn_drop": "attention_dropout",
    "n_axes": "conv_axes",
    "mode": "sparse_mode",
    "context_window": "sparse_context_window",
    "epochs": "num_epochs",
    "weights": "softmax_topk_val",
}


def in_flags(message: str, names: Sequence[str]) -> str:
    """What Python says of settings, in the words of the command line.

    >>> in_flags("`num_heads` must divide `dim=12`.", ["KvtAttention"])
    '--num_heads must divide --d_hidden 12.'
    """
    flags = dict(FLAGS)
    if all(name.startswith("Neighborhood") for name in names):
        flags["kernel_size"] = "K"
    known = {*flags, *OWN}

    def spoken(found: re.Match[str]) -> str:
        name, value = found.groups()
        flag = f"--{flags.get(name, name)}" if name in known else None
        return found[0] if flag is None else " ".join(filter(None, [flag, value]))

    return re.sub(r"`(\w+)(?:=([^`]*))?`", spoken, message)


@contextmanager
def errors_in_flags(names: Sequence[str]) -> Iterator[None]:
    """Settings that a model refuses are called as the command line calls them."""
    try:
        yield
    except InvalidSettingError as error:
        raise click.ClickException(in_flags(str(error), names)) from error


def _side(name: str, n_neighbors: int) -> int:
    side = math.isqrt(n_neighbors)
    if name == "NeighborhoodAttention2D" and side * side != n_neighbors:
        raise click.UsageError(
            f"--K is the size of a square for {name}: 9 is 3x3, 25 is 5x5; got {n_neighbors}."
        )
    return side


def training_settings(options: dict[str, Any]) -> VitTrainConfig:
    """Settings of the training."""
    from attnknn.vit.training import VitTrainConfig

    same = (
        *("batch_size", "optimizer", "lr", "weight_decay", "momentum", "scheduler", "lr_step"),
        *("lr_gamma", "warmup", "criterion", "label_smoothing", "augment", "noise", "validation"),
        *("use_amp", "use_compiled", "compile_mode", "device", "seed", "workers"),
    )
    return VitTrainConfig(
        epochs=options["num_epochs"],
        clip_grad_norm=options["clip_grad_norm"] or None,
        mirror=options["dataset"] != "mnist",  # a mirrored digit is none
        **{name: options[name] for name in same},
    )
