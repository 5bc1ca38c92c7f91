"""User text is text, tokens stay in the tab, and readers cannot edit."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from attnknn import AttnKNNClassifier

from .desk import serve

pytestmark = pytest.mark.slow

HOSTILE = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror=window.hacked=1>",
    '"><svg onload=window.hacked=1>',
    "' autofocus onfocus='window.hacked=1",
    "javascript:window.hacked=1",
    "</title></style></textarea><iframe srcdoc='<script>parent.hacked=1</script>'>",
    "{@html '<b>bold</b>'}${window.hacked=1}{{constructor.constructor('hacked=1')()}}",
    '=HYPERLINK("http://elsewhere.example","open")',
    "\u202egnp.exe\u2066",
    "constructor",
    "__proto__",
    "&lt;b&gt;&amp;",
]
FILE = "<img src=x onerror=window.hacked=1>.csv"
TRACES = """() => [
    window.hacked,
    document.querySelectorAll("script").length,
    document.querySelectorAll("iframe, object, embed, img[src=x], b").length,
    ({}).polluted,
]"""


@pytest.fixture
def hostile_server(tmp_path):
    generator = np.random.default_rng(0)
    labels = np.array([HOSTILE[i % len(HOSTILE)] for i in range(96)], dtype=object)
    columns = {HOSTILE[i]: generator.normal(size=96) for i in range(3)}
    columns[HOSTILE[3]] = np.where(np.arange(96) % 2, HOSTILE[0], HOSTILE[1])
    table = pd.DataFrame(columns)
    payloads = [
        HOSTILE[i % len(HOSTILE)] if i % 2 else {HOSTILE[i % 12]: HOSTILE[1]} for i in range(96)
    ]
    ids = np.array([f"{HOSTILE[i % len(HOSTILE)]} {i}" for i in range(96)], dtype=object)
    clf = AttnKNNClassifier(attention="distance", random_state=0)
    clf.fit(table, labels, ids=ids, payloads=payloads)
    clf.save(tmp_path / "model")
    table.assign(label=labels).to_csv(tmp_path / FILE, index=False)
    with serve(tmp_path / "model", "--by", HOSTILE[1]) as server:
        yield server


def test_hostile_text_executes_nothing_on_any_screen(hostile_server, open_page, tmp_path):
    page = open_page(hostile_server.url)
    page.get_by_role("button", name="Typical values").click()
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_role("region", name="Answer").wait_for()
    page.get_by_label("Upload a file").first.set_input_files(tmp_path / FILE)
    page.get_by_role("region", name="Rows of a file").locator("button.line").first.click()
    page.get_by_role("button", name=re.compile("^Relabel entry")).first.click()
    page.get_by_role("combobox", name="Class").fill(HOSTILE[1] + "!")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Apply", exact=True).click()
    page.get_by_role("button", name="Undo", exact=True).wait_for()
    for screen in ["fix", "errors", "map", "history", "next"]:
        page.goto(f"{hostile_server.url}#/{screen}")
        page.locator("h1:visible").wait_for()
        page.wait_for_load_state("networkidle")
        if screen == "errors":
            page.locator("input[maxlength='200']:visible").fill("label")
            page.locator(".screen:not([hidden]) input[type=file]").set_input_files(tmp_path / FILE)
            page.get_by_role("heading", name="Confusion matrix").wait_for()
        if screen == "next":
            page.locator("select[aria-label='Uploaded files']:visible").select_option(index=1)
            page.wait_for_load_state("networkidle")
        if screen == "history":
            page.get_by_role("region", name="Log").locator("button.text").first.click()
            page.get_by_role("region", name=re.compile("Changes of edit")).wait_for()
        assert page.evaluate(TRACES) == [None, 1, 0, None]
    text = page.locator("body").inner_text()
    assert HOSTILE[1] in text  # shown as it is


def test_labels_and_names_are_shown_as_they_are(hostile_server, open_page):
    page = open_page(f"{hostile_server.url}#/fix")
    page.get_by_role("region", name="Entry").wait_for()
    first = hostile_server.get("audit?limit=1")["entries"][0]
    assert first["label"] in page.get_by_role("region", name="Entry").inner_text()
    assert f"#{first['id']}" in page.get_by_role("region", name="Entry").inner_text()
    page.keyboard.press("f")
    page.get_by_label("Progress").get_by_text("all stored").wait_for()
    assert hostile_server.get("version")["n_entries"] == 95


@pytest.fixture
def guarded(model, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(
        "reader rita reader-0123456789abcdef0123\neditor eve editor-0123456789abcdef0123\n"
    )
    tokens.chmod(0o600)
    with serve(model, "--token-file", tokens) as server:
        yield server


def enter(page, token):
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Open").click()


def test_a_token_is_asked_for_and_decides_what_may_be_done(guarded, open_page):
    page = open_page(guarded.url)
    page.get_by_role("heading", name="This server asks for a token").wait_for()
    enter(page, "wrong-0123456789abcdef0123")
    page.get_by_role("alert").wait_for()
    enter(page, "reader-0123456789abcdef0123")
    page.get_by_text("Your role: reader").wait_for()
    page.refusals = len([text for text in page.complaints if "401" in text])
    assert page.get_by_text("Edits need the role editor.").is_visible()
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.get_by_role("region", name="Entry").wait_for()
    assert page.get_by_role("button", name="Accept").is_disabled()
    page.keyboard.press("a")
    page.get_by_role("status").get_by_text("Edits need the role editor.").wait_for()

    token = "reader-0123456789abcdef0123"
    assert all(token not in url for url in page.asked_for)
    assert page.evaluate("() => document.cookie + JSON.stringify(localStorage)").count(token) == 0
    assert guarded.get("version", token)["version"] == 0


def test_an_editor_edits_under_the_name_of_the_token(guarded, open_page):
    page = open_page(guarded.url)
    enter(page, "editor-0123456789abcdef0123")
    page.get_by_text("Your role: editor").wait_for()
    page.refusals = len([text for text in page.complaints if "401" in text])
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.get_by_role("region", name="Entry").wait_for()
    page.keyboard.press("a")
    page.get_by_label("Progress").get_by_text("all stored").wait_for()
    log = guarded.get("log", "editor-0123456789abcdef0123")["edits"]
    assert log[0]["by"] == "eve"


def test_a_server_that_stops_is_noticed(model, open_page):
    with serve(model) as server:
        page = open_page(server.url)
        page.get_by_role("heading", name="Ask", exact=True).wait_for()
    page.get_by_text("The server does not answer. Edits that were confirmed are stored").wait_for()
    page.get_by_label("Text").fill("anything")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_text("Is `attnknn serve` still running?").wait_for()
    page.refusals = len(page.complaints)
    page.context.close()
