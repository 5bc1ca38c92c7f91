"""Neighborhood attention beside NATTEN's, where that is installed; on a CPU it has no backward."""

from __future__ import annotations

import statistics
import time
import warnings

import torch

from benchmarks.vit.layers import DIM, K, neighborhood


def times_faster(n_images: int, n_tokens: int, repeats: int) -> float | None:
    """How many times faster our forward is by the wall's clock; None without NATTEN."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import natten
    except ImportError:
        return None
    ours = neighborhood().eval()
    theirs = natten.NeighborhoodAttention1D(DIM, 3, kernel_size=K).eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(n_images, n_tokens, DIM)
    ratios = []
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), atol=1e-4, rtol=1e-4)
        for _ in range(repeats):
            start = time.perf_counter()
            theirs(x)
            middle = time.perf_counter()
            ours(x)
            ratios.append((middle - start) / (time.perf_counter() - middle))
    return statistics.median(ratios)
