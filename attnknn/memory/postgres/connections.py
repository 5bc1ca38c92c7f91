"""Addresses of PostgreSQL databases, pooled connections, and which errors may be tried again."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import numpy as np

from attnknn._optional import require
from attnknn.errors import InvalidSettingError, MemoryServerError
from attnknn.memory.postgres.statements import MIGRATIONS, Statements

SECRETS = ("password", "sslpassword", "passfile", "sslkey", "oauth_client_secret")
TRIES = 4  # beside one for each connection of the pool
PAUSE = 0.1  # seconds before the second try, twice as long before each further one
OLDEST_SERVER, OLDEST_PGVECTOR = 150_000, (0, 8)
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Address:
    """Where a collection is: the settings of the connection, the schema and the model's name.

    >>> address = Address.parse("postgres://ann:secret@db.example/data?model=churn&sslmode=require")
    >>> address.model, address.settings["sslmode"], str(address)
    ('churn', 'require', 'postgres://ann@db.example/data?model=churn')
    """

    settings: dict[str, str]
    model: str
    schema: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address; errors do not repeat it, because it may hold a password."""
        form = "postgres://user@host:port/database?model=NAME"
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise InvalidSettingError(f"`memory` must be an address such as {form}.") from None
        if parts.scheme not in ("postgres", "postgresql"):
            raise InvalidSettingError(f"`memory` must be an address such as {form}.")
        options = dict(parse_qsl(parts.query))
        model, schema = options.pop("model", ""), options.pop("schema", "attnknn")
        given = {
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "host": unquote(parts.hostname or ""),
            "port": "" if port is None else str(port),
            "dbname": unquote(parts.path.lstrip("/")),
        }
        settings = {name: value for name, value in given.items() if value} | options
        return cls(settings, model, schema)

    def __str__(self) -> str:
        """The address without passwords, for messages."""
        known = self.settings
        user = f"{quote(known['user'])}@" if "user" in known else ""
        port = f":{known['port']}" if "port" in known else ""
        host = known.get("host", "")
        host = quote(host, safe="") if "/" in host else host
        name = f"?model={quote(self.model)}" if self.model else ""
        return f"postgres://{user}{host}{port}/{quote(known.get('dbname', ''))}{name}"

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def without_secrets(self, text: str) -> str:
        """A message of the server or of the driver, with passwords replaced."""
        for name in SECRETS:
            secret = self.settings.get(name)
            if secret:
                text = text.replace(secret, "***").replace(quote(secret, safe=""), "***")
        return " ".join(text.split())


