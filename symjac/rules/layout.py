"""Primitives that move entries about: they edit out axes, and never touch a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from symjac import _compat
from symjac._algebra.index_map import Affine
from symjac._algebra.merge import add_tangents
from symjac._algebra.tangent import StructuredTangent, Term, replace
from symjac._engine.interpreter import register


@register(lax.broadcast_in_dim_p)
def _broadcast_in_dim_rule(
    x: StructuredTangent, *dynamic_shape: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int], **_: Any
) -> StructuredTangent:
    """New axes get uniform labels. Keeps every delta."""
    return x.map(lambda term: term.broadcast(shape, broadcast_dimensions), shape=shape)


@register(lax.reshape_p)
def _reshape_rule(x: StructuredTangent, *, new_sizes: Sequence[int], dimensions: Any, **_: Any) -> StructuredTangent:
    """Splits and merges out axes, and the labels with them. Keeps every delta."""
    if dimensions is not None:
        x = _transpose_rule(x, permutation=dimensions)
    return x.map(lambda term: term.reshape(x.shape, new_sizes), shape=new_sizes)


@register(lax.squeeze_p)
def _squeeze_rule(x: StructuredTangent, *, dimensions: Sequence[int]) -> StructuredTangent:
    """Drops axes of size 1. Keeps every delta."""
    shape = [n for i, n in enumerate(x.shape) if i not in dimensions]
    return x.map(lambda term: term.sum_axes(dimensions), shape=shape)


@register(lax.transpose_p)
def _transpose_rule(x: StructuredTangent, *, permutation: Sequence[int]) -> StructuredTangent:
    """Permutes out axes. Keeps every delta."""
    return x.map(lambda term: term.transpose(permutation), shape=[x.shape[i] for i in permutation])


@register(lax.rev_p)
def _rev_rule(x: StructuredTangent, *, dimensions: Sequence[int]) -> StructuredTangent:
    """Reads out axes backwards. Keeps every delta, with a map of stride -1."""
    for axis in dimensions:
        n = x.shape[axis]
        x = x.map(lambda term, axis=axis, n=n: term.restrict(axis, n - 1, -1, n))
    return x


@register(lax.slice_p)
def _slice_rule(
    x: StructuredTangent, *, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None
) -> StructuredTangent:
    """Restricts the labels of out axes to a range. Keeps every delta."""
    steps = strides or (1,) * len(start_indices)
    shape = list(x.shape)
    for axis, (start, limit, step) in enumerate(zip(start_indices, limit_indices, steps, strict=True)):
        count = max(0, -(-(limit - start) // step))
        if (start, step, count) == (0, 1, x.shape[axis]):
            continue
        shape[axis] = count
        x = x.map(lambda term, a=axis, s=start, d=step, n=count: term.restrict(a, s, d, n), shape=shape)
    return x


@register(lax.pad_p)
def _pad_rule(x: Any, padding_value: Any, *, padding_config: Sequence[tuple[int, int, int]]) -> StructuredTangent:
    """Moves out axes by an affine map; what is cut off is dropped. Keeps every delta.

    A padding value with a tangent fills what is not moved to.
    """
    # JAX's own transposes pass NumPy's integers.
    configs = [(int(low), int(high), int(inner)) for low, high, inner in padding_config]
    old = x.shape if isinstance(x, StructuredTangent) else np.shape(x)
    shape = [low + high + n + max(n - 1, 0) * inner for (low, high, inner), n in zip(configs, old, strict=True)]
    parts = [_padded(x, configs, shape)] if isinstance(x, StructuredTangent) else []
    if isinstance(padding_value, StructuredTangent):
        outside = lax.pad(jnp.zeros(old, bool), np.True_, configs)
        filled = padding_value.map(lambda term: term.broadcast(shape, ()).masked(outside), shape=shape)
        parts.append(filled)
    return add_tangents(parts)


def _padded(x: StructuredTangent, configs: Sequence[tuple[int, int, int]], shape: Sequence[int]) -> StructuredTangent:
    grown = list(x.shape)
    for axis, (low, high, interior) in enumerate(configs):
        if (low, high, interior) != (0, 0, 0):
            grown[axis] = shape[axis]
            x = x.map(lambda t, a=axis, o=low, m=shape[axis], s=interior + 1: t.place(a, o, m, s), shape=grown)
    return x


@register(lax.concatenate_p)
def _concatenate_rule(*operands: Any, dimension: int) -> StructuredTangent:
    """A sum of terms, each moved to its place. Keeps the deltas that all operands share, and all where it is sparse."""
    sizes = [np.shape(x)[dimension] if not isinstance(x, StructuredTangent) else x.shape[dimension] for x in operands]
    total, start, parts = sum(sizes), 0, []
    for x, size in zip(operands, sizes, strict=True):
        if isinstance(x, StructuredTangent):
            shape = [total if i == dimension else n for i, n in enumerate(x.shape)]
            parts.append(x.map(lambda term, o=start: term.place(dimension, o, total), shape=shape))
        start += size
    return add_tangents(parts)


@register(lax.reduce_sum_p)
def _reduce_sum_rule(x: StructuredTangent, *, axes: Sequence[int], **_: Any) -> StructuredTangent:
    """Drops out axes; their labels are contracted, or stay on in axes alone. Keeps the other deltas."""
    shape = [n for i, n in enumerate(x.shape) if i not in axes]
    return x.map(lambda term: term.sum_axes(axes), shape=shape)


if _compat.stack_p is not None:

    @register(_compat.stack_p)
    def _stack_rule(*operands: Any, axis: int, **_: Any) -> StructuredTangent:
        """A sum of terms, each at one position of a new axis. Keeps the deltas that all operands share."""
        parts = []
        for i, x in enumerate(operands):
            if isinstance(x, StructuredTangent):
                shape = [*x.shape[:axis], len(operands), *x.shape[axis:]]
                parts.append(x.map(lambda term, i=i: _at(term, axis, i, len(operands)), shape=shape))
        return add_tangents(parts)


if _compat.unstack_p is not None:

    @register(_compat.unstack_p)
    def _unstack_rule(x: StructuredTangent, *, axis: int, **_: Any) -> list[StructuredTangent]:
        """One position of an axis for each result. Keeps the other deltas."""
        results = []
        shape = [1 if i == axis else n for i, n in enumerate(x.shape)]
        for i in range(x.shape[axis]):
            one = x.map(lambda term, i=i: term.restrict(axis, i, 1, 1), shape=shape)
            results.append(_squeeze_rule(one, dimensions=(axis,)))
        return results


def _at(term: Term, axis: int, position: int, size: int) -> Term:
    return replace(term, out_axes=(*term.out_axes[:axis], Affine(size, position, ()), *term.out_axes[axis:]))


@register(lax.split_p)
def _split_rule(x: StructuredTangent, *, sizes: Sequence[int], axis: int) -> list[StructuredTangent]:
    """Consecutive ranges of an axis. Keeps every delta."""
    results, start = [], 0
    for size in sizes:
        shape = [size if i == axis else n for i, n in enumerate(x.shape)]
        results.append(x.map(lambda term, s=start, n=size: term.restrict(axis, s, 1, n), shape=shape))
        start += size
    return results


if _compat.tile_p is not None:

    @register(_compat.tile_p)
    def _tile_rule(x: StructuredTangent, *, reps: Sequence[int], **_: Any) -> StructuredTangent:
        """Broadcasts along a new axis before each tiled one, and merges the two. Keeps every delta."""
        spread = [size for rep, n in zip(reps, x.shape, strict=True) for size in (rep, n)]
        kept = range(1, 2 * len(x.shape), 2)
        wide = _broadcast_in_dim_rule(x, shape=spread, broadcast_dimensions=kept)
        return _reshape_rule(wide, new_sizes=[r * n for r, n in zip(reps, x.shape, strict=True)], dimensions=None)
