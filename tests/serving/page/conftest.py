"""A browser, and pages that note what goes wrong in them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .desk import Serving, fit_desk, serve, write_files

ARGUMENTS = (
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-unsafe-swiftshader",
)
FAILED = "Failed to load resource"
HARMLESS = ("GL Driver Message", "GPU stall")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    reason = "needs playwright, of the extra `oracles`"
    playwright = pytest.importorskip("playwright.sync_api", reason=reason)
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("needs the browser `chromium` on the path, as Debian's package brings it")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=[*ARGUMENTS])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the tables of the tutorial, and the model `desk`."""
    pytest.importorskip("fastapi", reason="needs the extra `serve`")
    folder = tmp_path_factory.mktemp("desk")
    write_files(folder)
    fit_desk(folder)
    return folder


@pytest.fixture(scope="session")
def shared_server(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    model = tmp_path_factory.mktemp("served") / "desk"
    with serve(shutil.copytree(files / "desk", model), "--by", "ann") as running:
        yield running


@pytest.fixture
def model(files: Path, tmp_path: Path) -> Path:
    """A copy of the model, for a server of its own."""
    return Path(shutil.copytree(files / "desk", tmp_path / "desk"))


@pytest.fixture
def server(shared_server: Serving) -> Serving:
    """A server of the model as it was fitted, without files."""
    if shared_server.get("version")["version"] > 0:
        shared_server.post("edits/rollback", {"to": 0, "by": "ann"})
    for file in shared_server.get("files")["files"]:
        shared_server.delete(f"files/{file['id']}")
    return shared_server


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """A function that opens a page; at the end none may have complained, or loaded from elsewhere.

    A test that provokes errors of the server says how many in `page.refusals`.
    """
    opened = []

    def open_page(url: str, width: int = 1280, height: int = 900, **options: Any) -> Any:
        page = browser.new_page(viewport={"width": width, "height": height}, **options)
        page.complaints, page.asked_for, page.refusals = [], [], 0
        page.home = "/".join(url.split("/")[:3]) + "/"
        page.on("console", lambda said: _note(page, said.type, said.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: page.asked_for.append(request.url))
        page.on("dialog", lambda dialog: page.complaints.append(f"dialog: {dialog.message}"))
        page.goto(url)
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        assert [
            url for url in page.asked_for if not url.startswith((page.home, "blob:", "data:"))
        ] == []
        for _ in range(page.refusals):  # the browser notes each error that the server answers
            page.complaints.remove(next(one for one in page.complaints if FAILED in one))
    complaints = [text for page in opened for text in page.complaints]
    for page in opened:
        page.context.close()
    assert complaints == []


def _note(page: Any, kind: str, text: str) -> None:
    if kind in ("error", "warning") and not any(part in text for part in HARMLESS):
        page.complaints.append(text)


@pytest.fixture
def page(server: Serving, open_page: Any) -> Any:
    """The page of a server of the model `desk`, opened."""
    page = open_page(server.url)
    page.get_by_role("heading", name="Ask", exact=True).wait_for()
    return page
