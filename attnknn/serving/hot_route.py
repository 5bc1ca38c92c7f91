"""The route that is asked thousands of times per second, without the layers of a framework.

A framework matches the path with every route, builds objects for request and answer, and enters a
dozen contexts: more work than the answer itself. So a small question about predictions is answered
here, and everything else goes on to the app, which has the same route for it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pydantic import ValidationError

from attnknn.serving.access import Caller
from attnknn.serving.errors import answer_error
from attnknn.serving.guard import App, Message, Receive, Scope, Send, path_of
from attnknn.serving.schemas import Predict
from attnknn.serving.service import Service

PATH = "/api/predict"
MAX_TOGETHER = 64  # rows of a question that is answered together with others
ROUTE = SimpleNamespace(path=PATH)  # for metrics and the log


class HotRoute:
    """Answers small questions about predictions.

    Parameters
    ----------
    app : answers everything else
    service : has the model
    """

    def __init__(self, app: App, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        question: Predict | None = None
        if scope["type"] == "http" and scope["method"] == "POST" and path_of(scope) == PATH:
            message = await receive()
            receive = _again(message, receive)
            question = _small_question(scope, message.get("body", b""))
        if question is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = ROUTE
        try:
            body = await self._service.batcher.ask(question.rows or [], question.probabilities)
        except Exception as error:
            await answer_error(error)(scope, receive, send)
            return
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _small_question(scope: Scope, body: bytes) -> Predict | None:
    """The question, if it is valid, of few rows, and of a caller who may ask."""
    caller: Caller = scope["state"]["caller"]
    kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    if not caller.may("reader") or not kind.startswith(b"application/json"):
        return None
    try:
        question = Predict.model_validate_json(body)
    except ValidationError:
        return None
    is_small = question.rows is not None and 0 < len(question.rows) <= MAX_TOGETHER
    return question if is_small else None


def _again(message: Message, receive: Receive) -> Receive:
    """A `receive` that returns a message again, and then goes on."""
    waiting: list[Any] = [message]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again
