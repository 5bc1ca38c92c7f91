"""`attnknn forget`: remove entries from a stored model, by name, by person or by a policy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.by import by_option

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.insight import Forgetting
    from attnknn.storage.editor import EditableModel

FILE = click.Path(path_type=Path)
AT_LEAST_ONE = click.IntRange(1)
ABOVE_ZERO = click.FloatRange(0, min_open=True)
POLICIES = ("keep_newest", "budget", "half_life")


@click.command()
@click.argument("model", type=FILE)
@click.argument("ids", nargs=-1)
@click.option("--subject", help="Erase all entries of a person, for good.")
@click.option("--receipt", type=FILE, help="With --subject: write the receipt as JSON too.")
@click.option("--keep-newest", type=AT_LEAST_ONE, help="Forget all but so many, the oldest first.")
@click.option("--budget", type=AT_LEAST_ONE, help="Forget all but so many, the least useful first.")
@click.option("--half-life", type=ABOVE_ZERO, help="So many newer entries halve the sample weight.")
@click.option("--empty-classes", is_flag=True, help="A class may lose its last entry too.")
@click.option("--dry-run", is_flag=True, help="Show what a policy would cost; change nothing.")
@by_option
def forget(
    model: Path,
    ids: tuple[str, ...],
    subject: str | None,
    receipt: Path | None,
    dry_run: bool,
    by: str | None,
    **policy: Any,
) -> None:
    """Forget the entries with these IDS, as 3 5 7 or 3,5,7, or those that a policy names.

    The next answer is as if they had never been; what was trained stays until a new fit. An
    unknown id is an error, and then nothing is forgotten. --half-life forgets no entry, but lets
    older ones have less say. A policy shows what it costs, leave-one-out. `attnknn undo` takes
    all of it back.

    With --subject all entries of a person are erased: from every state, snapshot, the log and free
    space of the file. That cannot be undone. A receipt says what was done, and which fitted parts
    had seen the entries.
    """
    from attnknn.cli.editing import edit, listed_ids, open_model

    _check_asked(ids, subject, policy)
    _check_options(ids, subject, receipt, dry_run, policy)
    if dry_run:
        _try_policy(model, policy)
        return
    with open_model(model, by) as opened:
        if subject is not None:
            _erase(opened, subject, receipt)
        elif ids:
            gone = list(dict.fromkeys(listed_ids(ids, opened.classifier.memory_.entries.ids)))
            with edit(opened) as classifier:
                classifier.forget(gone)
        else:
            _by_policy(opened, policy)


def _check_asked(ids: tuple[str, ...], subject: str | None, policy: dict[str, Any]) -> None:
    n_policies = sum(policy[name] is not None for name in POLICIES)
    if n_policies + bool(ids) + (subject is not None) != 1:
        raise click.UsageError(
            "Give ids, --subject, or one of --keep-newest, --budget and --half-life."
        )


def _check_options(
    ids: tuple[str, ...],
    subject: str | None,
    receipt: Path | None,
    dry_run: bool,
    policy: dict[str, Any],
) -> None:
    if receipt is not None and subject is None:
        raise click.UsageError("--receipt goes with --subject.")
    if dry_run and subject is not None:
        raise click.UsageError("--dry-run goes with a policy, not with --subject.")
    if dry_run and ids:
        raise click.UsageError("--dry-run goes with a policy; for ids there is `attnknn whatif`.")
    if policy["empty_classes"] and policy["keep_newest"] is None and policy["budget"] is None:
        raise click.UsageError("--empty-classes goes with --keep-newest or --budget.")


def _erase(opened: EditableModel, subject: str, receipt: Path | None) -> None:
    from attnknn.cli.editing import counted

    with _place_for(receipt):
        done = opened.forget(subject=subject)
    if receipt is not None:
        receipt.write_text(json.dumps(done.to_dict(), indent=1) + "\n")
    if len(opened.classifier.memory_):
        opened.cache_trust()
    click.echo(str(done))
    n_entries = len(opened.classifier.memory_)
    click.echo(f"{opened.path.name} now holds {counted(n_entries)} (edit {opened.head}).")
    if not done.is_verified:
        raise click.ClickException("The erasure is not complete; see above.")


@contextmanager
def _place_for(receipt: Path | None) -> Iterator[None]:
    """A place that cannot be written to is found before anything is erased; none is left empty."""
    if receipt is None:
        yield
        return
    is_new = not receipt.exists()
    receipt.touch()
    try:
        yield
    except BaseException:
        if is_new:
            receipt.unlink()
        raise


def _try_policy(model: Path, policy: dict[str, Any]) -> None:
    from attnknn.classifier import AttnKNNClassifier

    done = _apply(AttnKNNClassifier.load(model), **policy)
    _tell_costs(done)
    click.echo(f"{done.done}, if it were done; nothing was changed.")


def _by_policy(opened: EditableModel, policy: dict[str, Any]) -> None:
    from attnknn.cli.editing import tell

    head = opened.head
    with opened.edit() as classifier:
        done = _apply(classifier, **policy)
    _tell_costs(done)
    if opened.head != head:
        tell(opened, done.done)
    elif policy["half_life"] is None:
        click.echo(f"{done.done}.")
    else:
        click.echo("Nothing was to be changed.")


def _tell_costs(done: Forgetting) -> None:
    for sentence in done.sentences()[1:]:
        click.echo(sentence)


def _apply(
    classifier: AttnKNNClassifier,
    keep_newest: int | None,
    budget: int | None,
    half_life: float | None,
    empty_classes: bool,
) -> Forgetting:
    from attnknn import insight

    if keep_newest is not None:
        return insight.keep_newest(classifier, keep_newest, may_empty_classes=empty_classes)
    if budget is not None:
        return insight.drop_least_valuable(classifier, budget, may_empty_classes=empty_classes)
    return insight.weigh_by_age(classifier, half_life)
