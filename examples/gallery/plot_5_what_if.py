"""
What would change if an entry had another label?
================================================

`what_if` computes the predictions after an edit without making it. Use it to see what depends on a
questionable entry before you relabel or forget it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from attnknn import AttnKNNClassifier
from attnknn.insight import what_if

X, y = make_moons(160, noise=0.2, random_state=1)
clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X, y)

# Five entries at the tip of the upper moon: what if they belonged to the other class?
doubtful = np.argsort(np.linalg.norm(X - [1.0, 0.0], axis=1) + 10 * (y != 0))[:5]
sides = np.linspace(-1.6, 2.6, 60), np.linspace(-1.2, 1.7, 60)
grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
answer = what_if(clf, grid, relabel={int(entry): 1 for entry in doubtful})
print(answer.sentence())

# %%
# The probability of class 1 before and after, and the difference. The edit acts locally, around
# the five entries.

panels = {
    "now": answer.before[:, 1],
    "after the edit": answer.after[:, 1],
    "difference": answer.after[:, 1] - answer.before[:, 1],
}
fig, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True)
for axis, (title, values) in zip(axes, panels.items(), strict=True):
    low = -1 if title == "difference" else 0
    shown = axis.pcolormesh(*sides, values.reshape(60, 60), cmap="RdBu_r", vmin=low, vmax=1)
    axis.scatter(*X.T, c=y, cmap="RdBu_r", s=12, edgecolors="white", linewidths=0.4)
    axis.scatter(*X[doubtful].T, s=60, facecolors="none", edgecolors="black")
    axis.set_title(title)
    fig.colorbar(shown, ax=axis)
fig.tight_layout()
plt.show()

# %%
# The classifier itself is unchanged.

print("Label of the first doubtful entry:", clf.explain(X[doubtful[:1]])[0].labels[0])