class Connections:
    """Pooled connections to one database, ready for vectors; each process opens its own.

    Parameters
    ----------
    address : Address
    timeout : float
        Seconds for a connection, a statement, and waiting for another writer.
    size : int
        Largest number of connections.
    """

    def __init__(self, address: Address, timeout: float, size: int) -> None:
        self.address, self.timeout, self.size = address, timeout, size
        self.psycopg = require("psycopg", extra="postgres", needed_by="`memory='postgres://…'`")
        self._pool: Any = None
        self._owner = 0
        self._lock = threading.Lock()

    def __getstate__(self) -> tuple[Address, float, int]:
        return self.address, self.timeout, self.size

    def __setstate__(self, state: tuple[Address, float, int]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def statements(self, collection: int = 0) -> Statements:
        """The statements of a collection."""
        from psycopg import sql

        return Statements(sql, self.address.schema, collection)

    def read(self, work: Callable[[Any], _Value]) -> _Value:
        """Call `work(connection)`, again after a lost connection: reading twice does no harm."""
        for attempt in range(self.n_tries):
            try:
                with self.connection() as connection:
                    return work(connection)
            except MemoryServerError as error:
                if not error.is_lost or attempt == self.n_tries - 1:
                    raise
                self.pause(attempt)
        raise AssertionError("the last attempt returns or raises")

    @property
    def n_tries(self) -> int:
        """How often to try: after a restart of the server all pooled connections are lost."""
        return self.size + TRIES

    def pause(self, attempt: int) -> None:
        """Wait before the next try; the first ones only use up lost connections."""
        time.sleep(PAUSE * 2 ** max(0, attempt - self.size))

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """A connection in which every statement is a transaction, with errors as ours."""
        errors = self.psycopg.Error
        try:
            with self._open_pool().connection(timeout=self.timeout) as connection:
                yield connection
        except errors as error:
            raise self.translated(error) from None

    def translated(self, error: Any) -> MemoryServerError:
        """An error of the driver as ours, without secrets."""
        text = self.address.without_secrets(str(error)).rstrip(".")
        is_lost = isinstance(error, self.psycopg.OperationalError) and not isinstance(
            error, self.psycopg.errors.QueryCanceled | self.psycopg.errors.LockNotAvailable
        )
        if isinstance(error, self.psycopg.errors.UndefinedTable):
            text = "the collection is gone; it was replaced by another fit, or dropped"
        return MemoryServerError(f"The database {self.address} answers: {text}.", is_lost=is_lost)

    def prepare_schema(self) -> None:
        """Create the tables, or bring those of an older version of AttnKNN up to date."""
        with self.connection() as connection, connection.transaction():
            made = self.statements()
            schema = self.address.schema
            connection.execute(made.lock_schema(), (schema,))
            if not connection.execute(made.has_schema(), (schema,)).fetchone()[0]:
                connection.execute(made.create_schema())
            version = connection.execute(made.version_of_schema()).fetchone()[0]
            if version > len(MIGRATIONS):
                raise MemoryServerError(
                    f"The tables of {self.address} are of a newer version of AttnKNN. Update it."
                )
            for number in range(version + 1, len(MIGRATIONS) + 1):
                connection.execute(made.migration(number))
                connection.execute(made.note_migration(), (number,))

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None and self._owner == os.getpid():
            _close(pool)

    def _open_pool(self) -> Any:
        with self._lock:
            if self._pool is None or self._owner != os.getpid():  # a fork must not share sockets
                pools = require(
                    "psycopg_pool", extra="postgres", needed_by="`memory='postgres://…'`"
                )
                self._first_connection()
                # What the pool would log is raised here, at the next use of a connection.
                logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
                self._pool = pools.ConnectionPool(
                    "",
                    kwargs={**self._settings(), "autocommit": True},
                    min_size=0,
                    max_size=self.size,
                    open=True,
                    configure=_configure,
                    timeout=self.timeout,
                    reconnect_timeout=self.timeout,
                    num_workers=1,
                )
                self._owner = os.getpid()
                weakref.finalize(self, _close, self._pool)
            return self._pool

    def _settings(self) -> dict[str, Any]:
        wait = max(1, int(self.timeout))
        milliseconds = max(1, int(1000 * self.timeout))
        given = self.address.settings.get("options", "")
        options = (
            f"{given} -c jit=off -c statement_timeout={milliseconds} -c lock_timeout={milliseconds}"
            f" -c idle_in_transaction_session_timeout={10 * milliseconds}"
        ).strip()
        defaults = {"connect_timeout": wait, "application_name": "attnknn", "keepalives_idle": 30}
        return {**defaults, **self.address.settings, "options": options}

    def _first_connection(self) -> None:
        """Connect once without the pool, whose errors would only be logged; check the versions."""
        try:
            with self.psycopg.connect(**self._settings(), autocommit=True) as connection:
                server = connection.info.server_version
                if server < OLDEST_SERVER:
                    raise MemoryServerError(
                        f"PostgreSQL 15 or newer is needed, {self.address} is {server // 10_000}."
                    )
                self._check_pgvector(connection)
        except self.psycopg.Error as error:
            raise self.translated(error) from None

    def _check_pgvector(self, connection: Any) -> None:
        asked = "select extversion from pg_extension where extname = 'vector'"
        found = connection.execute(asked).fetchone()
        if found is None:
            try:
                connection.execute("create extension if not exists vector")
            except self.psycopg.Error as error:
                text = self.address.without_secrets(str(error)).rstrip(".")
                raise MemoryServerError(
                    f"The database {self.address} has no extension `vector`, and it cannot be "
                    f"created ({text}). Ask an administrator to run `create extension vector`."
                ) from None
            found = connection.execute(asked).fetchone()
        version = tuple(int(part) for part in found[0].split(".")[:2])
        if version < OLDEST_PGVECTOR:
            raise MemoryServerError(f"pgvector 0.8 or newer is needed, got {found[0]}.")


def _close(pool: Any) -> None:
    with suppress(Exception):  # the process may be ending
        pool.close(timeout=1.0)


def _configure(connection: Any) -> None:
    """Vectors go over the wire in binary: as arrays to the server, as bytes from it."""
    from psycopg.adapt import Dumper, Loader
    from psycopg.pq import Format
    from psycopg.types import TypeInfo

    info = TypeInfo.fetch(connection, "vector")
    info.register(connection)

    class VectorLoader(Loader):
        format = Format.BINARY

        def load(self, data: Any) -> bytes:
            return bytes(data)[4:]

    class VectorDumper(Dumper):
        format = Format.BINARY
        oid = info.oid

        def dump(self, obj: Any) -> bytes:
            return len(obj).to_bytes(2, "big") + b"\0\0" + obj.astype(">f4").tobytes()

    connection.adapters.register_loader(info.oid, VectorLoader)
    connection.adapters.register_dumper(np.ndarray, VectorDumper)


def as_vectors(found: list[bytes], width: int) -> Any:
    """Vectors (n, width) as the server sends them, as float32."""
    return np.frombuffer(b"".join(found), ">f4").reshape(-1, width).astype(np.float32)
