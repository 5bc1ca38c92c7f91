"""
Fit, predict and see the evidence
=================================

`AttnKNNClassifier` is a scikit-learn classifier. Each prediction is a weighted vote of labeled
examples, and `explain` returns these examples with their weights. This example fits handwritten
digits and shows the evidence for the prediction that the model is least sure about.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from attnknn import AttnKNNClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)

clf = AttnKNNClassifier(random_state=0).fit(X_train, y_train)
print(f"Accuracy on test rows: {clf.score(X_test, y_test):.3f}")

# %%
# `fit` decides by itself which attention to use. The report says which one it kept, and why.

print(clf.fit_report_)

# %%
# The least confident prediction is the most interesting one.

probabilities = clf.predict_proba(X_test)
query = int(probabilities.max(axis=1).argmin())
evidence = clf.explain(X_test[[query]])[0]
print(evidence)

# %%
# The same evidence as a picture: the query on the left, then the neighbors with the largest
# weights. Weights of all neighbors and of the prior sum to one, so the probabilities can be
# checked by hand.

fig, axes = plt.subplots(1, 7, figsize=(10, 2.4))
axes[0].imshow(X_test[query].reshape(8, 8), cmap="gray_r")
axes[0].set_title(f"query\npredicted {evidence.label}\np = {evidence.probability:.2f}")
for axis, entry, label, weight in zip(
    axes[1:], evidence.ids, evidence.labels, evidence.weights, strict=False
):
    axis.imshow(X_train[entry].reshape(8, 8), cmap="gray_r")
    color = "tab:blue" if label == evidence.label else "tab:orange"
    axis.set_title(f"entry {entry}\nlabel {label}\nweight {weight:.2f}", color=color)
for axis in axes:
    axis.set_xticks([])
    axis.set_yticks([])
fig.tight_layout()
plt.show()

# %%
# Vote shares are the weights added up by class. The probability map turns shares into calibrated
# probabilities.

fig, axis = plt.subplots(figsize=(7, 2.6))
axis.bar(evidence.classes - 0.2, evidence.shares, width=0.4, label="vote share")
axis.bar(evidence.classes + 0.2, evidence.probabilities, width=0.4, label="probability")
axis.set_xticks(evidence.classes)
axis.set_xlabel("digit")
axis.legend()
plt.show()
