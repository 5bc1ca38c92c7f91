"""A column of texts, through every command."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnknn import AttnKNNClassifier
from attnknn.cli.rows.text_files import CsvSource, LinesSource
from attnknn.encoders import NgramEncoder, TextEncoder
from attnknn.storage import load_notes
from tests.encoders.conftest import counter, plain_folder  # noqa: F401

from .samples import QUICK, refused, run, write

ASKED = {
    "lost": ["my card is lost", "I lost the card", "where is my lost card", "card lost in town"],
    "fee": ["what is the fee", "fees for a transfer", "why this fee?", "a fee on my transfer"],
}


def questions() -> pd.DataFrame:
    pairs = [(question, topic) for topic, some in ASKED.items() for question in some]
    return pd.DataFrame(
        {
            "channel": ["web", "phone"] * 4,
            "question": [question for question, _ in pairs],
            "topic": [topic for _, topic in pairs],
        }
    )


def fit_texts(table: pd.DataFrame, folder: Path, *arguments: Any) -> Any:
    path = write(table, folder / "questions.csv")
    known = ("--text", "question", "-t", "topic", "-o", folder / "model", *QUICK)
    return run("fit", path, *known, *arguments)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    result = fit_texts(questions(), tmp_path)
    assert result.exit_code == 0, result.output
    return tmp_path / "model"


def test_without_a_model_texts_are_compared_by_their_words(tmp_path: Path) -> None:
    output = fit_texts(questions(), tmp_path).stdout
    assert "encoder           ngrams: class scores of words" in output
    assert "--text-model" in output
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert isinstance(loaded.encoder_, NgramEncoder)
    assert loaded.feature_names_in_.tolist() == ["question"]
    assert load_notes(tmp_path / "model")["text"] == "question"


def test_the_same_settings_in_python_give_the_same_answers(model: Path) -> None:
    table = questions()
    classifier = AttnKNNClassifier(
        5, encoder="ngrams", attention="distance", calibration=None, random_state=0
    ).fit(table[["question"]], table["topic"])
    loaded = AttnKNNClassifier.load(model)
    queries = pd.DataFrame({"question": ["lost?", "a fee"]})
    assert loaded.predict_proba(queries).tobytes() == classifier.predict_proba(queries).tobytes()


def test_a_model_embeds_the_texts(tmp_path: Path, plain_folder: Path, counter: Any) -> None:  # noqa: F811
    result = fit_texts(questions(), tmp_path, "--text-model", plain_folder)
    assert f"encoder           union: words, and embeddings of {plain_folder}" in result.stdout
    loaded = AttnKNNClassifier.load(tmp_path / "model").encoder_
    (_, words), (_, encoder) = loaded.encoders_
    assert isinstance(words, NgramEncoder)
    assert isinstance(encoder, TextEncoder)
    assert encoder.model == str(plain_folder)
    counter.asked.clear()
    answers = run("predict", tmp_path / "model", tmp_path / "questions.csv").stdout
    assert len(answers.splitlines()) == 9
    assert sorted(counter.asked) == sorted(questions()["question"])


def test_other_columns_are_only_shown(model: Path, tmp_path: Path) -> None:
    path = write(pd.DataFrame({"question": ["a lost card"]}), tmp_path / "rows.csv")
    shown = run("explain", model, path, "-n", "2").stdout
    assert shown.startswith("row 0 (question=a lost card): ")
    neighbors = shown.split("\n", 1)[1]
    assert neighbors.count("card") == neighbors.count("channel=") == 2
    payloads = AttnKNNClassifier.load(model).memory_.entries.payloads
    assert payloads is not None
    assert payloads[0] == "question=my card is lost, channel=web"


def test_a_long_text_is_shown_in_a_line(tmp_path: Path) -> None:
    table = questions()
    table.loc[0, "question"] = "my card\nis " + "very " * 40 + "lost"
    fit_texts(table, tmp_path)
    payload = AttnKNNClassifier.load(tmp_path / "model").memory_.entries.payloads[0]  # type: ignore[index]
    assert payload.startswith("question=my card is very very")
    assert payload.endswith("…, channel=web")
    assert len(payload) <= 160


@pytest.mark.parametrize("ending", ["csv", "parquet", "txt", "txt.gz"])
@pytest.mark.parametrize("n_at_once", [2, 1000])
def test_files_of_every_kind_give_the_same_answers_in_parts_of_any_size(
    ending: str, n_at_once: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in (CsvSource, LinesSource):
        monkeypatch.setattr(source.chunks, "__defaults__", (n_at_once,))
    asked = ["my card", "fees, again", "lost lost", "a transfer", "where"]
    path = tmp_path / f"rows.{ending}"
    if "txt" in ending:
        data = "\n".join(asked).encode() + b"\n"
        path.write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    else:
        write(pd.DataFrame({"more": 1, "question": asked}), path)
    answers = json.loads(run("predict", model, path, "--proba", "--format", "json").stdout)
    queries = pd.DataFrame({"question": asked})
    expected = AttnKNNClassifier.load(model).predict_proba(queries)
    assert np.array([[a["p(fee)"], a["p(lost)"]] for a in answers]) == pytest.approx(expected)


def test_texts_are_evaluated(model: Path, tmp_path: Path) -> None:
    result = run("evaluate", model, tmp_path / "questions.csv", "--format", "json")
    assert json.loads(result.stdout)["scores"]["accuracy"] == 1.0


def test_a_class_with_one_text_is_learned_too(tmp_path: Path) -> None:
    table = questions()
    table.loc[7, "topic"] = "other"
    assert fit_texts(table, tmp_path).exit_code == 0


@pytest.mark.parametrize("text", ["", "   ", "NA"])
def test_an_empty_text_is_said_with_its_line(text: str, model: Path, tmp_path: Path) -> None:
    table = questions()
    table.loc[2, "question"] = text
    path = write(table, tmp_path / "bad.csv")
    arguments = ("--text", "question", "-t", "topic", "-o", tmp_path / "m")
    expected = "Error: Column 'question' must hold a text in every row, line 4 has no value."
    assert refused("fit", path, *arguments) == expected
    assert refused("predict", model, path) == expected
    (tmp_path / "bad.txt").write_text("one\n\nthree\n")
    assert "line 2 has no value" in refused("predict", model, tmp_path / "bad.txt")


def test_what_is_no_text_is_said_with_its_row(model: Path, tmp_path: Path) -> None:
    path = write(pd.DataFrame({"question": [1.5, 2.5]}), tmp_path / "bad.parquet")
    assert "row 0 has 1.5 (float)" in refused("predict", model, path)


def test_a_missing_column_of_texts_is_named(model: Path, tmp_path: Path) -> None:
    table = questions().rename(columns={"question": "questions"})
    path = write(table, tmp_path / "bad.csv")
    arguments = ("--text", "question", "-t", "topic", "-o", tmp_path / "m")
    expected = "no column 'question'. Did you mean 'questions'?"
    assert expected in refused("fit", path, *arguments)
    assert expected in refused("predict", model, path)
    line = refused("fit", path, "--text", "topic", "-t", "topic", "-o", tmp_path / "m")
    assert "without another role, got 'topic'" in line


def test_vectors_are_no_texts(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", X=np.zeros((2, 3)), y=[0, 1])
    assert "This model reads texts" in refused("predict", model, tmp_path / "rows.npz")
    result = run("fit", tmp_path / "rows.npz", "--text", "y", "-o", tmp_path / "m")
    assert result.exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("--encoder", "tabular"),
        ("--encoder", "tfidf", "--text-model", "x"),
        ("--epochs", "2"),
    ],
)
def test_options_that_do_not_fit_are_wrong_usage(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    assert fit_texts(questions(), tmp_path, *arguments).exit_code == 2


def test_a_text_model_needs_a_column(tmp_path: Path) -> None:
    path = write(questions(), tmp_path / "questions.csv")
    result = run("fit", path, "-t", "topic", "-o", tmp_path / "m", "--text-model", "x")
    assert result.exit_code == 2
    assert "--text" in result.stderr


def messages(n: int = 30) -> pd.DataFrame:
    topics = ["lost", "fee"]
    asked = [f"{ASKED[topics[i % 2]][i % 4]} on day {i}" for i in range(n)]
    return pd.DataFrame({"message": asked, "topic": [topics[i % 2] for i in range(n)]})


def fit_messages(table: pd.DataFrame, folder: Path, *arguments: Any) -> Any:
    path = write(table, folder / "messages.csv")
    return run("fit", path, "-t", "topic", "-o", folder / "model", *QUICK, *arguments)


@pytest.mark.parametrize("ids", [None, range(30), [f"m{i:02d}" for i in range(30)]])
def test_free_text_is_chosen_if_nothing_else_can_be_learned_from(ids: Any, tmp_path: Path) -> None:
    table = messages() if ids is None else messages().assign(number=list(ids))
    result = fit_messages(table, tmp_path)
    assert result.exit_code == 0, result.output
    assert "column 'message', which holds free text (as with --text message)" in result.stdout
    assert "encoder           ngrams" in result.stdout
    assert load_notes(tmp_path / "model")["text"] == "message"
    explained = run("explain", tmp_path / "model", tmp_path / "messages.csv", "--limit", 1)
    assert "message=my card is lost on day 0" in explained.stdout


def test_an_encoder_of_texts_finds_the_only_column_of_texts(tmp_path: Path) -> None:
    assert fit_messages(messages(), tmp_path, "--encoder", "tfidf").exit_code == 0


def test_free_text_among_other_columns_is_ignored_and_named(tmp_path: Path) -> None:
    table = messages().assign(amount=np.arange(30) % 7, city=["New York", "Rome"] * 15)
    result = fit_messages(table, tmp_path)
    assert result.exit_code == 0, result.output
    warnings = [line for line in result.stderr.splitlines() if line.startswith("Warning")]
    assert len(warnings) == 1
    assert "Free text is ignored: message, such as 'my card is lost on day 0'." in warnings[0]
    for option in ("--text message", "--drop-columns message", "--categorical message"):
        assert option in warnings[0]
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == ["amount", "city"]
    for option in ("--text", "--drop-columns", "--categorical"):
        chosen = fit_messages(table, tmp_path, option, "message", "--force")
        assert chosen.exit_code == 0
        assert "Warning" not in chosen.stderr


def test_several_columns_of_free_text_are_a_choice_of_the_user(tmp_path: Path) -> None:
    table = messages().assign(answer=[f"we will call you back on day {i}" for i in range(30)])
    path = write(table, tmp_path / "messages.csv")
    line = refused("fit", path, "-t", "topic", "-o", tmp_path / "m", *QUICK)
    assert "all columns are free text: message, answer. --text message learns from one" in line


def test_an_encoder_of_tables_refuses_a_table_of_free_text_only(tmp_path: Path) -> None:
    path = write(messages(), tmp_path / "messages.csv")
    line = refused("fit", path, "-t", "topic", "-o", tmp_path / "m", "--encoder", "tabular")
    assert "all columns are free text: message. --text message learns from it alone." in line


def test_words_and_sentences_are_candidates_of_their_own(
    tmp_path: Path,
    plain_folder: Path,  # noqa: F811
    counter: Any,  # noqa: F811
) -> None:
    table = pd.concat([questions()] * 6, ignore_index=True)
    table["question"] += [f" {place}" for place in range(len(table))]
    path = write(table, tmp_path / "questions.csv")
    result = run(
        *("fit", path, "--text", "question", "-t", "topic", "-o", tmp_path / "model"),
        *("--text-model", plain_folder, "--budget", "5"),
    )
    assert result.exit_code == 0, result.output
    for name in ("class-scores of words", "distance of sentence", "projection of sentence"):
        assert f"{name}: " in result.stdout
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert set(loaded.encoder_.blocks_) == {"words", "sentence"}
    rows = write(pd.DataFrame({"question": ["a lost card", "the fee"]}), tmp_path / "rows.csv")
    assert len(run("predict", tmp_path / "model", rows).stdout.splitlines()) == 3
