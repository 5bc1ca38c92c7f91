"""Routes for operators: health, metrics, the description of the routes, and the page."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse

from attnknn.serving.docs_page import CSS, docs_page
from attnknn.serving.errors import Refusal
from attnknn.serving.routes.shared import READER, TheService
from attnknn.serving.schemas import Health

PAGE = Path(__file__).parent.parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}
NO_PAGE = """\
<!doctype html>
<html lang="en">
<title>AttnKNN</title>
<link rel="stylesheet" href="/docs.css">
<h1>AttnKNN</h1>
<p>The server works. This installation has no explorer page; <a href="/docs">the routes</a> answer.
"""
router = APIRouter(tags=["server"])


@router.get("/healthz")
async def healthz() -> Health:
    """Whether the process answers."""
    return Health(status="ok")


@router.get("/readyz", responses={503: {"model": Health}})
async def readyz(service: TheService, response: Response) -> Health:
    """Whether requests are answered; 503 while the server stops."""
    if not service.is_ready:
        response.status_code = 503
        return Health(status="stopping")
    return Health(status="ok")


@router.get("/metrics", response_class=PlainTextResponse, dependencies=[READER])
async def metrics(service: TheService) -> PlainTextResponse:
    """Counters and histograms in the text format of Prometheus."""
    return PlainTextResponse(
        service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8"
    )


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """All routes as a page."""
    return HTMLResponse(docs_page(request.app.openapi()))


@router.get("/docs.css", include_in_schema=False)
async def docs_css() -> Response:
    """The style of the page of routes."""
    return Response(CSS, media_type="text/css")


@router.get("/{path:path}", include_in_schema=False)
async def page(path: str, request: Request) -> Response:
    """The explorer, and the files that it needs."""
    if path == "" and not (PAGE / "index.html").is_file():
        return HTMLResponse(NO_PAGE)
    file = (PAGE / (path or "index.html")).resolve()
    kind = TYPES.get(file.suffix.lower())
    if kind is None or not file.is_relative_to(PAGE.resolve()) or not file.is_file():
        raise Refusal(404, "NotFoundError", "There is no such page.")
    about = file.stat()
    etag = f'"{about.st_mtime_ns:x}-{about.st_size:x}"'
    headers = {"cache-control": "no-cache", "etag": etag}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return FileResponse(file, media_type=kind, headers=headers)
