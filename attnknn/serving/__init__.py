"""Serve a model over HTTP: questions, evidence, edits and a page in the browser.

- `app` makes an ASGI app of a model folder or a classifier, for any ASGI server.
- `attnknn serve` runs it from the command line, with limits for a network (`server`).
- `AttnKNNClassifier.explore` runs it beside a notebook (`notebook`).

Behind the routes (`routes`), a `Service` holds one model. Readers take its last whole `State`;
edits are made one at a time, and each makes the next state. `guard` checks every request before a
route sees it. The extra `serve` installs what this room needs.
"""

from attnknn._optional import require

require("fastapi", extra="serve", needed_by="The server")

from attnknn.serving.application import ServedApp, app  # noqa: E402
from attnknn.serving.settings import Settings  # noqa: E402

__all__ = ["ServedApp", "Settings", "app"]
