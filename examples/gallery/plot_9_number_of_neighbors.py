"""
K hardly matters
================

In a classical k-NN vote, K is a compromise that has to be tuned. Attention weights neighbors by
distance and gives the prior a vote, so more neighbors do no harm. This example compares the log-
loss over K.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from attnknn import AttnKNNClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)

sizes = [1, 2, 4, 8, 16, 32, 64, 128]
losses: dict[str, list[float]] = {"k-NN": [], "k-NN, distance weights": [], "AttnKNN, distance": []}
for k in sizes:
    models = [
        KNeighborsClassifier(k),
        KNeighborsClassifier(k, weights="distance"),
        AttnKNNClassifier(k, attention="distance", random_state=0),
    ]
    for (name, values), model in zip(losses.items(), models, strict=True):
        values.append(log_loss(y_test, model.fit(X_train, y_train).predict_proba(X_test)))
        print(f"K = {k:3d}  {name:24s} {values[-1]:.3f}")

# %%
# A vote that gives a class no weight at all has a large log-loss whenever that class is right. The
# prior prevents it.

fig, axis = plt.subplots(figsize=(7, 3.6))
for name, values in losses.items():
    axis.plot(sizes, values, marker="o", label=name)
axis.set_xscale("log", base=2)
axis.set_yscale("log")
axis.set_xticks(sizes, [str(k) for k in sizes])
axis.set_xlabel("number of neighbors K")
axis.set_ylabel("log-loss on test rows")
axis.legend()
plt.show()
