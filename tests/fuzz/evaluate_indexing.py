"""Gather, scatter and sort in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

Arrays = list[np.ndarray]


def _starts(shape: Sequence[int], indices: Any, index_map: Any, own_batch: Any, index_batch: Any) -> Arrays:
    """For each axis of an operand, where the windows start; each of the shape of the batch."""
    batch = indices.shape[:-1]
    starts = [np.zeros(batch, np.int64) for _ in shape]
    for k, axis in enumerate(index_map):
        starts[axis] = indices[..., k].astype(np.int64)
    for axis, place in zip(own_batch, index_batch, strict=True):
        spread = [1] * len(batch)
        spread[place] = batch[place]
        starts[axis] = np.broadcast_to(np.arange(batch[place]).reshape(spread), batch)
    return starts


def _positions(starts: Arrays, shape: Sequence[int], sizes: Sequence[int], kept: Sequence[int], mode: Any) -> Any:
    """The positions in the operand, each of shape ``batch + window``, and which batches are inside."""
    batch = starts[0].shape if starts else ()
    valid = np.ones(batch, bool)
    for start, n, size in zip(starts, shape, sizes, strict=True):
        valid &= (start >= 0) & (start <= n - size)
    clipped = [np.clip(start, 0, max(n - size, 0)) for start, n, size in zip(starts, shape, sizes, strict=True)]
    if mode != GatherScatterMode.FILL_OR_DROP:
        valid = np.ones(batch, bool)
    positions = []
    for axis, start in enumerate(clipped):
        spread = start.reshape((*batch, *[1] * len(kept)))
        if axis in kept:
            line = [1] * len(kept)
            line[kept.index(axis)] = sizes[axis]
            spread = spread + np.arange(sizes[axis]).reshape(line)
        positions.append(np.broadcast_to(spread, (*batch, *(sizes[k] for k in kept))))
    return positions, valid.reshape((*batch, *[1] * len(kept)))


def gather(eqn: Any, operands: Arrays) -> Arrays:
    """`lax.gather`."""
    x, indices = operands
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [axis for axis in range(x.ndim) if axis not in dropped]
    starts = _starts(
        x.shape, indices, numbers.start_index_map, numbers.operand_batching_dims, numbers.start_indices_batching_dims
    )
    positions, valid = _positions(starts, x.shape, sizes, kept, eqn.params["mode"])
    aval = eqn.outvars[0].aval
    if x.size == 0 or not positions:
        picked = np.zeros(positions[0].shape if positions else indices.shape[:-1], x.dtype)
        picked = picked + x if not positions else picked
    else:
        picked = x[tuple(positions)]
    picked = np.where(valid, picked, _fill(eqn.params["fill_value"], x.dtype)).astype(x.dtype)
    n_batch = indices.ndim - 1
    order, batch_axes, window_axes = [], iter(range(n_batch)), iter(range(n_batch, picked.ndim))
    for i in range(len(aval.shape)):
        order.append(next(window_axes) if i in numbers.offset_dims else next(batch_axes))
    return [picked.transpose(order)]


def _fill(value: Any, dtype: Any) -> Any:
    if value is not None:
        return np.asarray(value, dtype)
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.asarray(np.nan).astype(dtype)
    if dtype == np.bool_:
        return True
    return np.iinfo(dtype).min if jnp.issubdtype(dtype, jnp.signedinteger) else np.iinfo(dtype).max


def scatter(combine: Callable[[np.ndarray, tuple[np.ndarray, ...], np.ndarray], None]) -> Callable[..., Arrays]:
    """`lax.scatter` and its relatives."""

    def run(eqn: Any, operands: Arrays) -> Arrays:
        x, indices, updates = operands
        numbers = eqn.params["dimension_numbers"]
        dropped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        kept = [axis for axis in range(x.ndim) if axis not in dropped]
        windows = list(numbers.update_window_dims)
        order = [*(i for i in range(updates.ndim) if i not in windows), *windows]
        moved = updates.transpose(order)
        sizes = [1] * x.ndim
        for axis, place in zip(kept, windows, strict=True):
            sizes[axis] = updates.shape[place]
        starts = _starts(
            x.shape, indices, numbers.scatter_dims_to_operand_dims, numbers.operand_batching_dims,
            numbers.scatter_indices_batching_dims,
        )  # fmt: skip
        result = x.copy()
        if not starts or moved.size == 0 or x.size == 0:
            if starts or moved.size == 0:
                return [result]
            flat = result.reshape(1)
            for value in moved.reshape(-1):
                combine(flat, (np.zeros(1, np.int64),), np.asarray([value]))
            return [flat.reshape(x.shape)]
        # XLA drops what lies outside, unless it is to be clipped.
        clips = eqn.params["mode"] == GatherScatterMode.CLIP
        mode = GatherScatterMode.CLIP if clips else GatherScatterMode.FILL_OR_DROP
        positions, valid = _positions(starts, x.shape, sizes, kept, mode)
        inside = np.broadcast_to(valid, moved.shape)
        combine(result, tuple(p[inside] for p in positions), moved[inside])
        return [result]

    return run


def assign(x: np.ndarray, places: tuple[np.ndarray, ...], values: np.ndarray) -> None:
    """The last value wins."""
    x[places] = values


def by(function: Any) -> Callable[[np.ndarray, tuple[np.ndarray, ...], np.ndarray], None]:
    """Combines with what is there, one by one."""

    def combine(x: np.ndarray, places: tuple[np.ndarray, ...], values: np.ndarray) -> None:
        for *place, value in zip(*places, values, strict=True):
            x[tuple(place)] = function(x[tuple(place)], value)

    return combine


def sort(eqn: Any, operands: Arrays) -> Arrays:
    """`lax.sort`; NaN comes last."""
    axis, n_keys = eqn.params["dimension"], eqn.params["num_keys"]
    keys = [np.where(k == 0, np.zeros_like(k), k) for k in operands[:n_keys]]
    order = np.lexsort(tuple(reversed(keys)), axis=axis) if n_keys > 1 else np.argsort(keys[0], axis, kind="stable")
    return [np.take_along_axis(x, order, axis) for x in operands]


def top_k(eqn: Any, operands: Arrays) -> Arrays:
    """`lax.top_k`; NaN counts as the largest."""
    (x,) = operands
    axis = eqn.params.get("axis", eqn.params.get("dimension", -1))
    flipped = np.flip(x, axis)
    order = np.flip(x.shape[axis] - 1 - np.argsort(flipped, axis, kind="stable"), axis)
    order = np.take(order, range(eqn.params["k"]), axis)
    return [np.take_along_axis(x, order, axis), order.astype(eqn.outvars[1].aval.dtype)]
