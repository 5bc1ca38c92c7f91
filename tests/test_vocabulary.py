"""Words that the project does not use: in names, docstrings, messages, help texts and pages.

`python tests/test_vocabulary.py [AREA]` lists what breaks the rule.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).parent.parent

# Each expression with what to write instead. Text is matched without regard to case.
BANNED = {
    r"\b(?:the|a|most|more|little|less|no|much|equal|its|their|any) say\b": "weight",
    r"\bsay of\b": "weight of",
    r"\bimportances?\b": "sample weight",
    r"\bfresh\b": "held-out (or new)",
    r"\btold\b": "row metadata, stated, distinguished",
    r"\bjudg(?:e|es|ed|ing|ement)\b": "leave-one-out, evaluated",
    r"\bverdicts?\b": "prediction, result",
    r"\bclassrooms?\b": "objective",
    r"\blessons?\b": "training data",
    r"\bpupils?\b": "training data",
    r"\bstrangeness\b|\bstrangers?\b": "novelty",
    r"\bfamiliarity\b": "novelty p-value",
    r"\bpromis(?:e|es|ed|ing)\b": "guarantee, coverage, predicted",
    r"\bsuspicions?\b": "label-error score",
    r"\bfading\b": "decay",
    r"\bpaces?\b": "learning-rate scale",
    r"\bcapital\b(?! letters?\b)": "martingale",
    r"\bpeaked\b": "power",
    r"\bsituations?\b": "neighbor batch, case",
    r"\banew\b": "again",
    r"\bof now\b": "current",
    r"\bwhose a row\b|\bwhose rows? (?:it|they) (?:is|are)\b": "data subject",
    r"\bno number any ?more\b": "NaN",
    r"\bwhat came\b": "observed, received",
    r"\bmore sure than right\b": "overconfident",
    r"\bas often right as\b": "calibrated",
    r"\bnobody knows how\b": "has no …",
    r"\brows? to come\b": "new rows, future rows",
    r"\bthere (?:is|are) none\b": "there is no …",
}
# Ordinary uses of these words.
ALLOWED = re.compile(
    r"feature importances?|permutation importances?|afresh|refresh\w*|in capitals?\b"
    r"|capital-(?:gain|loss)",
    re.IGNORECASE,
)
# Words that names must not contain, besides those above.
BANNED_IN_NAMES = {
    "say", "importance", "importances", "fresh", "told", "judge", "judged", "judges", "judging",
    "verdict", "verdicts", "classroom", "lesson", "lessons", "pupil", "pupils", "strangeness",
    "stranger", "strangers", "strange", "familiarity", "familiar", "promise", "promises",
    "promised", "suspicion", "fading", "pace", "capital", "peaked", "situation", "anew", "strand",
    "exam", "teach", "teaches", "taught", "teaching", "course", "fewest",
}  # fmt: skip
ALLOWED_NAMES: set[str] = set()


def area_of(path: Path) -> str:
    """The area that a file belongs to, such as "attnknn/memory" or "docs/audit.md"."""
    return "/".join(path.relative_to(ROOT).parts[: 2 if path.suffix == ".py" else None])


def words_of(name: str) -> set[str]:
    """The words of an identifier.

    >>> sorted(words_of("LeaveOneOut_batch"))
    ['batch', 'leave', 'one', 'out']
    """
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def names_of(path: Path) -> Iterator[str]:
    """Public names that a module defines: itself, classes, functions, parameters and fields."""
    yield path.parent.name if path.stem == "__init__" else path.stem
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
            fields = (part.target for part in node.body if isinstance(part, ast.AnnAssign))
            yield from (field.id for field in fields if isinstance(field, ast.Name))
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            yield from (argument.arg for argument in every)
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield from (argument.arg for argument in [*node.args.args, *node.args.kwonlyargs])


def texts_of(path: Path) -> Iterator[str]:
    """The prose of a file: a page as it is, of a module all strings, docstrings among them."""
    if path.suffix == ".md":
        yield path.read_text()
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def violations_in(text: str) -> Iterator[str]:
    """Banned expressions in a text, with what to write instead."""
    text = ALLOWED.sub(" ", re.sub(r"\s+", " ", text))
    for pattern, instead in BANNED.items():
        for found in re.finditer(pattern, text, re.IGNORECASE):
            around = text[max(0, found.start() - 40) : found.end() + 40]
            yield f"“{found[0]}” in “…{around}…”: write {instead}"


def violations_of(path: Path) -> Iterator[str]:
    """What is wrong in a file; test modules are held to their names only."""
    is_test = path.is_relative_to(ROOT / "tests")
    if path.suffix == ".py":
        for name in names_of(path):
            if name not in ALLOWED_NAMES and words_of(name) & BANNED_IN_NAMES:
                yield f"{path.relative_to(ROOT)}: the name `{name}`"
    for text in () if is_test else texts_of(path):
        for violation in violations_in(text):
            yield f"{path.relative_to(ROOT)}: {violation}"


def help_texts(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """The help of a command, its options and its subcommands, each with the command's name."""
    parameters = [str(getattr(parameter, "help", "") or "") for parameter in command.params]
    flags = [flag for parameter in command.params for flag in parameter.opts]
    yield name, " ; ".join([name, command.help or "", command.epilog or "", *parameters, *flags])
    if isinstance(command, click.Group):
        context = click.Context(command)
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            assert found is not None
            yield from help_texts(found, f"{name} {sub}")


@cache
def violations_by_area() -> dict[str, list[str]]:
    """What is wrong in each area, those without a violation included."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    pages = [page for page in pages if page.name not in ("CHANGELOG.md", "glossary.md")]
    modules = [*(ROOT / "attnknn").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    found: dict[str, list[str]] = {}
    for path in sorted([*pages, *modules]):
        if path != Path(__file__):
            found.setdefault(area_of(path), []).extend(violations_of(path))
    return found


@pytest.mark.parametrize("area", sorted(violations_by_area()))
def test_area_uses_the_words_of_the_field(area):
    violations = violations_by_area()[area]
    assert not violations, "\n" + "\n".join(violations)


def test_command_line_help_uses_the_words_of_the_field():
    from attnknn.cli import main

    found = [
        f"{name}: {violation}"
        for name, text in help_texts(main, "attnknn")
        for violation in violations_in(text)
    ]
    assert not found, "\n" + "\n".join(found)


def test_banned_expressions_are_found_and_ordinary_ones_are_not():
    assert list(violations_in("a neighbor of\n weight 2 has the say of two"))
    assert list(violations_in("Entries are Judged by the others"))
    assert not list(violations_in("the permutation importance of a feature, in capital letters"))
    assert not list(violations_in("a retold story, a space, the misjudged")), "whole words only"
    assert words_of("n_told") & BANNED_IN_NAMES
    assert words_of("PeakedAttention") & BANNED_IN_NAMES


if __name__ == "__main__":
    for area, violations in violations_by_area().items():
        if area.startswith(tuple(sys.argv[1:] or [""])) and violations:
            sys.stdout.write("\n  ".join([f"{area}: {len(violations)}", *violations]) + "\n")
