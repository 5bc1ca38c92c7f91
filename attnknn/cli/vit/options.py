"""Options of `attnknn vit`, with the names and defaults of the research code, and their meaning.

The first part defines the options; the second turns their values into the settings of a
`VisionTransformer` and its training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.commands import Decorator, Option, section
from attnknn.cli.options import COUNT, FILE, NOT_NEGATIVE, POSITIVE, PROPORTION, WHOLE

if TYPE_CHECKING:
    from attnknn.vit.training import VitTrainConfig

LAYERS = {
    "Attention": "attention",
    "ConvNNAttention": "convnn",
    "KvtAttention": "kvt",
    "LocalAttention": "local",
    "NeighborhoodAttention": "neighborhood",
    "NeighborhoodAttention2D": "neighborhood_2d",
    "SparseAttention": "sparse",
    "BranchConv": "branching_conv",
    "BranchAttention": "branching_attention",
}
DATASETS = ("cifar10", "cifar100", "imagenet", "mnist", "fashion-mnist")
DEVICES = ("auto", "cpu", "cuda", "mps")
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
FEATURES = ("Col", "Loc", "Loc_Col")
SHARE, BELOW_ONE = click.FloatRange(0, 1), click.FloatRange(0, 1, max_open=True)


class _CompileMode(click.Choice[str]):
    """Modes of torch; 'reduce-memory', which the research code lists, gets its own message."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "reduce-memory":
            known = ", ".join(COMPILE_MODES)
            self.fail(
                f"'reduce-memory' is not a mode of torch.compile; it has {known}.", param, ctx
            )
        return super().convert(value, param, ctx)


class _Layers(click.ParamType[tuple[str, ...]]):
    """A layer, or one for each block, separated by commas."""

    name = "layer"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = tuple(part.strip() for part in str(value).split(","))
        for name in names:
            if name not in LAYERS:
                self.fail(f"{name!r} is not one of {', '.join(LAYERS)}.", param, ctx)
        return names

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        return "NAME[,NAME...]"


def flag_of(name: str) -> str:
    """The option of a parameter, as help and messages write it.

    >>> flag_of("num_layers")
    '--num-layers'
    """
    return f"--{name.replace('_', '-')}"


class _VitOption(Option):
    """An option that may also be written with underscores, which help and messages omit."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        shown, self.opts = self.opts, [*self.opts, f"--{self.name}"]
        super().add_to_parser(parser, ctx)
        self.opts = shown


def option(name: str, default: Any = None, help: str = "", **more: Any) -> Decorator:
    """An option with dashes; the underscores of the research's command lines work too."""
    return click.option(flag_of(name), name, cls=_VitOption, default=default, help=help, **more)


def switch(name: str, help: str) -> Decorator:
    """An option without a value."""
    return option(name, False, help, is_flag=True)


def choice(name: str, choices: tuple[str, ...], default: str | None, help: str) -> Decorator:
    """An option with a few values."""
    return option(name, default, help, type=click.Choice(choices))


def names_in(*decorators: Decorator) -> frozenset[str]:
    """The names of the options that decorators add."""
    command: Callable[..., Any] = lambda **_: None  # noqa: E731
    for decorator in decorators:
        command = decorator(command)
    return frozenset(p.name for p in click.command()(command).params if p.name)


