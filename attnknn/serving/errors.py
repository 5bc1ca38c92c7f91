"""Errors as answers: one shape for all, and a status that says who can do something about it."""

from __future__ import annotations

import json
import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from attnknn.errors import (
    AttnKNNError,
    InvalidInputError,
    InvalidSettingError,
    ModelFolderError,
    TooLargeError,
    UnknownEntryError,
)
from attnknn.serving.batching import BusyError
from attnknn.serving.served_model import ConflictError

LOG = logging.getLogger("attnknn.serving")
STATUS: tuple[tuple[type[Exception], int], ...] = (
    (ConflictError, 409),
    (UnknownEntryError, 404),
    (TooLargeError, 413),
    (BusyError, 503),
    (ModelFolderError, 503),
    (InvalidInputError, 400),
    (InvalidSettingError, 400),
    (MemoryError, 503),
    (OSError, 503),
)
MAX_MESSAGE = 2000  # characters
MAX_PROBLEMS = 3


class Refusal(Exception):
    """A request that is refused.

    Parameters
    ----------
    status : of the answer
    type : of the error, for programs
    message : for people
    headers : of the answer
    """

    def __init__(
        self,
        status: int,
        type: str,
        message: str,
        headers: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.type, self.headers = status, type, headers or []


def error_body(type: str, message: str) -> bytes:
    """The body of an error.

    >>> error_body("InvalidInputError", "No.")
    b'{"error": {"type": "InvalidInputError", "message": "No."}}'
    """
    return json.dumps({"error": {"type": type, "message": message[:MAX_MESSAGE]}}).encode()


def status_of(error: Exception) -> int:
    """The status of an answer that reports an error."""
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def add_error_handlers(app: FastAPI) -> None:
    """Answer errors of routes."""

    async def refused(_: Request, error: Any) -> Response:
        headers = {name.decode(): value.decode() for name, value in error.headers}
        return _answer(error.status, error.type, str(error), headers)

    async def invalid(_: Request, error: Any) -> Response:
        return _answer(422, "InvalidRequestError", _problems(error))

    async def no_route(_: Request, error: Any) -> Response:
        return _answer(error.status_code, "RequestError", str(error.detail), error.headers)

    async def failed(_: Request, error: Any) -> Response:
        return answer_error(error)

    app.add_exception_handler(Refusal, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, no_route)
    for kind in (AttnKNNError, BusyError, MemoryError, OSError):
        app.add_exception_handler(kind, failed)
    app.add_exception_handler(Exception, failed)


def answer_error(error: Exception) -> Response:
    """The answer to a request that failed; what nobody foresaw is logged, and not shown."""
    status = status_of(error)
    if status == 500:
        LOG.error("A request failed.", exc_info=error, extra={"event": "failure"})
        return _answer(500, "InternalError", "The server failed; its log says why.")
    headers = {"retry-after": "1"} if status == 503 else None
    known = isinstance(error, AttnKNNError | BusyError)
    message = " ".join(str(error).split()) if known else "The server lacks memory or disk space."
    if not known:
        LOG.error("A request failed.", exc_info=error, extra={"event": "failure"})
    return _answer(status, type(error).__name__, message, headers)


def _problems(error: RequestValidationError) -> str:
    """What is wrong, without what was received: it may be a secret."""
    found = []
    for problem in error.errors()[:MAX_PROBLEMS]:
        place = ".".join(str(part) for part in problem["loc"] if part not in ("body", "query"))
        found.append(f"{place}: {problem['msg']}" if place else str(problem["msg"]))
    more = len(error.errors()) - len(found)
    return "; ".join(found) + (f"; and {more} more" if more > 0 else "")


def _answer(
    status: int, type: str, message: str, headers: dict[str, str] | None = None
) -> Response:
    return Response(error_body(type, message), status, headers, "application/json")
