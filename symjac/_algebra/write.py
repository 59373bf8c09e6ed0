"""Writing pieces into the dense result: blocks, one scatter for each kind of window, or one gather."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from symjac._algebra.factor import cast
from symjac._algebra.index_map import Affine, IndexMap, Label, is_static, spread
from symjac._algebra.pieces import Piece, flat_positions

# Index arrays up to this many elements are constants of the program; longer ones are computed from an iota.
_MOST_CONSTANT_INDICES = 4096


def add_block(base: Any, piece: Piece, filled: list[list[tuple[int, int]]] | None) -> Any:
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


def join_blocks(pieces: Sequence[Piece], shape: tuple[int, ...], dtype: Any) -> Any | None:
    """Blocks that lie side by side along one axis, with zeros between them; None where they do not."""
    if not all(piece.is_block for piece in pieces):
        return None
    rectangles = [piece.rectangle for piece in pieces]
    axes = [i for i, n in enumerate(shape) if any(r[i] != (0, n) for r in rectangles)]
    if len(axes) != 1:
        return None
    (axis,) = axes
    parts, end = [], 0
    for piece, rectangle in sorted(zip(pieces, rectangles, strict=True), key=lambda pair: pair[1][axis]):
        low, high = rectangle[axis]
        if low < end:
            return None
        parts.extend([_gap(shape, axis, low - end, dtype)] if low > end else [])
        parts.append(cast(jnp.asarray(piece.values), dtype))
        end = high
    parts.extend([_gap(shape, axis, shape[axis] - end, dtype)] if end < shape[axis] else [])
    return lax.concatenate(parts, axis)


def _gap(shape: tuple[int, ...], axis: int, size: int, dtype: Any) -> Any:
    return jnp.zeros((*shape[:axis], size, *shape[axis + 1 :]), dtype)


@dataclass(frozen=True)
class Updates:
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


def updates_of(piece: Piece) -> Updates:
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
    return Updates(tuple(window), tuple(starts), values, unique, all(axis.stays_inside for axis in piece.axes))


def scatter(base: Any, window: tuple[int, ...], group: Sequence[Updates], *, fresh: bool) -> Any:
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


def gather_small(pieces: Sequence[Piece], shape: tuple[int, ...], dtype: Any) -> Any | None:
    """A small result as one gather from the list of its values; None where positions are traced or meet."""
    if not all(isinstance(axis, Affine) or isinstance(axis.index(), np.ndarray) for p in pieces for axis in p.axes):
        return None
    size = math.prod(shape)
    where = np.full(size, -1, np.int64)
    values, count = [], 0
    for piece in pieces:
        target = flat_positions(piece, shape)
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
