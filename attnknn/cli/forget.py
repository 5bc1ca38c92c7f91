"""`attnknn forget`: remove entries by id, by data subject or by a policy."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.commands import command, option, section
from attnknn.cli.options import FILE, POSITIVE, WHOLE, by_option, force_option, model_argument
from attnknn.cli.output import check_out, count_of, echo, echo_block

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.insight import Forgetting
    from attnknn.storage.editor import EditableModel

POLICIES = ("keep_newest", "budget", "half_life")


@command()
@model_argument
@click.argument("ids", nargs=-1)
@section(
    "By policy",
    option(
        "--keep-newest", type=WHOLE, parameter="n", help="Keep only the newest entries, this many."
    ),
    option(
        "--budget",
        type=WHOLE,
        parameter="n",
        help="Keep only the most valuable entries, this many.",
    ),
    option(
        "--half-life",
        type=POSITIVE,
        metavar="N",
        help="Give old entries less weight: half for every N newer entries. Removes nothing.",
    ),
    option(
        "--empty-classes",
        is_flag=True,
        parameter="may_empty_classes",
        help="Allow a class to lose its last entry.",
    ),
    option("--dry-run", is_flag=True, help="Show the cost of the policy; change nothing."),
)
@section(
    "By data subject",
    option("--subject", help="Erase all entries of this person permanently."),
    option("--receipt", type=FILE, help="Write the receipt of the erasure to this JSON file."),
    force_option,
)
@by_option
def forget(
    model: Path,
    ids: tuple[str, ...],
    subject: str | None,
    receipt: Path | None,
    force: bool,
    dry_run: bool,
    by: str | None,
    **policy: Any,
) -> None:
    """Remove entries by id, by policy or by data subject.

    Give IDS as 3 5 7 or 3,5,7. Predictions ignore removed entries immediately, but what was trained
    on them stays until a new fit. If an id is unknown, nothing is removed. A policy reports the
    change in leave-one-out accuracy and log-loss. Undo with `attnknn undo`.

    --subject erases all entries of a person from all states and snapshots, from the log, and from
    the free space of the file. This cannot be undone. The receipt lists what was erased, and which
    fitted parts were trained on the entries. If the receipt cannot be written, run the command
    again with another path for --receipt.
    """
    from attnknn.cli.stored_model import edit, listed_ids, open_model

    _check_options(ids, subject, receipt, dry_run, policy)
    check_out(receipt, flag="--receipt", force=force)
    if dry_run:
        _try_policy(model, policy)
        return
    with open_model(model, by) as opened:
        if subject is not None:
            _erase(opened, subject, receipt)
        elif ids:
            removed = list(dict.fromkeys(listed_ids(ids, opened.classifier.memory_.entries.ids)))
            with edit(opened) as classifier:
                classifier.forget(removed)
        else:
            _apply_policy(opened, policy)


def _check_options(
    ids: tuple[str, ...],
    subject: str | None,
    receipt: Path | None,
    dry_run: bool,
    policy: dict[str, Any],
) -> None:
    n_policies = sum(policy[name] is not None for name in POLICIES)
    if n_policies + bool(ids) + (subject is not None) != 1:
        raise click.UsageError(
            "Give ids, --subject, or one of --keep-newest, --budget and --half-life."
        )
    if receipt is not None and subject is None:
        raise click.UsageError("--receipt requires --subject.")
    if dry_run and not n_policies:
        raise click.UsageError("--dry-run requires a policy; for ids, use `attnknn whatif`.")
    if policy["empty_classes"] and policy["keep_newest"] is None and policy["budget"] is None:
        raise click.UsageError("--empty-classes requires --keep-newest or --budget.")


def _erase(opened: EditableModel, subject: str, receipt: Path | None) -> None:
    from attnknn.cli.stored_model import report_edit

    done = opened.forget(subject=subject, receipt=receipt)
    echo_block(str(done))
    for name in done.other_spellings:
        echo(f"  attnknn forget {quote(str(opened.path))} --subject {_quoted(name)}")
    report_edit(opened, f"Erased {count_of(len(done.ids))}")
    if not done.is_verified:
        raise click.ClickException("The erasure is not complete; see above.")


def _quoted(name: str) -> str:
    """A name for a POSIX shell, in which letters with accents keep their Unicode form.

    >>> print(_quoted("Ann  Ash"), _quoted("Zoe\\u0308"))
    'Ann  Ash' $'Zoe\\u0308'
    """
    if name.isascii() and name.isprintable():
        return quote(name)
    codes = (
        f"\\U{ord(letter):08x}" if ord(letter) > 0xFFFF else f"\\u{ord(letter):04x}"
        for letter in name
    )
    plain = (letter.isascii() and letter.isprintable() and letter not in "'\\" for letter in name)
    return f"$'{''.join(a if p else c for a, c, p in zip(name, codes, plain, strict=True))}'"


def _try_policy(model: Path, policy: dict[str, Any]) -> None:
    from attnknn.classifier import AttnKNNClassifier

    done = _run_policy(AttnKNNClassifier.load(model), **policy)
    words = done.done.replace("Forgot", "would remove").replace("Halved", "would halve")
    echo(f"Dry run: {words}. Nothing was changed.")


def _apply_policy(opened: EditableModel, policy: dict[str, Any]) -> None:
    from attnknn.cli.stored_model import report_edit

    head = opened.head
    with opened.edit() as classifier:
        done = _run_policy(classifier, **policy)
    if opened.head != head:
        report_edit(opened, done.done)
    else:
        echo(f"{done.done}." if policy["half_life"] is None else "Nothing changed.")


def _run_policy(
    classifier: AttnKNNClassifier,
    keep_newest: int | None,
    budget: int | None,
    half_life: float | None,
    empty_classes: bool,
) -> Forgetting:
    """Apply a policy to a classifier and print what it costs."""
    from attnknn import insight

    if keep_newest is not None:
        done = insight.keep_newest(classifier, keep_newest, may_empty_classes=empty_classes)
    elif budget is not None:
        done = insight.drop_least_valuable(classifier, budget, may_empty_classes=empty_classes)
    else:
        done = insight.weigh_by_age(classifier, half_life)
    for sentence in done.sentences()[1:]:
        echo(sentence)
    return done
