"""Routes that describe the model and show its entries."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Response

from attnknn.evidence import evidence_of
from attnknn.serving import describing
from attnknn.serving.answers import EvidenceWriter
from attnknn.serving.routes.shared import TheCaller, TheService, images_of
from attnknn.serving.schemas import (
    MAX_LISTED,
    Count,
    Entries,
    EntryEvidence,
    FoundEntries,
    Lookup,
    ModelInfo,
    Name,
    Version,
)

router = APIRouter(tags=["model"])
Limit = Annotated[int, Query(ge=1, le=MAX_LISTED)]
PICTURE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/png": {}, "image/jpeg": {}}, "description": "The picture."}
}


@router.get("/api/model")
async def model(service: TheService, caller: TheCaller) -> ModelInfo:
    """What the model is, and what the caller may do with it."""
    return await service.ask(lambda: describing.describe(service, caller))


@router.get("/api/version")
async def version(service: TheService) -> Version:
    """The number of the last edit; ask again to notice edits of others."""
    return describing.version_of(service.state)


@router.get("/api/entries")
async def entries(
    service: TheService,
    caller: TheCaller,
    offset: Count = 0,
    limit: Limit = 50,
    label: Name | None = None,
    query: Annotated[str | None, Query(max_length=1000)] = None,
) -> Entries:
    """Entries in the order of the memory, by label and by a text in their id or payload."""

    def answer() -> Entries:
        state = service.state
        found = describing.find_entries(state, label, query)
        writer = describing.EntryWriter(service, state, caller)
        shown = found[offset : offset + limit]
        return Entries(
            version=state.version,
            total=len(found),
            entries=[writer.write(position) for position in shown.tolist()],
        )

    return await service.ask(answer)


@router.post("/api/entries/lookup")
async def lookup(question: Lookup, service: TheService, caller: TheCaller) -> FoundEntries:
    """Some entries by their ids; unknown ids are left out."""

    def answer() -> FoundEntries:
        state = service.state
        writer = describing.EntryWriter(service, state, caller)
        found = describing.known_positions(state, question.ids)
        return FoundEntries(version=state.version, entries=[writer.write(p) for p in found])

    return await service.ask(answer)


@router.get("/api/entries/{entry_id:path}/evidence")
async def entry_evidence(
    entry_id: Name,
    service: TheService,
    caller: TheCaller,
    n_neighbors: Limit = 10,
) -> EntryEvidence:
    """How the other entries answer for an entry: its leave-one-out prediction."""

    def answer() -> EntryEvidence:
        state = service.state
        position = describing.position_of(state, entry_id)
        fitted = state.classifier.model_
        left_out = fitted.leave_one_out(np.array([position]))
        evidence = evidence_of(fitted.answer_left_out(left_out), 0, fitted)
        return EntryEvidence(
            version=state.version,
            classes=fitted.classes.tolist(),
            entry=describing.EntryWriter(service, state, caller).write(position),
            evidence=EvidenceWriter(state, images_of(service), n_neighbors).write(evidence),
        )

    return await service.ask(answer)


@router.get("/api/entries/{entry_id:path}/image", responses=PICTURE, response_class=Response)
async def entry_image(entry_id: Name, service: TheService) -> Response:
    """The picture of an entry, if its payload names one in a folder that may be shown."""

    def answer() -> Response:
        state = service.state
        payloads = state.classifier.memory_.entries.payloads
        position = describing.position_of(state, entry_id)
        payload = None if payloads is None else payloads[position]
        content, kind = images_of(service).read(payload)
        return Response(content, media_type=kind)

    return await service.ask(answer)
