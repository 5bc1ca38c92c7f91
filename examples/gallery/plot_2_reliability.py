"""
Calibrated probabilities with wrong labels
==========================================

Real data have wrong labels. Here 30 % of the training labels are replaced at random. A plain k-NN
vote then becomes underconfident: it learns that its neighbors disagree. AttnKNN estimates the
label noise by leave-one-out likelihood and reports probabilities of the *true* label. The
reliability diagram compares both on clean test labels.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from attnknn import AttnKNNClassifier, metrics

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)

rng = np.random.default_rng(0)
noisy = y_train.copy()
wrong = rng.random(len(noisy)) < 0.3
noisy[wrong] = rng.integers(0, 10, wrong.sum())
print(f"Share of wrong labels: {np.mean(noisy != y_train):.3f}")

# %%
# Fit both on the noisy labels. The default attention could be used as well; distance attention is
# faster.

attnknn = AttnKNNClassifier(attention="distance", random_state=0).fit(X_train, noisy)
knn = KNeighborsClassifier(n_neighbors=15).fit(X_train, noisy)
print(f"Estimated label noise: {attnknn.label_noise_:.3f}")

# %%
# A model is calibrated if, among all predictions with confidence 0.7, seventy percent are correct:
# the points lie on the diagonal.

fig, axis = plt.subplots(figsize=(5, 5))
axis.plot([0, 1], [0, 1], color="gray", linestyle="--", label="perfect calibration")
for name, model in [("k-NN, K = 15", knn), ("AttnKNN", attnknn)]:
    probabilities = model.predict_proba(X_test)
    confidence = probabilities.max(axis=1)
    correct = model.classes_[probabilities.argmax(axis=1)] == y_test
    edges = np.quantile(confidence, np.linspace(0, 1, 9)[1:-1])
    bins = np.searchsorted(edges, confidence)
    points = [(confidence[bins == b].mean(), correct[bins == b].mean()) for b in np.unique(bins)]
    error = metrics.ece(y_test, probabilities)
    axis.plot(*zip(*points, strict=True), marker="o", label=f"{name}: ECE {error:.3f}")
axis.set_xlabel("confidence")
axis.set_ylabel("accuracy")
axis.legend()
plt.show()
