"""
Find wrong labels
=================

`audit` predicts every entry from the *other* entries and returns the probability that its label is
wrong, the most probable correct label, and duplicates. Here 40 labels of 1,200 are wrong on
purpose, so that we can count how many the audit finds.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from attnknn import AttnKNNClassifier
from attnknn.insight import audit

X, y = load_digits(return_X_y=True)
X, y = X[:1200], y[:1200]
rng = np.random.default_rng(0)
labels = y.copy()
changed = rng.choice(len(y), 40, replace=False)
labels[changed] = (labels[changed] + rng.integers(1, 10, 40)) % 10

clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X, labels)
table = audit(clf).to_frame()
print(table.head().T)

# %%
# The table is sorted: the most suspicious entries come first. Look at the first twelve. The given
# label is wrong on nearly all of them, and the suggested label is right.

fig, axes = plt.subplots(2, 6, figsize=(9, 4))
for axis, row in zip(axes.flat, table.itertuples(), strict=False):
    axis.imshow(X[row.id].reshape(8, 8), cmap="gray_r")
    axis.set_title(f"given {row.label}, suggested {row.suggested}", fontsize=8)
    axis.axis("off")
fig.tight_layout()
plt.show()

# %%
# How many of the first k entries are really wrong?

is_wrong = np.isin(table["id"], changed)
fig, axis = plt.subplots(figsize=(6, 3.2))
axis.plot(np.arange(1, 121), is_wrong.cumsum()[:120], label="audit")
axis.plot([0, 40, 120], [0, 40, 40], color="gray", linestyle="--", label="perfect ranking")
axis.set_xlabel("entries inspected")
axis.set_ylabel("wrong labels found")
axis.legend()
plt.show()

# %%
# Correct the labels. The next prediction uses the corrected ones; nothing is trained again.

suspects = table["id"].to_numpy()[:40]
before = clf.score(X, y)
clf.relabel(suspects, y[suspects])
print(f"Agreement with the true labels: {before:.3f} before, {clf.score(X, y):.3f} after.")
