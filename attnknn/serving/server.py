"""Run the app of a model: a socket, uvicorn, and an orderly end."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from attnknn.classifier import AttnKNNClassifier
from attnknn.errors import InvalidSettingError
from attnknn.serving.application import ServedApp, app
from attnknn.serving.guard import is_loopback

LOG = logging.getLogger("attnknn.serving")
MAX_CONNECTIONS = 1000
HEAD = 10.0  # seconds in which the head of a request must come
KEEP_ALIVE = 15  # seconds without a request after which a connection is closed
GRACE = 30  # seconds in which running requests may finish
SIGNALS = (signal.SIGINT, signal.SIGTERM)
START = 30.0  # seconds until a server in the background must answer


class _Protocol(H11Protocol):
    """HTTP connections that are closed if the head of a request does not come in time."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Stop waiting if the head of a request is complete."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_head()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class _Uvicorn(uvicorn.Server):
    """Ends in good order after a signal, which is then no error any more."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Server:
    """A server of one model.

    Parameters
    ----------
    model : str, Path or AttnKNNClassifier
        A model folder, or a fitted classifier.
    host : str, default="127.0.0.1"
        The address to listen on. Beyond the machine itself, `tokens` are required.
    port : int, default=8000
        The port; 0 takes a free one.
    **settings : object
        As for `attnknn.serving.app`.

    Attributes
    ----------
    url : str
        Where the server answers.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> with Server(clf, port=0) as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(
        self,
        model: str | Path | AttnKNNClassifier,
        host: str = "127.0.0.1",
        port: int = 8000,
        **settings: Any,
    ) -> None:
        is_alone = is_loopback(host)
        if not is_alone and settings.get("tokens") is None:
            raise InvalidSettingError(
                f"`tokens` are required to listen on {host}: others can reach it. Give them with "
                "--token-file, or listen on 127.0.0.1."
            )
        if not is_address(host):
            settings["hosts"] = (*settings.get("hosts", ()), host)
        self._socket = _listen(host, port)
        try:
            self.app: ServedApp = app(model, **settings)
        except BaseException:
            self._socket.close()
            raise
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        shown = f"[{shown}]" if ":" in shown else shown
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}/"
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                self.app,
                http=_Protocol,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                lifespan="on",
                limit_concurrency=MAX_CONNECTIONS,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=GRACE,
            )
        )
        self._thread: threading.Thread | None = None

    def run(self, on_start: Callable[[], None] | None = None) -> None:
        """Serve until SIGINT or SIGTERM; running requests finish, and the model is closed.

        Parameters
        ----------
        on_start : callable, default=None
            Called when the server listens.
        """
        if on_start is not None:
            on_start()
        LOG.info("The server starts.", extra={"event": "start"})
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self._end()
        LOG.info("The server has stopped.", extra={"event": "stop"})

    def start(self) -> None:
        """Serve in another thread, until `stop`."""
        self._thread = threading.Thread(target=self._run_quietly, name="server", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + START
        while not self._uvicorn.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self._end()
                raise RuntimeError("The server did not start.")
            time.sleep(0.01)

    def stop(self) -> None:
        """End the server that `start` began; stopping twice is allowed."""
        self._uvicorn.should_exit = True
        if self._thread is not None:
            self._thread.join()
        self._end()

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run_quietly(self) -> None:
        self._uvicorn.run(sockets=[self._socket])

    def _end(self) -> None:
        self._socket.close()
        self.app.close()


def is_address(host: str) -> bool:
    """Whether a host is an IP address, and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens already, so that the address can be shown."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError, OverflowError) as error:
        raise InvalidSettingError(f"`host` must be an address or a name, got {host!r}.") from error
    listening = socket.socket(family, kind)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(2048)
    except OSError as error:
        listening.close()
        reason = error.strerror or str(error)
        hint = " Give another --port." if error.errno == errno.EADDRINUSE else ""
        raise InvalidSettingError(
            f"`port` {port} of {host} cannot be used: {reason}.{hint}"
        ) from error
    return listening
