"""The positions of the stored entries: by numpy, once for each layout, or in the program where indices are traced."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from symjac import _compat
from symjac._algebra.factor import contract
from symjac._algebra.index_map import is_static, spread
from symjac._algebra.reshape import flatten
from symjac._algebra.tangent import Term
from symjac._result.apply import compiled
from symjac._result.stored import Layout, StoredBlock, unpack, unpack_block, with_static_indices


@dataclass(eq=False)
class Pattern:
    """Where the entries of a matrix are, row by row, and where their values come from.

    Attributes:
        indices: The row and the column of each entry.
        order: For each stored value that counts, its place in the list of all values, in the order of the entries;
            None where that is the list itself.
        segments: For each of them, the entry that it is a part of; None where each is an entry.
    """

    indices: np.ndarray
    order: np.ndarray | None
    segments: np.ndarray | None
    _device: tuple[Any, Any, Any] | None = field(default=None, repr=False)

    @property
    def nse(self) -> int:
        """The number of entries."""
        return len(self.indices)

    def arrays(self) -> tuple[Any, Any, Any]:
        """The indices of a BCOO, the order and the segments, kept on the device outside of traces."""
        if self._device is not None:
            return self._device
        found = (self.indices, self.order, self.segments)
        if not _compat.trace_state_clean():
            return found
        indices, order, segments = (None if array is None else jnp.asarray(array, jnp.int32) for array in found)
        self._device = (indices, order, segments)
        return self._device


@functools.lru_cache(maxsize=8)
def pattern_of(layout: Layout) -> Pattern:
    """The positions of a layout whose index arrays are all static. They are kept for the layouts in use."""
    return _pattern(layout)


def _pattern(layout: Layout) -> Pattern:
    n_columns = layout.shape[1]
    keys, places, start = [], [], 0
    for i, j, row, column in layout.offsets():
        for term in skeleton(layout.blocks[i][j]):
            rows, columns, valid = _positions(term, np)
            shape = tuple(label.size for label in term.axis_labels)
            key = np.broadcast_to((rows + row) * np.int64(n_columns) + (columns + column), shape).reshape(-1)
            kept = None if valid is True else np.flatnonzero(np.broadcast_to(valid, shape))
            keys.append(key if kept is None else key[kept])
            places.append((start, key.size, kept))
            start += key.size
    return _sorted_pattern(keys, places, n_columns)


def _sorted_pattern(keys: list[np.ndarray], places: list[Any], n_columns: int) -> Pattern:
    if not keys:
        return Pattern(np.zeros((0, 2), np.int32), None, None)
    everything = all(kept is None for _, _, kept in places)
    merged = np.array(keys[0]) if len(keys) == 1 else np.concatenate(keys)
    keys.clear()
    order = None
    if not (merged[1:] > merged[:-1]).all():
        order = np.argsort(merged, kind="stable")
        merged = merged[order]
    if not everything:
        sources = [start + (np.arange(size) if kept is None else kept) for start, size, kept in places]
        source = sources[0] if len(sources) == 1 else np.concatenate(sources)
        order = source if order is None else source[order]
    order = None if order is None else order.astype(np.int32)
    segments = None
    first = np.empty(merged.size, bool)
    if merged.size:
        first[0] = True
        np.not_equal(merged[1:], merged[:-1], out=first[1:])
        if not first.all():
            segments = np.cumsum(first, dtype=np.int32) - np.int32(1)
            merged = merged[first]
    return Pattern(_split(merged, max(n_columns, 1)), order, segments)


def _split(keys: np.ndarray, n_columns: int) -> np.ndarray:
    """Rows and columns of row-major positions, which are overwritten."""
    indices = np.empty((keys.size, 2), np.int32)
    rows = keys // n_columns
    indices[:, 0] = rows
    rows *= n_columns
    keys -= rows
    indices[:, 1] = keys
    return indices


def skeleton(block: StoredBlock) -> tuple[Term, ...]:
    """The terms of a block, in which arrays that are not known are but shapes."""
    return unpack_block(block, _Shapes(block))


class _Shapes(Sequence[Any]):
    """For each number of an array the shape that a block expects."""

    def __init__(self, block: StoredBlock) -> None:
        self.labels = {factor.array: factor.labels for factor in block.factors}
        axes = [axis for term in block.terms for axis in (*term.out_axes, *term.in_axes)]
        self.labels |= {axis.index: axis.labels for axis in axes if axis.index is not None}
        self.sizes = block.sizes

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: Any) -> Any:
        return jax.ShapeDtypeStruct(tuple(self.sizes[n] for n in self.labels[number]), np.float32)


def _positions(term: Term, xp: Any) -> tuple[Any, Any, Any]:
    """Rows, columns and whether they count, as arrays that broadcast over the labels on the axes of a term."""
    labels = term.axis_labels
    rank = (1,) * len(labels)
    valid: Any = True
    found = []
    for axes in (term.out_axes, term.in_axes):
        flat = flatten(axes)
        index = flat.index() if xp is np else jnp.asarray(flat.index(), jnp.int32)
        index = spread(index, flat.labels, labels) if flat.labels else xp.reshape(index, rank)
        if not flat.stays_inside:
            valid = valid & (index >= 0) & (index < flat.size)
        found.append(index)
    for factor in term.factors:
        if is_static(factor.array) and set(factor.labels) <= set(labels):
            nonzero = np.asarray(factor.array) != 0
            if not nonzero.all():
                valid = valid & (spread(nonzero, factor.labels, labels) if factor.labels else nonzero.reshape(rank))
    return found[0], found[1], valid


@dataclass(frozen=True)
class _Counted:
    """A layout and the number of its entries."""

    layout: Layout
    nse: int


def stored_values(layout: Layout, arrays: Sequence[Any], pattern: Pattern) -> Any:
    """The values of the entries of a pattern."""
    _, order, segments = pattern.arrays()
    return _stored_values(_Counted(layout, pattern.nse), tuple(arrays), order, segments)


@compiled
def _stored_values(counted: _Counted, arrays: Sequence[Any], order: Any, segments: Any) -> Any:
    layout = counted.layout
    blocks = unpack(layout, arrays)
    values = [_values(term, layout.dtype) for i, j, _, _ in layout.offsets() for term in blocks[i][j]]
    if not values:
        return jnp.zeros(0, layout.dtype)
    merged = values[0] if len(values) == 1 else lax.concatenate(values, 0)
    if order is not None:
        merged = merged.at[order].get(mode="promise_in_bounds", unique_indices=True)
    if segments is not None:
        merged = jax.ops.segment_sum(merged, segments, counted.nse, indices_are_sorted=True)
    return merged


def _values(term: Term, dtype: Any) -> Any:
    """The values of a term over the labels on its axes, ravelled."""
    labels = term.axis_labels
    factor = contract(term.factors, labels, dtype)
    shape = tuple(label.size for label in labels)
    return jnp.reshape(jnp.broadcast_to(jnp.asarray(factor.over(labels)), shape), -1)


def stored_count(layout: Layout) -> int:
    """The number of all stored values, those that meet or are outside included."""
    return sum(
        math.prod(label.size for label in term.axis_labels)
        for row in layout.blocks
        for block in row
        for term in skeleton(block)
    )


def count_entries(layout: Layout, arrays: Sequence[Any]) -> int:
    """The number of entries that are not structurally zero."""
    n_rows, n_columns = layout.shape
    terms = [term for row in layout.blocks for block in row for term in skeleton(block)]
    if len(terms) == 1 and _is_full(terms[0]) and stored_count(layout) == n_rows * n_columns:
        return n_rows * n_columns
    return pattern_of(with_static_indices(layout, arrays)).nse


def _is_full(term: Term) -> bool:
    return all(axis.is_plain for axis in term.axes) and not any(
        is_static(factor.array) and factor.labels for factor in term.factors
    )


@compiled
def traced_entries(layout: Layout, arrays: Sequence[Any]) -> tuple[Any, Any]:
    """Values and indices of a BCOO where positions are known at run time only.

    Entries that meet are added. The number of entries is a bound; those left over are outside of the matrix, which is
    how a BCOO is padded.
    """
    n_rows, n_columns = layout.shape
    blocks = unpack(layout, arrays)
    rows, columns, values = [], [], []
    for i, j, row, column in layout.offsets():
        for term in blocks[i][j]:
            own_rows, own_columns, valid = _positions(term, jnp)
            shape = tuple(label.size for label in term.axis_labels)
            valid = jnp.broadcast_to(jnp.asarray(valid), shape)
            rows.append(jnp.where(valid, own_rows + row, n_rows).reshape(-1).astype(jnp.int32))
            columns.append(jnp.where(valid, own_columns + column, n_columns).reshape(-1).astype(jnp.int32))
            kept = _values(term, layout.dtype)
            values.append(jnp.where(valid.reshape(-1), kept, jnp.zeros_like(kept)))
    if not rows:
        return jnp.zeros(0, layout.dtype), jnp.zeros((0, 2), jnp.int32)
    row, column, order = lax.sort(
        (jnp.concatenate(rows), jnp.concatenate(columns), lax.iota(jnp.int32, sum(len(r) for r in rows))), num_keys=2
    )
    fresh = jnp.concatenate([jnp.ones(1, bool), (row[1:] != row[:-1]) | (column[1:] != column[:-1])])
    segments = jnp.cumsum(fresh, dtype=jnp.int32) - 1
    bound = min(len(row), n_rows * n_columns + 1)
    data = jax.ops.segment_sum(jnp.concatenate(values)[order], segments, bound, indices_are_sorted=True)
    indices = jnp.full((bound, 2), jnp.asarray([n_rows, n_columns], jnp.int32))
    indices = indices.at[segments].set(jnp.stack([row, column], -1), mode="drop", indices_are_sorted=True)
    bound = min(bound, n_rows * n_columns)
    return data[:bound], indices[:bound]
