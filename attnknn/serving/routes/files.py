"""Routes of uploaded files: send, list, look into, score, watch."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from attnknn.errors import InvalidInputError
from attnknn.serving.evaluation import evaluate, evaluated_rows
from attnknn.serving.routes.shared import TheService, rows_of
from attnknn.serving.schemas import (
    MAX_LISTED,
    Count,
    Evaluate,
    EvaluatedRows,
    EvaluateRows,
    Evaluation,
    FileInfo,
    FileRows,
    Files,
    Monitor,
    MonitorAnswer,
    Name,
)

router = APIRouter(tags=["files"])
Limit = Annotated[int, Query(ge=1, le=MAX_LISTED)]
BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post("/api/files", openapi_extra=BODY)
async def send_file(
    request: Request,
    service: TheService,
    name: Annotated[str, Query(min_length=1, max_length=500)],
    label_column: Annotated[str | None, Query(max_length=500)] = None,
) -> FileInfo:
    """Send a file of rows: CSV, TSV, JSON Lines, Parquet, NPZ, or a text per line.

    The body is the content of the file. It is parsed at once, kept in memory, and removed when it
    was not used for an hour.
    """
    content = await request.body()
    if not content:
        raise InvalidInputError("The file is empty.")

    def parse() -> FileInfo:
        return service.uploads.add(service.state, name, content, label_column).info()

    return await service.ask(parse)


@router.get("/api/files")
async def list_files(service: TheService) -> Files:
    """All files, the one that was used last first."""
    return await service.ask(lambda: Files(files=[one.info() for one in service.uploads.list()]))


@router.delete("/api/files/{file_id}")
async def remove_file(file_id: Name, service: TheService) -> Files:
    """Remove a file."""
    service.uploads.remove(file_id)
    return await list_files(service)


@router.get("/api/files/{file_id}/rows")
async def rows(
    file_id: Name, service: TheService, offset: Count = 0, limit: Limit = 50
) -> FileRows:
    """Some rows of a file."""

    def read() -> FileRows:
        file = service.uploads.find(file_id)
        shown = range(min(offset, len(file)), min(offset + limit, len(file)))
        labels = None if file.labels is None else file.labels[shown.start : shown.stop].tolist()
        return FileRows(total=len(file), rows=file.contents(shown), labels=labels)

    return await service.ask(read)


@router.post("/api/evaluate", tags=["evaluation"])
async def evaluate_file(body: Evaluate, service: TheService) -> Evaluation:
    """Scores of the model on a labeled file."""
    file = service.uploads.find(body.file)
    return await service.ask(lambda: evaluate(service.state, file))


@router.post("/api/evaluate/rows", tags=["evaluation"])
async def evaluate_rows(body: EvaluateRows, service: TheService) -> EvaluatedRows:
    """Rows of a labeled file by what was true and what was predicted."""
    file = service.uploads.find(body.file)
    return await service.ask(lambda: evaluated_rows(service.state, file, body))


@router.post("/api/monitor", tags=["monitor"])
async def watch(body: Monitor, service: TheService) -> MonitorAnswer:
    """Show the next rows of a stream to the drift monitor."""

    def answer() -> MonitorAnswer:
        state = service.state
        X = rows_of(service, state, body)
        if body.labels is not None and len(body.labels) != len(X):
            raise InvalidInputError(
                f"There must be one label or null a row; rows {len(X)}, got {len(body.labels)}."
            )
        return service.monitor.watch(state, X, body.labels)

    return await service.ask(answer)


@router.get("/api/monitor", tags=["monitor"])
async def look(service: TheService) -> MonitorAnswer:
    """The state of the drift monitor."""
    return await service.ask(lambda: service.monitor.look(service.state))


@router.post("/api/monitor/restart", tags=["monitor"])
async def restart(service: TheService) -> MonitorAnswer:
    """Begin a new stream, with the current state of the model."""
    return await service.ask(lambda: service.monitor.restart(service.state))
