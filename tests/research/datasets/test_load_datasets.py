"""Finding, checking and listing data sets."""

from __future__ import annotations

import gzip
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnknn._cache import cache_folder
from attnknn.errors import InvalidInputError, InvalidSettingError, MissingDataError
from attnknn.research import datasets
from attnknn.research.datasets.files import data_folders

WINE = "\n".join(f"{i},0,0,0,0,0,0,0,0,0,0,{4 + i % 4}" for i in range(40))


def test_the_bundled_data_need_no_file(folder):
    assert datasets.available() == ["iris", "wine", "breast-cancer", "digits"]


def test_every_name_is_listed_with_its_size_source_and_license(folder):
    rows = list(datasets.catalog())
    assert [row.name for row in rows] == datasets.names()
    assert len(rows) == 43
    assert all(row.n_rows > 100 and row.n_classes > 1 and row.license for row in rows)
    assert {row.found for row in rows} == {"scikit-learn", None}


def test_the_list_says_what_is_missing_and_where_it_belongs(put_text, folder):
    put_text("wine-red", WINE)
    rows = {row.name: row for row in datasets.catalog()}
    for name in ("iris", "wine-red"):
        assert (rows[name].missing, rows[name].put_into) == ((), None)
    adult = rows["adult"]
    assert adult.missing == (("tabular/adult-train.csv.gz",), ("tabular/adult-test.csv.gz",))
    assert adult.put_into == str(cache_folder())
    (images,) = rows["cifar100"].missing
    assert images[0] == "cifar100.npz"
    assert {"cifar-100-python.tar.gz", "cifar-100-binary"} <= set(images)


def test_one_file_of_two_is_not_enough(put_text, folder):
    put_text("adult", "", "")
    (folder / "tabular" / "adult-test.csv.gz").unlink()
    row = next(row for row in datasets.catalog() if row.name == "adult")
    assert row.missing == (("tabular/adult-test.csv.gz",),)
    assert row.found is None


@pytest.mark.parametrize("name", datasets.names())
def test_what_is_put_where_the_list_says_is_found(name, folder):
    """Each stand-in by itself, and nothing else."""
    row = next(row for row in datasets.catalog() if row.name == name)
    for number in range(max(map(len, row.missing), default=0)):
        paths = [Path(row.put_into, files[min(number, len(files) - 1)]) for files in row.missing]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        assert name in datasets.available()
        for path in paths:
            path.unlink()
        assert name not in datasets.available()


def test_a_missing_file_says_where_it_comes_from_and_where_to_put_it(folder):
    with pytest.raises(MissingDataError) as caught:
        datasets.load("letter")
    message = str(caught.value)
    assert "tabular/letter.tsv.gz" in message
    assert "github.com/EpistasisLab/pmlb" in message
    assert str(folder) in message
    assert str(cache_folder()) in message
    assert "ATTNKNN_DATA" in message


def test_a_wrong_checksum_names_the_file(put_text, folder):
    put_text("wine-red", WINE)
    path = folder / "tabular" / "winequality-red.csv.gz"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(InvalidInputError, match=r"winequality-red\.csv\.gz must have the sha256"):
        datasets.load("wine-red")


def test_files_that_are_packed_again_are_the_same(put_text, folder, monkeypatch):
    put_text("wine-red", WINE)
    path = folder / "tabular" / "winequality-red.csv.gz"
    before = datasets.load("wine-red")
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content, mtime=7))
    source = datasets.SOURCES["wine-red"]
    file = replace(source.files[0], unpacked_sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(datasets.SOURCES, "wine-red", replace(source, files=(file,)))
    assert datasets.load("wine-red").checksum == before.checksum
    path.write_bytes(gzip.compress(content + b"more", mtime=7))
    with pytest.raises(InvalidInputError, match="must have the sha256"):
        datasets.load("wine-red")


@pytest.mark.parametrize("name", ["iris", "wine", "breast-cancer", "digits"])
def test_bundled_rows_are_those_of_the_stored_checksum(name, monkeypatch):
    assert datasets.load(name).checksum == datasets.BUNDLED[name]
    monkeypatch.setitem(datasets.BUNDLED, name, "0" * 64)
    with pytest.raises(InvalidInputError, match=f"rows of '{name}' .* must have the sha256 0000"):
        datasets.load(name)


def test_another_split_of_bundled_rows_has_another_checksum():
    iris = datasets.load("iris")
    swapped = datasets.Rows(iris.X_test, iris.y_test, iris.X_train, iris.y_train, iris.classes)
    assert datasets._content_checksum(swapped) != iris.checksum


def test_wrong_pixels_or_labels_name_the_file_and_the_array(put_arrays):
    images = np.zeros((20, 2, 2), dtype=np.uint8)
    labels = (np.arange(20) % 10).astype(np.uint8)
    path = put_arrays("mnist", x_train=images, y_train=labels, x_test=images, y_test=labels)
    np.savez(path, x_train=images, y_train=labels[::-1], x_test=images, y_test=labels)
    with pytest.raises(InvalidInputError, match=r"mnist\.npz \(y_train\) must have the sha256"):
        datasets.load("mnist")
    np.savez(path, x_train=images)
    with pytest.raises(InvalidInputError, match="must hold the array 'y_train'"):
        datasets.load("mnist")


def test_several_folders_are_searched_in_order_also_without_subfolders(
    put_text, folder, tmp_path, monkeypatch
):
    put_text("wine-red", WINE)
    flat = tmp_path / "flat"
    flat.mkdir()
    (folder / "tabular" / "winequality-red.csv.gz").rename(flat / "winequality-red.csv.gz")
    assert "wine-red" not in datasets.available()
    monkeypatch.setenv("ATTNKNN_DATA", os.pathsep.join([str(folder), str(flat)]))
    assert "wine-red" in datasets.available()
    assert len(datasets.load("wine-red").y_train) == 32


def test_the_users_cache_is_searched_last(folder):
    folders = data_folders()
    assert folders[0] == folder
    assert cache_folder() in folders[1:]


def test_an_unknown_name_gets_a_guess():
    with pytest.raises(InvalidSettingError, match="Did you mean 'letter'"):
        datasets.load("leter")


def test_loading_twice_gives_the_same(put_text):
    put_text("wine-white", WINE)
    first, second = datasets.load("wine-white"), datasets.load("wine-white")
    assert first.X_train.equals(second.X_train)
    assert first.checksum == second.checksum
    assert (first.y_test == second.y_test).all()
