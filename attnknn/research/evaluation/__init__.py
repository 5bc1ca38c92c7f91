"""Honest comparisons: protocol · table · baselines · corruption · intervals."""
