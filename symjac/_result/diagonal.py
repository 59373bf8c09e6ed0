"""Diagonals, norms of rows and columns, and blocks, from the stored terms where their structure allows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from symjac._algebra.describe import describe_term
from symjac._algebra.factor import cast
from symjac._algebra.materialise import assemble
from symjac._algebra.tangent import Term
from symjac._result import apply
from symjac._result.apply import compiled
from symjac._result.classify import structure_of
from symjac._result.entries import pattern_of, skeleton, stored_count, stored_values, traced_entries
from symjac._result.meet import TooDenseError, diagonal_of, flattened, inside, placed, row_gram_diagonal, same_map
from symjac._result.stored import Layout, has_traced_indices, unpack, with_static_indices

# Norms go by the dense matrix where it has no more elements than this, or than so many times what the factors hold.
_SMALL = 2**16
_MULTIPLE = 8


def diagonal(layout: Layout, arrays: Sequence[Any]) -> Any:
    """The diagonal of a square matrix."""
    try:
        return _diagonal_of_terms(layout, tuple(arrays))
    except TooDenseError:
        if 2 * stored_count(layout) <= layout.shape[0] * layout.shape[1]:
            indices, values = _indices_and_values(layout, arrays)
            return _diagonal_of_entries(_Rows(layout.shape[0]), indices, values)
        return jnp.diagonal(apply.matrix(layout, tuple(arrays)))


@compiled
def _diagonal_of_terms(layout: Layout, arrays: Sequence[Any]) -> Any:
    blocks = unpack(layout, arrays)
    if [leaf.shape for leaf in layout.outs] == [leaf.shape for leaf in layout.ins]:
        parts = [
            jnp.reshape(cast(diagonal_of(blocks[i][i], leaf.shape, layout.dtype), layout.dtype), -1)
            for i, leaf in enumerate(layout.outs)
        ]
        return parts[0] if len(parts) == 1 else lax.concatenate(parts, 0)
    terms = _in_matrix(layout, blocks)
    return cast(diagonal_of(terms, layout.shape[:1], layout.dtype), layout.dtype)


@compiled
def _diagonal_of_entries(rows: Any, indices: Any, values: Any) -> Any:
    kept = jnp.where(indices[:, 0] == indices[:, 1], values, jnp.zeros_like(values))
    return jnp.zeros(rows.count, values.dtype).at[indices[:, 0]].add(kept, mode="drop")


@compiled
def three_diagonals(layout: Layout, arrays: Sequence[Any]) -> tuple[Any, Any, Any]:
    """The diagonal, the lower and the upper diagonal of a square matrix."""
    n = layout.shape[0]
    terms = _in_matrix(layout, unpack(layout, arrays))
    try:
        main, lower, upper = (_shifted_diagonal(terms, n, shift, layout.dtype) for shift in (0, -1, 1))
        return main, lower, upper
    except TooDenseError:
        matrix = apply.matrix(layout, arrays)
        return jnp.diagonal(matrix), jnp.diagonal(matrix, -1), jnp.diagonal(matrix, 1)


def _shifted_diagonal(terms: Sequence[Term], n: int, shift: int, dtype: Any) -> Any:
    count = n - abs(shift)
    parts = []
    for term in terms:
        # Rows and columns from the first entry of this diagonal on.
        rows = term.restrict(0, max(-shift, 0), 1, count)
        columns = None if rows is None else rows.swapped().restrict(0, max(shift, 0), 1, count)
        parts.extend([] if columns is None else [columns.swapped()])
    return cast(diagonal_of(parts, (count,), dtype), dtype)


def _in_matrix(layout: Layout, blocks: Sequence[Sequence[Sequence[Term]]]) -> list[Term]:
    found = [
        placed(flattened(term, layout.outs[i].shape, layout.ins[j].shape), row, column, layout.shape)
        for i, j, row, column in layout.offsets()
        if 0 not in (*layout.outs[i].shape, *layout.ins[j].shape)  # A block without entries has no place.
        for term in blocks[i][j]
    ]
    return [term for term in found if term is not None]


def row_norms(layout: Layout, arrays: Sequence[Any]) -> Any:
    """The Euclidean norm of each row."""
    way = _way(layout)
    if way == "entries":
        indices, values = _indices_and_values(layout, arrays)
        return _norms_of_entries(_Rows(layout.shape[0]), indices[:, 0], values)
    if way == "products":
        try:
            return _norms_by_products(layout, tuple(arrays))
        except TooDenseError:
            pass
    return _norms_of_matrix(layout, tuple(arrays))


def _way(layout: Layout) -> str:
    """The cheapest way to norms: by the dense matrix, by the entries, or by the products of pairs of terms."""
    n_rows, n_columns = layout.shape
    held = (
        n_rows
        + n_columns
        + sum(
            math.prod(block.sizes[n] for n in factor.labels)
            for row in layout.blocks
            for block in row
            for factor in block.factors
        )
    )
    if n_rows * n_columns <= max(_SMALL, _MULTIPLE * held):
        return "matrix"
    return "entries" if stored_count(layout) <= _MULTIPLE * held else "products"


def _indices_and_values(layout: Layout, arrays: Sequence[Any]) -> tuple[Any, Any]:
    if has_traced_indices(layout) and any(isinstance(array, Tracer) for array in arrays):
        values, indices = traced_entries(layout, tuple(arrays))
        return indices, values
    pattern = pattern_of(with_static_indices(layout, arrays))
    return pattern.arrays()[0], stored_values(layout, arrays, pattern)


@dataclass(frozen=True)
class _Rows:
    count: int


@compiled
def _norms_of_entries(rows: Any, indices: Any, values: Any) -> Any:
    squares = lax.square(jnp.abs(values))
    total = jnp.zeros(rows.count, squares.dtype)
    return jnp.sqrt(total.at[indices].add(squares, indices_are_sorted=True, mode="drop"))


@compiled
def _norms_of_matrix(layout: Layout, arrays: Sequence[Any]) -> Any:
    return jnp.sqrt(jnp.sum(lax.square(jnp.abs(apply.matrix(layout, arrays))), axis=1))


@compiled
def _norms_by_products(layout: Layout, arrays: Sequence[Any]) -> Any:
    """The root of the diagonal of ``J @ J.conj().T``, term by term, so that nothing of two dimensions is formed."""
    real = jnp.finfo(layout.dtype).dtype
    parts = []
    for row, out in zip(unpack(layout, arrays), layout.outs, strict=True):
        pairs = [(a, b) for terms in row for a in terms for b in terms]
        gram = row_gram_diagonal(pairs, out.shape, layout.dtype)
        parts.append(jnp.reshape(cast(jnp.real(gram), real), -1))
    total = parts[0] if len(parts) == 1 else lax.concatenate(parts, 0)
    return jnp.sqrt(jnp.maximum(total, 0))


def batch_blocks(layout: Layout, arrays: Sequence[Any], axes: Sequence[tuple[int, ...]]) -> Any:
    """The blocks of a matrix that is block diagonal in one axis of every leaf.

    Args:
        layout: The layout.
        arrays: The arrays.
        axes: The number of the axis in each output leaf, and in each input leaf.

    Raises:
        ValueError: where a block is not block diagonal in the axis.
    """
    for i, j, _, _ in layout.offsets():
        for term in skeleton(layout.blocks[i][j]):
            if not same_map(term.out_axes[axes[0][i]], term.in_axes[axes[1][j]]):
                raise ValueError(
                    f"output leaf {i} is not block diagonal in axis {axes[0][i]} with respect to input leaf {j}: it is "
                    f"{structure_of(layout).blocks[i][j]}, and one of its terms is {describe_term(term)}."
                )
    return _batch_blocks(_Axes(layout, axes[0], axes[1]), tuple(arrays))


@dataclass(frozen=True)
class _Axes:
    layout: Layout
    outs: tuple[int, ...]
    ins: tuple[int, ...]


@compiled
def _batch_blocks(axes: _Axes, arrays: Sequence[Any]) -> Any:
    layout = axes.layout
    blocks = unpack(layout, arrays)
    rows = []
    for i, out in enumerate(layout.outs):
        row = []
        for j, leaf in enumerate(layout.ins):
            kept = [_with_batch_first(term, axes.outs[i], axes.ins[j]) for term in blocks[i][j]]
            factors = [(*term.factors, *inside([term.in_axes[axes.ins[j]]])) for term in blocks[i][j]]
            shapes = ((out.shape, axes.outs[i]), (leaf.shape, axes.ins[j]))
            sizes = [[n for k, n in enumerate(shape) if k != axis] for shape, axis in shapes]
            batch = out.shape[axes.outs[i]]
            dense = assemble(factors, kept, (batch, *sizes[0], *sizes[1]), layout.dtype)
            row.append(jnp.reshape(dense, (batch, math.prod(sizes[0]), math.prod(sizes[1]))))
        rows.append(row[0] if len(row) == 1 else lax.concatenate(row, 2))
    return rows[0] if len(rows) == 1 else lax.concatenate(rows, 1)


def _with_batch_first(term: Term, out_axis: int, in_axis: int) -> list[Any]:
    outs = [axis for k, axis in enumerate(term.out_axes) if k != out_axis]
    ins = [axis for k, axis in enumerate(term.in_axes) if k != in_axis]
    return [term.out_axes[out_axis], *outs, *ins]
