"""Honest comparisons: protocol · table · baselines · stress · intervals."""
