"""The model of a study, as a classifier that can be saved and used."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from attnknn.errors import InvalidSettingError
from attnknn.research.evaluation.corruption import Corruption
from attnknn.research.experiments.methods import Workspace
from attnknn.research.experiments.study import Study, set_up

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.model import FittedModel
    from attnknn.research.evaluation.protocol import Progress
    from attnknn.research.experiments.data import EmbeddedDataset


def classifier_of(study: Study, progress: Progress = lambda _: None) -> AttnKNNClassifier:
    """The classifier behind the row `attnknn` of a study, of its first seed.

    Its attention was chosen on held-out rows, and never on test rows. An encoder that the study
    has trained is read from its checkpoint.

    Parameters
    ----------
    study : Study
        What was measured.
    progress : callable, default=None
        Receives lines to show.

    Returns
    -------
    AttnKNNClassifier
        A fitted classifier with the labels of the data set.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clf = classifier_of(Study("main", "iris", Path(folder), [0]))
    >>> clf.classes_.tolist()
    ['setosa', 'versicolor', 'virginica']
    """
    setup, _, seeds = set_up(study, progress)
    embedded = setup.embed(Corruption(), seeds[0])
    workspace = Workspace(embedded)
    return _classifier(embedded, workspace.fitted("auto", workspace.most))


def _classifier(embedded: EmbeddedDataset, model: FittedModel) -> AttnKNNClassifier:
    from attnknn.classifier import AttnKNNClassifier

    encoder = embedded.fitted_encoder
    if not hasattr(encoder, "get_params"):
        raise InvalidSettingError(
            f"The rows of {embedded.data.name!r} are embedded by a function, which no model folder "
            "can hold. Name an encoder, such as `encoder='identity'`."
        )
    unfitted: Any = clone(encoder)
    classifier = AttnKNNClassifier(encoder=unfitted, memory="torch", random_state=embedded.seed)
    classifier.n_features_in_ = encoder.n_features_in_
    if hasattr(encoder, "feature_names_in_"):
        classifier.feature_names_in_ = encoder.feature_names_in_
    report = replace(model.report, encoder=f"{encoder.name}: of the study")
    model = _named(model, np.array(embedded.data.classes))
    classifier.model_ = replace(model, encoder=encoder, report=report)
    return classifier


def _named(model: FittedModel, names: Any) -> FittedModel:
    """The model with sorted names of classes in place of their codes."""
    order = np.argsort(names, kind="stable")
    attention, memory = model.attention.copy(), copy(model.memory)
    attention.reorder_classes(order)
    memory.recode(np.argsort(order))
    calibration = model.calibration.with_order(order)
    return replace(
        model, attention=attention, memory=memory, calibration=calibration, classes=names[order]
    )
