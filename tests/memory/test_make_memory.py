"""Short names and objects become memories that are nobody else's."""

from __future__ import annotations

import pytest

from attnknn.errors import InvalidSettingError
from attnknn.memory import (
    AutoMemory,
    FaissMemory,
    NumpyMemory,
    TorchMemory,
    make_entries,
    make_memory,
)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("auto", AutoMemory), ("faiss", FaissMemory), ("numpy", NumpyMemory), ("torch", TorchMemory)],
)
def test_each_short_name_has_its_memory(name, kind) -> None:
    assert type(make_memory(name)) is kind


def test_the_device_reaches_the_memories_that_have_one() -> None:
    assert make_memory("torch", device="auto").device == "auto"
    assert make_memory("auto", device="auto").device == "auto"


def test_an_object_is_cloned_with_its_settings() -> None:
    given = FaissMemory("hnsw", ef_search=99)
    made = make_memory(given)
    assert made is not given
    assert made.get_params() == given.get_params()


def test_a_clone_does_not_take_the_entries_along() -> None:
    given = NumpyMemory().remember(make_entries([[1.0]], [0]))
    assert len(make_memory(given)) == 0


def test_unknown_names_and_kinds_are_refused() -> None:
    with pytest.raises(InvalidSettingError, match="Did you mean 'faiss'"):
        make_memory("fais")
    with pytest.raises(InvalidSettingError, match="a name or a `Memory`, got int"):
        make_memory(3)
