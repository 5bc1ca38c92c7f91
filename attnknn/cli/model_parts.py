"""Encoders, attentions and memories on the command line: their options, and which one to use.

All of them come from the registry, so that classes of other packages can be chosen by name and
bring their own options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.commands import Option, in_flags
from attnknn.errors import InvalidSettingError
from attnknn.registry import Kind, registered
from attnknn.registry import Option as PartOption

if TYPE_CHECKING:
    from attnknn.cli.rows import Source

DESCRIPTIONS = {"table": "a table", "vectors": "vectors", "texts": "texts", "images": "images"}
DEFAULTS = {"table": "auto", "vectors": "auto", "texts": "ngrams", "images": "image"}
SECTIONS: dict[Kind, str] = {
    "encoder": "Encoder",
    "attention": "Attention and calibration",
    "memory": "Memory",
}
HELP: dict[Kind, str] = {
    "encoder": "How rows become embeddings: identity (vectors as they are), image (trained "
    "network), tabular (scaling and one-hot encoding), learned-tabular (embedding trained on "
    "the labels), scaled (numbers of mean 0 and variance 1), svd (truncated SVD of wide vectors), "
    "text (sentence-transformers model), ngrams (class scores of words and parts of words), tfidf "
    "(shared words and parts of words). auto follows the rows; numbers are scaled if that predicts "
    "left-out rows better.",
    "attention": "How neighbors are weighted: uniform (equal votes), distance (more weight to "
    "nearer neighbors), power (as distance, with a fitted kernel shape), k-ensemble (mean over "
    "several numbers of neighbors), adaptive (number of neighbors chosen for each row), learned "
    "(trained query-key attention), forest (rows in the same leaves of a random forest), "
    "projection (distance of the class scores of a logistic regression), boosting (distance of "
    "the class scores of boosted trees), mlp (of neural networks), mixture (distance "
    "and forest together). auto compares several by leave-one-out, and uses the best one or a "
    "mixture.",
    "memory": "Library used for neighbor search.",
}


def part_options() -> Iterator[Option]:
    """`--encoder`, `--attention` and `--memory`, then the options of every registered class."""
    flags: set[str] = set()
    for kind, section in SECTIONS.items():
        classes = registered(kind)
        choices = ["auto", *(n for n, cls in classes.items() if n != "auto" and _is_named(cls))]
        chooser = Option([f"--{kind}"], type=click.Choice(choices), default="auto", help=HELP[kind])
        chooser.section = section
        yield chooser
        for cls in classes.values():
            for part in getattr(cls, "options", ()):
                if part.flag not in flags:
                    flags.add(part.flag)
                    yield _click_option(part, _section_of(part, kind))


def _is_named(cls: type) -> bool:
    """Whether a name is enough: not for encoders that join others, and memories in a database."""
    return accepts(cls) != frozenset() and not getattr(cls, "is_shared", False)


def _section_of(part: PartOption, kind: Kind) -> str:
    """Options that only encoders of texts, or of images, read have their own sections."""
    readers = [cls for cls in registered(kind).values() if part in getattr(cls, "options", ())]
    for rows, section in (("texts", "Texts"), ("images", "Images")):
        if kind == "encoder" and all(accepts(cls) == {rows} for cls in readers):
            return section
    return SECTIONS[kind]


def _click_option(part: PartOption, section: str) -> Option:
    kind: Any = part.type
    if part.choices:
        kind = click.Choice(part.choices)
    elif part.minimum is not None:
        kind = (
            click.IntRange(int(part.minimum))
            if part.type is int
            else click.FloatRange(part.minimum)
        )
    more = {"is_flag": True, "default": None} if part.type is bool else {"type": kind}
    option = Option([part.flag], parameter=part.parameter, help=part.help, **more)
    option.section = section
    return option


def accepts(cls: type) -> frozenset[str]:
    """The kinds of rows that an encoder reads: table, vectors, texts, images."""
    return getattr(cls, "accepts", frozenset({"table", "vectors"}))


def given_options(kind: Kind, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of all classes of a kind that were given, by flag."""
    parts = [part for cls in registered(kind).values() for part in getattr(cls, "options", ())]
    by_flag = {part.flag: values.get(_name_of(part)) for part in parts}
    return {flag: value for flag, value in by_flag.items() if value not in (None, ())}


