"""The log of the server: one JSON object per line, without questions, answers or secrets."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import MutableMapping
from typing import Any, TextIO

LOG = logging.getLogger("attnknn.serving")
FIELDS = ("event", "method", "route", "status", "ms", "role", "by", "client", "version", "edit")
LOGGED = ("/api/edits", "/api/erase", "/api/snapshots")  # others only if they fail, or are slow
SLOW = 1.0  # seconds


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "at": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to(stream: TextIO = sys.stderr, *, is_verbose: bool = False) -> None:
    """Write the log to a stream: edits, what failed or was slow, or all requests."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    for name in ("attnknn.serving", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.WARNING)
    LOG.setLevel(logging.DEBUG if is_verbose else logging.INFO)


def log_request(scope: MutableMapping[str, Any], route: str, status: int, seconds: float) -> None:
    """Note a request: its route, never its query, headers or body."""
    is_read = scope["method"] == "GET" or not route.startswith(LOGGED)
    level = logging.DEBUG if is_read and status < 400 and seconds < SLOW else logging.INFO
    if not LOG.isEnabledFor(level):
        return
    caller = scope.get("state", {}).get("caller")
    LOG.log(
        level,
        "request",
        extra={
            "event": "request",
            "method": scope["method"],
            "route": route,
            "status": status,
            "ms": round(1000 * seconds, 2),
            "role": getattr(caller, "role", ""),
            "by": getattr(caller, "name", ""),
            "client": (scope.get("client") or ("", 0))[0],
        },
    )
