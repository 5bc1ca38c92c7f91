"""`torch.compile` and `torch.export` of every layer and model."""

from __future__ import annotations

import io
import shutil

import pytest
import torch

from attnknn.vit.model import LAYERS as NAMES
from attnknn.vit.model import VisionTransformer
from tests.vit.layers.every_layer import DIM, LAYERS, N

DRAWS_AGAIN = "convnn_legacy_random"  # in evaluation too
QUICK = ("attention", "convnn", "convnn_random", "branching_conv_2d", "neighborhood_2d")
TAKES_NEIGHBORS = ("convnn", "kvt", "branching_conv", "branching_attention")
SMALL = {"image_size": (8, 12), "patch_size": 2, "dim": 12, "depth": 2, "num_classes": 5}


def model_of(name: str, **settings: object) -> VisionTransformer:
    few = {"n_neighbors": 4} if name in TAKES_NEIGHBORS else {}
    return VisionTransformer(**SMALL, layer=name, layer_settings={**few, **settings}).eval()


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_layers_compile_without_graph_breaks(name, is_training, randn):
    torch.compiler.reset()
    layer, x = LAYERS[name]().train(is_training), randn(2, N, DIM).float().requires_grad_()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    out = compiled(x)
    out.sum().backward()
    if name != DRAWS_AGAIN and not (is_training and "random" in name):
        torch.testing.assert_close(out, layer(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.usefixtures("two_threads")
@pytest.mark.filterwarnings("ignore")
def test_layers_compile_under_inference_mode_for_any_number_of_images(name, randn):
    torch.compiler.reset()
    layer = LAYERS[name]().eval()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for n_images in (2, 5):
        x = randn(n_images, N, DIM).float()
        with torch.inference_mode():
            out = compiled(x)
        if name != DRAWS_AGAIN:
            torch.testing.assert_close(out, layer(x).detach())


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.filterwarnings("ignore")
def test_layers_compile_in_low_precision(name, dtype, randn):
    torch.compiler.reset()
    low, x = LAYERS[name](dtype=dtype).eval(), randn(2, N, DIM).to(dtype)
    layer = LAYERS[name]().eval()
    with torch.inference_mode():
        out = torch.compile(low, fullgraph=True, backend="aot_eager")(x)
        with torch.autocast("cpu", dtype=dtype):
            cast = torch.compile(layer, fullgraph=True, backend="aot_eager")(x.float())
            expected = layer(x.float())
        if name != DRAWS_AGAIN:
            torch.testing.assert_close(out, low(x))
            torch.testing.assert_close(cast, expected)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_models_compile_by_default_under_inference_mode(name):
    torch.compiler.reset()
    model, images = model_of(name), torch.randn(3, 3, 8, 12)
    with torch.inference_mode():
        out = torch.compile(model)(images)
    torch.testing.assert_close(out, model(images).detach())


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in LAYERS]
)
@pytest.mark.filterwarnings("ignore")
def test_layers_are_exported_for_any_number_of_images(name, randn):
    layer = LAYERS[name]().eval()
    any_number = ({0: torch.export.Dim("images")},)
    exported = torch.export.export(
        layer, (randn(3, N, DIM).float(),), dynamic_shapes=any_number
    ).module()
    for n_images in (1, 2, 5):
        x = randn(n_images, N, DIM).float()
        if name != DRAWS_AGAIN:
            torch.testing.assert_close(exported(x), layer(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, "random"])
@pytest.mark.filterwarnings("ignore")
def test_exported_models_are_saved_and_loaded(name):
    few = {"sampling_type": "random", "num_samples": 5}
    model = model_of("convnn", **few) if name == "random" else model_of(name)
    any_number = ({0: torch.export.Dim("images")},)
    exported = torch.export.export(model, (torch.randn(3, 3, 8, 12),), dynamic_shapes=any_number)
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for n_images in (1, 4):
        images = torch.randn(n_images, 3, 8, 12)
        torch.testing.assert_close(loaded(images), model(images))
