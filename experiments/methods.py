"""The methods that experiments compare, by name."""

from __future__ import annotations

from sklearn.pipeline import make_pipeline

from attnknn import AttnKNNClassifier, BoostingAttention, ForestAttention, MixtureAttention
from attnknn.encoders import TableEncoder
from attnknn.research.evaluation.baselines import LinearProbe, TableMLP, UniformKNN
from attnknn.research.evaluation.protocol import Method
from experiments.peers import (
    CalibratedSVC,
    CatBoost,
    hist_gradient_boosting,
    light_gbm,
    random_forest,
    xgboost,
)
from experiments.same_training import HeadOfLearned, VoteOfLearned

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

EXTRA_TREES = ForestAttention(kind="extra_trees")
BOOSTING = BoostingAttention(learning_rate=0.06, max_features=0.5)
HEADS = ("distance", "projection", "forest", EXTRA_TREES, BOOSTING)  # none is a network


def _with_attention(name: str, attention: object, encoder: str = "tabular") -> Method:
    """Our classifier of tables with an attention that is not the default."""
    return Method(
        name,
        lambda seed: AttnKNNClassifier(encoder=encoder, attention=attention, random_state=seed),
    )


# These get the rows of a table as they are, and encode them themselves.
TABLE_METHODS = {
    method.name: method
    for method in [
        Method("uniform", lambda _: make_pipeline(TableEncoder(), UniformKNN()), is_random=False),
        _with_attention("distance", "distance"),
        _with_attention("power", "power"),
        _with_attention("forest", "forest"),
        _with_attention("extra trees", EXTRA_TREES),
        _with_attention("projection", "projection"),
        _with_attention("boosting", BOOSTING),
        _with_attention("attnknn, no network", MixtureAttention(HEADS), "auto"),
        Method("attnknn", lambda seed: AttnKNNClassifier(random_state=seed)),
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
        Method("SVC", lambda seed: CalibratedSVC(random_state=seed)),
        Method("random forest", random_forest),
        Method("HistGradientBoosting", hist_gradient_boosting),
        Method("LightGBM", light_gbm),
        Method("XGBoost", xgboost),
        Method("CatBoost", lambda seed: CatBoost(random_state=seed)),
    ]
}
