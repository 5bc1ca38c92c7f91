"""Data sets, comparisons with intervals, experiments on the claims of the research, and pages.

Use `datasets` to load data with a fixed split, `evaluation` to compare your own estimators,
`experiments` to measure a claim of the research, and `reports` to make a page of the results.
"""
