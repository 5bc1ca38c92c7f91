"""A folder is searched for many needles at once, as a plain search would."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnknn.storage import byte_search
from attnknn.storage.byte_search import needles_in, search_folder


@pytest.mark.parametrize("n_needles", [1, 500])
def test_many_needles_are_found_as_few_are(tmp_path: Path, n_needles: int) -> None:
    needles = [b"needle %4d" % n for n in range(n_needles)]
    (tmp_path / "with").write_bytes(b"hay" * 9 + needles[-1] + b"hay")
    (tmp_path / "without").write_bytes(b"hay, needle 9999")
    (tmp_path / "empty").touch()
    found = search_folder(tmp_path, needles)
    assert (found.searched, found.found) == (["empty", "with", "without"], ["with"])
    assert search_folder(tmp_path, []).found == []


@given(
    st.lists(st.sampled_from([b"abcdefg", b"\0\0\0\0", b"xyz", b"q"]), max_size=30),
    st.lists(st.integers(8, 40), min_size=1, max_size=4),
    st.integers(0, 60),
)
def test_needles_are_found_where_a_plain_search_finds_them(
    blocks: list[bytes], lengths: list[int], start: int
) -> None:
    content = b"".join(blocks)
    taken = {content[start : start + n] for n in lengths}
    needles = {each for each in taken if len(each) >= 8} | {b"not there", b"abcdefgq" * 3}
    assert needles_in(content, needles) == {each for each in needles if each in content}


@pytest.mark.parametrize("size", ["CHUNK_BYTES", "READ_BYTES"])
def test_a_needle_between_two_chunks_is_found(
    tmp_path: Path, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_search, size, 16)
    (tmp_path / "file").write_bytes(b"." * 13 + b"a long needle in the hay" + b"." * 13)
    for needle in (b"a long needle", b"a long needle in the hay", b"in the hay.."):
        assert byte_search._holds(tmp_path / "file", {needle})
    assert not byte_search._holds(tmp_path / "file", {b"a short needle"})


@pytest.mark.parametrize("length", [8, 15, 16, 23, 24, 31, 32, 33, 500])
def test_needles_of_every_length_are_found(length: int) -> None:
    needle = bytes(range(1, 251))[:length].ljust(length, b"x")
    for at in range(9):
        content = b"-" * at + needle + b"-" * 7
        assert needles_in(content, [needle, b"y" * length]) == {needle}
        assert needles_in(content[:-8], [needle]) == set()
