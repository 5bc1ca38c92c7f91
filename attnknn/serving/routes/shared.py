"""What routes share: the service, the caller and her rights, and sources of rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, Request

from attnknn.errors import InvalidInputError
from attnknn.serving.access import Caller, Role
from attnknn.serving.entry_images import EntryImages
from attnknn.serving.errors import Refusal
from attnknn.serving.rows import read_rows, take_rows
from attnknn.serving.schemas import ErrorAnswer, Rows
from attnknn.serving.service import Service
from attnknn.serving.state import State

RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorAnswer, "description": "Something in the request cannot be used."},
    401: {"model": ErrorAnswer, "description": "There is no valid token in the request."},
    403: {"model": ErrorAnswer, "description": "The caller may not do this."},
    404: {"model": ErrorAnswer, "description": "An id is unknown."},
    409: {"model": ErrorAnswer, "description": "The model was edited meanwhile."},
    413: {"model": ErrorAnswer, "description": "The request is too large."},
    422: {"model": ErrorAnswer, "description": "The request does not have the right form."},
    429: {"model": ErrorAnswer, "description": "There were too many requests."},
    503: {"model": ErrorAnswer, "description": "The server or the model is busy."},
}


async def service_of(request: Request) -> Service:
    """The service of the app."""
    service: Service = request.app.state.service
    return service


async def caller_of(request: Request) -> Caller:
    """Who sends the request."""
    caller: Caller = request.scope["state"]["caller"]
    return caller


def needs(role: Role) -> Callable[[Request], Awaitable[None]]:
    """A dependency of routes that only callers with this role may use."""

    async def check(request: Request) -> None:
        caller: Caller = request.scope["state"]["caller"]
        if not caller.may(role):
            raise Refusal(403, "RoleError", f"This needs the role {role}, you have {caller.role}.")

    return check


READER, EDITOR, ADMIN = Depends(needs("reader")), Depends(needs("editor")), Depends(needs("admin"))
TheService = Annotated[Service, Depends(service_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]


def author(service: Service, caller: Caller, given: str | None) -> str:
    """Who edits, for the log: the name of the token, or what the request says."""
    name = caller.name or given or service.settings.author
    if not name.strip() or not name.isprintable():
        raise InvalidInputError("`by` must be a name, for the log.")
    return name.strip()


def rows_of(service: Service, state: State, source: Rows) -> Any:
    """The rows of a source as the argument of `predict_proba`."""
    if source.file is None:
        return read_rows(state, source.rows or [])
    file = service.uploads.find(source.file)
    if source.rows_of_file is None:
        return file.rows
    check_rows(source.rows_of_file, len(file))
    return take_rows(file.rows, source.rows_of_file)


def check_rows(given: list[int], n_rows: int) -> None:
    """Raise unless these are numbers of rows of a file."""
    if not given:
        raise InvalidInputError("`rows_of_file` must name at least one row.")
    wrong = next((row for row in given if row >= n_rows), None)
    if wrong is not None:
        raise InvalidInputError(f"The file has {n_rows:,} rows, counted from 0; got {wrong}.")


def images_of(service: Service) -> EntryImages:
    """The pictures of entries that may be shown."""
    return EntryImages(service.settings.image_folders)
