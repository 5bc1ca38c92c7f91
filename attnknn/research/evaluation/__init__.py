"""Comparisons of methods on the same rows, labels and seeds, with intervals.

`protocol.run` compares scikit-learn estimators on a data set and returns a `table.Table`, which has
paired differences with bootstrap intervals (`intervals`). `report` stores tables on disk, seed by
seed. `corruption` makes labels noisy, classes rare and images blurred; `baselines` has uniform kNN,
a linear probe and an MLP to compare with. `measurements` and `error_analysis` hold what a report
has beside tables.
"""
