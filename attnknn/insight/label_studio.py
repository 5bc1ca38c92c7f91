"""Label Studio: tasks with predictions for its import, and annotations from its JSON export."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from attnknn import _display
from attnknn._limits import check_fits
from attnknn.errors import InvalidInputError
from attnknn.insight.audit_result import Audit
from attnknn.insight.reviews import FORGET, Review, Reviewed
from attnknn.insight.suggestions import Suggestions

FROM_NAME, TO_NAME = "label", "content"  # of the control and of the object in the configuration
ENTRY, ROW, GIVEN = "attnknn_id", "attnknn_row", "given_label"  # keys of `data`
BYTES_PER_BYTE = 20  # of parsed JSON, at most, for each byte of the file
OBJECTS = {"text": "Text", "image": "Image", "table": "Table"}


def label_studio_tasks(
    found: Audit | Suggestions,
    contents: Sequence[Any] | None = None,
    *,
    limit: int | None = None,
    prefix: str = "",
    model_version: str = "attnknn",
) -> list[dict[str, Any]]:
    """Tasks for Label Studio, each with a prediction.

    Write the list as a JSON file and import it into a project with the labeling interface of
    `label_studio_config`. After labeling, export the project as JSON and read it with
    `read_label_studio`.

    Parameters
    ----------
    found : Audit or Suggestions
        Entries to check, in the order of the audit, with the suggested labels as predictions; or
        rows to label, with the predicted labels.
    contents : sequence, default=None
        What to show: for an audit one object for each entry (default: its payloads), for
        suggestions one for each suggested row. Strings are texts, or images if all end like image
        files; dicts are tables.
    limit : int, default=None
        Maximum number of tasks.
    prefix : str, default=''
        Put before file names of images, such as '/data/local-files/?d=photos/'.
    model_version : str, default='attnknn'
        Name of the model in Label Studio.

    Returns
    -------
    list of dict
        One task each, with `data` and `predictions`.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> from attnknn.insight import audit
    >>> clf = AttnKNNClassifier(attention="distance").fit(
    ...     [[0.0], [0.1], [0.2], [4.0], [4.1]], ["a", "b", "a", "b", "b"],
    ...     payloads=["zero", "near", "near too", "far", "far too"])
    >>> task = label_studio_tasks(audit(clf), limit=1)[0]
    >>> task["data"]
    {'attnknn_id': 1, 'given_label': 'b', 'text': 'near'}
    >>> task["predictions"][0]["result"][0]["value"]
    {'choices': ['a']}
    """
    if isinstance(found, Audit):
        chosen = found.order[:limit].tolist()
        shown = found.payloads if contents is None else contents
        keys = [{ENTRY: _plain(found.ids[p]), GIVEN: str(found.labels[p])} for p in chosen]
        labels, scores = found.suggested, found.suggested_probability
        names = [f"entry {found.ids[p]}" for p in chosen]
    else:
        chosen = list(range(len(found)))[:limit]
        shown = contents
        keys = [{ROW: int(found.rows[p])} for p in chosen]
        labels, scores = found.predicted, found.confidence
        names = [f"row {found.rows[p]}" for p in chosen]
    if shown is not None and len(shown) != len(found):
        raise InvalidInputError(
            f"`contents` must have one object for each of the {len(found):,} rows, got "
            f"{len(shown):,}."
        )
    objects = names if shown is None else [shown[p] for p in chosen]
    kind = content_kind(objects)
    return [
        {
            "data": {**key, kind: _content(one, kind, prefix)},
            "predictions": [_prediction(labels[p], scores[p], model_version)],
        }
        for p, key, one in zip(chosen, keys, objects, strict=True)
    ]


def label_studio_config(classes: Iterable[Any], kind: str = "text", *, forget: bool = True) -> str:
    """The labeling interface that the tasks of `label_studio_tasks` need.

    Parameters
    ----------
    classes : iterable
        The labels to choose from, such as `clf.classes_`.
    kind : {'text', 'image', 'table'}, default='text'
        What the tasks show.
    forget : bool, default=True
        Whether to offer the choice '!forget', which removes an entry.

    Returns
    -------
    str
        XML for the settings of a project.

    Examples
    --------
    >>> print(label_studio_config(["cat", "dog"], forget=False))
    <View>
      <Text name="content" value="$text"/>
      <Choices name="label" toName="content" choice="single" showInLine="true">
        <Choice value="cat"/>
        <Choice value="dog"/>
      </Choices>
    </View>
    """
    if kind not in OBJECTS:
        raise InvalidInputError(f"`kind` must be one of {', '.join(OBJECTS)}, got {kind!r}.")
    labels = [*map(str, classes), *([FORGET] if forget else [])]
    choices = "\n".join(f"    <Choice value={quoteattr(label)}/>" for label in labels)
    return (
        f'<View>\n  <{OBJECTS[kind]} name="{TO_NAME}" value="${kind}"/>\n'
        f'  <Choices name="{FROM_NAME}" toName="{TO_NAME}" choice="single" showInLine="true">\n'
        f"{choices}\n  </Choices>\n</View>"
    )


def read_label_studio(source: str | Path | list[Any]) -> Reviewed:
    """Read the annotations of a JSON export of Label Studio.

    Tasks that nobody annotated, or that were skipped, change nothing. Of several annotations of a
    task the one marked as ground truth counts, else all must agree.

    Parameters
    ----------
    source : str, Path or list
        The exported file, or its parsed content.

    Returns
    -------
    Reviewed
        The labels, with the ids of entries or the positions of rows that the tasks were made from.

    Raises
    ------
    InvalidInputError
        If the file is not such an export, tasks were not made by `label_studio_tasks`, or
        annotations contradict each other. The message names the task.

    Examples
    --------
    >>> result = [{"from_name": "label", "type": "choices", "value": {"choices": ["a"]}}]
    >>> data = {"attnknn_id": 7, "given_label": "b", "text": "seven"}
    >>> found = read_label_studio([{"id": 1, "data": data, "annotations": [{"result": result}]}])
    >>> found.reviews[0].key, found.reviews[0].decision
    (7, 'a')
    """
    if isinstance(source, list):
        tasks, name = source, "The export"
    else:
        tasks, name = _parsed(Path(source)), str(source)
    reviews = list(_reviews(tasks, name))
    kinds = {review.kind for review in reviews}
    if len(kinds) > 1:
        raise InvalidInputError(
            f"The tasks of {name} must be either entries (`{ENTRY}`) or rows (`{ROW}`), it has "
            "both. Export the two projects separately."
        )
    return Reviewed(reviews)


def content_kind(objects: Iterable[Any]) -> str:
    """What Label Studio shows some objects as: 'text', 'image' or 'table'.

    >>> content_kind(["a.png", "b.JPG"]), content_kind(["a.png", "b"]), content_kind([{"age": 3}])
    ('image', 'text', 'table')
    """
    known = [one for one in objects if one is not None]
    if known and all(isinstance(one, dict) for one in known):
        return "table"
    is_image = [
        isinstance(one, str | Path) and Path(one).suffix.lower() in _display.IMAGE_SUFFIXES
        for one in known
    ]
    return "image" if known and all(is_image) else "text"


def _content(one: Any, kind: str, prefix: str) -> Any:
    if kind == "table":
        return {} if one is None else {str(name): _plain(value) for name, value in one.items()}
    if kind == "image":
        return "" if one is None else f"{prefix}{one}"
    if one is None:
        return ""
    return one if isinstance(one, str) else _display.payload_text(one)


def _plain(value: Any) -> Any:
    """A value as JSON has it; what it has no word for becomes a string."""
    plain = value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
    is_number = isinstance(plain, int | float) and plain == plain and abs(plain) != float("inf")
    return plain if plain is None or isinstance(plain, str) or is_number else str(plain)


def _prediction(label: Any, score: float, model_version: str) -> dict[str, Any]:
    result = {
        "id": "attnknn",
        "from_name": FROM_NAME,
        "to_name": TO_NAME,
        "type": "choices",
        "value": {"choices": [str(label)]},
    }
    return {"model_version": model_version, "score": float(score), "result": [result]}


class _RepeatedKeyError(Exception):
    pass


def _parsed(path: Path) -> list[Any]:
    """The list of tasks in a file."""
    if not path.is_file():
        raise InvalidInputError(f"File not found: {path}.")
    check_fits(str(path), BYTES_PER_BYTE * path.stat().st_size, "Export fewer tasks at a time.")
    try:
        tasks = json.loads(path.read_bytes().decode("utf-8-sig"), object_pairs_hook=_object)
        json.dumps(tasks, ensure_ascii=False).encode()
    except _RepeatedKeyError as error:
        raise InvalidInputError(
            f"Keys of an object must be unique; {path} repeats {error.args[0]!r}."
        ) from None
    except UnicodeError:
        raise InvalidInputError(f"{path} must be valid Unicode, encoded as UTF-8.") from None
    except RecursionError:
        raise InvalidInputError(f"{path} is nested too deeply to be an export.") from None
    except json.JSONDecodeError as error:
        raise InvalidInputError(
            f"{path} is not valid JSON: {error.msg}, in line {error.lineno}."
        ) from None
    except ValueError:  # Python reads integers of up to 4,300 digits
        raise InvalidInputError(f"{path} has an integer of too many digits.") from None
    if not isinstance(tasks, list):
        raise InvalidInputError(
            f"{path} must be a JSON export of Label Studio, a list of tasks, got {_kind_of(tasks)}."
        )
    return tasks


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedKeyError(next(name for name in names if names.count(name) > 1))
    return found


def _reviews(tasks: list[Any], name: str) -> Iterator[Review]:
    for place, task in enumerate(tasks, start=1):
        where = f"Task {place} of {name}"
        data = _field(task, "data", dict, where)
        if "annotations" not in task and "annotation_id" in task:
            raise InvalidInputError(
                f"{where} is of the format JSON-MIN. Export the project as JSON."
            )
        annotations = _field(task, "annotations", list, where)
        keys = [key for key in (ENTRY, ROW) if key in data]
        if len(keys) != 1:
            raise InvalidInputError(
                f"{where} must have `{ENTRY}` or `{ROW}` in its data, as the tasks that attnknn "
                "writes. Was another project exported?"
            )
        decision = _decision(annotations, where)
        if decision is not None:
            key = _key(data[keys[0]], keys[0], where)
            given = data.get(GIVEN, "")
            shown = "" if given is None else str(given)
            yield Review("entry" if keys[0] == ENTRY else "row", key, shown, decision, where)


def _key(value: Any, name: str, where: str) -> Any:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if is_integer and (name == ENTRY or value >= 0):
        return value
    if name == ENTRY and isinstance(value, str) and value:
        return value
    wanted = "an integer or a string" if name == ENTRY else "an integer of at least 0"
    raise InvalidInputError(f"{where} must have {wanted} as `{name}`, got {value!r:.60}.")


def _decision(annotations: list[Any], where: str) -> str | None:
    """The label that a task got; None if nobody annotated it."""
    labels, true_labels = [], []
    for annotation in annotations:
        results = _field(
            annotation, "result", list, f"An annotation of {where[0].lower()}{where[1:]}"
        )
        if annotation.get("was_cancelled") is True:
            continue
        label = _choice(results, where)
        if label is None:
            continue
        labels.append(label)
        if annotation.get("ground_truth") is True:
            true_labels.append(label)
    given = list(dict.fromkeys(true_labels or labels))
    if len(given) > 1:
        raise InvalidInputError(
            f"{where} has contradicting annotations: {given[0]!r} and {given[1]!r}. Remove one, or "
            "mark one as ground truth."
        )
    return given[0] if given else None


def _choice(results: list[Any], where: str) -> str | None:
    chosen = []
    for result in results:
        if not isinstance(result, dict):
            raise InvalidInputError(f"{where} has a result that is {_kind_of(result)}.")
        if result.get("type") != "choices" or result.get("from_name") != FROM_NAME:
            continue
        value = _field(result, "value", dict, where)
        chosen += _field(value, "choices", list, where)
    if len(chosen) > 1 or not all(isinstance(label, str) and label.strip() for label in chosen):
        raise InvalidInputError(f"{where} must have one label, got {chosen!r:.80}.")
    return chosen[0] if chosen else None


def _field(holder: Any, name: str, kind: type, where: str) -> Any:
    if not isinstance(holder, dict) or not isinstance(holder.get(name), kind):
        wanted = "an object" if kind is dict else "a list"
        got = _kind_of(holder.get(name)) if isinstance(holder, dict) else "no object at all"
        raise InvalidInputError(
            f"{where} must have {wanted} `{name}`, as in a JSON export of Label Studio, got {got}."
        )
    return holder[name]


def _kind_of(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", type(None): "nothing"}
    return kinds.get(
        type(value), "a number" if isinstance(value, int | float) else "something else"
    )
