"""Factors: arrays whose axes carry labels, and their contraction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import opt_einsum
from jax import lax

from symjac._algebra.index_map import Affine, IndexMap, Label, is_static, plain, spread, union

# opt_einsum's exact search is exponential in the number of factors; past this a greedy search takes over.
_MOST_FACTORS_FOR_DP = 10
# A diagonal goes into the one factor that has all of its labels, unless that is this many times larger than a product
# with another factor.
_MOST_GROWTH = 16


@dataclass(frozen=True, eq=False)
class Factor:
    """An array whose axes carry labels, each at most once.

    Attributes:
        array: The values, of shape ``[label.size for label in labels]``.
        labels: One label for each axis.
        precision: The `precision` of the `dot_general` that brought the array in, to be used where it is contracted.
        origin: What a rule remembers of where the array came from, and the array that this holds for.
    """

    array: Any
    labels: tuple[Label, ...]
    precision: Any = None
    origin: tuple[Any, Any] | None = None

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(label.size for label in self.labels)

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the array."""
        return np.dtype(self.array.dtype)

    @property
    def is_static(self) -> bool:
        """Whether the values are known while tracing."""
        return is_static(self.array)

    def relabel(self, mapping: Mapping[Label, Label]) -> Factor:
        """The same array under other labels of the same sizes."""
        return replace(self, labels=tuple(mapping.get(label, label) for label in self.labels))

    def over(self, labels: tuple[Label, ...]) -> Any:
        """The array with its axes in the order of `labels` (a superset), size 1 where it has no such label."""
        return spread(self.array, self.labels, labels)

    def substitute(self, inner: Mapping[Label, IndexMap], fill: int = 0) -> Factor:
        """The factor read at new positions; `fill` where a position is outside of its label's range."""
        touched = [label for label in self.labels if label in inner]
        if not touched:
            return self
        kept = [label for label in self.labels if label not in inner]
        fresh = [label for old in touched for label in inner[old].labels]
        if len(set(fresh + kept)) < len(fresh) + len(kept):
            return self._gather({label: inner[label] for label in touched}, fill)
        factor = self
        for label in touched:
            factor = factor._take(label, inner[label], fill)
        return factor

    def _take(self, label: Label, index_map: IndexMap, fill: int) -> Factor:
        axis = self.labels.index(label)
        labels = self.labels[:axis] + index_map.labels + self.labels[axis + 1 :]
        if isinstance(index_map, Affine) and index_map.stays_inside:
            array = _slice_axis(self.array, axis, index_map)
            if array is not None:
                return Factor(array, labels, self.precision)
        return self._gather({label: index_map}, fill)

    def _gather(self, inner: Mapping[Label, IndexMap], fill: int) -> Factor:
        """One gather over all replaced axes, and over kept axes whose label the new positions depend on."""
        new = union(index_map.labels for index_map in inner.values())
        maps = {label: inner.get(label, plain(label)) for label in self.labels if label in inner or label in new}
        axes = [self.labels.index(label) for label in maps]
        shape = tuple(label.size for label in new)
        columns = []
        for index_map in maps.values():
            index = jnp.asarray(spread(index_map.index(), index_map.labels, new), jnp.int32)
            columns.append(jnp.broadcast_to(index, shape))
        rest = [axis for axis in range(len(self.labels)) if axis not in axes]
        if not all(np.shape(self.array)[axis] for axis in axes):  # There is nothing to read.
            shape += tuple(self.labels[axis].size for axis in rest)
            labels = new + tuple(self.labels[axis] for axis in rest)
            return Factor(jnp.full(shape, fill, self.array.dtype), labels, self.precision)
        safe = all(index_map.stays_inside for index_map in maps.values())
        array = lax.gather(
            jnp.asarray(self.array),
            jnp.stack(columns, axis=-1),
            lax.GatherDimensionNumbers(
                offset_dims=tuple(range(len(new), len(new) + len(rest))),
                collapsed_slice_dims=tuple(sorted(axes)),
                start_index_map=tuple(axes),
            ),
            slice_sizes=tuple(1 if axis in axes else size for axis, size in enumerate(np.shape(self.array))),
            mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS if safe else lax.GatherScatterMode.FILL_OR_DROP,
            fill_value=fill,
        )
        return Factor(array, new + tuple(self.labels[axis] for axis in rest), self.precision)


def _slice_axis(array: Any, axis: int, index_map: Affine) -> Any | None:
    """The axis read along an affine map by slicing or reshaping alone; None where that is not possible."""
    if not index_map.strides:
        return lax.index_in_dim(array, index_map.offset, axis, keepdims=False)
    size = np.shape(array)[axis]
    if len(index_map.strides) == 1:
        ((label, stride),) = index_map.strides
        last = index_map.offset + stride * (label.size - 1)
        start = min(index_map.offset, last)
        if label.size == 0:
            return lax.slice_in_dim(array, 0, 0, axis=axis)
        if (start, abs(stride), label.size) != (0, 1, size):
            array = lax.slice_in_dim(array, start, max(index_map.offset, last) + 1, abs(stride), axis)
        return lax.rev(array, (axis,)) if stride < 0 else array
    radix = 1
    for label, stride in reversed(index_map.strides):
        if stride != radix:
            return None
        radix *= label.size
    if index_map.offset != 0 or radix != size:
        return None
    shape = np.shape(array)
    return lax.reshape(array, shape[:axis] + tuple(label.size for label in index_map.labels) + shape[axis + 1 :])


