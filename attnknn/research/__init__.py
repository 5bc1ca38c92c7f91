"""Named data sets, the evaluation protocol, experiments that measure claims, and their reports."""
