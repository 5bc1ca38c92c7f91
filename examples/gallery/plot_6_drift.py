"""
Detect drift in a stream
========================

A classifier is reliable on rows like those in its memory. `DriftMonitor` watches a stream and
raises an alarm when rows, or their labels, change. The probability of ever raising a false alarm
is bounded, however long the stream is.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from attnknn import AttnKNNClassifier
from attnknn.insight import DriftMonitor

X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(y))
X, y = X[order], y[order]
clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X[:900], y[:900])

# 400 rows like those in the memory, then 300 from a scanner with some noise.
stream, labels = X[900:1600].copy(), y[900:1600]
stream[400:] += np.random.default_rng(1).normal(0, 1.2, (300, 64))

# %%
# The evidence against "nothing has changed" is a martingale: without drift it stays small, and it
# exceeds a bound b with a probability of at most 1 / b. Watching in batches gives the same result
# as row by row.

monitor = DriftMonitor(clf, false_alarm_rate=0.01, random_state=0)
watched = monitor.watch(stream, labels)
print(watched)

# %%

fig, axis = plt.subplots(figsize=(8, 3.4))
axis.axvline(400, color="gray", linestyle=":", label="the scanner changes")
axis.axhline(monitor.bound, color="tab:red", linestyle="--", label="alarm")
axis.plot(np.exp(watched.rows.log_martingale), label="rows")
axis.plot(np.exp(watched.labels.log_martingale), label="labels")
axis.set_yscale("log")
axis.set_ylim(1e-2, 1e6)
axis.set_xlabel("row of the stream")
axis.set_ylabel("evidence of drift")
axis.legend(loc="upper left")
plt.show()