def scalar(value: Any, dtype: Any) -> Factor:
    """A constant without labels, known while tracing."""
    return Factor(np.asarray(value, dtype), ())


def common_dtype(*dtypes: Any) -> np.dtype:
    """The dtype in which arrays of these dtypes are multiplied or added."""
    with jax.numpy_dtype_promotion("standard"):
        return np.dtype(reduce(jnp.promote_types, dtypes))


def cast(array: Any, dtype: Any) -> Any:
    """The array in another dtype; the same object where it has that dtype already."""
    if np.dtype(array.dtype) == np.dtype(dtype) and not getattr(array, "weak_type", False):
        return array
    if is_static(array):
        return np.asarray(array).astype(dtype)
    return lax.convert_element_type(array, np.dtype(dtype))


def _aligned(a: Factor, b: Factor) -> tuple[tuple[Label, ...], Any, Any]:
    """The union of the labels, and both arrays over it in their common dtype; a scalar stays a scalar."""
    dtype = common_dtype(a.dtype, b.dtype)
    labels = union([a.labels, b.labels] if len(a.labels) >= len(b.labels) else [b.labels, a.labels])
    x, y = (cast(f.over(labels) if f.labels else f.array, dtype) for f in (a, b))
    if not (is_static(x) and is_static(y)):
        shape = np.broadcast_shapes(np.shape(x), np.shape(y))
        x, y = (v if np.shape(v) in ((), shape) else jnp.broadcast_to(v, shape) for v in (x, y))
    return labels, x, y


def multiply(a: Factor, b: Factor) -> Factor:
    """The elementwise product over the union of the labels."""
    labels, x, y = _aligned(a, b)
    static = is_static(x) and is_static(y)
    return Factor(np.asarray(x * y, x.dtype) if static else lax.mul(x, y), labels, _precision(a, b))


def add(a: Factor, b: Factor) -> Factor:
    """The elementwise sum over the union of the labels."""
    labels, x, y = _aligned(a, b)
    return Factor(np.asarray(x + y, x.dtype) if is_static(x) and is_static(y) else lax.add(x, y), labels)


def zeroed(factor: Factor, mask: Factor) -> Factor:
    """The factor over the union of the labels, zero where the mask is: a NaN or an infinity there vanishes."""
    labels = union([factor.labels, mask.labels])
    shape = tuple(label.size for label in labels)
    keep, values = mask.over(labels), factor.over(labels)
    if is_static(keep) and is_static(values):
        return Factor(np.where(keep, values, np.zeros((), values.dtype)), labels, factor.precision)
    values = jnp.broadcast_to(values, shape)
    keep = jnp.broadcast_to(cast(jnp.asarray(keep), np.bool_), shape)
    return Factor(lax.select(keep, values, jnp.zeros_like(values)), labels, factor.precision)


def _precision(a: Factor, b: Factor) -> Any:
    """The stricter of two precisions."""
    if a.precision is None or b.precision is None or a.precision == b.precision:
        return a.precision if b.precision is None else b.precision
    if isinstance(a.precision, lax.Precision) and isinstance(b.precision, lax.Precision):
        return max(a.precision, b.precision, key=lambda p: p.value)
    return lax.Precision.HIGHEST


def contract(factors: Sequence[Factor], keep: Sequence[Label], dtype: Any, *, in_order: bool = True) -> Factor:
    """Multiplies all factors and sums over every label that is not kept.

    Labels to keep that no factor carries do not appear in the result: it is uniform along them.

    Args:
        factors: The factors; with none the result is the scalar one.
        keep: The labels that survive.
        dtype: The dtype of the result.
        in_order: Whether the labels of the result should come in the order of `keep`.

    Returns:
        One factor over those labels of `keep` that some factor carries.
    """
    if not factors:
        return scalar(1, dtype)
    pending = _fold(list(factors))
    position = {label: i for i, label in enumerate(keep)}
    for i, j in _path(pending, keep):
        a, b = pending[i], pending[j]
        pending = [factor for k, factor in enumerate(pending) if k not in (i, j)]
        needed = set(keep).union(*(factor.labels for factor in pending))
        first = [_first_position(factor, position) for factor in (a, b)]
        if first[1] < first[0]:
            a, b = b, a
        if pending or not in_order or max(first) == len(position):
            a, b = _in_fast_order(a, b, needed)
        pending.append(_contract_pair(a, b, needed, dtype))
    (factor,) = pending
    factor = _sum_out(factor, set(keep))
    return Factor(cast(factor.array, dtype), factor.labels, factor.precision)


