"""The validation of public docstrings: what it finds."""

from __future__ import annotations

from dataclasses import dataclass

from tools.check_docstrings import CHECKS, Public


def undocumented(rows, scale=1.0):
    """Scale rows."""
    return rows * scale


def documented(rows, scale=1.0):
    """Scale rows.

    Parameters
    ----------
    rows : array-like
        What to scale.
    scale : float, default=1.0
        The factor.

    Returns
    -------
    array-like
        The scaled rows.

    Examples
    --------
    >>> documented(2.0, scale=3.0)
    6.0
    """
    return rows * scale


@dataclass(frozen=True)
class Result:
    """A result whose fields are attributes.

    Attributes
    ----------
    value : float
        What was measured.

    Examples
    --------
    >>> Result(1.0).value
    1.0
    """

    value: float


def public(thing) -> Public:
    return Public(f"here.{thing.__name__}", "here", thing, frozenset(CHECKS))


def test_missing_sections_are_found():
    codes = [line.split()[1] for line in public(undocumented).problems()]
    assert codes == ["PR01", "RT01", "EX01"]


def test_complete_docstrings_pass():
    assert public(documented).problems() == []
    assert public(Result).problems() == []
