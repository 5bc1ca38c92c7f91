"""The commands and expressions of docs/research-coverage.md are accepted as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

import attnknn
from attnknn import attention
from attnknn.cli import main
from attnknn.encoders import image
from attnknn.training import LossTerms, TrainConfig, WarmRestarts
from attnknn.vit import layers
from attnknn.vit.model import vit_tiny

PAGE = Path(__file__).parent.parent / "docs" / "research-coverage.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| item", "|--"))
]
SHOWN = [code for row in ROWS for code in re.findall(r"`([^`]+)`", row[1])]
COMMANDS = [code for code in SHOWN if code.startswith("attnknn ")]
NAMES: dict[str, Any] = {
    **vars(attention),
    **{name: getattr(image, name) for name in image.__all__},
    **{"LossTerms": LossTerms, "TrainConfig": TrainConfig, "WarmRestarts": WarmRestarts},
    **{"BranchingConv": layers.BranchingConv, "vit_tiny": vit_tiny},
    **{"meta_train": attnknn.meta_train},
}


def test_every_row_has_a_command_or_a_reason():
    assert len(ROWS) > 25
    for item, how, note in ROWS:
        assert how or note, item


@pytest.mark.parametrize("text", COMMANDS)
def test_commands_are_accepted(text: str) -> None:
    """They are parsed, and not run: options exist, and their values are allowed."""
    words = shlex.split(text)[1:]
    found: click.Command | None = main
    context = click.Context(main, info_name="attnknn")
    while isinstance(found, click.Group):
        name, found, words = found.resolve_command(context, words)
        assert found is not None, name
        context = click.Context(found, parent=context, info_name=name)
    assert found is not None
    with found.make_context(found.name, list(words)) as made:
        _check_settings(made.params)


def _check_settings(params: dict[str, Any]) -> None:
    from attnknn.cli.settings import Setting, with_settings

    for text in params.get("changes", ()):
        setting = Setting.parse(text)
        name = params.get(setting.kind)
        name = "image" if setting.kind == "encoder" and name == "auto" else name
        with_settings(setting.kind, name, name, [setting])


@pytest.mark.parametrize("code", [c for c in SHOWN if c not in COMMANDS])
def test_expressions_make_what_they_name(code: str) -> None:
    if code.endswith("(X, y)"):
        assert callable(NAMES[code.removesuffix("(X, y)")])
        return
    assert eval(code, dict(NAMES)) is not None
