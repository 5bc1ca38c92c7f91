"""The table encoder: its contract, its weights, and tables as people have them."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnknn.encoders import TableEncoder, encoder_from_settings, tabular
from attnknn.errors import (
    InvalidInputError,
    InvalidSettingError,
    ModelFolderError,
    NotFittedYetError,
)
from attnknn.testing.encoder import check_encoder


def people(n=60):
    rng = np.random.default_rng(0)
    age = rng.normal(40, 10, n)
    age[::7] = np.nan
    city = rng.choice(["Rome", "Oslo", "Lima"], n).astype(object)
    city[::11] = None
    return pd.DataFrame(
        {
            "age": age,
            "city": city,
            "member": rng.random(n) < 0.3,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "visits": rng.integers(0, 9, n),
            "plan": pd.Categorical(rng.choice([1, 2], n)),
            "version": 3,
            "notes": np.full(n, np.nan),
        }
    )


@pytest.mark.parametrize("scaling", ["standard", "quantile"])
def test_the_table_encoder_keeps_the_contract(scaling):
    check_encoder(TableEncoder(scaling=scaling), people())
    check_encoder(TableEncoder(scaling=scaling), np.random.default_rng(0).normal(size=(20, 3)))
    check_encoder(TableEncoder(scaling=scaling), people().to_numpy(dtype=object))


def test_constant_and_empty_columns_are_dropped_and_recorded():
    encoder = TableEncoder().fit(people())
    assert encoder.dropped_ == {
        "version": "all values are equal",
        "notes": "all values are missing",
    }
    names = encoder.get_feature_names_out().tolist()
    assert "version" not in names
    assert names[:2] == ["age", "age is missing"]
    assert {"city=Rome", "city is missing", "member=True", "since", "plan=1"} <= set(names)


@pytest.mark.parametrize("scaling", ["standard", "quantile"])
def test_numbers_get_mean_zero_and_variance_one(scaling):
    table = pd.DataFrame({"a": np.random.default_rng(0).lognormal(size=500)})
    encoded = TableEncoder(scaling=scaling).fit_transform(table)
    assert encoded.mean() == pytest.approx(0, abs=1e-9)
    assert encoded.std() == pytest.approx(1, abs=1e-9)


def test_a_mismatch_of_categories_weighs_what_two_random_numbers_do():
    rng = np.random.default_rng(0)
    numbers = TableEncoder().fit_transform(pd.DataFrame({"a": rng.normal(size=4000)}))
    two = numbers[:2000] - numbers[2000:]
    colors = pd.DataFrame({"color": ["red"] * 97 + ["blue"] * 2 + ["green"]})
    red, green = TableEncoder().fit(colors).transform(colors.iloc[[0, -1]])
    assert np.square(red - green).sum() == pytest.approx(2.0)
    assert np.square(two).mean() == pytest.approx(2.0, rel=0.05)


def test_quantile_scaling_takes_the_pull_from_outliers():
    table = pd.DataFrame({"a": [*range(99), 1e6]})
    assert TableEncoder("standard").fit_transform(table).max() > 9
    assert TableEncoder("quantile").fit_transform(table).max() < 2


def test_a_missing_number_is_the_median_and_says_so():
    encoder = TableEncoder().fit(pd.DataFrame({"a": [1.0, 2.0, 3.0, np.nan]}))
    value, indicator = encoder.transform(pd.DataFrame({"a": [np.nan]}))[0]
    assert (value, indicator) == (0.0, 1.0)


def test_a_number_missing_only_later_is_the_median():
    encoder = TableEncoder().fit(pd.DataFrame({"a": [1.0, 2.0, 3.0]}))
    assert encoder.transform(pd.DataFrame({"a": [np.nan]})).tolist() == [[0.0]]


def test_a_constant_number_with_gaps_keeps_only_its_indicator():
    encoder = TableEncoder().fit(pd.DataFrame({"a": [7.0, 7.0, np.nan]}))
    assert encoder.get_feature_names_out().tolist() == ["a is missing"]


def test_rare_and_unseen_categories_share_the_place_of_others():
    table = pd.DataFrame({"c": ["a"] * 5 + ["b"] * 4 + ["d", "e", None]})
    encoder = TableEncoder(max_categories=2).fit(table)
    assert encoder.get_feature_names_out().tolist() == [
        "c=a",
        "c=b",
        "c is other",
        "c is missing",
    ]
    encoded = encoder.transform(pd.DataFrame({"c": ["b", "d", "never seen", None]}))
    assert encoded.argmax(axis=1).tolist() == [1, 2, 2, 3]


def test_unseen_and_newly_missing_categories_are_all_zeros_without_others():
    encoder = TableEncoder().fit(pd.DataFrame({"c": ["a", "b"]}))
    assert not encoder.transform(pd.DataFrame({"c": ["x", None]})).any()


def test_equal_counts_of_categories_are_ordered_by_name_not_by_row():
    first = TableEncoder(max_categories=1).fit(pd.DataFrame({"c": ["b", "a"]}))
    second = TableEncoder(max_categories=1).fit(pd.DataFrame({"c": ["a", "b"]}))
    assert first.get_feature_names_out().tolist() == second.get_feature_names_out().tolist()


def test_categories_are_the_same_whether_a_gap_made_them_floats_or_not():
    encoder = TableEncoder().fit(pd.DataFrame({"c": pd.Categorical([1, 2, 1])}))
    with_gap = pd.DataFrame({"c": pd.Categorical([2.0, np.nan])})
    assert encoder.transform(with_gap)[0].argmax() == 1


def test_columns_are_found_by_name_in_any_order_and_others_ignored():
    table = people()
    encoder = TableEncoder().fit(table)
    shuffled = table[table.columns[::-1]].assign(extra="?")
    assert np.array_equal(encoder.transform(shuffled), encoder.transform(table))


def test_a_dropped_column_need_not_be_there():
    table = people()
    encoder = TableEncoder().fit(table)
    assert len(encoder.transform(table.drop(columns=["version", "notes"]))) == len(table)


def test_a_missing_column_is_named():
    encoder = TableEncoder().fit(people())
    with pytest.raises(InvalidInputError, match="'age', 'city' are missing"):
        encoder.transform(people().drop(columns=["city", "age"]))


def test_arrays_are_matched_by_position_and_must_have_the_width():
    table = people()
    encoder = TableEncoder().fit(table)
    assert np.allclose(encoder.transform(table.to_numpy(object)), encoder.transform(table))
    with pytest.raises(InvalidInputError, match="must have 8 columns"):
        encoder.transform(table.to_numpy(object)[:, :3])


def test_only_the_rows_of_fit_are_learned_from():
    train = pd.DataFrame({"a": [0.0, 2.0]})
    encoder = TableEncoder().fit(train)
    encoder.transform(pd.DataFrame({"a": [100.0]}))
    assert encoder.transform(train).tolist() == [[-1.0], [1.0]]


def test_dates_with_and_without_zone_and_as_text_are_days():
    train = pd.DataFrame({"d": pd.to_datetime(["2024-01-01", "2024-01-03"])})
    encoder = TableEncoder().fit(train)
    assert encoder.transform(pd.DataFrame({"d": ["2024-01-02"]})).tolist() == [[0.0]]
    zoned = pd.DataFrame({"d": pd.to_datetime(["2024-01-02"]).tz_localize("UTC")})
    assert encoder.transform(zoned).tolist() == [[0.0]]
    spans = pd.DataFrame({"d": pd.to_timedelta([1, 3], "D")})
    assert TableEncoder().fit_transform(spans).tolist() == [[-1.0], [1.0]]


def test_extension_types_of_pandas_are_understood():
    table = pd.DataFrame(
        {
            "n": pd.array([1, None, 3], dtype="Int64"),
            "b": pd.array([True, None, False], dtype="boolean"),
            "s": pd.array(["x", None, "y"], dtype="string"),
        }
    )
    encoder = TableEncoder().fit(table)
    assert encoder.transform(table).shape == (3, 2 + 3 + 3)


def test_settings_survive_json_and_give_the_same_bytes():
    encoder = TableEncoder("quantile").fit(people())
    stored, arrays = encoder.to_settings()
    loaded = encoder_from_settings(json.loads(json.dumps(stored)), arrays)
    assert loaded.transform(people()).tobytes() == encoder.transform(people()).tobytes()
    assert loaded.get_params() == encoder.get_params()


def test_damaged_settings_are_an_error_of_the_folder():
    stored, arrays = TableEncoder().fit(people()).to_settings()
    with pytest.raises(ModelFolderError, match="'tabular' cannot be read"):
        encoder_from_settings({**stored, "columns": [{"name": "age"}]}, arrays)
    with pytest.raises(ModelFolderError, match=r"one of identity, .*tabular, .*got 'evil'"):
        encoder_from_settings({"encoder": "evil"}, {})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pd.DataFrame({"a": ["x"]}), "Column 'a' must hold numbers"),
        (pd.DataFrame({"a": [np.inf]}), "Column 'a' must be finite or missing, row 0"),
    ],
)
def test_values_that_do_not_fit_their_column_are_refused(table, message):
    encoder = TableEncoder().fit(pd.DataFrame({"a": [1.0, 2.0]}))
    with pytest.raises(InvalidInputError, match=message):
        encoder.transform(table)


def test_unusable_tables_and_settings_are_refused():
    with pytest.raises(InvalidInputError, match=r"a column that varies, got 1 in which.*rows: 2"):
        TableEncoder().fit(pd.DataFrame({"a": [1, 1]}))
    with pytest.raises(InvalidInputError, match="at least one row"):
        TableEncoder().fit(pd.DataFrame({"a": []}))
    with pytest.raises(InvalidInputError, match="different names, 'a' occurs twice"):
        TableEncoder().fit(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(InvalidInputError, match="rows and columns"):
        TableEncoder().fit([1, 2, 3])
    with pytest.raises(InvalidSettingError, match="`max_categories`"):
        TableEncoder(max_categories=0).fit(people())
    with pytest.raises(InvalidSettingError, match="Did you mean 'quantile'"):
        TableEncoder("quantil").fit(people())
    with pytest.raises(NotFittedYetError):
        TableEncoder().transform(people())


def test_output_as_pandas_has_the_names():
    framed = TableEncoder().set_output(transform="pandas").fit_transform(people())
    assert list(framed.columns)[:2] == ["age", "age is missing"]


cells = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=False, width=32))


@given(st.lists(st.tuples(cells, st.sampled_from(["a", "b", None])), min_size=2, max_size=20))
@settings(max_examples=60, deadline=None)
def test_any_table_gives_finite_numbers(rows):
    table = pd.DataFrame(rows, columns=["number", "letter"]).astype({"number": float})
    encoded = TableEncoder().fit_transform(table.assign(row=range(len(rows))))
    assert np.isfinite(encoded).all()


PEOPLE = people()
CELLS = st.one_of(
    st.sampled_from(["a", "b", "3", "", "nan", True, False, 1, 3, 3.0, 2.5, -0.0, 1e300]),
    st.sampled_from([None, float("nan"), 10**17, 2**63 - 1]),
)


@cache
def fitted_on_people(scaling):
    return TableEncoder(scaling=scaling, max_categories=2).fit(PEOPLE)


@pytest.mark.parametrize("scaling", ["standard", "quantile", "normal"])
@given(
    numbers=st.lists(st.floats(-1e6, 1e6) | st.just(np.nan), min_size=1, max_size=8),
    whole=st.integers(-(2**63), 2**63 - 1),
    cell=CELLS,
)
@settings(max_examples=15, deadline=None)
def test_few_rows_are_encoded_as_many(scaling, numbers, whole, cell):
    encoder = fitted_on_people(scaling)
    table = PEOPLE[: len(numbers)].assign(age=numbers, visits=whole, city=cell)
    many = pd.concat([table] * 9, ignore_index=True)[: tabular.FEW + len(table)]
    np.testing.assert_array_equal(
        encoder.transform(table), encoder.transform(many)[: len(table)], strict=True
    )


def test_cells_of_arrays_and_lists_are_encoded_as_many():
    for rows in (people().to_numpy(dtype=object), people()[["age", "visits"]].to_numpy()):
        encoder = TableEncoder().fit(rows)
        every = encoder.transform(rows)
        np.testing.assert_array_equal(encoder.transform(rows[:3]), every[:3])
        np.testing.assert_array_equal(encoder.transform(rows[:3].tolist()), every[:3])


def test_few_rows_raise_what_many_raise():
    encoder = TableEncoder().fit(people())
    for wrong in ({"age": np.inf}, {"age": "old"}, {"visits": True}):
        table = people().assign(**wrong)
        outcomes = []
        for rows in (table[:2], table):
            try:
                outcomes.append(str(encoder.transform(rows)[:2].tolist()))
            except InvalidInputError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_one_row_of_numbers_and_texts_is_encoded_without_series(monkeypatch):
    table = people()[["age", "city", "visits", "member"]]
    encoder = TableEncoder().fit(table)
    monkeypatch.setattr(TableEncoder, "_matched", None)
    assert encoder.transform(table[:1]).shape == (1, 9)
