"""
Add a class without training
============================

A label that was never seen becomes a new class as soon as `add` receives it. This example fits
digits without any nine, then adds nines and measures how many of them are recognized, and what the
other digits lose.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from attnknn import AttnKNNClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
is_nine, is_test_nine = y_train == 9, y_test == 9
nines = X_train[is_nine]

clf = AttnKNNClassifier(attention="distance", random_state=0)
clf.fit(X_train[~is_nine], y_train[~is_nine])
print("Classes:", clf.classes_)

# %%
# Add nines in small batches. Each `add` takes milliseconds, and the next prediction knows the
# class.

counts, new, old = [0], [0.0], [clf.score(X_test[~is_test_nine], y_test[~is_test_nine])]
for start, stop in [(0, 1), (1, 2), (2, 5), (5, 10), (10, 20), (20, 40), (40, 80)]:
    clf.add(nines[start:stop], np.full(stop - start, 9))
    counts.append(stop)
    new.append(clf.score(X_test[is_test_nine], y_test[is_test_nine]))
    old.append(clf.score(X_test[~is_test_nine], y_test[~is_test_nine]))
print("Classes:", clf.classes_)

fig, axis = plt.subplots(figsize=(7, 3.4))
axis.plot(counts, new, marker="o", label="nines")
axis.plot(counts, old, marker="o", label="digits 0 to 8")
axis.set_xscale("symlog", linthresh=1)
axis.set_xticks(counts, [str(count) for count in counts])
axis.set_xlabel("nines added")
axis.set_ylabel("accuracy on test rows")
axis.legend()
plt.show()
