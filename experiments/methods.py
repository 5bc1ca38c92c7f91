"""The methods that experiments compare, by name; gradient boosting among them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline

from attnknn import AttnKNNClassifier
from attnknn.encoders import TableEncoder
from attnknn.research.evaluation.baselines import AsCategories, LinearProbe, TableMLP, UniformKNN
from attnknn.research.evaluation.protocol import Method
from experiments.same_training import HeadOfLearned, VoteOfLearned


def hist_gradient_boosting(seed: int) -> Any:
    """scikit-learn's, which stops early above 10,000 rows."""
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=seed)
    return make_pipeline(AsCategories(), model)


def light_gbm(seed: int) -> Any:
    """LightGBM's 100 trees."""
    from lightgbm import LGBMClassifier

    return make_pipeline(AsCategories(), LGBMClassifier(random_state=seed, verbose=-1))


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


METHODS = {
    method.name: method
    for method in [
        Method("uniform", lambda _: UniformKNN(), is_random=False),
        Method(
            "distance", lambda seed: AttnKNNClassifier(64, attention="distance", random_state=seed)
        ),
        Method(
            "distance, no noise model",
            lambda seed: AttnKNNClassifier(
                64, attention="distance", label_noise=None, random_state=seed
            ),
        ),
        Method("attnknn", lambda seed: AttnKNNClassifier(64, random_state=seed)),
        Method(
            "value head", lambda seed: AttnKNNClassifier(64, value_head=True, random_state=seed)
        ),
        Method(
            "attnknn, K = 128", lambda seed: AttnKNNClassifier(n_neighbors=128, random_state=seed)
        ),
        Method(
            "attnknn, by class",
            lambda seed: AttnKNNClassifier(64, label_noise="by_class", random_state=seed),
        ),
        Method("logistic", lambda _: LinearProbe(random_state=0), is_random=False),
    ]
}

# These get the rows of a table as they are, and encode them themselves.
TABLE_METHODS = {
    method.name: method
    for method in [
        Method("uniform", lambda _: make_pipeline(TableEncoder(), UniformKNN()), is_random=False),
        Method(
            "distance",
            lambda seed: AttnKNNClassifier(
                encoder="tabular", attention="distance", random_state=seed
            ),
        ),
        Method(
            "power",
            lambda seed: AttnKNNClassifier(encoder="tabular", attention="power", random_state=seed),
        ),
        Method("attnknn", lambda seed: AttnKNNClassifier(encoder="tabular", random_state=seed)),
        Method(
            "attnknn, learned encoder",
            lambda seed: VoteOfLearned(encoder="learned-tabular", random_state=seed),
        ),
        Method(
            "value head, learned encoder",
            lambda seed: HeadOfLearned(
                encoder="learned-tabular", value_head=True, random_state=seed
            ),
        ),
        Method("MLP, same encoder", lambda seed: TableMLP(random_state=seed)),
        Method(
            "logistic",
            lambda _: make_pipeline(TableEncoder(), LinearProbe(random_state=0)),
            is_random=False,
        ),
        Method("HistGradientBoosting", hist_gradient_boosting),
        Method("LightGBM", light_gbm),
        Method("CatBoost", lambda seed: CatBoost(random_state=seed)),
    ]
}
