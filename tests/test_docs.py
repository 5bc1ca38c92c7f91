"""What the documents show is run: Python blocks as they stand, commands checked or executed.

Blocks marked `python` are run in order, in one namespace per file, in a folder of their own: as
they stand, or as doctests where they show a prompt. A block after the comment `<!-- not run -->`
is skipped. `make` targets must exist. `attnknn` commands in shell blocks (or in blocks of no
language) are run in order, in a folder with the files of `write_files`; those with a word in
capitals only show the syntax, and those that show an error are left out.
"""

from __future__ import annotations

import doctest
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from sklearn.datasets import load_iris

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DOCUMENTS = [path for path in DOCUMENTS if "_build" not in path.parts]
FENCE = re.compile(
    r"(?P<skip><!--\s*not run\s*-->\s*\n\s*)?^```(?P<language>[\w-]*)[^\n]*\n(?P<code>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
SHELL = {"", "sh", "bash", "shell", "console"}
SOURCES = (ROOT, ROOT / "attnknn")
GENERATED = {"api/index.rst"}  # by `make docs`
FILES = ("train.csv", "test.csv", "new.csv", "rows.csv")


@dataclass(frozen=True)
class Block:
    """One fenced block of a document."""

    language: str
    code: str
    line: int
    is_run: bool


def blocks_of(text: str) -> list[Block]:
    return [
        Block(
            found["language"].lower(),
            found["code"],
            text.count("\n", 0, found.start("code")),
            found["skip"] is None,
        )
        for found in FENCE.finditer(text)
    ]


@dataclass(frozen=True)
class Command:
    """A command of a shell block, and whether an error is shown for it."""

    words: list[str]
    fails: bool

    @property
    def is_syntax(self) -> bool:
        return any(re.fullmatch(r"[A-Z]{2,}|…|\.\.\.", word) for word in self.words)


def commands_of(code: str) -> list[Command]:
    """The `attnknn` commands of a shell block, after a `$ ` or at the start of a line."""
    lines = code.replace("\\\n", " ").splitlines()
    lines = [re.split(r" {3,}", line)[0] for line in lines]  # what follows explains the command
    following = [*lines[1:], ""]
    return [
        Command(
            shlex.split(line.removeprefix("$ "), comments=True)[1:],
            after.lower().startswith("error"),
        )
        for line, after in zip(lines, following, strict=True)
        if line.removeprefix("$ ").startswith("attnknn ")
    ]


def make_targets() -> set[str]:
    return set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run_python(blocks: list[Block], name: str) -> None:
    namespace: dict[str, object] = {"__name__": "document"}
    for block in blocks:
        if ">>> " in block.code:
            run_doctest(block, name, namespace)
        else:
            code = "\n" * block.line + block.code  # so that errors name the line of the document
            exec(compile(code, name, "exec"), namespace)


def run_doctest(block: Block, name: str, namespace: dict[str, object]) -> None:
    test = doctest.DocTestParser().get_doctest(block.code, namespace, name, name, block.line)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    doctest.DebugRunner(optionflags=flags).run(test, clear_globs=False)
    namespace.update(test.globs)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_python_blocks_run_as_they_stand(path, tmp_path, monkeypatch):
    blocks = [b for b in blocks_of(path.read_text()) if b.language == "python" and b.is_run]
    if not blocks:
        return
    monkeypatch.chdir(tmp_path)
    run_python(blocks, name_of(path))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_make_targets_that_are_named_exist(path):
    text = path.read_text()
    named = set(re.findall(r"(?:^|\$ |`)make ([\w-]+)", text, re.MULTILINE))
    assert named <= make_targets(), named - make_targets()


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_to_files_lead_somewhere(path):
    text = FENCE.sub("", path.read_text())
    links = re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", text)
    missing = [link for link in links if not (path.parent / link).exists()]
    assert set(missing) <= GENERATED


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_source_files_that_are_named_exist(path):
    """Paths with a folder, such as `memory/base.py`, in the package or beside it."""
    named = set(re.findall(r"`([\w/]+/\w+\.py)`", path.read_text()))
    missing = {name for name in named if not any((at / name).exists() for at in SOURCES)}
    assert not missing


def write_files(folder: Path) -> None:
    """A table of flowers under each of the names that documents use, and other kinds of rows."""
    known = load_iris(as_frame=True)
    flowers = known.frame
    flowers["species"] = flowers["label"] = known.target_names[flowers.pop("target")]
    flowers["plant"] = range(len(flowers))
    for name in FILES:
        flowers.to_csv(folder / name, index=False)
    write_questions(folder)
    write_images(folder / "photos")


def write_images(folder: Path) -> None:
    """Squares on the left and on the right, in folders of these names."""
    for row in range(12):
        pixels = np.zeros((16, 16), dtype=np.uint8)
        side = ("left", "right")[row % 2]
        pixels[row : row + 4, 8 * (row % 2) :][:, :8] = 200
        (folder / side).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / side / f"{row}.png")


def write_questions(folder: Path) -> None:
    """Texts with and without their topics."""
    asked = ["is my card lost", "I lost a card", "what is the fee", "fees for a transfer"] * 5
    lines = [f"{text},{'lost' if 'lost' in text else 'fee'}" for text in asked]
    (folder / "questions.csv").write_text("\n".join(["question,topic", *lines]) + "\n")
    (folder / "questions.txt").write_text("\n".join(asked) + "\n")


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_commands_that_are_shown_work(path, tmp_path, monkeypatch):
    from attnknn.cli import COMMANDS, main

    blocks = [b for b in blocks_of(path.read_text()) if b.language in SHELL and b.is_run]
    shown = [command for block in blocks for command in commands_of(block.code)]
    assert {command.words[0] for command in shown} <= {*COMMANDS, "COMMAND"}
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    for command in shown:
        if command.is_syntax or command.words[0] == "demo" or command.fails:
            continue
        done = CliRunner().invoke(main, command.words)
        assert done.exit_code == 0, f"{command.words}\n{done.output}"


def test_the_readme_shows_something_that_runs():
    blocks = blocks_of((ROOT / "README.md").read_text())
    assert [b for b in blocks if b.language == "python" and b.is_run]


def test_blocks_are_found_and_skipped():
    text = (
        "```python\nx = 1\n```\n<!-- not run -->\n```python\n1 / 0\n```\n"
        "```sh\n$ attnknn fit a.csv  # learn\nout\n$ attnknn fit FILE\nError: no\n```\n"
    )
    blocks = blocks_of(text)
    assert [(b.language, b.is_run) for b in blocks] == [
        ("python", True),
        ("python", False),
        ("sh", True),
    ]
    assert commands_of(blocks[2].code) == [
        Command(["fit", "a.csv"], fails=False),
        Command(["fit", "FILE"], fails=True),
    ]
    assert commands_of(blocks[2].code)[1].is_syntax
    with pytest.raises(ZeroDivisionError):
        run_python([Block("python", "1 / 0", 3, True)], "a document")
    with pytest.raises(doctest.DocTestFailure):
        run_python([Block("python", ">>> 1 + 1\n3\n", 3, True)], "a document")
