"""Experiments that test the claims of the research, as `attnknn experiment` runs them.

`study.measure` runs a `study.Study`: one claim (`claims`, with settings in `claims.toml`) on one
data set. `data` corrupts and embeds the rows, training an image encoder (`networks`) if there are
images; `methods` are compared on the same embeddings; `running` runs the cells that a report does
not have yet; `measures` times indexes and votes.
"""
