"""Reshaping index maps: merging axes into one and splitting one into digits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from symjac._algebra.index_map import Affine, IndexMap, Label, indexed, is_static, spread, union

if TYPE_CHECKING:
    from symjac._algebra.factor import Factor


def regroup(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The smallest groups of consecutive old and new axes with equal numbers of elements (no size is 0)."""
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = [], []
        if i < len(old) and (old[i] == 1 and (j == len(new) or new[j] != 1)):
            a, i = [old[i]], i + 1
        elif j < len(new) and new[j] == 1 and (i == len(old) or old[i] != 1):
            b, j = [new[j]], j + 1
        else:
            a, b, i, j = [old[i]], [new[j]], i + 1, j + 1
            while math.prod(a) != math.prod(b):
                if math.prod(a) < math.prod(b):
                    a, i = [*a, old[i]], i + 1
                else:
                    b, j = [*b, new[j]], j + 1
        yield a, b


def flatten(group: Sequence[IndexMap]) -> IndexMap:
    """The position in the merged axis of a group of axes."""
    sizes = [axis.size for axis in group]
    size = math.prod(sizes)
    if len(group) == 0:
        return Affine(1, 0, ())
    if len(group) == 1:
        return group[0]
    radices = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    affine = [axis for axis in group if isinstance(axis, Affine) and axis.stays_inside]
    if len(affine) == len(group):
        strides: dict[Label, int] = {}
        for axis, radix in zip(affine, radices, strict=True):
            for label, stride in axis.strides:
                strides[label] = strides.get(label, 0) + stride * radix
        offset = sum(axis.offset * radix for axis, radix in zip(affine, radices, strict=True))
        return Affine(size, offset, tuple((label, s) for label, s in strides.items() if s))
    labels = union(axis.labels for axis in group)
    total: Any = np.int32(0)
    valid: Any = np.True_
    for axis, radix in zip(group, radices, strict=True):
        index = spread(axis.index(), axis.labels, labels)
        valid = valid & (index >= 0) & (index < axis.size)
        total = total + index * np.int32(radix)
    static = is_static(total) and is_static(valid)
    total = np.where(valid, total, -1) if static else jnp.where(valid, total, -1)
    shape = tuple(label.size for label in labels)
    total = np.broadcast_to(total, shape) if static else jnp.broadcast_to(total, shape)
    return indexed(size, total, labels, stays_inside=all(axis.stays_inside for axis in group))


def straddling(flat: IndexMap, sizes: Sequence[int]) -> dict[Label, IndexMap]:
    """How to split the labels whose range crosses the border between two digits of a split axis."""
    if not isinstance(flat, Affine) or not flat.stays_inside:
        return {}
    borders = [math.prod(sizes[i + 1 :]) for i in range(len(sizes) - 1)]
    inner: dict[Label, IndexMap] = {}
    for label, stride in flat.strides:
        cuts = sorted({b // stride for b in borders if stride > 0 and stride < b < stride * label.size})
        if not cuts:
            continue
        exact = all(b % stride == 0 for b in borders if stride < b < stride * label.size)
        bounds = [1, *cuts, label.size]
        if exact and all(high % low == 0 for low, high in itertools.pairwise(bounds)):
            pieces = [(Label(high // low), low) for low, high in itertools.pairwise(bounds)]
            inner[label] = Affine(label.size, 0, tuple(reversed(pieces)))
    return inner


def digits(flat: IndexMap, sizes: Sequence[int]) -> list[IndexMap]:
    """The positions in each of the axes that a merged axis is split into."""
    if len(sizes) == 1:
        return [flat]
    radices = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    if isinstance(flat, Affine) and flat.stays_inside:
        found = _affine_digits(flat, sizes, radices)
        if found is not None:
            return found
    index = flat.index()
    valid = (index >= 0) & (index < flat.size)
    maps = []
    for size, radix in zip(sizes, radices, strict=True):
        digit = index // radix % size
        digit = np.where(valid, digit, -1) if is_static(index) else jnp.where(valid, digit, -1)
        maps.append(indexed(size, digit, flat.labels, stays_inside=flat.stays_inside))
    return maps


def _affine_digits(flat: Affine, sizes: Sequence[int], radices: Sequence[int]) -> list[IndexMap] | None:
    rest, strides = flat.offset, list(flat.strides)
    maps: list[IndexMap] = []
    for size, radix in zip(sizes, radices, strict=True):
        own = [(label, stride) for label, stride in strides if abs(stride) >= radix]
        if any(stride % radix for _, stride in own):
            return None
        strides = [pair for pair in strides if pair not in own]
        # a negative stride may need a part of the offset; floor division gives the digit of the first label values
        offset, rest = divmod(rest, radix)
        digit = Affine(size, offset, tuple((label, stride // radix) for label, stride in own))
        low = Affine(radix, rest, tuple(strides))
        if not (digit.stays_inside and low.stays_inside):
            return None
        maps.append(digit)
    return maps


def fusible(flat: Affine, axes: Sequence[IndexMap], factors: Sequence[Factor]) -> bool:
    """Whether the labels of a merged axis occur together, in the same proportions, everywhere in a term."""
    radix = 1
    for label, stride in reversed(flat.strides):
        if stride != radix:
            return False
        radix *= label.size
    if flat.offset != 0 or radix != flat.size or len(flat.strides) < 2:
        return False
    together = set(flat.labels)
    for axis in axes:
        present = together & set(axis.labels)
        if not present:
            continue
        if not isinstance(axis, Affine) or present != together:
            return False
        strides = dict(axis.strides)
        unit = strides[flat.labels[-1]]
        if any(strides[label] != unit * stride for label, stride in flat.strides):
            return False
    return all(not together & set(f.labels) or together <= set(f.labels) for f in factors)
