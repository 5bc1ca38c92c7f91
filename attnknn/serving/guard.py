"""The door of the server: what every request must satisfy before a route sees it.

Names of hosts are checked because a page of another site can make a browser resolve its own name
to this machine (DNS rebinding), and origins because it can send requests here without reading the
answers. There are no cookies, so a browser never adds a right of its own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from attnknn.serving.access import Caller
from attnknn.serving.errors import Refusal, error_body
from attnknn.serving.log import log_request
from attnknn.serving.metrics import Metrics
from attnknn.serving.settings import Settings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

UPLOADS = "/api/files"
PUBLIC = ("/healthz", "/readyz", "/docs", "/docs.css", "/api/openapi.json")
MAX_CLIENTS = 10_000  # whose requests are counted
MAX_RECEIVED = 256_000_000  # bytes of requests that are held at once
BURST = 2.0  # seconds of requests that may come at once
SAME_SITE = (b"same-origin", b"none")
CLOSED = 499  # the client closed the connection before there was an answer


class Guard:
    """Checks requests, adds security headers to answers, counts and logs both.

    Parameters
    ----------
    app : answers the requests that pass
    """

    def __init__(self, app: App, settings: Settings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._hosts = {"localhost", *(name.lower() for name in settings.hosts)}
        self._headers = security_headers(settings.frames)
        rate = settings.requests_per_second
        self._bucket = None if rate is None else TokenBucket(rate)
        self._n_received = 0
        self._last_host = b""  # checking takes longer than comparing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, status = time.perf_counter(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                known = {name for name, _ in message["headers"]}
                added = [pair for pair in self._headers if pair[0] not in known]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        n_held = 0
        try:
            self._check(scope)
            if scope["method"] in ("GET", "HEAD"):
                await self._app(scope, receive, send_guarded)
            else:
                body = await self._read(scope, receive)
                n_held = len(body)
                await self._app(scope, _replay(body, receive), send_guarded)
        except Refusal as refusal:
            self._metrics.refused.add(reason=refusal.type)
            await _send_refusal(refusal, send_guarded)
        except Exception:
            if not status:
                raise
            # The handler of errors has logged it and answered.
        finally:
            self._n_received -= n_held
            self._note(scope, status or CLOSED, time.perf_counter() - started)

    def _check(self, scope: Scope) -> None:
        """Raise unless the caller may ask; notes who asks in the scope."""
        headers = dict(scope["headers"])
        self._check_host(headers.get(b"host", b""))
        _check_origin(scope, headers)
        caller = self._caller(scope, headers)
        if self._bucket is not None:
            self._bucket.take(caller.name or caller.address)
        scope.setdefault("state", {})["caller"] = caller

    def _check_host(self, given: bytes) -> None:
        if given and given == self._last_host:
            return
        if not self._is_own(given):
            raise Refusal(
                403,
                "HostError",
                "This server does not answer to the name in the header Host. Its operator can "
                "allow it with --allowed-host.",
            )
        self._last_host = given

    def _is_own(self, given: bytes) -> bool:
        """Whether a header Host names this machine: by an allowed name, or by an address."""
        try:
            name = urlsplit(f"//{given.decode('ascii')}").hostname or ""
            if name.rstrip(".") in self._hosts:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _caller(self, scope: Scope, headers: dict[bytes, bytes]) -> Caller:
        address = (scope.get("client") or ("", 0))[0]
        tokens = self._settings.tokens
        if tokens is None:
            is_forwarded = b"x-forwarded-for" in headers or b"forwarded" in headers
            if is_forwarded or not is_loopback(address):
                raise Refusal(
                    403,
                    "TokenError",
                    "Without tokens, this server answers only to clients on the same machine.",
                )
            return Caller("admin", "", address)
        if _is_public(path_of(scope)):
            return Caller("nobody", "", address)
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        token = tokens.find(given.strip().decode("latin-1")) if given else None
        if token is None or scheme.lower() != b"bearer":
            if self._bucket is not None:
                self._bucket.take(address)
            raise Refusal(
                401,
                "TokenError",
                "Give a valid token in the header, as `Authorization: Bearer TOKEN`.",
                [(b"www-authenticate", b"Bearer")],
            )
        return Caller(token.role, token.name, address)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """The body of a request, which must come in time and be of a bounded size."""
        settings = self._settings
        is_upload = path_of(scope) == UPLOADS
        limit = settings.max_upload if is_upload else settings.max_body
        declared = next((v for n, v in scope["headers"] if n == b"content-length"), b"0")
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        try:
            first = await asyncio.wait_for(receive(), settings.body_timeout)
            if not first.get("more_body", False):
                return self._hold(_content(first, limit))
            return await asyncio.wait_for(
                self._read_on(first, receive, limit), settings.body_timeout
            )
        except TimeoutError:
            raise Refusal(
                408, "TimeoutError", "The request did not come completely in time."
            ) from None

    async def _read_on(self, first: Message, receive: Receive, limit: int) -> bytes:
        parts, n_bytes, message = [_content(first, limit)], len(first["body"]), first
        while message.get("more_body", False):
            message = await receive()
            part = _content(message, limit)
            n_bytes += len(part)
            if n_bytes > limit:
                raise _too_large(limit)
            if self._n_received + n_bytes > MAX_RECEIVED:
                raise _busy()
            parts.append(part)
        return self._hold(b"".join(parts))

    def _hold(self, body: bytes) -> bytes:
        if self._n_received + len(body) > MAX_RECEIVED:
            raise _busy()
        self._n_received += len(body)
        return body

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        if route == "/{path:path}":
            route = "page"
        self._metrics.requests.add(route=route, method=scope["method"], status=str(status))
        self._metrics.seconds.add(seconds, route=route)
        log_request(scope, route, status, seconds)


class TokenBucket:
    """Limits the requests per second of each client.

    >>> bucket = TokenBucket(1.0, burst=2, clock=lambda: 0.0)
    >>> bucket.take("ann"), bucket.take("ann"), bucket.take("bob")
    (None, None, None)
    >>> bucket.take("ann")
    Traceback (most recent call last):
    attnknn.serving.errors.Refusal: Too many requests. Ask again later.
    """

    def __init__(
        self,
        rate: float,
        burst: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._burst = max(1.0, rate * BURST) if burst is None else burst
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> None:
        """Count a request; raises `Refusal` if there were too many."""
        now = self._clock()
        left, at = self._left.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        self._left[client] = (max(0.0, left - 1), now)
        if len(self._left) > MAX_CLIENTS:
            self._left.popitem(last=False)
        if left < 1:
            wait = max(1, round((1 - left) / self._rate))
            raise Refusal(
                429,
                "RateError",
                "Too many requests. Ask again later.",
                [(b"retry-after", str(wait).encode())],
            )


def security_headers(frames: tuple[str, ...]) -> list[tuple[bytes, bytes]]:
    """Headers of every answer: a browser runs nothing but the scripts of this server."""
    ancestors = " ".join(["'self'", *frames])
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "font-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; "
        f"form-action 'none'; frame-ancestors {ancestors}"
    )
    headers = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "cache-control": "no-store",
    }
    return [(name.encode(), value.encode()) for name, value in headers.items()]


@lru_cache(maxsize=1024)
def is_loopback(address: str) -> bool:
    """Whether an address is of the same machine; so is that of a test client or a UNIX socket."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address in ("", "localhost", "testclient")


