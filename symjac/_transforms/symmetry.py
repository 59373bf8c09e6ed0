"""Hessians are symmetric; their dense blocks are made so to the last digit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import eval_jaxpr

from symjac import _compat
from symjac._cost import cost, jaxpr_cost, sizes
from symjac._engine.interpreter import engine_settings
from symjac._engine.program import TracedFunction

_PRODUCTS = 16.0
"""From so many operations for each entry on, a Hessian holds products whose roundings need not be symmetric."""


def symmetric(
    function: TracedFunction, gradient: TracedFunction, hessian: Callable[[Sequence[Array]], list[Array]], leaves: Any
) -> list[Array]:
    """Computes a Hessian, and mirrors its upper half where it is dense and not sure to be symmetric already.

    A function with derivative rules of the user's is left alone: its Hessian may be not symmetric.

    Args:
        function: The function.
        gradient: Its gradient; the outputs are by rows.
        hessian: Computes auxiliary arrays and blocks from the leaves.
        leaves: The leaves.
    """
    n_leaves, n_entries = sizes(function.active_avals), sizes(function.active_avals) * sizes(gradient.output_avals)
    is_one_type = len({(aval.dtype, aval.weak_type) for aval in function.active_avals}) == 1
    is_cheap = jaxpr_cost(gradient.jaxpr).flops * n_leaves < _PRODUCTS * n_entries
    is_too_large = n_leaves**2 > np.iinfo(np.int32).max
    if is_cheap or is_too_large or not is_one_type or _compat.has_rules_of_the_user(function.jaxpr):
        return hessian(leaves)
    jaxpr, consts = _compat.opened(closed := jax.make_jaxpr(hessian)(list(leaves)))
    arrays = list(map(jnp.asarray, eval_jaxpr(jaxpr, (), *consts, *leaves)))
    if cost(closed).flops < _PRODUCTS * n_entries:
        return arrays
    first = len(arrays) - len(gradient.output_avals) * len(function.active)
    shapes = [aval.shape for aval in function.active_avals]
    blocks = iter(arrays[first:])
    outputs = [[[next(blocks) for _ in shapes] for _ in shapes] for _ in function.output_avals]
    with engine_settings():
        return [*arrays[:first], *(block for output in outputs for block in _mirrored(output, shapes))]


def _mirrored(blocks: Sequence[Sequence[Array]], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Returns the blocks of one output by rows."""
    result = []
    for i, row in enumerate(blocks):
        for j, block in enumerate(row):
            upper = _flat(blocks[min(i, j)][max(i, j)], shapes[min(i, j)], shapes[max(i, j)])
            result.append((upper if i < j else _transposed(upper, i == j)).reshape(block.shape))
    return result


def _transposed(block: Array, keeps_upper: bool) -> Array:
    """Returns the transposed block, or the block with its upper half for the lower one.

    It reads entry by entry: of a transposed product, compilers make the product of the transposed factors.
    """
    n, m = block.shape[-2:]
    row, column = jnp.arange(m)[:, None], jnp.arange(n)
    position = column * m + row
    if keeps_upper:
        position = jnp.where(row <= column, row * m + column, position)
    flat = block.reshape(*block.shape[:-2], n * m)
    return flat.at[..., position].get(mode="promise_in_bounds")


def _flat(block: Array, rows: tuple[int, ...], columns: tuple[int, ...]) -> Array:
    """Returns a block with one axis for the rows and one for the columns, behind those of the output."""
    n_output = block.ndim - len(rows) - len(columns)
    return block.reshape(*block.shape[:n_output], math.prod(rows), math.prod(columns))
