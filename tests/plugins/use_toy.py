"""`python use_toy.py KIND NAME CLASS FOLDER`: a registered toy through the life of a model."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris

from attnknn import AttnKNNClassifier
from attnknn.registry import Kind, find


def use(kind: Kind, name: str, class_name: str, folder: Path) -> None:
    X, y = load_iris(return_X_y=True)
    settings = {"attention": "distance", "random_state": 0} | {kind: name}
    cls = find(kind, name)
    assert cls.__name__ == class_name

    # Fit with a name, and with an object.
    classifier = AttnKNNClassifier(8, **settings).fit(X[::2], y[::2])
    assert type(getattr(classifier, f"{kind}_")) is cls
    assert classifier.score(X[1::2], y[1::2]) > 0.9
    AttnKNNClassifier(8, **{**settings, kind: cls()}).fit(X[::2], y[::2])

    (evidence,) = classifier.explain(X[1:2])
    assert len(evidence.ids) > 0

    classifier.save(folder)
    loaded = AttnKNNClassifier.load(folder)
    assert type(getattr(loaded, f"{kind}_")) is cls
    np.testing.assert_array_equal(loaded.predict_proba(X), classifier.predict_proba(X))

    # Edits that cancel out leave the answers as they were.
    loaded.add(X[1:4], y[1:4], ids=[1001, 1002, 1003])
    loaded.relabel([1001], [2])
    loaded.forget([1001, 1002, 1003])
    np.testing.assert_allclose(loaded.predict_proba(X), classifier.predict_proba(X), atol=1e-12)


if __name__ == "__main__":
    use(*sys.argv[1:4], Path(sys.argv[4]))  # type: ignore[arg-type]
