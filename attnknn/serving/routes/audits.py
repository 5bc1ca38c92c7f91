"""Routes of the audit: entries whose labels may be wrong, worst first."""

from __future__ import annotations

import csv
import io
import json
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Response

from attnknn._display import payload_text
from attnknn._escape import guard_formula
from attnknn.insight import Audit, label_studio_tasks
from attnknn.records import Booleans
from attnknn.serving.answers import plain
from attnknn.serving.describing import number
from attnknn.serving.entry_images import EntryImages
from attnknn.serving.kept_labels import are_kept, audit_of
from attnknn.serving.routes.shared import TheService, images_of
from attnknn.serving.schemas import MAX_LISTED, AuditAnswer, AuditEntry, Count
from attnknn.serving.uploads import as_json_value

router = APIRouter(tags=["audit"])
FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {}, "application/json": {}}, "description": "The file."}
}


@router.get("/api/audit")
async def list_audit(
    service: TheService,
    offset: Count = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 50,
    kept: bool = False,
) -> AuditAnswer:
    """Entries by how likely their labels are wrong, without those whose label was kept."""

    def answer() -> AuditAnswer:
        state = service.state
        found = audit_of(state)
        is_kept = are_kept(state)
        writer = _AuditWriter(found, images_of(service), is_kept)
        order = found.order if kept else found.order[~is_kept[found.order]]
        shown = order[offset : offset + limit]
        gives = not found.no_probabilities
        return AuditAnswer(
            version=state.version,
            expected_wrong=number(found.wrong[~is_kept].sum()) if gives else None,
            label_noise=number(found.label_noise),
            standard_error=number(state.classifier.fit_report_.label_noise_error),
            gives_probabilities=gives,
            no_probabilities=found.no_probabilities,
            n_entries=len(found),
            n_kept=int(is_kept.sum()),
            entries=[writer.write(int(place)) for place in shown],
        )

    return await service.ask(answer)


@router.get("/api/audit/export", responses=FILE, response_class=Response)
async def export(service: TheService, format: Literal["csv", "label-studio"] = "csv") -> Response:
    """The audit as a file: a table for decisions, or tasks of Label Studio.

    `attnknn relabel` applies the decisions of both.
    """

    def answer() -> Response:
        state = service.state
        found = audit_of(state)
        if format == "csv":
            content, name, kind = audit_as_csv(found), "audit.csv", "text/csv"
        else:
            tasks = label_studio_tasks(found, model_version=f"attnknn {state.version}")
            content, name, kind = json.dumps(tasks), "tasks.json", "application/json"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(content, headers=headers, media_type=kind)

    return await service.ask(answer)


class _AuditWriter:
    """Writes entries of an audit."""

    def __init__(self, found: Audit, images: EntryImages, is_kept: Booleans) -> None:
        self._found, self._images, self._is_kept = found, images, is_kept
        self._duplicates = {
            name: sorted(those, key=str) for those in found.exact_duplicates for name in those
        }
        self._conflicts = {name for those in found.conflicts for name in those}

    def write(self, place: int) -> AuditEntry:
        found = self._found
        name = plain(found.ids[place])
        payload = None if found.payloads is None else found.payloads[place]
        return AuditEntry(
            id=name,
            label=plain(found.labels[place]),
            suggested=plain(found.suggested[place]),
            p_wrong=None if np.isnan(found.wrong[place]) else float(found.wrong[place]),
            score=float(found.label_error_score[place]),
            p_suggested=float(found.suggested_probability[place]),
            value=float(found.value[place]),
            payload=as_json_value(payload),
            image=self._images.has(payload),
            contradicted_by=found.contradicted_by[place].tolist(),
            duplicates=[plain(one) for one in self._duplicates.get(name, ()) if one != name],
            conflict=name in self._conflicts,
            kept=bool(self._is_kept[place]),
        )


def audit_as_csv(found: Audit) -> str:
    """All entries as CSV, worst first, with an empty column for decisions."""
    table = found.to_frame()
    lists = ["contradicted_by", "duplicates", "near_duplicates"]
    for name in lists:
        table[name] = [" ".join(map(str, ids)) for ids in table[name]]
    if "payload" in table:
        table["payload"] = [payload_text(payload) for payload in table["payload"]]
    if found.no_probabilities:
        table = table.drop(columns="wrong")
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*table.columns, "decision"])
    for row in table.itertuples(index=False):
        cells = [guard_formula(cell) if isinstance(cell, str) else cell for cell in row]
        writer.writerow([*cells, ""])
    return file.getvalue()
