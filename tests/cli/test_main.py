"""The group of commands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from attnknn import __version__
from attnknn.cli import COMMANDS, SECTIONS, main
from attnknn.cli.commands import summary_of
from attnknn.storage.folder import previous_path

from .samples import refused, run


def attnknn(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from attnknn.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_command_has_a_help_text() -> None:
    for command in COMMANDS:
        result = run(command, "--help")
        assert result.exit_code == 0
        assert result.stdout.startswith(f"Usage: main {command}")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom attnknn.cli import main\n"
        "for name in ('', 'predict', 'explain', 'evaluate', 'monitor', 'report', 'vit',"
        " 'vit train', 'demo'):\n"
        "    main([*name.split(), '--help'], standalone_mode=False)\n"
        "heavy = {'numpy', 'pandas', 'torch', 'sklearn', 'faiss', 'matplotlib', 'rich'}\n"
        "heavy |= {'fastapi', 'pydantic'}\n"
        "sys.exit(repr(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_of_fit_reads_the_registry_but_not_torch() -> None:
    code = (
        "import sys\nfrom attnknn.cli import main\n"
        "main(['fit', '--help'], standalone_mode=False)\n"
        "sys.exit(int('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_commands_and_options_are_listed_in_sections() -> None:
    listed = run("--help").stdout
    assert [f"\n{title}:\n" in listed for title in SECTIONS] == [True] * len(SECTIONS)
    assert "..." not in listed.replace("[ARGS]...", "")
    fitted = run("fit", "--help").stdout
    titles = ("Columns", "Encoder", "Texts", "Images", "Attention and calibration", "Output")
    assert [fitted.index(f"\n{title}:\n") for title in titles] == sorted(
        fitted.index(f"\n{title}:\n") for title in titles
    )


def commands_of(group: click.Group) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from commands_of(command)


def test_every_command_has_a_short_summary_and_every_option_a_help_text() -> None:
    for command in commands_of(main):
        summary = summary_of(command)
        assert 10 < len(summary) <= 65, summary
        assert summary.endswith(".")
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, f"{command.name} {option.opts}"


def test_the_program_prints_its_version() -> None:
    assert attnknn("--version").stdout.strip().endswith(__version__)


@pytest.mark.slow
def test_an_error_of_the_program_is_one_line_on_the_error_stream(tmp_path: Path) -> None:
    done = attnknn("predict", str(tmp_path / "model"), str(tmp_path / "rows.csv"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [f"Error: File not found: {tmp_path / 'rows.csv'}."]


def test_an_error_is_one_line(tmp_path: Path) -> None:
    said = refused("predict", tmp_path / "model", tmp_path / "rows.csv")
    assert said == f"Error: File not found: {tmp_path / 'rows.csv'}."


def test_the_traceback_can_be_asked_for(tmp_path: Path) -> None:
    from attnknn.errors import InvalidInputError

    with pytest.raises(InvalidInputError):
        run("--traceback", "predict", tmp_path / "model", tmp_path / "rows.csv")


@pytest.mark.filterwarnings("default:The last save")
def test_a_save_that_was_cut_short_is_a_warning_not_an_error(model: Path, rows: Path) -> None:
    model.rename(previous_path(model))
    done = run("predict", model, rows)
    assert done.exit_code == 0
    assert done.stderr.startswith("Warning: The last save")
    assert len(done.stdout.splitlines()) == 10


def test_messages_name_options_and_not_settings_of_python(model: Path) -> None:
    newest = refused("forget", model, "--keep-newest", 1)
    assert "--keep-newest must be at least 3" in newest
    assert "--half-life must be" in refused("forget", model, "--half-life", "nan")
    assert "--near must be" in refused("audit", model, "--near", "nan")


def test_an_unknown_command_gets_a_suggestion() -> None:
    assert "No such command 'fiit'. Did you mean 'fit'?" in run("fiit").output


def test_a_traceback_may_be_requested_after_the_command(tmp_path: Path) -> None:
    arguments = ("predict", str(tmp_path / "none"), "rows.csv")
    assert attnknn("--traceback", *arguments).stderr.startswith("Traceback")
    assert attnknn(*arguments, "--traceback").stderr.startswith("Traceback")
    assert "No such option" in attnknn(*arguments, "--tracebock").stderr
