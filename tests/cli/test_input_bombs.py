"""Small files that declare large contents, and files that never end."""

from __future__ import annotations

import gzip
import io
import os
import socket
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnknn.cli.rows import open_rows
from attnknn.cli.rows.memory_bound import parse_size

from .samples import QUICK, animals, refused, run, write

TOO_LARGE = "available. Give a smaller file, or allow more with --max-memory."


def npz_bomb(path: Path, shape: tuple[int, ...], order: bool = False) -> Path:
    """An NPZ file whose array `X` is declared with `shape`, and has few bytes."""
    header = io.BytesIO()
    about = {"descr": "<f4", "fortran_order": order, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    labels = io.BytesIO()
    np.save(labels, np.zeros(shape[0] if shape[0] < 1000 else 1, dtype=np.int8))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", header.getvalue() + bytes(1000))
        archive.writestr("y.npy", labels.getvalue())
    return path


@pytest.mark.parametrize("is_fortran", [False, True])
def test_an_npz_file_is_refused_by_its_declared_size(is_fortran: bool, tmp_path: Path) -> None:
    path = npz_bomb(tmp_path / "bomb.npz", (100, 10**12), is_fortran)
    line = refused("fit", path, "-o", tmp_path / "m")
    assert line.endswith(TOO_LARGE)
    assert "bomb.npz would need" in line


def test_a_row_of_an_npz_file_is_bounded_in_predict_too(tmp_path: Path) -> None:
    source = open_rows(npz_bomb(tmp_path / "bomb.npz", (3, 10**13)))
    with pytest.raises(MemoryError, match="would need"):
        next(source.chunks())


def test_real_data_fit_into_the_bound_that_is_given(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "zeros.npz", X=np.zeros((1000, 1000)), y=np.arange(1000) % 2)
    arguments = ("fit", tmp_path / "zeros.npz", "-o", tmp_path / "m", *QUICK)
    assert refused(*arguments, "--max-memory", "5MB").endswith(TOO_LARGE)
    assert (tmp_path / "zeros.npz").stat().st_size < 50_000
    assert run(*arguments, "--max-memory", "1GB").exit_code == 0


def test_a_long_header_in_an_npz_file_is_not_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 31) + bytes(100))
    line = refused("fit", tmp_path / "bomb.npz", "-o", tmp_path / "m")
    assert "the header of an array is too long" in line


def test_pickled_objects_stay_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", X=np.zeros((2, 2)), y=np.array([{}, []], dtype=object))
    assert "pickled Python objects" in refused("fit", tmp_path / "bad.npz", "-o", tmp_path / "m")


def test_a_parquet_file_is_refused_by_its_metadata(tmp_path: Path) -> None:
    rows = pd.DataFrame({"x": np.zeros(300_000), "kind": np.zeros(300_000, dtype=int)})
    rows.to_parquet(tmp_path / "rows.parquet")
    assert (tmp_path / "rows.parquet").stat().st_size < 20_000
    arguments = ("fit", tmp_path / "rows.parquet", "-t", "kind", "-o", tmp_path / "m")
    assert refused(*arguments, "--max-memory", "3MB").endswith(TOO_LARGE)


def test_a_compressed_table_is_bounded_while_it_is_read(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "rows.csv.gz", "wt") as file:
        file.write("x,kind\n" + "1,a\n" * 100_000)
    assert (tmp_path / "rows.csv.gz").stat().st_size < 5000
    arguments = ("fit", tmp_path / "rows.csv.gz", "-t", "kind", "-o", tmp_path / "m")
    assert refused(*arguments, "--max-memory", "3MB").endswith(TOO_LARGE)


def test_a_line_without_end_is_named(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnknn.cli.rows.text_files.MAX_LINE", 1000)
    (tmp_path / "rows.csv").write_text("weight,legs,home\n" + "1" * 5000 + ",2,a\n")
    line = refused("predict", model, tmp_path / "rows.csv")
    assert "must be shorter than 1,000 characters; line 2 is longer" in line


def test_long_rows_come_in_smaller_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnknn.cli.rows.text_files.CHUNK_CHARACTERS", 50)
    path = write(animals(20), tmp_path / "rows.csv")
    chunks = list(open_rows(path).chunks())
    assert len(chunks) > 5
    assert pd.concat([c.table for c in chunks])["name"].tolist() == animals(20)["name"].tolist()
    assert [chunk.first for chunk in chunks] == np.cumsum([0, *map(len, chunks[:-1])]).tolist()


def test_pipes_devices_and_sockets_are_refused_at_once(model: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        place = os.getcwd()
        os.chdir(tmp_path)  # names of sockets are short
        listener.bind("socket.npz")
        os.chdir(place)
    kinds = {"pipe.csv": "a named pipe", "zero.csv": "a device", "socket.npz": "a socket"}
    for name, kind in kinds.items():
        line = refused("predict", model, tmp_path / name)
        assert f"must be a regular file, but it is {kind}" in line
    settings = ("--settings", tmp_path / "pipe.csv")
    assert "a named pipe" in refused("experiment", "main", "--dataset", "iris", *settings)


def test_a_pipe_among_images_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    code = "import sys; from attnknn.encoders.image.rows import read_picture as read\n"
    code += "read(sys.argv[1], 'pipe.png')"
    command = [sys.executable, "-c", code, str(tmp_path / "pipe.png")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.endswith("Every image must be a regular file, but pipe.png is not.\n")


def test_sizes_are_written_with_units(model: Path, rows: Path) -> None:
    assert parse_size("500MB") == 500_000_000
    assert parse_size("2 GiB") == 2 << 30
    assert parse_size("123") == 123
    assert run("predict", model, rows, "--max-memory", "lots").exit_code == 2
