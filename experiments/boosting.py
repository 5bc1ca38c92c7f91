"""Gradient boosting at its defaults, for tables: three libraries behind one face."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline

from attnknn.research.evaluation.baselines import AsCategories


def hist_gradient_boosting(seed: int) -> Any:
    """scikit-learn's, which stops early above 10,000 rows."""
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=seed)
    return make_pipeline(AsCategories(), model)


def light_gbm(seed: int) -> Any:
    """LightGBM's 100 trees."""
    from lightgbm import LGBMClassifier

    return make_pipeline(AsCategories(), LGBMClassifier(random_state=seed, verbose=-1))


class CatBoost(ClassifierMixin, BaseEstimator):
    """CatBoost's 1,000 trees, told which columns are texts."""

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
