"""Labels and index maps: how the axes of a tangent depend on the labels of a term.

A *label* is an index with a size. An *index map* says which position along an axis belongs to given label values:

* `Affine`: ``offset + sum(stride * label)``, the map of slices, shifts, reshapes, strides and convolutions;
* `Indexed`: an integer array over labels, static (numpy) or traced (a gather with traced indices needs nothing more).

A position outside ``[0, size)`` contributes nothing. That one convention covers padding, dropped updates and the
borders of a convolution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


@dataclass(frozen=True, eq=False)
class Label:
    """An index with a size; labels are compared by identity."""

    size: int

    def __repr__(self) -> str:
        return f"Label({self.size})#{id(self) % 9973}"


@dataclass(frozen=True)
class Affine:
    """The index map ``offset + sum(stride * label)`` into an axis of the given size."""

    size: int
    offset: int
    strides: tuple[tuple[Label, int], ...]

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        """The labels that the position depends on."""
        return tuple(label for label, _ in self.strides)

    @cached_property
    def is_plain(self) -> bool:
        """Whether the axis is one label, one to one."""
        return (
            self.offset == 0
            and len(self.strides) == 1
            and self.strides[0] == (self.strides[0][0], 1)
            and (self.strides[0][0].size == self.size)
        )

    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest position (inclusive) that the labels can reach."""
        low = high = self.offset
        for label, stride in self.strides:
            reach = stride * max(label.size - 1, 0)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high

    @property
    def stays_inside(self) -> bool:
        """Whether no label value leads out of the axis."""
        low, high = self.bounds()
        return (0 <= low and high < self.size) or any(label.size == 0 for label in self.labels)

    def index(self) -> np.ndarray:
        """The positions as an array over `labels`."""
        shape = tuple(label.size for label in self.labels)
        total = np.full(shape, self.offset, np.int32)
        for axis, (label, stride) in enumerate(self.strides):
            steps = stride * np.arange(label.size, dtype=np.int32)
            total = total + steps.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        return total

    def shifted(self, *, scale: int = 1, offset: int = 0, size: int) -> Affine:
        """The map ``scale * self + offset`` into an axis of another size."""
        return Affine(size, scale * self.offset + offset, tuple((label, scale * s) for label, s in self.strides))


@dataclass(frozen=True, eq=False)
class Indexed:
    """An index map given by an integer array over labels."""

    size: int
    array: Any
    labels: tuple[Label, ...]
    stays_inside: bool = False

    is_plain = False

    def index(self) -> Any:
        """The positions as an array over `labels`."""
        return self.array

    def shifted(self, *, scale: int = 1, offset: int = 0, size: int) -> IndexMap:
        """The map ``scale * self + offset`` into an axis of another size; what was outside stays outside."""
        if (scale, offset, size) == (1, 0, self.size):
            return self
        moved = self.array * np.int32(scale) + np.int32(offset)
        if not self.stays_inside:
            moved = _where(_inside(self.array, self.size), moved, -1)
        return indexed(size, moved, self.labels)


IndexMap = Affine | Indexed


def plain(label: Label) -> Affine:
    """The map of an axis that is one label."""
    return Affine(label.size, 0, ((label, 1),))


def is_static(array: Any) -> bool:
    """Whether an index array is known while tracing."""
    return isinstance(array, np.ndarray | np.generic | int)


def indexed(size: int, array: Any, labels: tuple[Label, ...], stays_inside: bool | None = None) -> IndexMap:
    """An index map from an array; a static array that is affine along its only label becomes `Affine`."""
    if is_static(array):
        array = np.asarray(array, np.int32)
        affine = _as_affine(size, array, labels) if array.size else None
        if affine is not None:
            return affine
        stays_inside = bool(array.size == 0 or (array.min() >= 0 and array.max() < size))
    return Indexed(size, array, labels, bool(stays_inside))


def _as_affine(size: int, array: np.ndarray, labels: tuple[Label, ...]) -> Affine | None:
    """The affine map that a static array holds, if it holds one that stays inside."""
    corner = (0,) * array.ndim
    strides = []
    for axis, label in enumerate(labels):
        if label.size > 1:
            neighbour = tuple(int(i == axis) for i in range(array.ndim))
            strides.append((label, int(array[neighbour]) - int(array[corner])))
    affine = Affine(size, int(array[corner]), tuple((label, s) for label, s in strides if s))
    if not affine.stays_inside:
        return None
    held = spread(affine.index(), affine.labels, labels)
    return affine if np.array_equal(np.broadcast_to(held, array.shape), array) else None


def _where(condition: Any, x: Any, y: Any) -> Any:
    if all(map(is_static, (condition, x))):
        return np.where(condition, x, np.int32(y))
    return jnp.where(condition, x, jnp.asarray(y, jnp.int32))


def _inside(index: Any, size: int) -> Any:
    return (index >= 0) & (index < size)


def union(groups: Iterable[Iterable[Label]]) -> tuple[Label, ...]:
    """The labels of all groups, each once, in order of first appearance."""
    return tuple(dict.fromkeys(label for group in groups for label in group))


def spread(array: Any, labels: tuple[Label, ...], target: tuple[Label, ...]) -> Any:
    """An array over `labels` as an array over `target` (a superset), with size-1 axes for the others."""
    order = [labels.index(label) for label in target if label in labels]
    if order != list(range(len(order))):
        array = np.transpose(array, order) if is_static(array) else lax.transpose(array, order)
    sizes = [label.size if label in labels else 1 for label in target]
    if tuple(sizes) == np.shape(array):
        return array
    return np.reshape(array, sizes) if is_static(array) else lax.reshape(array, sizes)


