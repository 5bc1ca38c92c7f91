"""Nearest-neighbor attention for Vision Transformers: each token attends to few others."""
