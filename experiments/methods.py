"""The methods that experiments compare, by the name they have in tables."""

from __future__ import annotations

from attnknn import AttnKNNClassifier
from attnknn.evaluation.baselines import LinearProbe, UniformKNN
from attnknn.evaluation.protocol import Method

METHODS = {
    method.name: method
    for method in [
        Method("uniform", lambda _: UniformKNN(), is_random=False),
        Method("distance", lambda seed: AttnKNNClassifier(attention="distance", random_state=seed)),
        Method(
            "distance, no noise model",
            lambda seed: AttnKNNClassifier(
                attention="distance", label_noise=None, random_state=seed
            ),
        ),
        Method("attnknn", lambda seed: AttnKNNClassifier(random_state=seed)),
        Method(
            "attnknn, K = 128", lambda seed: AttnKNNClassifier(n_neighbors=128, random_state=seed)
        ),
        Method(
            "attnknn, by class",
            lambda seed: AttnKNNClassifier(label_noise="by_class", random_state=seed),
        ),
        Method("logistic", lambda _: LinearProbe(random_state=0), is_random=False),
    ]
}
