"""The ASGI app of a model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from attnknn import __version__
from attnknn.classifier import AttnKNNClassifier
from attnknn.errors import InvalidInputError
from attnknn.model import require_model
from attnknn.serving.errors import add_error_handlers
from attnknn.serving.guard import Guard
from attnknn.serving.hot_route import HotRoute
from attnknn.serving.routes import audits, edits, files, labeling, model, operations, questions
from attnknn.serving.routes.shared import READER, RESPONSES
from attnknn.serving.service import Service
from attnknn.serving.settings import Settings

ABOUT = (
    "Ask a model, see which entries decided each answer, and edit it. Every answer carries the "
    "version of the model: the number of the edit that it was computed from. Errors are "
    '{"error": {"type", "message"}}. With tokens, send the header `Authorization: Bearer TOKEN`.'
)
ROUTERS = (model, questions, audits, edits, files, labeling)


class ServedApp:
    """An ASGI app that serves one model; `app` makes it.

    Parameters
    ----------
    service : Service
        The model, with its queues, files and counters.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> served = ServedApp(Service(clf, Settings(by="ann")))
    >>> served.close()
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.api = _api(service)
        self._guard = Guard(HotRoute(self.api, service), service.settings, service.metrics)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self.service.start()
        await self._guard(scope, receive, send)

    def close(self) -> None:
        """Finish what runs, and close the model; for an app that no server has started."""
        self.service.close()


def app(model: str | Path | AttnKNNClassifier, **settings: Any) -> ServedApp:
    """Make the ASGI app that serves a model.

    A model folder is edited durably: every edit is on the disk, in the log, before it is
    acknowledged. A classifier is edited in memory, and the same object changes.

    Parameters
    ----------
    model : str, Path or AttnKNNClassifier
        A model folder, or a fitted classifier.
    **settings : object
        The parameters of `Settings`: tokens, by, is_read_only, hosts, frames, image_folders, rate,
        max_body, max_upload, body_timeout, edit_wait.

    Returns
    -------
    ServedApp
        The app, for any ASGI server. Run it in one process: workers of several processes would
        each hold a model, and wait for each other with every edit.

    Raises
    ------
    ModelFolderError
        If the folder is missing or damaged.
    InvalidSettingError
        If a setting is outside of its range.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> served = app(clf, by="ann")
    >>> served.service.state.version
    0
    >>> served.close()
    """
    if isinstance(model, AttnKNNClassifier):
        require_model(model, "app")
    elif isinstance(model, str | Path):
        model = Path(model)
    else:
        raise InvalidInputError(
            f"`model` must be a model folder or a classifier, got {type(model).__name__}."
        )
    return ServedApp(Service(model, Settings(**settings)))


def _api(service: Service) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    api = FastAPI(
        title="AttnKNN",
        description=ABOUT,
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses=RESPONSES,
    )
    api.state.service = service
    add_error_handlers(api)
    for module in ROUTERS:
        api.include_router(module.router, dependencies=[READER])
    api.include_router(operations.router)
    return api
