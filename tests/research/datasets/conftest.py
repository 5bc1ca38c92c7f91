"""Tiny stand-ins for the data files, with checksums to match."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace

import numpy as np
import pytest

from attnknn.research import datasets
from attnknn.research.datasets.files import array_checksum


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder, and no other one to be found."""
    monkeypatch.setenv("ATTNKNN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    return tmp_path / "data"


@pytest.fixture
def put_text(folder, monkeypatch):
    """`put_text(name, *texts)` writes the gzipped files of a data set."""

    def put(name, *texts):
        source = datasets.SOURCES[name]
        files = []
        for file, text in zip(source.files, texts, strict=True):
            content = gzip.compress(text.encode())
            (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
            (folder / file.path).write_bytes(content)
            files.append(replace(file, sha256=hashlib.sha256(content).hexdigest()))
        monkeypatch.setitem(datasets.SOURCES, name, replace(source, files=tuple(files)))

    return put


@pytest.fixture
def put_arrays(folder, monkeypatch):
    """`put_arrays(name, **arrays)` writes the npz file of a data set."""

    def put(name, **arrays):
        source = datasets.SOURCES[name]
        path = folder / source.files[0].path
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **arrays)
        file = source.files[0]
        if file.sha256 is not None:
            file = replace(file, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
        sums = {key: array_checksum(array) for key, array in arrays.items()}
        file = replace(file, arrays=sums if file.arrays else {})
        monkeypatch.setitem(datasets.SOURCES, name, replace(source, files=(file,)))
        return path

    return put
