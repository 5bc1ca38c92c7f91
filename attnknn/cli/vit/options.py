"""The options of `attnknn vit train`: names, choices and defaults of the research's tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
PATH = click.Path(path_type=Path)
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
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
FEATURES = ("Col", "Loc", "Loc_Col")


class _CompileMode(click.Choice[str]):
    """Torch's modes; the one that the research's table names beside them is answered."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "reduce-memory":
            self.fail(
                "'reduce-memory' is no mode of torch.compile, which has "
                f"{', '.join(COMPILE_MODES)}.",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


class _Layers(click.ParamType[tuple[str, ...]]):
    """A layer, or one for each block with commas between them."""

    name = "layer"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = tuple(part.strip() for part in str(value).split(","))
        for name in names:
            if name not in LAYERS:
                self.fail(f"{name!r} is none of {', '.join(LAYERS)}.", param, ctx)
        return names

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        return f"[{'|'.join(LAYERS)}]"


def names_of(name: str) -> tuple[str, ...]:
    """With underscores and, if there are any, with dashes too."""
    return tuple(dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}")))


def option(name: str, default: Any = None, help: str = "", **more: Any) -> Decorator:
    """An option that may be written both ways."""
    return click.option(*names_of(name), name, default=default, help=help, **more)


def switch(name: str, help: str) -> Decorator:
    """An option without a value."""
    return option(name, False, help, is_flag=True)


def choice(name: str, choices: tuple[str, ...], default: str, help: str) -> Decorator:
    """An option with a few values."""
    return option(name, default, help, type=click.Choice(choices))


def all_of(*decorators: Decorator) -> Decorator:
    """Options in the order in which they are listed."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def names_in(*decorators: Decorator) -> frozenset[str]:
    """The names of the options that decorators add."""
    command = click.command()(all_of(*decorators)(lambda **_: None))
    return frozenset(parameter.name for parameter in command.params if parameter.name)


WHOLE, COUNT = click.IntRange(1), click.IntRange(0)
SHARE, NOT_NEGATIVE = click.FloatRange(0, 1), click.FloatRange(0)
BELOW_ONE = click.FloatRange(0, 1, max_open=True)
PART = click.FloatRange(0, 1, min_open=True, max_open=True)
POSITIVE = click.FloatRange(0, min_open=True)

model_options = all_of(
    option("layer", "Attention", "How blocks attend; or a,b,c with one for each.", type=_Layers()),
    option("patch_size", 16, "Side of a patch.", type=WHOLE),
    option("num_layers", 12, "Blocks.", type=WHOLE),
    option("num_heads", 3, "Of attention; 1 unless asked if all are ConvNNAttention.", type=WHOLE),
    option("d_hidden", 192, "Width of tokens.", type=WHOLE),
    option("d_mlp", 768, "Width of the network in each block.", type=WHOLE),
    option("dropout", 0.1, "Of linear layers.", type=SHARE),
    option("attention_dropout", 0.1, "Of attention weights.", type=SHARE),
    choice("pool", ("token", "mean"), "token", "A class token, or the mean of patches."),
    choice("positions", ("learned", "fixed"), "learned", "What is added to patches."),
)
layer_options = all_of(
    choice(
        "convolution_type",
        ("standard", "depthwise", "depthwise-separable"),
        "depthwise",
        "Kernel over the ranks of neighbors.",
    ),
    option("softmax_topk_val", True, "Softmax of neighbors' scores.", type=bool),
    option("K", 9, "Neighbors of a token, or its window; LocalAttention: each way.", type=WHOLE),
    choice("sampling_type", ("all", "random", "spatial"), "all", "Who may be a neighbor."),
    option("num_samples", -1, "How many: 32 at random, 8 for a grid of 8x8; -1 is all.", type=int),
    option("sample_padding", 0, "Border of the grid that is left out.", type=COUNT),
    choice("magnitude_type", ("cosine", "euclidean", "matmul"), "matmul", "What near means."),
    choice("similarity_type", FEATURES, "Col", "Compare features, places, or both."),
    choice("aggregation_type", FEATURES, "Col", "Combine features, places, or both."),
    option("coordinate_encoding", False, "Add places to both.", type=bool),
    option("kernel_size", 9, "Of BranchConv's convolution; 3 over the grid.", type=WHOLE),
    option("conv_axes", 1, "1: along tokens; 2: over the grid.", type=click.IntRange(1, 2)),
    option("branch_ratio", 0.5, "Share of channels that attend to their nearest.", type=SHARE),
    choice("sparse_mode", ("all", "local", "strided"), "all", "Pattern of SparseAttention."),
    option("sparse_context_window", 128, "Its size.", type=WHOLE),
    option("key_drop", 0.0, "Of Attention: tokens out of sight in a step.", type=SHARE),
)
data_options = all_of(
    choice("dataset", DATASETS, "cifar10", "Images to learn."),
    option("data_path", Path("./Data"), "Folder of the images.", type=PATH),
    option("resize", 224, "Side to which images are resized.", type=WHOLE),
    switch("augment", "Shift images at random, and mirror all but those of mnist."),
    option("noise", 0.0, "Standard deviation of noise on pixels from 0 to 1.", type=NOT_NEGATIVE),
    option("train_rows", None, "Only so many images to train on.", type=click.IntRange(2)),
    option("test_rows", None, "Only so many images to test on.", type=WHOLE),
    option("workers", 0, "Threads that read files ahead.", type=COUNT),
)
training_options = all_of(
    option("batch_size", 256, "Images in a step.", type=WHOLE),
    option("num_epochs", 150, "Epochs.", type=WHOLE),
    switch("use_amp", "Compute in half precision."),
    switch("use_compiled", "Compile the model."),
    option("compile_mode", "default", "Of torch.compile.", type=_CompileMode(COMPILE_MODES)),
    option("clip_grad_norm", 1.0, "Largest norm of a gradient; 0 is any.", type=NOT_NEGATIVE),
    choice("criterion", ("CrossEntropy", "MSE"), "CrossEntropy", "Loss."),
    option("label_smoothing", 0.0, "Share of a label spread over all.", type=BELOW_ONE),
    choice("optimizer", ("adam", "sgd", "adamw"), "adamw", "Optimizer."),
    option("lr", 1e-3, "Learning rate.", type=POSITIVE),
    option("weight_decay", 1e-6, "Of matrices.", type=NOT_NEGATIVE),
    option("momentum", 0.9, "Of SGD.", type=BELOW_ONE),
    choice("scheduler", ("step", "cosine", "plateau", "none"), "none", "Of the rate."),
    option("lr_step", 20, "Epochs between steps, or without progress.", type=WHOLE),
    option("lr_gamma", 0.1, "Factor of a step.", type=POSITIVE),
    option("warmup", 0.0, "Share of steps in which the rate rises.", type=BELOW_ONE),
    option("validation", 0.1, "Share of rows that choose the epoch to keep.", type=PART),
    choice("device", ("auto", "cpu", "cuda", "mps"), "cuda", "Where to compute."),
    option("seed", 0, "Same seed, same model.", type=COUNT),
    option("output_dir", Path("./Output/VGG/ConvNN"), "Folder of what is written.", type=PATH),
    switch("test_only", "Test the model of --output_dir, without training."),
    switch("resume", "Go on with a training that was interrupted."),
    switch("force", "Replace what is in --output_dir."),
)
