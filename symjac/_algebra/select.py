"""Pieces as selects, which one loop over the result computes and which follow the shards of their values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from symjac import _compat
from symjac._algebra.factor import cast
from symjac._algebra.index_map import Affine, Indexed, Label, is_static
from symjac._algebra.pieces import Piece

# Masks up to this many elements are constants of the program; larger ones are computed from iotas.
_MOST_CONSTANT_MASK = 4096
_NOWHERE = np.int32(-1)


@dataclass(frozen=True)
class Mask:
    """The places of a result where the position in one axis is the one that another axis gives.

    Attributes:
        axis: The number of the axis.
        other: The number of the other one; None where the position is the same everywhere.
        stride: The position is ``stride * other + shift``, or that of `index`.
        shift: See `stride`.
        index: The positions for the positions of the other axis from `start` on, by an array.
        start: See `index`.
    """

    axis: int
    other: int | None = None
    stride: int = 0
    shift: int = 0
    index: Indexed | None = None
    start: int = 0

    def over(self, shape: Sequence[int]) -> Any:
        """An array that is stretched over the shape."""
        involved = [self.axis, *([] if self.other is None else [self.other])]
        is_small = math.prod(shape[k] for k in involved) <= _MOST_CONSTANT_MASK

        def positions(k: int) -> Any:
            if is_small:
                return np.arange(shape[k], dtype=np.int32).reshape(_along(shape, k))
            return lax.broadcasted_iota(np.int32, _along(shape, k), k)

        if self.index is not None:
            return positions(self.axis) == self._indexed(shape)
        if self.other is None:
            return positions(self.axis) == np.int32(self.shift)
        target = positions(self.other)
        target = target if self.stride == 1 else target * np.int32(self.stride)
        return positions(self.axis) == (target + np.int32(self.shift) if self.shift else target)

    def _indexed(self, shape: Sequence[int]) -> Any:
        assert self.index is not None
        array = self.index.array
        if self.other is None:
            return array
        ends = (self.start, shape[self.other] - self.start - array.shape[0])
        if is_static(array):
            padded = np.pad(array, ends, constant_values=_NOWHERE)
        else:
            padded = lax.pad(jnp.asarray(array, jnp.int32), _NOWHERE, [(*ends, 0)])
        return padded.reshape(_along(shape, self.other))


def _along(shape: Sequence[int], axis: int) -> list[int]:
    return [n if k == axis else 1 for k, n in enumerate(shape)]


@dataclass(frozen=True)
class Select:
    """A piece stretched over the result, and where it counts.

    Attributes:
        values: The values, along some axes of the result.
        along: The numbers of these axes, in their order.
        masks: The piece counts where all of them hold. Each is for an axis that the values do not run along.
    """

    values: Any
    along: tuple[int, ...]
    masks: tuple[Mask, ...]

    def without(self, mask: Mask) -> Select:
        """The same where one of the masks need not hold."""
        return replace(self, masks=tuple(other for other in self.masks if other != mask))


def select_of(piece: Piece) -> Select | None:
    """The piece as a select.

    It can be given where each label that needs index arrays runs along one axis, by steps of one, and the positions in
    the other axes depend on it alone.
    """
    primary: dict[Label, int] = {}
    for i, axis in enumerate(piece.axes):
        if isinstance(axis, Affine) and len(axis.strides) == 1 and axis.strides[0][1] == 1 and axis.stays_inside:
            primary.setdefault(axis.labels[0], i)
    rest = [i for i in range(len(piece.axes)) if i not in piece.windows and i not in primary.values()]
    if any(label not in primary for label in piece.complex_labels):
        return None
    if any(len(piece.axes[i].labels) > 1 for i in rest):
        return None
    order = [primary[label] for label in piece.complex_labels] + list(piece.windows)
    values, along = jnp.asarray(piece.values), sorted(order)
    if order != along:
        values = lax.transpose(values, np.argsort(order).tolist())
    padding = []
    for place, i in enumerate(along):
        low = piece.start(i)
        padding.append((low, piece.axes[i].size - low - values.shape[place], 0))
    if any(low or high for low, high, _ in padding):
        values = lax.pad(values, np.zeros((), values.dtype), padding)
    return Select(values, tuple(along), tuple(_mask(piece, i, primary) for i in rest))


def _mask(piece: Piece, i: int, primary: dict[Label, int]) -> Mask:
    axis = piece.axes[i]
    other = primary[axis.labels[0]] if axis.labels else None
    start = 0 if other is None else piece.start(other)
    if isinstance(axis, Indexed):
        return Mask(i, other, index=axis, start=start)
    stride = axis.strides[0][1] if axis.labels else 0
    return Mask(i, other, stride, axis.offset - stride * start)


def sum_of_selects(selects: Sequence[Select], shape: Sequence[int], dtype: Any) -> Any:
    """The sum of all pieces. Those that one mask covers are added before they are stretched along its axis."""
    counts = Counter(mask for select in selects for mask in select.masks)
    total = None
    if counts:
        mask = max(counts, key=lambda mask: counts[mask])
        covered = [select.without(mask) for select in selects if mask in select.masks]
        selects = [select for select in selects if mask not in select.masks]
        narrow = [1 if k == mask.axis else n for k, n in enumerate(shape)]
        total = _masked(mask, sum_of_selects(covered, narrow, dtype), shape)
        if any(select.masks for select in selects):
            return add_alike(total, sum_of_selects(selects, shape, dtype))
    for select in selects:
        wide = lax.broadcast_in_dim(cast(select.values, dtype), shape, select.along)
        total = wide if total is None else add_alike(total, wide)
    return total


def add_alike(a: Any, b: Any) -> Any:
    """The sum of arrays of one shape, with the sharding of the first."""
    return lax.add(a, _compat.sharded_as(b, a))


def _masked(mask: Mask, values: Any, shape: Sequence[int]) -> Any:
    every = range(len(shape))
    wide = lax.broadcast_in_dim(values, shape, every)
    holds = lax.broadcast_in_dim(jnp.asarray(mask.over(shape)), shape, every)
    return lax.select(_compat.sharded_as(holds, wide), wide, lax.full_like(wide, 0))
