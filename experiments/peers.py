"""Classifiers of other libraries for tables as they are, with the libraries' default settings."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVC

from attnknn.encoders import TableEncoder
from attnknn.research.evaluation.baselines import AsCategories


def random_forest(seed: int) -> Any:
    """scikit-learn's, with 500 trees; trees take missing numbers, categories are one-hot."""
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer(
        (one_hot, make_column_selector(dtype_exclude="number")), remainder="passthrough"
    )
    return make_pipeline(columns, RandomForestClassifier(500, random_state=seed))


class CalibratedSVC(ClassifierMixin, BaseEstimator):
    """scikit-learn's SVC with an RBF kernel and calibrated probabilities.

    Its time grows with the square of the rows: of more than `max_rows`, a stratified sample is
    used.
    """

    def __init__(self, max_rows: int = 10_000, random_state: int = 0) -> None:
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit on all rows, or on a sample of them."""
        if len(y) > self.max_rows:
            rows, _ = train_test_split(
                np.arange(len(y)),
                train_size=self.max_rows,
                random_state=self.random_state,
                stratify=y,
            )
            X, y = pd.DataFrame(X).iloc[rows], np.asarray(y)[rows]
        self.model_ = make_pipeline(TableEncoder(), CalibratedClassifierCV(SVC())).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: Any) -> Any:
        """Probabilities (n, C)."""
        return self.model_.predict_proba(X)


def hist_gradient_boosting(seed: int) -> Any:
    """scikit-learn's, which stops early above 10,000 rows."""
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=seed)
    return make_pipeline(AsCategories(), model)


def light_gbm(seed: int) -> Any:
    """LightGBM's 100 trees."""
    from lightgbm import LGBMClassifier

    return make_pipeline(AsCategories(), LGBMClassifier(random_state=seed, verbose=-1))


def xgboost(seed: int) -> Any:
    """XGBoost's 100 trees."""
    from xgboost import XGBClassifier

    model = XGBClassifier(enable_categorical=True, random_state=seed)
    return make_pipeline(AsCategories(), model)


class CatBoost(ClassifierMixin, BaseEstimator):
    """CatBoost's 1,000 trees, with the names of text columns."""

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit on all rows."""
        from catboost import CatBoostClassifier

        table = pd.DataFrame(X)
        self.texts_ = [c for c in table if not pd.api.types.is_numeric_dtype(table[c])]
        self.model_ = CatBoostClassifier(
            random_seed=self.random_state,
            cat_features=self.texts_,
            verbose=False,
            allow_writing_files=False,
        )
        self.model_.fit(self._filled(table), y)
        self.classes_ = np.asarray(self.model_.classes_)
        return self

    def predict_proba(self, X: Any) -> Any:
        """Probabilities (n, C)."""
        return self.model_.predict_proba(self._filled(pd.DataFrame(X)))

    def _filled(self, table: pd.DataFrame) -> pd.DataFrame:
        texts = {c: table[c].astype(object).where(table[c].notna(), "missing") for c in self.texts_}
        return table.assign(**{str(c): values.astype(str) for c, values in texts.items()})
