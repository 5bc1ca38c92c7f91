"""`attnknn serve`: answer questions and make edits over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli import options as shared
from attnknn.cli.commands import command, option, section
from attnknn.cli.options import FILE, POSITIVE
from attnknn.cli.output import echo

if TYPE_CHECKING:
    from attnknn.serving.access import Tokens

PORT = 8000
MEGABYTES = click.IntRange(1, 100_000)


@command()
@shared.model_argument
@section(
    "Where",
    option("--host", default="127.0.0.1", help="Address to listen on."),
    option("--port", type=click.IntRange(0, 65535), default=PORT, help="Port; 0 takes a free one."),
    option(
        "--allowed-host",
        multiple=True,
        help="Name by which browsers reach the server, such as models.example.com; repeatable.",
    ),
    option("--verbose", is_flag=True, help="Log every request, and not only edits and failures."),
    option("--open", "opens", is_flag=True, help="Open the page in the browser."),
)
@section(
    "Who",
    option(
        "--token-file",
        type=FILE,
        help="File of tokens, one per line as ROLE NAME TOKEN, with the roles reader, editor and "
        "admin. A missing file is created with a random token for each role. Required unless "
        "only this machine is answered.",
    ),
    option("--read-only", is_flag=True, help="Refuse all edits."),
    shared.by_option,
)
@section(
    "Limits",
    option(
        "--rate",
        type=POSITIVE,
        help="Requests per second and client.  [default: 100 with tokens, else no limit]",
    ),
    option("--max-upload", type=MEGABYTES, default=64, help="Size of an uploaded file in MB."),
    option(
        "--images",
        type=FILE,
        multiple=True,
        help="Folder of images that may be shown, where payloads are file names; repeatable.",
    ),
)
def serve(
    model: Path,
    host: str,
    port: int,
    allowed_host: tuple[str, ...],
    verbose: bool,
    opens: bool,
    token_file: Path | None,
    read_only: bool,
    by: str | None,
    rate: float | None,
    max_upload: int,
    images: tuple[Path, ...],
) -> None:
    """Serve a model over HTTP, with a page for the browser.

    The page asks the model, shows the evidence of each answer, finds wrong labels, and edits the
    model; every edit is on the disk before it is acknowledged, and can be undone. Programs use the
    routes below /api, which /docs describes. Log lines (JSON) go to standard error. Ctrl-C and
    SIGTERM let running requests finish. Needs the extra `serve`.
    """
    check_installed("`attnknn serve`")
    settings: dict[str, Any] = {
        "tokens": None if token_file is None else _tokens(token_file),
        "hosts": allowed_host,
        "is_read_only": read_only,
        "by": by,
        "rate": rate,
        "max_upload": max_upload * 1_000_000,
        "image_folders": images,
    }
    run(model, host, port, is_verbose=verbose, opens=opens, **settings)


def check_installed(needed_by: str) -> None:
    """Raise an error that names the extra, unless the packages of the server are installed."""
    from attnknn._optional import require

    for package in ("fastapi", "uvicorn"):
        require(package, extra="serve", needed_by=needed_by)


def run(
    model: Path,
    host: str = "127.0.0.1",
    port: int = PORT,
    *,
    is_verbose: bool = False,
    opens: bool = False,
    **settings: Any,
) -> None:
    """Serve a model until Ctrl-C or SIGTERM."""
    from attnknn.serving.log import log_to
    from attnknn.serving.server import Server

    log_to(is_verbose=is_verbose)
    server = Server(model, host, port, **settings)
    server.run(lambda: _announce(server.url, model, opens))


def _tokens(path: Path) -> Tokens:
    """The tokens of a file, which is created if it is missing."""
    from attnknn.serving.access import Tokens, create_token_file

    if not path.exists():
        create_token_file(path)
        echo(f"Created {path} with a token for each role. Keep it secret.")
    return Tokens.read(path)


def _announce(url: str, model: Path, opens: bool) -> None:
    echo(f"Serving {model} at {url} (Ctrl-C to stop)")
    if opens:
        click.launch(url)
