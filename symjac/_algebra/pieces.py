"""Pieces: contracted terms, as values and the places where they go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from symjac._algebra.factor import Factor, contract
from symjac._algebra.index_map import Affine, IndexMap, Label, spread, union


@dataclass(frozen=True)
class Piece:
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
        return [(self.start(i), self.start(i) + n) for i, n in enumerate(np.shape(self.values))]

    def start(self, i: int) -> int:
        """The first position of the window along an axis."""
        axis = self.axes[i]
        assert isinstance(axis, Affine)
        return axis.offset


def piece_of(factors: Sequence[Factor], axes: tuple[IndexMap, ...], dtype: Any) -> Piece:
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
    return Piece(values, axes, complex_labels, windows)


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


def flat_positions(piece: Piece, shape: tuple[int, ...]) -> np.ndarray:
    """For each value of a piece its position in the ravelled result, or -1 where it is dropped."""
    rank = len(piece.complex_labels) + len(piece.windows)
    flat, valid = np.zeros((1,) * rank, np.int64), np.ones((1,) * rank, bool)
    for i, axis in enumerate(piece.axes):
        if i in piece.windows:
            place = len(piece.complex_labels) + piece.windows.index(i)
            count = math.prod(label.size for label in axis.labels)
            index = (piece.start(i) + np.arange(count)).reshape([-1 if k == place else 1 for k in range(rank)])
        else:
            index = spread(axis.index(), axis.labels, piece.complex_labels)
            index = np.reshape(index, (*np.shape(index), *(1,) * len(piece.windows)))
        valid = valid & (index >= 0) & (index < axis.size)
        flat = flat * shape[i] + index
    shape_of_values = np.shape(piece.values)
    return np.where(np.broadcast_to(valid, shape_of_values), np.broadcast_to(flat, shape_of_values), -1).ravel()
