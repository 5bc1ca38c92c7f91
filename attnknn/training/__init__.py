"""Gradient training for any torch module: loop, optimizers, schedules, augmentation, checkpoints.

The package knows nothing about neighbors. `TrainConfig` says how long and how fast to train,
`LossTerms` what is added to the log-loss;
`attnknn.training.loop.train` runs the epochs, keeps the state with the lowest validation loss and
writes checkpoints; `TrainResult` reports the losses. The other modules work on plain tensors and
can be used on their own: `losses`, `augmentation` (with MixUp and CutMix), `views` (test-time
augmentation), `optimizers`, `schedules`, `weight_average`, `devices` (with mixed precision),
`processes` (distributed training) and `threads`.
"""

from attnknn.training.config import LossTerms, TrainConfig, TrainResult, WarmRestarts

__all__ = ["LossTerms", "TrainConfig", "TrainResult", "WarmRestarts"]