model_options = section(
    "Model",
    option(
        "layer",
        "Attention",
        "Layer of all blocks, or one for each block, separated by commas: Attention (all tokens), "
        "ConvNNAttention (convolution over the K most similar tokens), KvtAttention (the K highest "
        "scores), LocalAttention and NeighborhoodAttention (a window of the sequence), "
        "NeighborhoodAttention2D (a square of K patches), SparseAttention (a fixed pattern), "
        "BranchConv and BranchAttention (ConvNNAttention on some channels, convolution or "
        "attention on the others).",
        type=_Layers(),
    ),
    option("patch_size", 16, "Side of a patch in pixels.", type=WHOLE),
    option("num_layers", 12, "Number of blocks.", type=WHOLE, parameter="depth"),
    option("num_heads", 3, "Number of attention heads; 1 for ConvNNAttention.", type=WHOLE),
    option("d_hidden", 192, "Width of tokens.", type=WHOLE, parameter="dim"),
    option("d_mlp", 768, "Width of the MLP in each block.", type=WHOLE, parameter="mlp_dim"),
    option("dropout", 0.1, "Dropout of linear layers.", type=SHARE, parameter="drop"),
    option(
        "attention_dropout", 0.1, "Dropout of attention weights.", type=SHARE, parameter="attn_drop"
    ),
    choice(
        "pool",
        ("token", "mean"),
        "token",
        "Classify by a class token or the mean of patches; mean for Conv2d alone.",
    ),
    choice("positions", ("learned", "fixed"), "learned", "Positional embeddings."),
)
layer_options = section(
    "Attention layer",
    choice(
        "convolution_type",
        ("standard", "depthwise", "depthwise-separable"),
        "depthwise",
        "Convolution over neighbors, ordered by rank.",
    ),
    option(
        "softmax_topk_val", True, "Softmax over neighbor scores.", type=bool, parameter="weights"
    ),
    option(
        "K",
        9,
        "Neighbors of a token, or its window size; for LocalAttention, on each side.",
        type=WHOLE,
        parameter="n_neighbors",
    ),
    choice(
        "sampling_type",
        ("all", "random", "spatial"),
        "all",
        "Tokens that may be neighbors: all, a random sample, or a grid.",
    ),
    option(
        "num_samples",
        -1,
        "Number of candidates: with --sampling-type random, of tokens (32); with spatial, along "
        "each side of a grid of tokens (8 is 8x8). -1 is all.",
        type=int,
    ),
    option("sample_padding", 0, "Border of the candidate grid to omit.", type=COUNT),
    choice("magnitude_type", ("cosine", "euclidean", "matmul"), "matmul", "Similarity of tokens."),
    choice("similarity_type", FEATURES, "Col", "Compare features, positions, or both."),
    choice("aggregation_type", FEATURES, "Col", "Aggregate features, positions, or both."),
    option("coordinate_encoding", False, "Add coordinates to both.", type=bool),
    option(
        "kernel_size",
        9,
        "Kernel of BranchConv with --conv-axes 1; with 2 axes, 3 by default.",
        type=WHOLE,
    ),
    option(
        "conv_axes",
        2,
        "Convolution of BranchConv: 2 is Conv2d over the grid of patches, 1 is Conv1d along "
        "tokens, between projections.",
        type=click.IntRange(1, 2),
        parameter="n_axes",
    ),
    option(
        "branch_ratio",
        0.5,
        "Share of channels with neighbor attention; BranchConv with 0 is Conv2d alone.",
        type=SHARE,
    ),
    choice("sparse_mode", ("all", "local", "strided"), "all", "Pattern of SparseAttention."),
    option(
        "sparse_context_window",
        128,
        "Context window of SparseAttention.",
        type=WHOLE,
        parameter="context_window",
    ),
    option("key_drop", 0.0, "Share of keys that Attention drops in training.", type=SHARE),
)
data_options = section(
    "Data",
    choice("dataset", DATASETS, "cifar10", "Data set."),
    option("data_path", Path("./Data"), "Folder of the data set.", type=FILE),
    option("resize", 224, "Resize images to this side.", type=WHOLE, parameter="image_size"),
    switch("augment", "Random shifts, and flips except for mnist."),
    option("noise", 0.0, "Standard deviation of pixel noise (pixels 0 to 1).", type=NOT_NEGATIVE),
    option(
        "train_rows", None, "Number of training images.  [default: all]", type=click.IntRange(2)
    ),
    option("test_rows", None, "Number of test images.  [default: all]", type=WHOLE),
    option("workers", 0, "Threads that read files ahead.", type=COUNT),
)
training_options = section(
    "Training",
    option("batch_size", 256, "Images per step.", type=WHOLE),
    option("num_epochs", 150, "Number of training epochs.", type=WHOLE, parameter="epochs"),
    switch("use_amp", "Use mixed precision."),
    switch("use_compiled", "Compile the model with torch.compile."),
    option("compile_mode", "default", "Mode of torch.compile.", type=_CompileMode(COMPILE_MODES)),
    option("clip_grad_norm", 1.0, "Maximum gradient norm; 0 is no limit.", type=NOT_NEGATIVE),
    choice("criterion", ("CrossEntropy", "MSE"), "CrossEntropy", "Loss."),
    option("label_smoothing", 0.0, "Label smoothing.", type=BELOW_ONE),
    choice("optimizer", ("adam", "sgd", "adamw"), "adamw", "Optimizer."),
    option("lr", 1e-3, "Learning rate.", type=POSITIVE),
    option("weight_decay", 1e-6, "Weight decay of matrices.", type=NOT_NEGATIVE),
    option("momentum", 0.9, "Momentum of SGD.", type=BELOW_ONE),
    choice("scheduler", ("step", "cosine", "plateau", "none"), "none", "Learning-rate scheduler."),
    option("lr_step", 20, "Epochs between steps, or patience of plateau.", type=WHOLE),
    option("lr_gamma", 0.1, "Factor of a scheduler step.", type=POSITIVE),
    option("warmup", 0.0, "Share of steps with a rising learning rate.", type=BELOW_ONE),
    option(
        "validation", 0.1, "Share of training rows that select the best epoch.", type=PROPORTION
    ),
    choice("device", DEVICES, "auto", "Device; auto uses a GPU if there is one."),
    option("seed", 0, "Random seed.", type=COUNT),
)
output_options = section(
    "Output",
    option("output_dir", Path("./Output/VGG/ConvNN"), "Folder for model and reports.", type=FILE),
    switch("test_only", "Test the model of --output-dir without training."),
    switch("resume", "Continue an interrupted training."),
    switch("force", "Replace what is in --output-dir."),
)

