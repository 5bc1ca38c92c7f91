"""Devices: what is there is taken, what is not is named."""

from __future__ import annotations

import pytest
import torch

from attnknn.errors import InvalidSettingError
from attnknn.training import devices
from attnknn.training.devices import device_of


@pytest.mark.parametrize(
    ("there", "expected"),
    [((), "cpu"), (("cuda",), "cuda"), (("mps",), "mps"), (("mps", "cuda"), "cuda")],
)
def test_auto_takes_the_fastest_there_is(monkeypatch, there, expected):
    monkeypatch.setattr(devices, "_is_there", lambda name: name in there)
    assert device_of("auto") == torch.device(expected)
    assert device_of("cpu") == torch.device("cpu")
    for name in there:
        assert device_of(name) == torch.device(name)


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_named_with_what_to_do(monkeypatch, name):
    monkeypatch.setattr(devices, "_is_there", lambda name: False)
    with pytest.raises(InvalidSettingError, match=rf"`device='{name}'` .* no .*GPU.* Use 'cpu'"):
        device_of(name)


def test_an_unknown_device_is_refused():
    with pytest.raises(InvalidSettingError, match="Did you mean 'cuda'"):
        device_of("cdua")
