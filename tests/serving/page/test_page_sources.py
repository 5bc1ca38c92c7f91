"""The built page belongs to its sources, and loads nothing from elsewhere."""

from __future__ import annotations

import hashlib
import json
import re

from tools.check_site import remote_loads

from .desk import ROOT

SOURCES = ROOT / "explorer"
PAGE = ROOT / "attnknn" / "serving" / "page"


def source_files():
    """As `vite.config.js` lists them: by name within each folder."""
    listed = re.search(r"const SOURCES = (\[.*?\])", (SOURCES / "vite.config.js").read_text())
    assert listed is not None

    def walk(path):
        if path.is_file():
            return [path]
        return [file for one in sorted(path.iterdir(), key=lambda p: p.name) for file in walk(one)]

    return [file for name in json.loads(listed[1]) for file in walk(SOURCES / name)]


def test_the_page_was_built_from_the_sources():
    digest = hashlib.sha256()
    for path in source_files():
        digest.update(f"{path.relative_to(SOURCES).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    built_from = (PAGE / "sources.sha256").read_text().strip()
    assert built_from == digest.hexdigest(), "Run `make explorer` and commit attnknn/serving/page."


def test_the_page_loads_its_own_files_only():
    page = PAGE / "index.html"
    assert remote_loads(page) == []
    named = re.findall(r'(?:src|href)="\./([^"]+)"', page.read_text())
    assert len(named) == 3
    assert all((PAGE / name).is_file() for name in named)
    built = {path.relative_to(PAGE).as_posix() for path in PAGE.rglob("*") if path.is_file()}
    assert built == {*named, "index.html", "sources.sha256"}  # nothing of an earlier build


def test_the_page_needs_no_inline_code_and_no_eval():
    html = (PAGE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|<style|style=|\son\w+=", html)
    script = next(PAGE.glob("assets/*.js")).read_text()
    assert not re.search(r"\beval\(|new Function\(", script)


def test_user_text_is_never_html():
    for path in (SOURCES / "src").rglob("*"):
        if path.is_file():
            assert not re.search(
                r"\{@html|innerHTML|outerHTML|insertAdjacentHTML", path.read_text()
            )


def test_the_lock_file_names_no_registry():
    lock = json.loads((SOURCES / "package-lock.json").read_text())
    assert all("resolved" not in package for package in lock["packages"].values())
