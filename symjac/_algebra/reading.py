"""Reading at the positions of an axis: arrays pulled along index maps, axes solved for their labels, and masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import NotImplementedType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from symjac._algebra.factor import Factor, cast
from symjac._algebra.index_map import Affine, Indexed, IndexMap, Label, indexed, is_static, spread, union


def pull(array: Any, axes: Sequence[IndexMap], fill: int = 0) -> Factor:
    """An array, which broadcasts against the axes, as a factor over the labels that the axes depend on.

    Where an axis leads outside, and there is nothing to read, the factor is `fill`.
    """
    shape = np.shape(array)
    if not shape:
        return Factor(array, ())
    dropped = tuple(i for i, n in enumerate(shape) if n == 1)
    if dropped:
        array = np.squeeze(array, dropped) if is_static(array) else lax.squeeze(array, dropped)
    kept = [axis for i, axis in enumerate(axes) if i not in dropped]
    if all(axis.is_plain for axis in kept) and len(union(axis.labels for axis in kept)) == len(kept):
        return Factor(array, tuple(axis.labels[0] for axis in kept))
    fresh = tuple(Label(axis.size) for axis in kept)
    return Factor(array, fresh).substitute(dict(zip(fresh, kept, strict=True)), fill)


def replace_size(index_map: IndexMap, size: int) -> IndexMap:
    """The same positions in an axis of another size."""
    return replace(index_map, size=size)


def inside_mask(index_map: IndexMap) -> Factor:
    """One where a map leads into its axis, else zero."""
    index = index_map.index()
    return as_mask((index >= 0) & (index < index_map.size), index_map.labels)


def as_mask(condition: Any, labels: tuple[Label, ...]) -> Factor:
    """A factor that is one where a condition holds, else zero."""
    return Factor(cast(condition, np.int32), labels)


def equal_mask(a: IndexMap, b: IndexMap) -> Factor:
    labels = union([a.labels, b.labels])
    shape = tuple(label.size for label in labels)
    equal = spread(a.index(), a.labels, labels) == spread(b.index(), b.labels, labels)
    return as_mask(np.broadcast_to(equal, shape) if is_static(equal) else jnp.broadcast_to(equal, shape), labels)


Solution = tuple[dict[Label, IndexMap], Factor | None]


def solve(own: IndexMap, position: IndexMap) -> Solution | NotImplementedType:
    """The label values at which an out axis takes given positions, and a mask where that is not enough."""
    if own.is_plain:
        return {own.labels[0]: position}, None
    if isinstance(own, Indexed):
        return NotImplemented
    if not own.strides:
        index = position.index()
        return {}, as_mask(index == own.offset, position.labels)
    ordered = sorted(own.strides, key=lambda pair: abs(pair[1]))
    reach = 1
    for label, stride in ordered:
        if stride < reach:
            return NotImplemented if len(ordered) > 1 else _solve_single(own, position)
        reach = stride * max(label.size, 1)
    if len(ordered) == 1:
        return _solve_single(own, position)
    remainder = position.index() - own.offset
    valid = (position.index() >= 0) & (position.index() < own.size) & (remainder >= 0)
    digits: dict[Label, Any] = {}
    for label, stride in reversed(ordered):
        digits[label] = remainder // stride
        remainder = remainder - digits[label] * stride
        valid = valid & (digits[label] < label.size)
    valid = valid & (remainder == 0)
    first = ordered[-1][0]
    digits[first] = (np.where if is_static(valid) else jnp.where)(valid, digits[first], -1)
    return {label: indexed(label.size, digit, position.labels) for label, digit in digits.items()}, None


def _solve_single(own: Affine, position: IndexMap) -> Solution:
    ((label, stride),) = own.strides
    if isinstance(position, Affine) and position.stays_inside:
        if (position.offset - own.offset) % stride == 0 and all(s % stride == 0 for _, s in position.strides):
            strides = tuple((each, s // stride) for each, s in position.strides)
            return {label: Affine(label.size, (position.offset - own.offset) // stride, strides)}, None
    index = position.index()
    fits = ((index - own.offset) % stride == 0) & (index >= 0) & (index < own.size)
    value = (index - own.offset) // stride
    value = np.where(fits, value, -1) if is_static(value) else jnp.where(fits, value, -1)
    return {label: indexed(label.size, value, position.labels)}, None
