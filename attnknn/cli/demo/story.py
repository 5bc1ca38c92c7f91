"""The chapters of the demo: compare methods, then find, fix and forget a wrong label."""

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
from attnknn.research.evaluation.baselines import LinearProbe, UniformKNN
from attnknn.research.evaluation.protocol import Method, run
from attnknn.research.evaluation.table import Table

DATASETS = ("breast-cancer", "digits")
METRICS = {"accuracy": "accuracy", "nll": "log-loss", "debiased_ece": "ECE"}
OURS = "AttnKNN"
STRENGTHS = (0.01, 0.1, 1.0)  # three of the usual five, to keep the demo short
FLIPPED = 340  # the id of the row that gets a wrong label on purpose
N_SUSPECTS = 3
N_NEIGHBORS = 5


def compare() -> list[Table]:
    """A table for each data set: baselines, and AttnKNN with default settings; one seed."""
    ours: list[AttnKNNClassifier] = []

    def make_ours(seed: int) -> AttnKNNClassifier:
        ours.append(AttnKNNClassifier(random_state=seed))
        return ours[-1]

    methods = [
        Method("uniform kNN", lambda seed: UniformKNN()),  # noqa: ARG005
        Method(
            "distance kNN", lambda seed: AttnKNNClassifier(attention="distance", random_state=seed)
        ),
        Method("logistic regression", lambda seed: LinearProbe(Cs=STRENGTHS, random_state=seed)),
        Method(OURS, make_ours),
    ]
    tables = [run(datasets.load(name), methods, seeds=[0]) for name in DATASETS]
    for table, classifier in zip(tables, ours, strict=True):
        table.of(OURS)[0].chosen["attention"] = classifier.fit_report_.attention
    return tables


def cells_of(table: Table) -> list[list[str]]:
    """A header and a line for each method."""
    head = [table.dataset, "accuracy ↑", "log-loss ↓", "ECE ↓", "fit s"]
    lines = [
        [
            method,
            *(f"{table.mean(metric, method):.4f}" for metric in METRICS),
            f"{table.of(method)[0].fit_seconds:.1f}",
        ]
        for method in table.methods
    ]
    return [head, *lines]


def lines_of(table: Table) -> list[str]:
    """The same for a terminal."""
    return [
        f"  {name:<22}" + "".join(f"{cell:>12}" for cell in cells)
        for name, *cells in cells_of(table)
    ] + [
        f"  ({table.n_train} training rows, {table.n_test} test rows, one seed)",
        f"  {choice_of(table)}",
    ]


def choice_of(table: Table) -> str:
    """Which attention AttnKNN chose."""
    attention = table.of(OURS)[0].chosen["attention"]
    return f"{OURS} chose {attention} attention by its log-loss on held-out training rows."


@dataclass(frozen=True)
class Chapter:
    """A heading and its text."""

    title: str
    text: str


@dataclass(frozen=True)
class Neighbor:
    """A neighbor at a `place` of some evidence, with its row."""

    evidence: Evidence
    place: int
    row: NDArray[Any]

    @property
    def label(self) -> int:
        """Its label, which may be wrong."""
        return int(self.evidence.labels[self.place])

    @property
    def caption(self) -> str:
        """Its id, label and weight."""
        weight = self.evidence.weights[self.place]
        return f"#{self.evidence.ids[self.place]}\nlabel {self.label}\nweight {weight:.3f}"


@dataclass(frozen=True)
class Story:
    """The chapters, and the data of the figures."""

    chapters: list[Chapter]
    query: NDArray[Any]  # the test row in question
    evidence: Evidence  # while the label was wrong
    neighbors: list[Neighbor]  # with the highest weights, and the one with the wrong label
    numbers: dict[str, Any]  # every number in the text, by name


def tell(folder: Path) -> Story:
    """Fit digits with one wrong label, then correct it; the model is saved in `folder`."""
    data = datasets.load("digits")
    truth = int(data.y_train[FLIPPED])
    wrong = (truth + 1) % 10
    classifier = _fit(data, wrong)
    evidences = classifier.explain(data.X_test)
    row = int(np.argmax([one.weights[one.ids == FLIPPED].sum() for one in evidences]))
    query, evidence = data.X_test[row : row + 1], evidences[row]
    numbers: dict[str, Any] = {"test_row": row, "truth": truth, "wrong_label": wrong}
    chapters = [_explain(evidence, row, wrong, numbers), _audit(classifier, wrong, numbers)]
    chapters.append(_relabel(classifier, query, truth, numbers))
    chapters.append(_forget(classifier, query, truth, numbers))
    chapters.append(_save(classifier, folder / "model", data.X_test, numbers))
    shown = sorted({*range(N_NEIGHBORS), _place(evidence)})
    neighbors = [Neighbor(evidence, place, data.X_train[evidence.ids[place]]) for place in shown]
    return Story(chapters, query[0], evidence, neighbors, numbers)


