"""Count floating-point operations: matrix products, and selecting and combining neighbors."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import attnknn.vit.functional.cpu  # noqa: F401  (registers the operators below)


@dataclass(frozen=True)
class OperationCount:
    """Floating-point operations of a forward pass; a multiply-add counts as two.

    Attributes
    ----------
    products : int
        Operations of matrix products and convolutions.
    selection : int
        Comparisons to find and sort the K largest of M scores.
    aggregation : int
        Operations to weight and sum the values of selected tokens.

    Examples
    --------
    >>> OperationCount(products=10, selection=3, aggregation=2).total
    15
    """

    products: int
    selection: int
    aggregation: int

    @property
    def total(self) -> int:
        """Sum of all operations."""
        return self.products + self.selection + self.aggregation


def count_operations(model: nn.Module, images: Tensor) -> OperationCount:
    """Count the operations of a forward pass in evaluation mode.

    Parameters
    ----------
    model : nn.Module
        Any model; it keeps its mode.
    images : Tensor
        Input of the model.

    Returns
    -------
    OperationCount
        Operations for all images together.

    Examples
    --------
    >>> from attnknn.vit.model import vit_tiny
    >>> count = count_operations(vit_tiny(), torch.zeros(1, 3, 224, 224))
    >>> round(count.total / 1e9, 2)
    2.51
    """
    counts: Counter[str] = Counter()
    was_training = model.training
    model.eval()
    try:
        formulas = _formulas(counts)
        with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=formulas) as mode:
            model(images)
    finally:
        model.train(was_training)
    return OperationCount(mode.get_total_flops(), counts["selection"], counts["aggregation"])


def _formulas(counts: Counter[str]) -> dict[Any, Any]:
    """Formulas of operators that torch does not count.

    Each returns the products of its operator and adds the other operations to `counts`.
    """

    def select(shape: torch.Size, n: int) -> None:
        per_row = shape[-1] + n * math.ceil(math.log2(n + 1))
        counts["selection"] += math.prod(shape[:-1]) * per_row

    def topk(shape: torch.Size, n: int, *_: Any, **__: Any) -> int:
        select(shape, n)
        return 0

    def largest_products(
        query: torch.Size, key: torch.Size, n: int, *_: Any, out_shape: Any = None, **__: Any
    ) -> int:
        select(torch.Size([*query[:3], key[2]]), n)
        with_own = math.prod(query) if out_shape[0][-1] > n else 0
        return 2 * math.prod(query) * key[2] + 2 * with_own

    def combine(
        value: torch.Size,
        index: torch.Size,
        weights: torch.Size,
        kernel: torch.Size | None,
        *_: Any,
        out_shape: Any = None,
        **__: Any,
    ) -> int:
        n_ranks = weights[-1]
        counts["aggregation"] += 2 * math.prod(out_shape) * n_ranks
        if kernel is None:
            return 0
        rows = math.prod(value[:3]) * index[-1] + math.prod(index[:3]) * (n_ranks - index[-1])
        return rows * (2 * math.prod(kernel[:2]) if len(kernel) == 3 else kernel[0])

    def attend(query: torch.Size, key: torch.Size, value: torch.Size, *_: Any, **__: Any) -> int:
        return 2 * math.prod(query[:3]) * key[2] * (query[3] + value[3])

    ops = torch.ops
    return {
        ops.aten._scaled_dot_product_flash_attention_for_cpu: attend,
        ops.aten.topk: topk,
        ops.attnknn.largest_products: largest_products,
        ops.attnknn.combine: combine,
    }
