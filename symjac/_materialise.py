"""From terms to arrays: one contraction a term, and one pass over the final buffer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from symjac._factor import Factor, cast, contract
from symjac._index_map import Affine, IndexMap, Label, is_static, spread, union
from symjac._tangent import StructuredTangent

# Up to this many elements a result with several pieces is read from a list of its values by one gather.
_SMALL = 512
# Blocks up to this many elements go into a scatter that is needed anyway.
_SMALL_BLOCK = 64
# Index arrays up to this many elements are constants of the program; longer ones are computed from an iota.
_MOST_CONSTANT_INDICES = 4096


@dataclass(frozen=True)
class _Piece:
    """A contracted term: values over `complex_labels` and windows, and where they go.

    Attributes:
        values: Array over the complex labels, then one axis for each window axis.
        axes: The index maps of all axes of the result.
        complex_labels: The labels whose positions need index arrays.
        windows: The numbers of the axes along which the values are one contiguous window.
    """

    values: Any
    axes: tuple[IndexMap, ...]
    complex_labels: tuple[Label, ...]
    windows: tuple[int, ...]

    @property
    def is_block(self) -> bool:
        return not self.complex_labels and len(self.windows) == len(self.axes)

    @property
    def rectangle(self) -> list[tuple[int, int]]:
        return [(axis.offset, axis.offset + n) for axis, n in zip(self.axes, np.shape(self.values), strict=True)]  # type: ignore[union-attr]


def materialise(tangent: StructuredTangent, leaf: int, *, transposed: bool = False) -> Any:
    """The dense Jacobian of a tangent with respect to one input leaf.

    Args:
        tangent: The structured tangent.
        leaf: The number of the input leaf.
        transposed: Whether the in axes come first.

    Returns:
        An array of shape ``tangent.shape + in_shape``; a factor itself where the Jacobian is exactly that array.
    """
    in_shape = tangent.in_shapes[leaf]
    shape = (*in_shape, *tangent.shape) if transposed else (*tangent.shape, *in_shape)
    terms = tangent.blocks[leaf]
    axes = [term.in_axes + term.out_axes if transposed else term.axes for term in terms]
    return assemble([term.factors for term in terms], axes, shape, tangent.dtype)


def assemble(
    factors: Sequence[Sequence[Factor]], axes: Sequence[Sequence[IndexMap]], shape: Sequence[int], dtype: Any
) -> Any:
    """The sum of terms as a dense array of the given shape."""
    shape, dtype = tuple(shape), np.dtype(dtype)
    if not factors or 0 in shape:
        return jnp.zeros(shape, dtype)
    pieces = [_piece(f, tuple(a), dtype) for f, a in zip(factors, axes, strict=True)]
    whole = [piece.values for piece in pieces if piece.is_block and np.shape(piece.values) == shape]
    rest = [piece for piece in pieces if not (piece.is_block and np.shape(piece.values) == shape)]
    base = whole[0] if whole else None
    for values in whole[1:]:
        base = lax.add(jnp.asarray(base), jnp.asarray(values))
    if not rest:
        return base if not isinstance(base, np.ndarray | np.generic) else jnp.asarray(base)
    if base is None and math.prod(shape) <= _SMALL and len(rest) > 1:
        small = _gather_small(rest, shape, dtype)
        if small is not None:
            return small
    filled: list[list[tuple[int, int]]] | None = [] if base is None else None
    base = jnp.zeros(shape, dtype) if base is None else jnp.asarray(base)
    groups: dict[tuple[int, ...], list[_Updates]] = {}
    scattered = any(not piece.is_block for piece in rest)
    for piece in rest:
        if piece.is_block and not (scattered and np.size(piece.values) <= _SMALL_BLOCK):
            base = _add_block(base, piece, filled)
        else:
            updates = _updates(piece)
            groups.setdefault(updates.window, []).append(updates)
    fresh = filled == []
    for window, group in groups.items():
        base = _scatter(base, window, group, fresh=fresh)
        fresh = False
    return base


def _piece(factors: Sequence[Factor], axes: tuple[IndexMap, ...], dtype: Any) -> _Piece:
    labels = union(axis.labels for axis in axes)
    factor = contract(factors, labels, dtype)
    uses: dict[Label, int] = {}
    for axis in axes:
        for label in axis.labels:
            uses[label] = uses.get(label, 0) + 1
    windows = tuple(i for i, axis in enumerate(axes) if _is_window(axis, uses))
    window_labels = [label for i in windows for label in _row_major(axes[i])]
    complex_labels = tuple(label for label in labels if label not in window_labels)
    target = (*complex_labels, *window_labels)
    values = factor.over(target)
    full = tuple(label.size for label in target)
    final = (
        *(each.size for each in complex_labels),
        *(math.prod(each.size for each in axes[i].labels) for i in windows),
    )
    if np.shape(values) != full:
        values = jnp.broadcast_to(values, full)
    if full != final:
        values = jnp.reshape(values, final)
    return _Piece(values, axes, complex_labels, windows)


def _row_major(axis: IndexMap) -> tuple[Label, ...]:
    assert isinstance(axis, Affine)
    return tuple(label for label, _ in sorted(axis.strides, key=lambda pair: -pair[1]))


def _is_window(axis: IndexMap, uses: dict[Label, int]) -> bool:
    """Whether an axis takes one contiguous run of positions, by labels of its own."""
    if not isinstance(axis, Affine) or not axis.stays_inside or any(uses[label] > 1 for label in axis.labels):
        return False
    radix = 1
    for label, stride in sorted(axis.strides, key=lambda pair: pair[1]):
        if stride != radix:
            return False
        radix *= label.size
    return True


def _add_block(base: Any, piece: _Piece, filled: list[list[tuple[int, int]]] | None) -> Any:
    """Adds a contiguous block; without reading what was there where no earlier block overlaps."""
    rectangle = piece.rectangle
    starts = [low for low, _ in rectangle]
    values = jnp.asarray(piece.values)
    disjoint = filled is not None and not any(
        all(a < d and c < b for (a, b), (c, d) in zip(rectangle, other, strict=True)) for other in filled
    )
    if filled is not None:
        filled.append(rectangle)
    if not disjoint:
        values = lax.add(lax.slice(base, starts, [high for _, high in rectangle]), values)
    return lax.dynamic_update_slice(base, values, [np.int32(start) for start in starts])


@dataclass(frozen=True)
class _Updates:
    """The updates of a scatter: rows of start positions, and for each row a window of values.

    Attributes:
        window: The size of the window along each axis; 0 where the axis takes a single position.
        starts: For each axis its start positions, all of the shape of the rows; None for zero everywhere.
        values: The values, of shape ``(*rows, *window)``.
        unique: Whether no two rows meet.
        safe: Whether no row leads out of the result.
    """

    window: tuple[int, ...]
    starts: tuple[Any, ...]
    values: Any
    unique: bool
    safe: bool


def _updates(piece: _Piece) -> _Updates:
    sizes = tuple(label.size for label in piece.complex_labels)
    window, starts = [], []
    for i, axis in enumerate(piece.axes):
        wide = i in piece.windows and bool(axis.labels)
        window.append(math.prod(label.size for label in axis.labels) if wide else 0)
        if i in piece.windows:
            assert isinstance(axis, Affine)
            starts.append(None if wide and axis.offset == 0 else np.full(sizes, axis.offset, np.int32))
        else:
            starts.append(_index(axis, piece.complex_labels))
    single = {axis.labels[0] for axis in piece.axes if isinstance(axis, Affine) and len(axis.strides) == 1}
    unique = all(label in single for label in piece.complex_labels)
    values = jnp.reshape(jnp.asarray(piece.values), (*sizes, *(n for n in window if n)))
    return _Updates(tuple(window), tuple(starts), values, unique, all(axis.stays_inside for axis in piece.axes))


def _scatter(base: Any, window: tuple[int, ...], group: Sequence[_Updates], *, fresh: bool) -> Any:
    """Adds all updates with windows of the same shape in one scatter; `fresh` promises that the base is zero."""
    moving = [i for i in range(len(window)) if any(updates.starts[i] is not None for updates in group)] or [0]
    wide = [n for n in window if n]
    rows, values = [], []
    for updates in group:
        count = math.prod(updates.values.shape[: updates.values.ndim - len(wide)])
        zeros = np.zeros(count, np.int32)
        columns = [zeros if updates.starts[i] is None else updates.starts[i].reshape(count) for i in moving]
        static = all(isinstance(column, np.ndarray) for column in columns)
        rows.append((np if static else jnp).stack(columns, axis=-1))
        values.append(cast(jnp.reshape(updates.values, (count, *wide)), base.dtype))
    static = all(isinstance(row, np.ndarray) for row in rows)
    unique = len(group) == 1 and group[0].unique
    write = lax.scatter if fresh and unique else lax.scatter_add
    return write(
        base,
        jnp.asarray(np.concatenate(rows)) if static else lax.concatenate([jnp.asarray(row) for row in rows], 0),
        values[0] if len(values) == 1 else lax.concatenate(values, 0),
        lax.ScatterDimensionNumbers(
            update_window_dims=tuple(range(1, 1 + len(wide))),
            inserted_window_dims=tuple(i for i, n in enumerate(window) if not n),
            scatter_dims_to_operand_dims=tuple(moving),
        ),
        unique_indices=unique,
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS
        if all(updates.safe for updates in group)
        else lax.GatherScatterMode.FILL_OR_DROP,
    )


def _index(axis: IndexMap, labels: tuple[Label, ...]) -> Any:
    shape = tuple(label.size for label in labels)
    if isinstance(axis, Affine) and math.prod(shape) > _MOST_CONSTANT_INDICES:
        total = jnp.full(shape, axis.offset, jnp.int32)
        for label, stride in axis.strides:
            total = total + np.int32(stride) * lax.broadcasted_iota(np.int32, shape, labels.index(label))
        return total
    index = spread(axis.index(), axis.labels, labels)
    return np.broadcast_to(index, shape) if is_static(index) else jnp.broadcast_to(index.astype(jnp.int32), shape)


def _gather_small(pieces: Sequence[_Piece], shape: tuple[int, ...], dtype: Any) -> Any | None:
    """A small result as one gather from the list of its values; None where positions are traced or meet."""
    if not all(isinstance(axis, Affine) or isinstance(axis.index(), np.ndarray) for p in pieces for axis in p.axes):
        return None
    size = math.prod(shape)
    where = np.full(size, -1, np.int64)
    values, count = [], 0
    for piece in pieces:
        target = _flat_positions(piece, shape)
        hit = target[target >= 0]
        if (where[hit] >= 0).any() or len(np.unique(hit)) < len(hit):
            return None
        where[hit] = count + np.flatnonzero(target >= 0)
        count += target.size
        values.append(cast(jnp.reshape(jnp.asarray(piece.values), -1), dtype))
    if count > 4 * size:
        return None
    values.append(jnp.zeros(1, dtype))
    where[where < 0] = count
    index = where.astype(np.int32).reshape(*shape, 1)
    return lax.gather(
        lax.concatenate(values, 0),
        jnp.asarray(index),
        lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,)),
        slice_sizes=(1,),
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )


def _flat_positions(piece: _Piece, shape: tuple[int, ...]) -> np.ndarray:
    """For each value of a piece its position in the ravelled result, or -1 where it is dropped."""
    rank = len(piece.complex_labels) + len(piece.windows)
    flat, valid = np.zeros((1,) * rank, np.int64), np.ones((1,) * rank, bool)
    for i, axis in enumerate(piece.axes):
        if i in piece.windows:
            place = len(piece.complex_labels) + piece.windows.index(i)
            count = math.prod(label.size for label in axis.labels)
            index = (axis.offset + np.arange(count)).reshape([-1 if k == place else 1 for k in range(rank)])  # type: ignore[union-attr]
        else:
            index = spread(axis.index(), axis.labels, piece.complex_labels)
            index = np.asarray(index).reshape(*np.shape(index), *(1,) * len(piece.windows))
        valid = valid & (index >= 0) & (index < axis.size)
        flat = flat * shape[i] + index
    shape_of_values = np.shape(piece.values)
    return np.where(np.broadcast_to(valid, shape_of_values), np.broadcast_to(flat, shape_of_values), -1).ravel()
