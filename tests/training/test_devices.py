"""Devices and precision: other dtypes, layouts and compiled code agree within rounding."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from attnknn.errors import InvalidSettingError
from attnknn.training import devices
from attnknn.training.devices import (
    Precision,
    autocast,
    check_compiler,
    device_of,
    loss_scaler,
    prepare,
)


@pytest.mark.parametrize(
    ("there", "expected"),
    [((), "cpu"), (("cuda",), "cuda"), (("mps",), "mps"), (("mps", "cuda"), "cuda")],
)
def test_auto_takes_the_fastest_there_is(monkeypatch, there, expected):
    monkeypatch.setattr(devices, "_is_available", lambda name: name in there)
    assert device_of("auto") == torch.device(expected)
    assert device_of("cpu") == torch.device("cpu")
    for name in there:
        assert device_of(name) == torch.device(name)


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_named_with_what_to_do(monkeypatch, name):
    monkeypatch.setattr(devices, "_is_available", lambda name: False)
    with pytest.raises(InvalidSettingError, match=rf"`device='{name}'` .* no .*GPU.* Use 'cpu'"):
        device_of(name)


def test_an_unknown_device_is_refused():
    with pytest.raises(InvalidSettingError, match="Did you mean 'cuda'"):
        device_of("cdua")


CPU = torch.device("cpu")


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, bias=False),
            nn.BatchNorm2d(8),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(8 * 36, 4),
        )


def images(n: int = 6) -> torch.Tensor:
    return torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def gradients(module: nn.Module, precision: Precision) -> dict[str, torch.Tensor]:
    inputs = images()
    if precision.is_channels_last:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    with autocast(precision, CPU):
        loss = module(inputs).float().square().mean()
    loss.backward()
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def assert_agree(precision: Precision, tolerance: float) -> None:
    plain = network()
    other = prepare(copy.deepcopy(plain), CPU, precision)
    expected, found = gradients(plain, Precision()), gradients(other, precision)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        scale = value.abs().max().item() + 1e-3
        assert torch.allclose(found[name], value, atol=tolerance * scale), name


def test_channels_last_gives_the_same_gradients():
    assert_agree(Precision(is_channels_last=True), 1e-4)


def test_bfloat16_gives_nearly_the_same_gradients_and_float32_weights():
    assert_agree(Precision(dtype="bfloat16"), 0.1)
    module = prepare(network(), CPU, Precision(dtype="bfloat16"))
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}
    with autocast(Precision(dtype="bfloat16"), CPU):
        assert module(images()).dtype == torch.bfloat16
    with autocast(Precision(), CPU):
        assert module(images()).dtype == torch.float32


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # of torch, about itself
def test_compiled_and_eager_agree_within_rounding():
    assert_agree(Precision(is_compiled=True), 1e-4)
    assert_agree(Precision(is_compiled=True, is_channels_last=True), 1e-4)


@pytest.mark.parametrize("setting", [{}, {"is_channels_last": True}])
def test_preparing_keeps_the_names_of_parameters(setting):
    module = network()
    names = list(module.state_dict())
    assert prepare(module, CPU, Precision(**setting)) is module
    assert list(module.state_dict()) == names
    is_last = module[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert is_last == bool(setting)


def test_a_machine_without_a_compiler_says_so(monkeypatch):
    def fail(function):
        raise RuntimeError("No working C++ compiler found.\nmany more lines")

    monkeypatch.setattr(torch, "compile", fail)
    check_compiler.cache_clear()
    with pytest.raises(InvalidSettingError, match=r"needs a working compiler .* No working C\+\+"):
        prepare(network(), CPU, Precision(is_compiled=True))


def test_a_compiled_module_is_asked_for_once(monkeypatch):
    compiled = []
    monkeypatch.setattr(devices, "check_compiler", lambda device: None)
    monkeypatch.setattr(nn.Module, "compile", lambda self, mode: compiled.append((self, mode)))
    module = network()
    prepare(module, CPU, Precision(is_compiled=True))
    assert compiled == [(module, "default")]


def test_float16_is_for_cuda():
    with pytest.raises(InvalidSettingError, match="needs a CUDA device, this one is 'cpu'"):
        prepare(network(), CPU, Precision(dtype="float16"))
    with pytest.raises(InvalidSettingError, match="needs a CUDA device"):
        autocast(Precision(dtype="float16"), CPU)
    assert not loss_scaler(Precision(dtype="bfloat16"), CPU).is_enabled()
    assert loss_scaler(Precision(dtype="float16"), CPU).is_enabled()


def test_unknown_numbers_are_refused():
    with pytest.raises(InvalidSettingError, match="Did you mean 'bfloat16'"):
        Precision(dtype="bfloat61")
