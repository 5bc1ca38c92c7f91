"""Each source reads its files: columns, types, labels, missing values and splits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from attnknn.errors import InvalidInputError
from attnknn.research import datasets
from attnknn.research.datasets.files import array_checksum


@pytest.mark.parametrize(
    ("name", "n_train", "n_test", "n_columns"),
    [("iris", 120, 30, 4), ("wine", 142, 36, 13), ("breast-cancer", 455, 114, 30)],
)
def test_bundled_tables_have_names_and_a_stratified_split(name, n_train, n_test, n_columns):
    dataset = datasets.load(name)
    assert isinstance(dataset.X_train, pd.DataFrame)
    assert dataset.X_train.shape == (n_train, n_columns)
    assert dataset.X_test.shape == (n_test, n_columns)
    assert dataset.feature_names == tuple(dataset.X_test.columns)
    shares = [np.bincount(y) / len(y) for y in (dataset.y_train, dataset.y_test)]
    assert np.abs(shares[0] - shares[1]).max() < 0.03
    assert len(dataset.checksum) == 64


def test_digits_are_vectors():
    dataset = datasets.load("digits")
    assert dataset.kind == "vectors"
    assert dataset.X_train.shape == (1437, 64)
    assert dataset.classes == tuple("0123456789")


def test_letter_has_letters_as_classes(put_text):
    lines = [f"{i}.0\t1.0\t{1 + i % 26}" for i in range(130)]
    put_text("letter", "x-box\ty-box\ttarget\n" + "\n".join(lines))
    dataset = datasets.load("letter")
    assert (
        dataset.classes[dataset.y_train[0]]
        == "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[int(dataset.X_train["x-box"].iloc[0]) % 26]
    )
    assert dataset.feature_names == ("x-box", "y-box")


def test_satimage_has_no_sixth_target(put_text):
    lines = [f"{i}\t{(1, 2, 3, 4, 5, 7)[i % 6]}" for i in range(60)]
    put_text("satimage", "A1\ttarget\n" + "\n".join(lines))
    assert set(datasets.load("satimage").y_train) == set(range(6))
    put_text("satimage", "A1\ttarget\n1\t6\n2\t1")
    with pytest.raises(InvalidInputError, match="got '6'"):
        datasets.load("satimage")


def test_churn_has_categories_and_no_phone_numbers(put_text):
    header = "state\taccount length\tarea code\tphone number\ttarget\n"
    lines = [f"{i % 3}\t{i}.0\t41{i % 2}.0\t{i}\t{i % 2}" for i in range(40)]
    put_text("churn", header + "\n".join(lines))
    table = datasets.load("churn").X_train
    assert list(table.columns) == ["state", "account length", "area code"]
    assert table["state"].dtype == "category"
    assert table["account length"].dtype == np.float64


def test_adult_knows_its_missing_values_and_labels_with_dots(put_text):
    row = (
        "{age}, {work}, 1, 11th, 7, Never-married, ?, Own-child, Black, Male, 0, 0, 40, "
        "{country}, {income}"
    )
    train = [
        row.format(age=20, work="Private", country="Peru", income="<=50K"),
        row.format(age=30, work="?", country="Peru", income=">50K"),
        "",
    ]
    test = [row.format(age=40, work="State-gov ", country="Cuba", income=">50K.")]
    put_text("adult", "\n".join(train), "\n".join(test))
    dataset = datasets.load("adult")
    assert dataset.X_train["workclass"].isna().tolist() == [False, True]
    assert dataset.X_test["workclass"].tolist() == ["State-gov"]
    assert dataset.y_train.tolist() == [0, 1]
    assert dataset.y_test.tolist() == [1]
    assert dataset.X_train["age"].dtype == np.int64
    assert dataset.X_train["native-country"].dtype == dataset.X_test["native-country"].dtype
    assert "income" not in dataset.feature_names
    assert len(dataset.checksum) == 64


def test_a_wine_is_good_from_grade_six(put_text):
    put_text("wine-red", "\n".join(f"{i},0,0,0,0,0,0,0,0,0,0,{5 + i % 2}" for i in range(20)))
    dataset = datasets.load("wine-red")
    assert (dataset.y_train == dataset.X_train["fixed acidity"] % 2).all()
    assert dataset.classes == ("bad", "good")
    assert len(dataset.feature_names) == 11


def test_bank_and_credit_have_categories(put_text):
    put_text(
        "bank",
        "age,job,deposit\n" + "\n".join(f"{i},cook,{'yes' if i % 2 else 'no'}" for i in range(20)),
    )
    bank = datasets.load("bank")
    assert bank.X_train["job"].dtype == "category"
    assert (bank.y_train == bank.X_train["age"] % 2).all()
    put_text("credit", "AGE,SEX,default\n" + "\n".join(f"{i},2,{i % 2}" for i in range(20)))
    credit = datasets.load("credit")
    assert credit.X_train["SEX"].dtype == "category"
    assert credit.X_train["AGE"].dtype == np.int64


def test_sentence_embeddings_come_with_intents_and_extras(put_arrays):
    vectors = np.eye(4, 384, dtype=np.float16)
    labels = np.array([0, 1, 2, 149], dtype=np.uint8)
    put_arrays(
        "clinc150",
        x_train=vectors,
        y_train=labels,
        x_test=vectors,
        y_test=labels,
        x_calibration=vectors,
        y_calibration=labels,
        x_out_of_scope_calibration=vectors,
        x_out_of_scope_test=vectors,
    )
    dataset = datasets.load("clinc150")
    assert dataset.X_train.dtype == np.float32
    assert [dataset.classes[code] for code in dataset.y_train][::3] == [
        "accept_reservations",
        "yes",
    ]
    assert sorted(dataset.extras) == [
        "x_calibration",
        "x_out_of_scope_calibration",
        "x_out_of_scope_test",
        "y_calibration",
    ]
    assert (len(dataset.classes), datasets.SOURCES["banking77"].n_classes) == (150, 77)


def test_images_and_their_components(put_arrays):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (100, 9, 9), dtype=np.uint8),
        "y_train": (np.arange(100) % 10).astype(np.uint8),
        "x_test": rng.integers(0, 256, (20, 9, 9), dtype=np.uint8),
        "y_test": (np.arange(20) % 10).astype(np.uint8),
    }
    put_arrays("fashion-mnist", **arrays)
    put_arrays("fashion-mnist-pca64", **arrays)
    images, vectors = datasets.load("fashion-mnist"), datasets.load("fashion-mnist-pca64")
    assert images.X_train.dtype == np.uint8
    assert images.classes[9] == "Ankle boot"
    assert vectors.X_train.shape == (100, 64)
    assert np.abs(vectors.X_train.mean(axis=0)).max() < 1e-6
    spread = vectors.X_train.var(axis=0)
    assert (np.diff(spread) <= 1e-6).all()
    vectors.X_train[:] = 0
    assert datasets.load("fashion-mnist-pca64").X_train.any()


def test_labels_that_people_gave_stand_beside_the_true_ones(folder, monkeypatch):
    rng = np.random.default_rng(0)
    true, given = np.arange(40, dtype=np.uint8) % 10, np.arange(40, dtype=np.uint8) % 7
    pixels = rng.integers(0, 256, (50, 4, 4, 3), dtype=np.uint8)
    images = {"x_train": pixels[:40], "y_train": true, "x_test": pixels[40:], "y_test": true[:10]}
    folder.mkdir()
    np.savez(folder / "cifar10.npz", **images)
    np.savez(folder / "cifar10n.npz", worse_label=given)
    source = datasets.SOURCES["cifar10n-worst"]
    sums = [images, {"worse_label": given}]
    files = tuple(
        replace(file, arrays={key: array_checksum(array) for key, array in arrays.items()})
        for file, arrays in zip(source.files, sums, strict=True)
    )
    monkeypatch.setitem(datasets.SOURCES, "cifar10n-worst", replace(source, files=files))
    dataset = datasets.load("cifar10n-worst")
    assert dataset.y_train.tolist() == given.tolist()
    assert dataset.extras["y_true"].tolist() == true.tolist()
    assert dataset.y_test.tolist() == true[:10].tolist()


def test_small_tables_have_a_split_for_each_seed(put_text):
    lines = [
        f"{'' if i == 7 else i},{'NA' if i % 3 else 'b'},{'x' if i % 2 else 'y'}" for i in range(80)
    ]
    put_text("bupa", "c0,c1,target\n" + "\n".join(lines))
    dataset = datasets.load("bupa")
    assert (len(dataset.y_train), len(dataset.y_test), dataset.classes) == (60, 20, ("x", "y"))
    rows = pd.concat([dataset.X_train, dataset.X_test])
    assert rows["c0"].isna().sum() == 1
    assert set(rows["c1"]) == {"NA", "b"}
    assert rows["c1"].dtype == "category"
    other = dataset.for_seed(2)
    assert other.name == "bupa"
    assert set(other.X_test["c0"]) != set(dataset.X_test["c0"])
    again = other.for_seed(1)
    assert again.X_test.equals(dataset.X_test)
    assert (again.y_test == dataset.y_test).all()


def test_other_data_sets_have_one_split_for_all_seeds():
    iris = datasets.load("iris")
    assert iris.for_seed(5) is iris


def test_texts_draw_training_rows_by_seed_and_keep_the_test_set(put_text, monkeypatch):
    monkeypatch.setattr("attnknn.research.datasets.text.N_TEXTS", 6)
    train = "".join(f"{i % 2}\tphrase {i}\r\n" for i in range(10))
    put_text("sst2", f"label\tsentence\n{train}", "label\tcontent\n1\tgood film\n")
    dataset = datasets.load("sst2")
    assert dataset.kind == "texts"
    assert dataset.X_test.tolist() == ["good film"]
    assert np.bincount(dataset.y_train).tolist() == [3, 3]
    for text, label in zip(dataset.X_train, dataset.y_train, strict=True):
        assert int(text.removeprefix("phrase ")) % 2 == label
    again = dataset.for_seed(1)
    assert again.X_train.tolist() != dataset.X_train.tolist()
    assert again.for_seed(0).X_train.tolist() == dataset.X_train.tolist()


def test_intents_are_read_from_json(put_text):
    lines = ['{"label": "card_arrival", "text": "where?"}', '{"label": "age_limit", "text": "age"}']
    put_text("banking77-texts", "\n".join(lines), lines[0])
    banking = datasets.load("banking77-texts")
    assert [banking.classes[code] for code in banking.y_train] == ["card_arrival", "age_limit"]
    rows = '{"train": [["hi", "greeting"]], "test": [["bye", "goodbye"]], "oos_test": []}'
    put_text("clinc150-texts", rows)
    clinc = datasets.load("clinc150-texts")
    assert clinc.classes[clinc.y_test[0]] == "goodbye"
    assert clinc.X_train.tolist() == ["hi"]
