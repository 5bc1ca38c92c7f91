"""Choosing and fitting the parts of a classifier on its memory.

`encoders` chooses the default encoder, `auto` compares and mixes attentions, and `fitting` fits
attention, number of neighbors and calibration; `attention`, `tables`, `images` and `value_heads`
train what is learned by gradients, all with the objective in `objective`: the
log-loss of the vote of other rows. `holdout` decides which rows are held out of training, and
`report` describes the result.
"""
