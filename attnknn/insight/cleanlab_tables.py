"""Tables of label issues with the column names of cleanlab, out and in."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnknn._escape import unguard_formula
from attnknn._limits import check_fits
from attnknn.errors import InvalidInputError
from attnknn.insight.audit_result import Audit
from attnknn.insight.reviews import Review, Reviewed

if TYPE_CHECKING:
    import pandas as pd

ID = "id"
COLUMNS = ("is_label_issue", "label_score", "given_label", "predicted_label")
OTHER_NAMES = {"label_quality": "label_score", "label_quality_score": "label_score"}
TRUE, FALSE = {"true", "1", "yes"}, {"false", "0", "no", ""}
BYTES_PER_BYTE = 40  # of a parsed table, at most, for each byte of the file


def cleanlab_issues(found: Audit, limit: int | None = None) -> pd.DataFrame:
    """An audit as a table with the columns of cleanlab's `Datalab.get_issues("label")`.

    Parameters
    ----------
    found : Audit
        The audit.
    limit : int, default=None
        Maximum number of rows.

    Returns
    -------
    pandas.DataFrame
        In the order of the audit: id; is_label_issue, True where the label is probably wrong (above
        ½), or without such probabilities where another label is suggested; label_score, the
        leave-one-out probability of the given label, low for suspicious ones; given_label;
        predicted_label, the suggested one.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> from attnknn.insight import audit
    >>> clf = AttnKNNClassifier(attention="distance").fit(
    ...     [[0.0], [0.1], [0.2], [4.0], [4.1]], ["a", "b", "a", "b", "b"])
    >>> cleanlab_issues(audit(clf))[["given_label", "predicted_label"]].iloc[0].tolist()
    ['b', 'a']
    """
    import pandas as pd

    chosen = found.order[:limit]
    differs = found.suggested != found.labels
    is_issue = differs if found.no_probabilities else (found.wrong > 0.5) & differs
    return pd.DataFrame(
        {
            ID: found.ids[chosen].tolist(),
            "is_label_issue": is_issue[chosen],
            "label_score": 1.0 - found.label_error_score[chosen],
            "given_label": found.labels[chosen].tolist(),
            "predicted_label": found.suggested[chosen].tolist(),
        }
    )


def read_cleanlab(source: str | Path | pd.DataFrame) -> Reviewed:
    """Read a table of label issues, as cleanlab names its columns.

    Every row with `is_label_issue` gets its `predicted_label`; the others change nothing. Check the
    table first: set `is_label_issue` to False where the label is right, and correct
    `predicted_label` where the prediction is wrong.

    Parameters
    ----------
    source : str, Path or DataFrame
        A CSV file, or a table. Rows are named by the column `id`; without one by the index of the
        table, or in a file by its first column if this has no name, as pandas writes an index.

    Returns
    -------
    Reviewed
        One decision for each label issue.

    Raises
    ------
    InvalidInputError
        If a column is missing, or a value cannot be read. The message names the row.

    Examples
    --------
    >>> import pandas as pd
    >>> issues = pd.DataFrame({"is_label_issue": [False, True], "label_score": [0.9, 0.1],
    ...     "given_label": ["a", "b"], "predicted_label": ["a", "a"]})
    >>> [(one.key, one.decision) for one in read_cleanlab(issues).reviews]
    [(1, 'a')]
    """
    import pandas as pd

    if isinstance(source, pd.DataFrame):
        return _reviewed(source, "the table")
    return _reviewed(_read(Path(source)), str(source))


def _reviewed(table: pd.DataFrame, name: str) -> Reviewed:
    table = table.rename(columns=OTHER_NAMES)
    for column in ("is_label_issue", "given_label", "predicted_label"):
        if column not in table.columns:
            raise InvalidInputError(
                f"{name[0].upper()}{name[1:]} must have the column {column!r}, as cleanlab's "
                "`get_issues('label')` and `attnknn audit --format cleanlab` write it."
            )
    ids = table[ID] if ID in table.columns else table.index.to_series()
    columns = (ids, *(table[c] for c in ("is_label_issue", "given_label", "predicted_label")))
    found = []
    for row, (key, flag, given, predicted) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        where = f"Row {row} of {name}"
        if _is_issue(flag, where):
            found.append(Review("entry", _id(key), str(given), str(predicted), where))
    return Reviewed(found)


def _read(path: Path) -> pd.DataFrame:
    """A CSV file as strings."""
    import pandas as pd

    if not path.is_file():
        raise InvalidInputError(f"File not found: {path}.")
    check_fits(str(path), BYTES_PER_BYTE * path.stat().st_size, "Split the file.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = list(csv.reader(file, strict=True)) or [[]]
    except (UnicodeError, csv.Error) as error:
        reason = " ".join(str(error).split())
        raise InvalidInputError(f"{path} is not a valid CSV file: {reason}.") from error
    repeated = [name for name in header if header.count(name) > 1]
    if repeated:
        raise InvalidInputError(f"Column names of {path} must be unique; {repeated[0]!r} is not.")
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise InvalidInputError(
                f"Every row of {path} must have {len(header)} values, as the header has; row "
                f"{number} has {len(row)}."
            )
    table = pd.DataFrame(rows, columns=header, dtype=object)
    table = table.map(unguard_formula)
    has_index = header[:1] == [""] and ID not in header  # as pandas writes it
    return table.rename(columns={"": ID}) if has_index else table


def _is_issue(flag: Any, where: str) -> bool:
    text = str(flag).strip().lower()
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise InvalidInputError(f"{where} must have True or False as `is_label_issue`, got {flag!r}.")


def _id(key: Any) -> Any:
    """An integer where the id is written as one."""
    is_short = isinstance(key, str) and key.isascii() and len(key) < 19
    is_integer = is_short and key.removeprefix("-").isdecimal()
    return int(key) if is_integer and str(int(key)) == key else key
