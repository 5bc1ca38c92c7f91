"""The cache of text embeddings: hits, erasure to the last byte, crashes, two writers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from attnknn.encoders import TextEncoder, clear_text_cache, forget_texts, text_cache_file
from attnknn.encoders.text_cache import TextCache, text_key
from attnknn.errors import CacheError

MODEL, OTHER = "1" * 64, "2" * 64


def fill(n, model=MODEL):
    texts = [f"text number {i}" for i in range(n)]
    vectors = np.random.default_rng(n).normal(size=(n, 24)).astype(np.float32)
    cache = TextCache(model)
    for start in range(0, n, 100):
        cache.store(texts[start : start + 100], vectors[start : start + 100])
    return texts, vectors


def bytes_on_disk():
    return b"".join(p.read_bytes() for p in text_cache_file().parent.rglob("*") if p.is_file())


def test_what_is_kept_is_found_to_the_last_bit():
    texts, vectors = fill(250)
    found = TextCache(MODEL).find([*texts, "unknown"])
    assert list(found) == texts
    assert np.array_equal(np.stack(list(found.values())), vectors)
    assert TextCache(OTHER).find(texts) == {}


def test_looking_into_no_cache_makes_none():
    assert TextCache(MODEL).find(["a"]) == {}
    assert forget_texts(["a"]) == clear_text_cache() == 0
    assert not text_cache_file().exists()


@pytest.mark.parametrize("n", [3, 2000])
def test_a_forgotten_text_leaves_no_byte(n):
    texts, vectors = fill(n)
    fill(n, OTHER)
    gone = [0, n // 2, n - 1]
    traces = [text_key(texts[i])[:12] for i in gone] + [vectors[i].tobytes()[:12] for i in gone]
    assert all(trace in bytes_on_disk() for trace in traces)
    assert forget_texts([texts[i] for i in gone]) == 2 * len(gone)  # of both models
    assert not any(trace in bytes_on_disk() for trace in traces)
    kept = [text for i, text in enumerate(texts) if i not in gone]
    assert list(TextCache(MODEL).find(texts)) == kept
    assert os.listdir(text_cache_file().parent) == [text_cache_file().name]


def test_clearing_leaves_nothing_and_the_cache_works_on():
    texts, vectors = fill(500)
    assert clear_text_cache() == 500
    assert text_cache_file().stat().st_size < 20_000
    assert not any(text_key(text)[:12] in bytes_on_disk() for text in texts)
    TextCache(MODEL).store(["new"], vectors[:1])
    assert list(TextCache(MODEL).find(["new"])) == ["new"]


def test_texts_themselves_are_never_written():
    fill(10)
    assert b"text number" not in bytes_on_disk()


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_its_user_can_read_the_cache():
    fill(1)
    assert text_cache_file().stat().st_mode & 0o077 == 0


def test_a_damaged_cache_says_what_to_do(plain_folder, counter):
    text_cache_file().parent.mkdir(parents=True)
    text_cache_file().write_bytes(b"this is no database" * 100)
    for use in (lambda: forget_texts(["a"]), clear_text_cache):
        with pytest.raises(CacheError, match=r"cannot be used.*delete it; or use `cache=False`"):
            use()
    with pytest.raises(CacheError):
        TextEncoder(plain_folder, cache=True).fit(["a"])


def test_a_cache_folder_that_cannot_be_made_says_so(cache_home):
    cache_home.write_text("a file where the folder should be")
    with pytest.raises(CacheError, match="cannot be used"):
        fill(1)


WRITER = """
import sys
import numpy as np
from attnknn.encoders.text_cache import TextCache
cache = TextCache("1" * 64)
for i in range(int(sys.argv[1]), int(sys.argv[2])):
    cache.store([f"text {i}"], np.full((1, 4), i, dtype=np.float32))
    print(i, flush=True)
"""


def start_writer(first, last):
    command = [sys.executable, "-c", WRITER, str(first), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_processes_write_and_erase_at_once():
    writers = [start_writer(0, 80), start_writer(40, 120)]
    for writer in writers:
        writer.stdout.readline()
    erased = forget_texts(["text 0"])
    assert [writer.communicate(timeout=120) and writer.returncode for writer in writers] == [0, 0]
    found = TextCache(MODEL).find([f"text {i}" for i in range(120)])
    assert len(found) == 120 - erased
    assert all(vector.tolist() == [float(text[5:])] * 4 for text, vector in found.items())


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_writer_leaves_whole_rows():
    writer = start_writer(0, 1_000_000)
    for _ in range(20):
        writer.stdout.readline()
    deadline = time.monotonic() + 60
    while not (text_cache_file().parent / f"{text_cache_file().name}-journal").exists():
        assert time.monotonic() < deadline  # it appears at every write
    os.kill(writer.pid, signal.SIGKILL)
    writer.communicate()
    found = TextCache(MODEL).find([f"text {i}" for i in range(20)])
    assert len(found) == 20
    assert forget_texts(["text 3"]) == 1