def _fit(data: Dataset, wrong: int) -> AttnKNNClassifier:
    labels = data.y_train.copy()
    labels[FLIPPED] = wrong
    payloads = [f"a {label}" for label in data.y_train.tolist()]
    return AttnKNNClassifier(random_state=0).fit(data.X_train, labels, payloads=payloads)


def _place(evidence: Evidence) -> int:
    """The place of the wrong label among the neighbors, by falling weight."""
    return int(np.flatnonzero(evidence.ids == FLIPPED)[0])


def _explain(evidence: Evidence, row: int, wrong: int, numbers: dict[str, Any]) -> Chapter:
    weight = float(evidence.weights[evidence.ids == FLIPPED].sum())
    numbers["weight_of_wrong_label"] = weight
    text = (
        f"Training row {FLIPPED} of the digits got the wrong label {wrong} on purpose. Of all test "
        f"rows, it weighs most in the vote on row {row}: {weight:.3f} of 1. A prediction is a "
        "weighted vote of training examples (the end of each line shows what the image really "
        f"is):\n\n{evidence.table(max(N_NEIGHBORS, _place(evidence) + 1))}"
    )
    return Chapter("2. One prediction and its evidence", text)


def _audit(classifier: AttnKNNClassifier, wrong: int, numbers: dict[str, Any]) -> Chapter:
    own = classifier.memory_.entries.labels
    probabilities = classifier.leave_one_out_proba()
    of_own = probabilities[np.arange(len(own)), own]
    suspects = np.argsort(of_own, kind="stable")
    numbers["rank"] = int(np.flatnonzero(suspects == FLIPPED)[0]) + 1
    numbers["probability_of_wrong_label"] = float(of_own[FLIPPED])
    lines = [
        f"  #{entry:<6} label {classifier.classes_[own[entry]]}, leave-one-out prediction "
        f"{classifier.classes_[probabilities[entry].argmax()]} "
        f"(its label has probability {of_own[entry]:.2g})"
        for entry in suspects[:N_SUSPECTS]
    ]
    text = (
        "The leave-one-out probability of its own label ranks every entry. The wrong one, "
        f"#{FLIPPED} (label {wrong}), has rank {numbers['rank']} of {len(own)}:\n\n"
        + "\n".join(lines)
    )
    return Chapter("3. Find label errors", text)


def _relabel(
    classifier: AttnKNNClassifier, query: Floats, truth: int, numbers: dict[str, Any]
) -> Chapter:
    before = _probability(classifier, query, truth)
    classifier.relabel([FLIPPED], truth)
    after = _probability(classifier, query, truth)
    numbers |= {"before_relabel": before, "after_relabel": after}
    text = (
        f"`relabel([{FLIPPED}], {truth})` changes the probability of {truth} for that test row "
        f"from {before:.6f} to {after:.6f}, immediately and without training."
    )
    return Chapter("4. Correct the label", text)


def _forget(
    classifier: AttnKNNClassifier, query: Floats, truth: int, numbers: dict[str, Any]
) -> Chapter:
    before = _probability(classifier, query, truth)
    heaviest = int(classifier.explain(query)[0].ids[0])
    classifier.forget([heaviest])
    after = _probability(classifier, query, truth)
    numbers |= {"forgotten": heaviest, "after_forget": after}
    text = (
        f"`forget([{heaviest}])` removes the entry with the highest weight: {before:.6f} becomes "
        f"{after:.6f}, as if the row had never been stored."
    )
    return Chapter("5. Forget a row", text)


def _save(
    classifier: AttnKNNClassifier, path: Path, rows: Floats, numbers: dict[str, Any]
) -> Chapter:
    classifier.save(path)
    loaded = AttnKNNClassifier.load(path)
    same = loaded.predict_proba(rows).tobytes() == classifier.predict_proba(rows).tobytes()
    size = sum(file.stat().st_size for file in path.iterdir())
    numbers |= {"loaded_answers_are_the_same_bytes": same, "model_bytes": size}
    result = "bit-identical" if same else "DIFFERENT, which is a bug"
    text = (
        f"Saved to {path} ({size / 1e3:.0f} kB, no pickle) and loaded again: the probabilities of "
        f"{len(rows)} test rows are {result}."
    )
    return Chapter("6. Save and load", text)


def _probability(classifier: AttnKNNClassifier, query: Floats, label: int) -> float:
    place = int(np.flatnonzero(classifier.classes_ == label)[0])
    return float(classifier.predict_proba(query)[0, place])
