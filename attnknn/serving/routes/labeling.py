"""Routes that show where labels are missing: rows to label next, and the map of the entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import APIRouter, Response

from attnknn.insight import suggest
from attnknn.serving.answers import prediction_of
from attnknn.serving.describing import number
from attnknn.serving.entry_map import Color, map_as_json
from attnknn.serving.predictions import predict
from attnknn.serving.routes.shared import TheService, check_rows, rows_of
from attnknn.serving.rows import take_rows
from attnknn.serving.schemas import (
    Computing,
    Map,
    Place,
    Position,
    Positions,
    Reasons,
    Suggest,
    Suggestion,
    Suggestions,
)
from attnknn.serving.service import Service
from attnknn.serving.state import State

STRATEGIES = {"uncertainty": "margin", "diversity": "novelty"}  # by the names that the page shows
WAIT: dict[int | str, dict[str, Any]] = {
    202: {"model": Computing, "description": "It is being computed: ask again."}
}
router = APIRouter(tags=["labeling"])


@router.post("/api/suggest")
async def suggest_rows(body: Suggest, service: TheService) -> Suggestions:
    """Rows of an uploaded file to label next, the most useful one first."""
    file = service.uploads.find(body.file)

    def answer() -> Suggestions:
        state = service.state
        if body.labeled:
            check_rows(body.labeled, len(file))
        strategy = STRATEGIES.get(body.strategy, body.strategy)
        found = suggest(
            state.classifier, file.pool, body.n, strategy=strategy, skip=body.labeled or None
        )
        probabilities = predict(state, take_rows(file.rows, found.rows))
        classes = state.classifier.classes_.tolist()
        gaps = found.confidence - found.runner_up_confidence
        return Suggestions(
            version=state.version,
            classes=classes,
            suggestions=[
                Suggestion(
                    row=row,
                    content=file.content(row),
                    score=float(found.scores[place]),
                    reasons=Reasons(
                        text=found.reasons[place],
                        uncertainty=float(1 - gaps[place]),
                        novelty=float(1 - found.novelty_p_values[place]),
                        density=float(found.n_similar[place]),
                    ),
                    prediction=prediction_of(classes, probabilities[place]),
                )
                for place, row in enumerate(found.rows.tolist())
            ],
            expected_accuracy=number(found.expected_accuracy),
        )

    return await service.ask(answer)


@router.get("/api/map", response_model=Map, responses=WAIT)
async def entry_map(service: TheService, color: Color = "class") -> Response:
    """All entries in two dimensions; 202 while they are laid out."""

    def answer() -> Response:
        state = service.state
        positions = service.map.positions(state)
        if positions is None:
            return _computing(service, state)
        return Response(map_as_json(state, positions, color), media_type="application/json")

    return await service.ask(answer)


@router.post("/api/map/place", response_model=Positions, responses=WAIT)
async def place(body: Place, service: TheService) -> Response:
    """Where rows fall on the map; 202 while the entries are laid out."""

    def answer() -> Response:
        state = service.state
        found = service.map.place(state, rows_of(service, state, body))
        if found is None:
            return _computing(service, state)
        positions = Positions(
            version=state.version, positions=[Position(x=x, y=y) for x, y in found.tolist()]
        )
        return Response(positions.model_dump_json(), media_type="application/json")

    return await service.ask(answer)


def _computing(service: Service, state: State) -> Response:
    progress = float(np.clip(service.map.begin(state), 0.0, 1.0))
    body = Computing(progress=progress).model_dump_json()
    return Response(body, 202, {"retry-after": "1"}, "application/json")
