"""Experiments: claims tested on named data, each a table in settings and a folder of reports."""