def compose(outer: IndexMap, inner: Mapping[Label, IndexMap], guarded: frozenset[Label] = frozenset()) -> IndexMap:
    """The map `outer` after each label is replaced by a map of new labels.

    A value of `inner` outside of its label's range must lead nowhere. Where that is ensured elsewhere in the term (the
    label is in `guarded`), or the outer axis has the same range, an affine composition stays affine.
    """
    if not any(label in inner for label in outer.labels):
        return outer
    if isinstance(outer, Affine):
        if outer.is_plain:
            return inner[outer.labels[0]]
        if all(
            isinstance(inner.get(label), Affine | None)
            and (label in guarded or label not in inner or inner[label].stays_inside)
            for label in outer.labels
        ):
            return _compose_affine(outer, inner)
    elif renamed := _renamed(outer, inner):
        return renamed
    return _compose_indexed(outer, inner)


def _renamed(outer: Indexed, inner: Mapping[Label, IndexMap]) -> Indexed | None:
    """The same array under new labels, where each label is replaced by one of its size."""
    parts = [inner.get(label, plain(label)) for label in outer.labels]
    if not all(part.is_plain for part in parts):
        return None
    labels = tuple(part.labels[0] for part in parts)
    return replace(outer, labels=labels) if len(set(labels)) == len(labels) else None


def _compose_affine(outer: Affine, inner: Mapping[Label, IndexMap]) -> Affine:
    offset, strides = outer.offset, {}
    for label, stride in outer.strides:
        replacement = inner.get(label, plain(label))
        assert isinstance(replacement, Affine)
        offset += stride * (replacement.offset if label in inner else 0)
        for new, step in replacement.strides:
            strides[new] = strides.get(new, 0) + stride * step
    return Affine(outer.size, offset, tuple((label, s) for label, s in strides.items() if s != 0))


def _compose_indexed(outer: IndexMap, inner: Mapping[Label, IndexMap]) -> IndexMap:
    parts = {label: inner.get(label, plain(label)) for label in outer.labels}
    labels = union(part.labels for part in parts.values())
    valid: Any = np.True_
    indices = []
    for label, part in parts.items():
        index = spread(part.index(), part.labels, labels)
        if not part.stays_inside:
            valid = valid & _inside(index, label.size)
        indices.append(index)
    if isinstance(outer, Affine):
        total: Any = np.int32(outer.offset)
        for index, (_, stride) in zip(indices, outer.strides, strict=True):
            total = total + index * np.int32(stride)
    elif all(map(is_static, [outer.array, *indices])):
        total = outer.array[
            tuple(np.clip(i, 0, label.size - 1) for i, label in zip(indices, outer.labels, strict=True))
        ]
    else:
        total = jnp.asarray(outer.array)[
            tuple(jnp.clip(i, 0, each.size - 1) for i, each in zip(indices, outer.labels, strict=True))
        ]
    total = _where(valid, total, -1) if valid is not np.True_ else total
    shape = tuple(label.size for label in labels)
    total = np.broadcast_to(total, shape) if is_static(total) else jnp.broadcast_to(total, shape)
    return indexed(outer.size, total, labels, stays_inside=outer.stays_inside and valid is np.True_)


def intersect(outer: Affine, inner: Affine) -> tuple[Affine, Affine, int] | None:
    """Where two affine maps of at most one label each meet: ``outer(t) == inner(u)``.

    Returns:
        The maps ``t(k)`` and ``u(k)`` of a new label, and its size; None where the maps never meet.
    """
    label_t, c = outer.strides[0] if outer.strides else (Label(1), 0)
    label_u, g = inner.strides[0] if inner.strides else (Label(1), 0)
    if c == 0 or g == 0:
        solution = _meet_constant(outer.offset, c, inner.offset, g)
    else:
        solution = _meet_lines(outer.offset, c, inner.offset, g)
    if solution is None:
        return None
    (t0, dt), (u0, du) = solution
    low, high = 0, max(label_t.size, label_u.size) if dt or du else 0
    for start, delta, size in ((t0, dt, label_t.size), (u0, du, label_u.size)):
        if delta == 0:
            high = high if 0 <= start < size else -1
        else:
            near, far = (0, size - 1) if delta > 0 else (size - 1, 0)
            low, high = max(low, -((start - near) // delta)), min(high, (far - start) // delta)
    count = high - low + 1
    if count <= 0:
        return None
    label = Label(count)
    t_map = Affine(label_t.size, t0 + low * dt, ((label, dt),) if count > 1 and dt else ())
    u_map = Affine(label_u.size, u0 + low * du, ((label, du),) if count > 1 and du else ())
    return t_map, u_map, count


Line = tuple[int, int]


def _meet_lines(a: int, c: int, b: int, g: int) -> tuple[Line, Line] | None:
    """All solutions ``t(k), u(k)`` of ``a + c * t == b + g * u``, each as (start, step)."""
    step = math.gcd(c, g)
    if (b - a) % step:
        return None
    dt, du = g // step, c // step
    if dt < 0:
        dt, du = -dt, -du
    target = (b - a) // step
    t0 = (target * pow(c // step, -1, dt)) % dt if dt > 1 else 0
    return (t0, dt), ((a + c * t0 - b) // g, du)


def _meet_constant(a: int, c: int, b: int, g: int) -> tuple[Line, Line] | None:
    """The same where at least one of `c` and `g` is zero."""
    if c == 0 and g == 0:
        return ((0, 0), (0, 0)) if a == b else None
    position, rest = divmod(a - b, g) if c == 0 else divmod(b - a, c)
    if rest:
        return None
    return ((0, 0), (position, 0)) if c == 0 else ((position, 0), (0, 0))