def _name_of(part: PartOption) -> str:
    return part.flag.lstrip("-").replace("-", "_")


def make_part(kind: Kind, name: str, given: Mapping[str, Any]) -> Any:
    """The name itself if no options were given, else an object with these options."""
    if not given:
        return name
    known = registered(kind)
    cls = known.get(name)
    parameters = {part.flag: part.parameter for part in getattr(cls, "options", ())}
    for flag in given:
        if cls is None or flag not in parameters:
            readers = [n for n, c in known.items() if flag in _flags_of(c)]
            raise click.UsageError(
                f"{flag} is an option of --{kind} {' or '.join(readers)}, not of {name!r}."
            )
    settings = {parameters[flag]: value for flag, value in given.items()}
    try:
        return getattr(cls, "from_options", cls)(**settings)  # type: ignore[misc]
    except InvalidSettingError as error:
        command = click.get_current_context().command
        raise click.UsageError(in_flags(str(error), command)) from error


def _flags_of(cls: type) -> set[str]:
    return {part.flag for part in getattr(cls, "options", ())}


@dataclass(frozen=True)
class EncoderChoice:
    """The encoder as the classifier takes it, its registered name and class, and the reason."""

    encoder: Any
    name: str
    cls: type[Any] | None  # None if the classifier chooses
    reason: str


@dataclass(frozen=True)
class EncoderRequest:
    """The encoder that the user asked for."""

    source: Source
    name: str  # a registered name, or "auto"
    text: str | None  # column of texts
    given: dict[str, Any]  # options of encoders, by flag

    @property
    def kind(self) -> str:
        """What the encoder reads: 'table', 'texts', 'vectors' or 'images'."""
        return self.source.kind if self.text is None else "texts"

    def check(self) -> None:
        """Before any work: the encoder and its options fit the file."""
        path, holds = self.source.path, DESCRIPTIONS[self.kind]
        if self.text is not None and self.source.kind != "table":
            raise click.UsageError(f"--text names a column of a table; {path} is not a table.")
        classes = registered("encoder")
        suitable = [name for name, cls in classes.items() if self.kind in accepts(cls)]
        if self.name not in ("auto", *suitable):
            raise click.UsageError(
                f"--encoder {self.name} cannot read {path}, which holds {holds}; choose from "
                f"{', '.join(suitable)}."
            )
        for flag in self.given:
            if not any(flag in _flags_of(classes[name]) for name in suitable):
                readers = {
                    kind for c in classes.values() if flag in _flags_of(c) for kind in accepts(c)
                }
                raise click.UsageError(
                    f"{flag} is for {' or '.join(sorted(readers))}; {path} holds {holds}."
                )
        self.choose()  # checks the values of the options

    @property
    def allows_missing(self) -> bool:
        """Whether features may have missing values."""
        if self.name == "auto":
            return self.kind != "vectors"
        return bool(getattr(registered("encoder")[self.name], "allows_missing", False))

    def choose(self) -> EncoderChoice:
        """The requested encoder, or the default for this kind of rows."""
        name, reason = self.name, "requested"
        if name == "auto":
            name, reason = self._default()
        encoder = make_part("encoder", name, self.given)
        if name == "text" and self.name == "auto":
            from attnknn.encoders.union import words_and

            encoder, name = words_and(encoder), "union"
        return EncoderChoice(encoder, name, registered("encoder").get(name), reason)

    def _default(self) -> tuple[str, str]:
        reasons = {
            "texts": "class scores of words and parts of words; --text-model compares meanings",
            "images": f"embedding trained on the labels, {self.given.get('--network', 'resnet9')}",
        }
        if self.given and self.kind == "texts":
            for name, cls in registered("encoder").items():
                if "texts" in accepts(cls) and set(self.given) <= _flags_of(cls):
                    return name, f"words, and embeddings of {self.given['--text-model']}"
        return DEFAULTS[self.kind], reasons.get(self.kind, "")