NEAREST = frozenset(
    {
        *("K", "softmax_topk_val", "convolution_type", "sampling_type", "num_samples"),
        *("sample_padding", "magnitude_type", "similarity_type", "aggregation_type"),
        "coordinate_encoding",
    }
)
READ: dict[str, frozenset[str]] = {  # options of each layer
    "Attention": frozenset({"key_drop"}),
    "ConvNNAttention": NEAREST,
    **dict.fromkeys(
        ("KvtAttention", "LocalAttention", "NeighborhoodAttention", "NeighborhoodAttention2D"),
        frozenset({"K"}),
    ),
    "SparseAttention": frozenset({"sparse_mode", "sparse_context_window"}),
    "BranchConv": NEAREST | {"branch_ratio", "conv_axes", "kernel_size"},
    "BranchAttention": NEAREST | {"branch_ratio"},
}


def with_dependent_defaults(options: dict[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Options with defaults that depend on others; `given` are those on the command line."""
    defaults: dict[str, Any] = {}
    if set(options["layer"]) == {"ConvNNAttention"}:
        defaults["num_heads"] = 1  # the research's "no head splitting"
    if options["conv_axes"] == 2:
        defaults["kernel_size"] = 3  # along each axis
    if is_conv2d_alone(options):
        defaults["pool"] = "mean"
    return {**options, **{name: value for name, value in defaults.items() if name not in given}}


def is_conv2d_alone(options: dict[str, Any]) -> bool:
    """Whether all blocks are convolutions over the grid, which a class token has no place on."""
    is_conv2d = options["conv_axes"] == 2 and options["branch_ratio"] == 0
    return is_conv2d and set(options["layer"]) == {"BranchConv"}


def model_settings(options: dict[str, Any], *, in_chans: int, num_classes: int) -> dict[str, Any]:
    """Settings of `VisionTransformer`, as JSON values."""
    names = options["layer"]
    depth = options["num_layers"]
    if len(names) not in (1, depth):
        raise click.UsageError(
            f"--layer has {len(names)} layers but --num-layers is {depth}: give one layer, or one "
            "for each block."
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
    """Settings of one attention layer."""
    n_neighbors = options["K"]
    same = sorted(NEAREST - {"K", "softmax_topk_val"})
    nearest = {
        "n_neighbors": min(n_neighbors, _most_neighbors(options) or n_neighbors),
        "weights": "softmax" if options["softmax_topk_val"] else "raw",
        **{key: options[key] for key in same},
    }
    branch = {**nearest, "branch_ratio": options["branch_ratio"]}
    conv = {"n_axes": options["conv_axes"], "kernel_size": options["kernel_size"]}
    sparse = {"mode": options["sparse_mode"], "context_window": options["sparse_context_window"]}
    side = math.isqrt(n_neighbors)
    if name == "NeighborhoodAttention2D" and side * side != n_neighbors:
        raise click.UsageError(
            f"--K must be a square number for {name}: 9 is 3x3, 25 is 5x5; got {n_neighbors}."
        )
    return {
        "Attention": {"key_drop": options["key_drop"]},
        "ConvNNAttention": nearest,
        "KvtAttention": {"n_neighbors": n_neighbors},
        "LocalAttention": {"window_size": n_neighbors},
        "NeighborhoodAttention": {"kernel_size": n_neighbors},
        "NeighborhoodAttention2D": {"kernel_size": side},
        "SparseAttention": sparse,
        "BranchConv": {**branch, **conv},
        "BranchAttention": branch,
    }[name]


def _most_neighbors(options: dict[str, Any]) -> int | None:
    """The largest K that the samples allow, if it is limited."""
    from attnknn.vit.layers.convnn import max_neighbors

    if options["num_samples"] < 1:  # -1 is all; others are refused by the layer
        return None
    n_prefix = int(options["pool"] == "token")
    return max_neighbors(options["sampling_type"], options["num_samples"], n_prefix)


def reduced_neighbors(options: dict[str, Any]) -> list[str]:
    """A message if samples allow fewer neighbors than --K, which the layers then have.

    >>> few = {"layer": ["ConvNNAttention"], "K": 9, "num_samples": 4, "pool": "token"}
    >>> reduced_neighbors({**few, "sampling_type": "random"})
    ['--num-samples 4 allows at most 6 neighbors, with the token itself ...: K is 6, not 9.']
    """
    most = _most_neighbors(options)
    is_sampled = any("num_samples" in READ[name] for name in options["layer"])
    if not is_sampled or most is None or options["K"] <= most:
        return []
    others = (
        "the token itself and the class token" if options["pool"] == "token" else "the token itself"
    )
    return [
        f"--num-samples {options['num_samples']} allows at most {most} neighbors, with {others}: "
        f"K is {most}, not {options['K']}."
    ]


def unread_options(names: Sequence[str], given: Collection[str]) -> list[str]:
    """Layer options that were given but that none of the layers `names` reads.

    >>> unread_options(["KvtAttention"], {"K", "key_drop", "lr"})
    ['key_drop']
    """
    known, used = (frozenset().union(*parts) for parts in (READ.values(), [READ[n] for n in names]))
    return sorted((known - used) & set(given))


def options_without_effect(options: dict[str, Any]) -> list[str]:
    """Messages about options that other options leave without effect.

    >>> options_without_effect({"sampling_type": "all", "num_samples": 5, "sample_padding": 0})
    ['--num-samples has no effect with --sampling-type all.']
    """
    kind = options["sampling_type"]
    unused = {
        "num_samples": kind == "all" and options["num_samples"] != -1,
        "sample_padding": kind != "spatial" and options["sample_padding"] != 0,
    }
    return [
        f"{flag_of(name)} has no effect with --sampling-type {kind}."
        for name, is_unused in unused.items()
        if is_unused
    ]


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
        mirror=options["dataset"] != "mnist",  # mirrored digits are not digits
        **{name: options[name] for name in same},
    )
