"""
Abstain on uncertain and on novel rows
======================================

`decide` returns a label, or abstains and says why: the classes are too close (`min_confidence`,
`max_risk`), or the row is unlike anything in the memory (`novelty_level`).
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from attnknn import AttnKNNClassifier

X, y = make_blobs(300, centers=[[0, 0], [2.6, 0], [1.3, 2.4]], cluster_std=0.75, random_state=0)
clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X, y)

sides = np.linspace(-4, 7, 90), np.linspace(-4, 7, 90)
grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
decisions = clf.decide(grid, min_confidence=0.8, novelty_level=0.05)

# %%
# Each reason is a sentence.

for reason in sorted({reason.split(":")[0] for reason in decisions.reasons if reason})[:4]:
    print(reason)

# %%
# Colored regions get a label. Light gray is novel: no entry is near. Dark gray lies between the
# classes.

novel = ~clf.decide(grid, novelty_level=0.05).is_answered
colors = plt.get_cmap("Pastel1")(np.searchsorted(clf.classes_, decisions.predicted))
colors[~decisions.is_answered] = [0.55, 0.55, 0.55, 1]
colors[novel] = [0.88, 0.88, 0.88, 1]
fig, axis = plt.subplots(figsize=(5.6, 5))
extent = (sides[0][0], sides[0][-1], sides[1][0], sides[1][-1])
axis.imshow(colors.reshape(90, 90, 4), origin="lower", extent=extent)
axis.scatter(*X.T, c=plt.get_cmap("Set1")(y), s=14, edgecolors="white", linewidths=0.4)
axis.set_title("labels, abstain: uncertain, abstain: novel")
plt.show()