def path_of(scope: Scope) -> str:
    """The path of a request below the place where the app is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _is_public(path: str) -> bool:
    """Whether a path shows nothing of the model: the page asks for the token itself."""
    return path in PUBLIC or not path.startswith(("/api/", "/metrics"))


def _check_origin(scope: Scope, headers: dict[bytes, bytes]) -> None:
    """Raise for a request that a page of another site made a browser send."""
    if scope["method"] in ("GET", "HEAD") and not path_of(scope).startswith("/api/"):
        return  # a link to the page
    site = headers.get(b"sec-fetch-site", b"none")
    origin = headers.get(b"origin")
    is_own = origin is None or origin.partition(b"://")[2] == headers.get(b"host", b"")
    if not is_own or site not in SAME_SITE:
        raise Refusal(403, "OriginError", "Pages of other sites may not ask this server.")


def _content(message: Message, limit: int) -> bytes:
    if message["type"] == "http.disconnect":
        raise Refusal(400, "ConnectionError", "The connection was closed.")
    body: bytes = message.get("body", b"")
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _too_large(limit: int) -> Refusal:
    return Refusal(413, "TooLargeError", f"A request like this may have at most {limit:,} bytes.")


def _busy() -> Refusal:
    return Refusal(
        503,
        "BusyError",
        "The server is receiving too much at once. Ask again later.",
        [(b"retry-after", b"1")],
    )


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the body that was read already."""
    is_read = False

    async def replay() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _send_refusal(refusal: Refusal, send: Send) -> None:
    body = error_body(refusal.type, str(refusal))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *refusal.headers,
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
