"""The page of all routes, made from the OpenAPI schema without a script."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

CSS = """\
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; text-transform: capitalize; }
h3 { font: 600 1rem/1.5 ui-monospace, monospace; margin-bottom: 0; }
h3 + p { margin-top: 0.25rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: 0.2rem 0.75rem 0.2rem 0;
  border-top: 1px solid color-mix(in srgb, currentcolor 20%, transparent); }
"""
METHODS = ("get", "post", "delete")
Schema = dict[str, Any]


def docs_page(schema: Schema) -> str:
    """The HTML of the page."""
    return "\n".join(["<!doctype html>", '<html lang="en">', *_lines(schema), "</html>"])


def _lines(schema: Schema) -> Iterator[str]:
    title = escape(schema["info"]["title"])
    yield f'<head><meta charset="utf-8"><title>{title}</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<link rel="stylesheet" href="docs.css"></head><body>'
    yield f"<h1>{title}</h1><p>{escape(schema['info'].get('description', ''))}</p>"
    yield '<p><a href="api/openapi.json">The same for programs (OpenAPI)</a></p>'
    by_tag: dict[str, list[str]] = {}
    for path, operations in schema["paths"].items():
        for method in METHODS:
            if method in operations:
                operation = operations[method]
                lines = _operation(schema, path, method, operation)
                by_tag.setdefault(operation["tags"][-1], []).extend(lines)
    for tag, listed in by_tag.items():
        yield f"<h2>{escape(tag)}</h2>"
        yield from listed
    yield "</body>"


def _operation(schema: Schema, path: str, method: str, operation: Schema) -> Iterator[str]:
    yield f"<h3>{method.upper()} {escape(path)}</h3>"
    yield f"<p>{escape(operation.get('description', ''))}</p>"
    rows = [
        (one["name"], one["schema"], one.get("required", False), one.get("description", ""))
        for one in operation.get("parameters", ())
    ]
    body = _json_schema(schema, operation.get("requestBody", {}))
    rows += _fields(body)
    if rows:
        yield from _table("Request", rows)
    answer = _json_schema(schema, operation["responses"].get("200", {}))
    fields = _fields(answer)
    if fields:
        yield from _table("Answer", fields)


def _json_schema(schema: Schema, holder: Schema) -> Schema:
    """The schema of the JSON that a body holds, without references."""
    found: Schema = holder.get("content", {}).get("application/json", {}).get("schema", {})
    if "$ref" in found:
        found = schema["components"]["schemas"][found["$ref"].rsplit("/", 1)[-1]]
    return found


def _fields(found: Schema) -> list[tuple[str, Schema, bool, str]]:
    required = set(found.get("required", ()))
    return [
        (name, field, name in required, field.get("description", ""))
        for name, field in found.get("properties", {}).items()
    ]


def _table(title: str, rows: list[tuple[str, Schema, bool, str]]) -> Iterator[str]:
    yield f"<table><tr><th>{title}</th><th></th><th></th></tr>"
    for name, field, is_required, about in rows:
        marks = "" if is_required or title == "Answer" else " (optional)"
        yield (
            f"<tr><td><code>{escape(name)}</code></td><td>{escape(type_of(field))}{marks}</td>"
            f"<td>{escape(about)}</td></tr>"
        )
    yield "</table>"


def type_of(field: Schema) -> str:
    """A schema in a few words.

    >>> type_of({"type": "array", "items": {"type": "integer"}})
    'list of integer'
    """
    if "$ref" in field:
        return str(field["$ref"]).rsplit("/", 1)[-1]
    if "enum" in field or "const" in field:
        return " | ".join(map(str, field.get("enum", [field.get("const")])))
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(type_of(one) for one in field["anyOf"]))
    if field.get("type") == "array":
        return f"list of {type_of(field.get('items', {}))}"
    return str(field.get("type", "any"))
