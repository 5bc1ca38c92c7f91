"""
Prediction sets with a stated coverage
======================================

One label is not always the right answer. `predict_set` returns every class that is plausible for a
row, so that the set contains the true label with the probability you ask for. No rows have to be
set aside: the thresholds come from leave-one-out predictions of the entries in the memory.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from attnknn import AttnKNNClassifier

X, y = load_digits(return_X_y=True)
X = X + np.random.default_rng(0).normal(0, 6, X.shape)  # make the digits hard to read
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X_train, y_train)
print(f"Accuracy: {clf.score(X_test, y_test):.3f}")

# %%
# Compare the coverage that was asked for with the coverage on test rows. Higher coverage costs
# larger sets.

asked = np.array([0.8, 0.85, 0.9, 0.95, 0.98])
found, sizes = [], []
for coverage in asked:
    sets = clf.predict_set(X_test, coverage=coverage)
    found.append(
        np.mean([truth in labels for truth, labels in zip(y_test, sets.labels(), strict=True)])
    )
    sizes.append(sets.sizes.mean())

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
left.plot([0.78, 1], [0.78, 1], color="gray", linestyle="--")
left.plot(asked, found, marker="o")
left.set_xlabel("requested coverage")
left.set_ylabel("observed coverage")
right.plot(asked, sizes, marker="o", color="tab:orange")
right.set_xlabel("requested coverage")
right.set_ylabel("mean size of a set")
fig.tight_layout()
plt.show()

# %%
# Rows with one, two and three plausible classes at a coverage of 95 %.

labels = clf.predict_set(X_test, coverage=0.95).labels()
size_of = np.array([len(chosen) for chosen in labels])
fig, axes = plt.subplots(1, 6, figsize=(10, 2.3))
rows = [row for size in (1, 2, 3) for row in np.flatnonzero(size_of == size)[:2]]
for axis, row in zip(axes, rows, strict=False):
    axis.imshow(X_test[row].reshape(8, 8), cmap="gray_r")
    axis.set_title(
        "{" + ", ".join(str(label) for label in labels[row]) + f"}}\ntruth {y_test[row]}"
    )
    axis.axis("off")
plt.show()
