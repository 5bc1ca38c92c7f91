"""Undo, snapshots and rollback restore earlier states, whatever happened since."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from attnknn import AttnKNNClassifier, open_for_editing
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.storage.editor import list_snapshots

from .samples import assert_same, fitted, rows, with_store


def test_edits_are_undone_one_by_one(path: Path) -> None:
    with open_for_editing(path) as model:
        states = [copy(model.classifier)]
        for edit in (
            lambda: model.relabel([1], "cat"),
            lambda: model.add(rows(2, seed=2), ["dog", "ant"]),
            lambda: model.forget([3, 40]),
        ):
            edit()
            states.append(copy(model.classifier))
        for state in states[-2::-1]:
            model.undo()
            assert_same(model.classifier, state)
        with pytest.raises(ModelFolderError, match=r"Nothing to undo: .* original state"):
            model.undo()


def test_snapshots_are_listed_without_opening_the_model(path: Path) -> None:
    assert list_snapshots(path) == []
    with open_for_editing(path) as model:
        model.relabel([1], "cat")
        model.snapshot("checked")
    assert [(found.name, found.edit) for found in list_snapshots(path)] == [("checked", 1)]


def test_numbers_of_edits_may_be_numpy_integers_but_not_booleans(path: Path) -> None:
    with open_for_editing(path) as model:
        model.relabel([1], "cat")
        assert len(model.changes(np.int64(1))) == 1
        assert model.rollback(np.int64(0)).message == "Rolled back to edit 0"
        assert_same(model.classifier, fitted())
        for wrong in (True, np.bool_(True), 1.0, None):
            with pytest.raises(InvalidSettingError, match="by its number, an integer, got"):
                model.rollback(wrong)
            with pytest.raises(InvalidSettingError, match="by its number, an integer, got"):
                model.changes(wrong)


def test_snapshots_have_names_and_can_be_restored(path: Path) -> None:
    with open_for_editing(path, by="ann") as model:
        model.forget([1])
        before = copy(model.classifier)
        assert model.snapshot("clean").edit == 1
        model.relabel([2], "ant")
        model.forget([4, 5, 6])
        after = copy(model.classifier)
        assert model.rollback("clean").message == "Rolled back to snapshot clean"
        assert_same(model.classifier, before)
        assert model.undo().action == "rollback"
        assert_same(model.classifier, after)
        model.rollback(0)
        assert_same(model.classifier, fitted())
        with pytest.raises(InvalidSettingError, match="a snapshot 'clean' already"):
            model.snapshot("clean")
        with pytest.raises(InvalidSettingError, match=r"no snapshot 'x'\. Known: 'clean'"):
            model.rollback("x")
        with pytest.raises(InvalidSettingError, match="There is no edit 99"):
            model.rollback(99)
        with pytest.raises(InvalidSettingError, match="must have a name"):
            model.snapshot(" ")
    with open_for_editing(path) as model:
        assert [(s.name, s.edit, s.by) for s in model.snapshots()] == [("clean", 1, "ann")]


class Store(RuleBasedStateMachine):
    """Any sequence of edits, undos and rollbacks, beside a list of the states in memory."""

    @initialize()
    def start(self) -> None:
        self.folder = TemporaryDirectory()
        path = Path(self.folder.name) / "model"
        fitted().save(path)
        self.model = open_for_editing(with_store(path))
        self.states = {0: copy(self.model.classifier)}  # by edit
        self.line = [0]  # edits that undo would undo, the last one last

    @rule(n=st.integers(1, 3), label=st.sampled_from(["ant", "dog", "eel"]), seed=st.integers(0, 9))
    def add(self, n: int, label: str, seed: int) -> None:
        subjects = ["person-1", "", "new"][:n]
        self.model.add(rows(n, seed=seed), [label] * n, subjects=subjects)
        self._edited()

    @rule(draw=st.data(), n=st.integers(1, 4))
    @precondition(lambda self: len(self.model.classifier.memory_) > 5)
    def forget(self, draw: st.DataObject, n: int) -> None:
        self.model.forget(self._some(draw, n))
        self._edited()

    @rule(draw=st.data(), label=st.sampled_from(["ant", "bee", "fox"]))
    def relabel(self, draw: st.DataObject, label: str) -> None:
        self.model.relabel(self._some(draw, 2), label)
        self._edited()

    @rule()
    @precondition(lambda self: len(self.line) > 1)
    def undo(self) -> None:
        self.line.pop()
        self.model.undo()
        self.states[self._head()] = self.states[self.line[-1]]
        self.line[-1] = self._head()

    @rule(draw=st.data())
    def rollback(self, draw: st.DataObject) -> None:
        target = draw.draw(st.integers(0, self._head()))
        self.model.rollback(target)
        self.states[self._head()] = self.states[target]
        self.line.append(self._head())

    @rule()
    def open_again(self) -> None:
        self.model.close()
        self.model = open_for_editing(self.model.path)

    @invariant()
    def both_are_the_same(self) -> None:
        if hasattr(self, "model"):
            expected = self.states[self._head()]
            assert_same(self.model.classifier, expected)
            assert_same(AttnKNNClassifier.load(self.model.path), expected)

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.model.close()
            self.folder.cleanup()

    def _head(self) -> int:
        return self.model.log()[-1].edit

    def _some(self, draw: st.DataObject, n: int) -> list[int]:
        ids = self.model.classifier.memory_.entries.ids.tolist()
        return list(np.unique([draw.draw(st.sampled_from(ids)) for _ in range(n)]))

    def _edited(self) -> None:
        if self._head() not in self.states:  # else nothing changed
            self.states[self._head()] = copy(self.model.classifier)
            self.line.append(self._head())


Store.TestCase.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)
TestStore = Store.TestCase
