"""Networks of a user's own, named by import path: 'module:factory'.

A model folder holds the path and the weights, never code. The path must name a subclass of
`torch.nn.Module` that needs no arguments, or a function without arguments that is annotated to
return one, so that a hostile folder cannot call anything else. A folder also imports nothing: the
module must have been imported before.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import typing
from collections.abc import Callable

import torch
from torch import nn

from attnknn.errors import InvalidSettingError
from attnknn.training.devices import seeded

Factory = Callable[[], nn.Module]
PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def is_import_path(network: object) -> bool:
    """Whether a setting names a network by import path.

    >>> is_import_path("my_package.networks:small"), is_import_path("timm:resnet18")
    (True, False)
    """
    is_path = isinstance(network, str) and PATH.fullmatch(network) is not None
    return is_path and not str(network).startswith("timm:")


def factory_of(path: str) -> Factory:
    """The class or function that an import path names; its module is imported."""
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InvalidSettingError(
            f"`network` {path!r} must name a module that can be imported: {error}. Is its folder "
            "in PYTHONPATH?"
        ) from error
    found = getattr(module, name, None)
    if not _makes_networks(found):
        raise InvalidSettingError(
            f"`network` {path!r} must name a subclass of `torch.nn.Module`, or a function with the "
            f"annotation `-> torch.nn.Module`; {name!r} is "
            f"{'not there' if found is None else 'neither'}."
        )
    return typing.cast(Factory, found)


def check_imported(path: str) -> None:
    """Raise an error unless the module of an import path has been imported."""
    module_name = path.partition(":")[0]
    if module_name not in sys.modules:
        raise InvalidSettingError(
            f"the network {path!r} is code of the module {module_name!r}, which a model folder "
            f"does not import. If you trust it, write `import {module_name}` before loading"
        )


def build_own(path: str) -> nn.Module:
    """The network that an import path names."""
    network = factory_of(path)()
    if not isinstance(network, nn.Module):
        raise InvalidSettingError(
            f"`network` {path!r} must return a torch.nn.Module, got {type(network).__name__}."
        )
    return network


def import_path_of(network: nn.Module, probe: torch.Tensor) -> str:
    """The import path of a module's class, if the class alone builds the same network.

    `probe` holds images for which the network and its rebuilt copy must give the same features.
    """
    cls = type(network)
    path = f"{cls.__module__}:{cls.__qualname__}"
    is_found = cls.__module__ != "__main__" and getattr(
        sys.modules.get(cls.__module__), cls.__qualname__, None
    )
    if is_found is not cls or not _is_rebuilt(cls, network, probe):
        raise InvalidSettingError(
            f"The network `{cls.__name__}` is your own code, which a model folder cannot hold: "
            f"`{cls.__name__}()`, without arguments and from an importable module, must build the "
            "same network. Write a function without arguments that returns it, and name it by "
            "import path: `network='module:function'`."
        )
    return path


def _is_rebuilt(cls: type[nn.Module], network: nn.Module, probe: torch.Tensor) -> bool:
    try:
        with seeded(0):  # the user's random numbers stay as they are
            copy = cls()
        own, state = network.state_dict(), copy.state_dict()
        counts = {n for n, v in own.items() if not v.is_floating_point() and "num_batches" not in n}
        if not all(torch.equal(own[name].cpu(), state[name]) for name in counts):
            return False
        copy.load_state_dict(own)
        with torch.inference_mode():
            expected, found = (module.cpu().eval()(probe) for module in (network, copy))
        return torch.allclose(found, expected, atol=1e-6)
    except (TypeError, RuntimeError, ValueError, KeyError):
        return False


def _makes_networks(found: object) -> bool:
    if inspect.isclass(found):
        return issubclass(found, nn.Module)
    if not inspect.isfunction(found):
        return False
    try:
        returned = typing.get_type_hints(found).get("return")
    except (NameError, TypeError):
        return False
    return inspect.isclass(returned) and issubclass(returned, nn.Module)
