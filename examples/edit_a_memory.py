"""Find a wrong label, fix it, forget a row: the next answer reflects it."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_wine

from attnknn import AttnKNNClassifier

X, y = load_wine(return_X_y=True, as_frame=True)
labels = np.array(["barolo", "grignolino", "barbera"])[y]
labels[7] = "barbera"  # wrong, on purpose: it is a barolo

clf = AttnKNNClassifier(encoder="tabular", random_state=0).fit(X, labels)

own = np.searchsorted(clf.classes_, labels)
probability_of_label = clf.leave_one_out_proba()[np.arange(len(own)), own]
suspect = int(probability_of_label.argmin())
print(f"most suspect entry: #{suspect}, labeled {labels[suspect]}")

question = X.iloc[[suspect]]
print(clf.explain(question)[0].table(3))

clf.relabel([suspect], "barolo")
print("after relabel:", clf.predict(question)[0])

clf.forget([suspect])
print(f"after forget: {clf.predict(question)[0]}, from {len(clf.memory_)} entries")
