"""The demo's story: a wrong label is found, fixed and forgotten; every number is computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn import AttnKNNClassifier
from attnknn.evidence import Evidence
from attnknn.records import Floats
from attnknn.research import datasets
from attnknn.research.datasets import Dataset

FLIPPED = 100  # the id of the row whose label is made wrong on purpose
N_SUSPECTS = 3
N_VOTERS = 5


@dataclass(frozen=True)
class Chapter:
    """A heading and what is to be said under it."""

    title: str
    text: str


@dataclass(frozen=True)
class Voter:
    """A neighbor at a `place` of some evidence, with its row."""

    evidence: Evidence
    place: int
    row: NDArray[Any]

    @property
    def label(self) -> int:
        """Its label, which may be wrong."""
        return int(self.evidence.labels[self.place])

    @property
    def words(self) -> str:
        """Its id, label and say."""
        say = self.evidence.weights[self.place]
        return f"#{self.evidence.ids[self.place]}\nlabeled {self.label}\nsay {say:.3f}"


@dataclass(frozen=True)
class Story:
    """The chapters, and what the figures show.

    Parameters
    ----------
    query : the test row in question, and `evidence` for it while the label was wrong
    voters : the neighbors with the most say, and the one whose label is wrong
    numbers : every number told, by name
    """

    chapters: list[Chapter]
    query: NDArray[Any]
    evidence: Evidence
    voters: list[Voter]
    numbers: dict[str, Any]


def tell(folder: Path) -> Story:
    """Fit digits with one wrong label, then put it right; the model is left in `folder`."""
    data = datasets.load("digits")
    truth = int(data.y_train[FLIPPED])
    wrong = (truth + 1) % 10
    classifier = _fit(data, wrong)
    everything = classifier.explain(data.X_test)
    row = int(
        np.argmax([evidence.weights[evidence.ids == FLIPPED].sum() for evidence in everything])
    )
    query, evidence = data.X_test[row : row + 1], everything[row]
    numbers: dict[str, Any] = {"test_row": row, "truth": truth, "wrong_label": wrong}
    chapters = [_explained(evidence, row, wrong, numbers), _suspected(classifier, wrong, numbers)]
    chapters.append(_fixed(classifier, query, truth, numbers))
    chapters.append(_forgotten(classifier, query, truth, numbers))
    chapters.append(_stored(classifier, folder / "model", data.X_test, numbers))
    shown = [*range(N_VOTERS), int(np.flatnonzero(evidence.ids == FLIPPED)[0])]
    voters = [Voter(evidence, place, data.X_train[evidence.ids[place]]) for place in shown]
    return Story(chapters, query[0], evidence, voters[: N_VOTERS + 1], numbers)


def _fit(data: Dataset, wrong: int) -> AttnKNNClassifier:
    labels = data.y_train.copy()
    labels[FLIPPED] = wrong
    payloads = [f"a {label}" for label in data.y_train.tolist()]
    return AttnKNNClassifier(random_state=0).fit(data.X_train, labels, payloads=payloads)


def _explained(evidence: Evidence, row: int, wrong: int, numbers: dict[str, Any]) -> Chapter:
    say = float(evidence.weights[evidence.ids == FLIPPED].sum())
    numbers["say_of_wrong_label"] = say
    text = (
        f"Training row {FLIPPED} of the digits was labeled {wrong} on purpose: wrongly. Test "
        f"row {row} is where it has the most say: {say:.3f} of 1. The answer is a vote of named "
        "examples (what each image really shows stands at the end of its line):\n\n"
        f"{evidence.table(N_VOTERS)}"
    )
    return Chapter("2. One prediction and its evidence", text)


def _suspected(classifier: AttnKNNClassifier, wrong: int, numbers: dict[str, Any]) -> Chapter:
    own = classifier.memory_.entries.labels
    probabilities = classifier.leave_one_out_proba()
    of_own = probabilities[np.arange(len(own)), own]
    suspects = np.argsort(of_own, kind="stable")
    numbers["rank"] = int(np.flatnonzero(suspects == FLIPPED)[0]) + 1
    numbers["probability_of_wrong_label"] = float(of_own[FLIPPED])
    lines = [
        f"  #{entry:<6} labeled {classifier.classes_[own[entry]]}, the others say "
        f"{classifier.classes_[probabilities[entry].argmax()]} "
        f"(its label has probability {of_own[entry]:.2g})"
        for entry in suspects[:N_SUSPECTS]
    ]
    text = (
        f"Every entry is judged by the others. Of {len(own)} entries the wrong one, #{FLIPPED} "
        f"(labeled {wrong}), is suspect number {numbers['rank']}:\n\n" + "\n".join(lines)
    )
    return Chapter("3. Which labels are wrong?", text)


def _fixed(
    classifier: AttnKNNClassifier, query: Floats, truth: int, numbers: dict[str, Any]
) -> Chapter:
    before = _probability(classifier, query, truth)
    classifier.relabel([FLIPPED], truth)
    after = _probability(classifier, query, truth)
    numbers |= {"before_relabel": before, "after_relabel": after}
    text = (
        f"`relabel([{FLIPPED}], {truth})`: the probability of {truth} for that test row goes from "
        f"{before:.6f} to {after:.6f}, at once, with no retraining."
    )
    return Chapter("4. Fix the label", text)


def _forgotten(
    classifier: AttnKNNClassifier, query: Floats, truth: int, numbers: dict[str, Any]
) -> Chapter:
    before = _probability(classifier, query, truth)
    strongest = int(classifier.explain(query)[0].ids[0])
    classifier.forget([strongest])
    after = _probability(classifier, query, truth)
    numbers |= {"forgotten": strongest, "after_forget": after}
    text = (
        f"`forget([{strongest}])`, the entry with the most say: {before:.6f} becomes {after:.6f}, "
        "as if the row had never been there."
    )
    return Chapter("5. Forget a row", text)


def _stored(
    classifier: AttnKNNClassifier, path: Path, rows: Floats, numbers: dict[str, Any]
) -> Chapter:
    classifier.save(path)
    loaded = AttnKNNClassifier.load(path)
    same = loaded.predict_proba(rows).tobytes() == classifier.predict_proba(rows).tobytes()
    size = sum(file.stat().st_size for file in path.iterdir())
    numbers |= {"loaded_answers_are_the_same_bytes": same, "model_bytes": size}
    words = "the same bytes" if same else "OTHER ANSWERS, which is a mistake of ours"
    text = (
        f"Saved to {path} ({size / 1e3:.0f} kB, no pickle) and loaded again: {len(rows)} test rows "
        f"get {words}."
    )
    return Chapter("6. Save and load", text)


def _probability(classifier: AttnKNNClassifier, query: Floats, label: int) -> float:
    place = int(np.flatnonzero(classifier.classes_ == label)[0])
    return float(classifier.predict_proba(query)[0, place])
