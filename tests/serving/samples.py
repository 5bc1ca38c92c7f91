"""Models and clients for the tests of the server."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_iris
from starlette.testclient import TestClient

from attnknn import AttnKNNClassifier
from attnknn.serving import app

NAMES = np.array(["setosa", "versicolor", "virginica"])
ROW = {"sepal": 5.1, "petal": 1.4}
FAR = {"sepal": 7.9, "petal": 6.9}


@cache
def table() -> tuple[pd.DataFrame, np.ndarray]:
    X, y = load_iris(return_X_y=True)
    return pd.DataFrame(X[:, [0, 2]], columns=["sepal", "petal"]), NAMES[y]


def flowers() -> AttnKNNClassifier:
    """A classifier of iris by two columns, with payloads, subjects and one wrong label."""
    return deepcopy(_fitted())


@cache
def _fitted() -> AttnKNNClassifier:
    X, y = table()
    y = y.copy()
    y[3] = "virginica"
    subjects = np.where(np.arange(len(y)) % 50 == 0, "ann", "")
    clf = AttnKNNClassifier(attention="distance", label_noise="symmetric", random_state=0)
    return clf.fit(X, y, payloads=[f"flower {i}" for i in range(len(y))], subjects=subjects)


def client_of(model: Any, **settings: Any) -> TestClient:
    """A client of an app, as a browser on the same machine."""
    settings.setdefault("by", "tester")
    return TestClient(app(model, **settings), base_url="http://localhost")