def _first_position(factor: Factor, position: Mapping[Label, int]) -> int:
    """Where in the result the first of the factor's axes stands, so that products come out in that order."""
    return min((position[label] for label in factor.labels if label in position), default=len(position))


def _in_fast_order(a: Factor, b: Factor, needed: set[Label]) -> tuple[Factor, Factor]:
    """Two factors in the order in which compilers have the best code for their product.

    The sum runs over the last axes of the first factor, or else that is the smaller one.
    """
    summed = {label for label in a.labels if label in b.labels and label not in needed}
    a_last, b_last = ({*f.labels[len(f.labels) - len(summed) :]} == summed for f in (a, b))
    swapped = b_last if a_last != b_last else not a_last and b.size < a.size
    return (b, a) if summed and swapped else (a, b)


def _fold(factors: list[Factor]) -> list[Factor]:
    """Multiplies factors into others that carry all of their labels: scalars and equals always, diagonals where many.

    The exact search over orders then decides where a diagonal is multiplied in: into a small intermediate rather than
    into a large constant. Where only one factor has all of its labels, it goes into that: any other would have to be
    copied for each entry of a label, and be multiplied copy by copy.
    """
    many = len(factors) > _MOST_FACTORS_FOR_DP
    alive = dict(enumerate(factors))
    for i in sorted(alive, key=lambda i: factors[i].size):
        own = set(alive[i].labels)
        hosts = [j for j in alive if j != i and own <= set(alive[j].labels)]
        if not many and own:
            smallest = min((alive[j].size for j in hosts), default=0)
            others = [f for j, f in alive.items() if j != i and j not in hosts and own.intersection(f.labels)]
            grown = [math.prod(label.size for label in own.union(f.labels)) for f in others]
            is_clear = bool(grown) and len(hosts) == 1 and smallest <= _MOST_GROWTH * min(grown)
            hosts = hosts if is_clear else [j for j in hosts if own == set(alive[j].labels)]
        if hosts:
            host = min(hosts, key=lambda j: alive[j].size)
            alive[host] = multiply(alive[host], alive.pop(i))
    return list(alive.values())


def _path(factors: Sequence[Factor], keep: Sequence[Label]) -> list[tuple[int, int]]:
    """The cheapest order of pairwise contractions; each result is appended at the end."""
    if len(factors) < 3:
        return [(0, 1)] * (len(factors) - 1)
    symbols = {label: opt_einsum.get_symbol(i) for i, label in enumerate(union(f.labels for f in factors))}
    terms = ["".join(symbols[label] for label in factor.labels) for factor in factors]
    output = "".join(symbols[label] for label in dict.fromkeys(keep) if label in symbols)
    shapes = [tuple(max(label.size, 1) for label in factor.labels) for factor in factors]
    search = "dp" if len(factors) <= _MOST_FACTORS_FOR_DP else "greedy"
    path, _ = opt_einsum.contract_path(",".join(terms) + "->" + output, *shapes, shapes=True, optimize=search)
    steps: list[tuple[int, int]] = []
    count = len(factors)
    for step in path:
        remaining = sorted(step)
        while len(remaining) > 1:
            steps.append((remaining[0], remaining[1]))
            count -= 1
            remaining = [k - 2 for k in remaining[2:]] + ([count - 1] if len(remaining) > 2 else [])
    return steps


def _sum_out(factor: Factor, needed: set[Label]) -> Factor:
    axes = tuple(axis for axis, label in enumerate(factor.labels) if label not in needed)
    if not axes:
        return factor
    kept = tuple(label for label in factor.labels if label in needed)
    array = jnp.asarray(factor.array)
    total = jnp.sum(array, axis=axes, dtype=array.dtype)
    return Factor(total, kept, factor.precision)


def _contract_pair(a: Factor, b: Factor, needed: set[Label], dtype: Any) -> Factor:
    a = _sum_out(a, needed.union(b.labels))
    b = _sum_out(b, needed.union(a.labels))
    shared = [label for label in a.labels if label in b.labels]
    summed = [label for label in shared if label not in needed]
    if not summed:
        return multiply(a, b)
    batch = [label for label in shared if label in needed]
    compute = common_dtype(a.dtype, b.dtype)
    if not jnp.issubdtype(compute, np.inexact):  # Two masks, or counts: their product has the dtype of the result.
        compute = np.dtype(dtype)
    precision = _precision(a, b)
    wide = compute if common_dtype(compute, dtype) != np.dtype(dtype) else np.dtype(dtype)
    array = lax.dot_general(
        cast(jnp.asarray(a.array), compute),
        cast(jnp.asarray(b.array), compute),
        (
            (tuple(map(a.labels.index, summed)), tuple(map(b.labels.index, summed))),
            (tuple(map(a.labels.index, batch)), tuple(map(b.labels.index, batch))),
        ),
        precision=precision,
        preferred_element_type=wide,
    )
    free = [label for label in (*a.labels, *b.labels) if label not in shared]
    return Factor(array, (*batch, *free), precision)
