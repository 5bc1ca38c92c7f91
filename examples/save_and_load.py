"""Save a classifier to a folder without pickle, and load it elsewhere."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sklearn.datasets import load_iris

from attnknn import AttnKNNClassifier

X, y = load_iris(return_X_y=True)
clf = AttnKNNClassifier(random_state=0).fit(X, y, ids=[f"plant {i}" for i in range(len(y))])

with tempfile.TemporaryDirectory() as folder:
    clf.save(Path(folder) / "model")
    print(sorted(file.name for file in (Path(folder) / "model").iterdir()))
    loaded = AttnKNNClassifier.load(Path(folder) / "model")

same = loaded.predict_proba(X).tobytes() == clf.predict_proba(X).tobytes()
print("the same bytes:", same)
