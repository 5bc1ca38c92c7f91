"""How many operations a model takes for an image: products, and choosing and collecting too."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import attnknn.vit.functional.choosing
import attnknn.vit.functional.combining  # noqa: F401  (registers the operators below)


@dataclass(frozen=True)
class Operations:
    """Floating-point operations of a forward pass; a multiplication and an addition are two.

    `products` are those of matrices and convolutions, `choosing` the comparisons of finding the K
    largest of M numbers and putting them in order, `collecting` the multiplications and additions
    by which values of chosen tokens are weighed and summed.
    """

    products: int
    choosing: int
    collecting: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.products + self.choosing + self.collecting


def count_operations(model: nn.Module, images: Tensor) -> Operations:
    """The operations of `model` on `images` in evaluation; divide by their number.

    >>> from attnknn.vit.model import vit_tiny
    >>> count = count_operations(vit_tiny(), torch.zeros(1, 3, 224, 224))
    >>> round(count.total / 1e9, 2)
    2.51
    """
    found: Counter[str] = Counter()
    was_training = model.training
    model.eval()
    try:
        mapping = _formulas(found)
        with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=mapping) as mode:
            model(images)
    finally:
        model.train(was_training)
    return Operations(mode.get_total_flops(), found["choosing"], found["collecting"])


def _formulas(found: Counter[str]) -> dict[Any, Any]:
    """What torch does not count, or cannot see into. A formula gives the products of its operator,
    and adds the rest to `found`.
    """

    def choose(shape: torch.Size, n: int) -> None:
        each = shape[-1] + n * math.ceil(math.log2(n + 1))
        found["choosing"] += math.prod(shape[:-1]) * each

    def topk(shape: torch.Size, n: int, *_: Any, out_shape: Any = None, **__: Any) -> int:
        del out_shape
        choose(shape, n)
        return 0

    def largest_products(
        query: torch.Size, key: torch.Size, n: int, *_: Any, out_shape: Any = None, **__: Any
    ) -> int:
        choose(torch.Size([*query[:3], key[2]]), n)
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
        found["collecting"] += 2 * math.prod(out_shape) * n_ranks
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
