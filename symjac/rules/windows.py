"""Convolutions and pooling: out axes read along affine maps of a position and a place within the window."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from symjac._algebra.factor import Factor, common_dtype
from symjac._algebra.index_map import Affine, Indexed, IndexMap, Label, plain
from symjac._algebra.materialise import assemble
from symjac._algebra.reading import solve
from symjac._algebra.tangent import StructuredTangent, Term, replace
from symjac._engine.interpreter import register
from symjac._engine.sharing import shared
from symjac.rules.indexing import read_at, write_at

# Labels that meet on one axis are replaced by one label for their range where that saves more than this.
_MOST_OVERLAP = 2


@dataclass(frozen=True)
class _Slide:
    """A window that slides along one axis.

    Result position ``o`` and place ``k`` within the window read entry ``(stride o + dilation k - low) / base``.

    Attributes:
        size: The size of the axis.
        window: The size of the window.
        count: The number of result positions.
    """

    size: int
    window: int
    count: int
    stride: int
    low: int
    base: int
    dilation: int

    @property
    def is_trivial(self) -> bool:
        """Whether each entry is read where it is."""
        return self.window == 1 and self.stride == 1 and self.low == 0 and self.base == 1 and self.count == self.size

    @property
    def extent(self) -> int:
        """How far the windows reach along the padded axis."""
        return self.stride * max(self.count - 1, 0) + self.dilation * max(self.window - 1, 0) + 1

    def position(self, o: Label, k: Label) -> Affine:
        """The position along the padded axis."""
        strides = ((o, self.stride), (k, self.dilation))
        return Affine(self.extent, 0, tuple((label, step) for label, step in strides if label.size > 1))

    def padded(self, x: StructuredTangent, axis: int) -> StructuredTangent:
        """The tangent of the padded and dilated array, as far as the windows reach."""
        shape = [self.extent if i == axis else n for i, n in enumerate(x.shape)]
        result = x.map(lambda term: term.place(axis, self.low, self.extent, self.base), shape=shape)
        assert isinstance(result, StructuredTangent)
        return result

    def of_array(self, o: Label, k: Label) -> tuple[Label, IndexMap]:
        """A label for the axis of an array, and its value at a position and a place; outside where there is padding."""
        label = Label(self.size)
        solution = solve(Affine(self.extent, self.low, ((label, self.base),)), self.position(o, k))
        assert isinstance(solution, tuple)
        return label, solution[0][label]


def _slides(
    sizes: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base: Sequence[int] | None,
    dilation: Sequence[int] | None,
) -> list[_Slide]:
    found = []
    for i, (n, k) in enumerate(zip(sizes, window, strict=True)):
        b, d = (1 if base is None else base[i]), (1 if dilation is None else dilation[i])
        low, high = (int(side) for side in padding[i])
        padded = (max((n - 1) * b + 1, 0) if n else 0) + low + high
        span = (k - 1) * d + 1 if k else 0
        count = (padded - span) // strides[i] + 1 if padded >= span else 0
        found.append(_Slide(n, k, count, int(strides[i]), low, b, d))
    return found


# -- convolution -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Convolution:
    """The labels of one convolution, and the maps of the axes of its two operands and of its result.

    Attributes:
        slides: One for each spatial axis.
        lhs, rhs, out: The maps by axis, in the order of the specification: batch or out feature, feature, spatial.
        rows, places: The labels of the spatial positions and of the places within the window.
    """

    slides: list[_Slide]
    lhs: list[IndexMap]
    rhs: list[IndexMap]
    out: list[IndexMap]
    rows: list[Label]
    places: list[Label]


def _digits(size: int, group: Label, inner: Label) -> Affine:
    """An axis that goes over groups and, within each, over the inner label."""
    strides = ((group, inner.size), (inner, 1))
    return Affine(size, 0, tuple((label, step) for label, step in strides if label.size > 1 or size == 0))


def _convolution(lhs: Sequence[int], rhs: Sequence[int], params: Mapping[str, Any]) -> _Convolution:
    numbers = params["dimension_numbers"]
    sizes, window = [lhs[d] for d in numbers.lhs_spec], [rhs[d] for d in numbers.rhs_spec]
    slides = _slides(
        sizes[2:],
        window[2:],
        params["window_strides"],
        params["padding"],
        params["lhs_dilation"],
        params["rhs_dilation"],
    )
    by_feature, by_batch = params["feature_group_count"], params["batch_group_count"]
    group = Label(by_feature * by_batch)
    outer, inner = Label(window[0] // group.size), Label(window[1])
    rows, places = [Label(slide.count) for slide in slides], [Label(slide.window) for slide in slides]
    batch = Label(sizes[0] // by_batch)
    positions = [slide.position(o, k) for slide, o, k in zip(slides, rows, places, strict=True)]
    feature = _digits(sizes[1], group, inner) if by_feature > 1 else plain(inner)
    sample = _digits(sizes[0], group, batch) if by_batch > 1 else plain(batch)
    filters = _digits(window[0], group, outer) if group.size > 1 else plain(outer)
    return _Convolution(
        slides,
        [sample, feature, *positions],
        [filters, plain(inner), *map(plain, places)],
        [plain(batch), filters, *map(plain, rows)],
        rows,
        places,
    )


def _in_place(maps: Sequence[Any], specification: Sequence[int]) -> list[Any]:
    """What belongs to batch, feature and spatial axes, by axis of the array."""
    return [maps[list(specification).index(d)] for d in range(len(specification))]


@register(lax.conv_general_dilated_p)
def _conv_general_dilated_rule(lhs: Any, rhs: Any, **params: Any) -> StructuredTangent:
    """J'[n, c, o, p] = sum_{i, k} J[n, i, s o + d k, p] w[c, i, k]: reads spatial axes along affine maps, appends w.

    Keeps the deltas of batch, group and spatial axes; with respect to the kernel those of its own axes.
    Declines for two tangents.
    """
    if isinstance(lhs, StructuredTangent) and isinstance(rhs, StructuredTangent):
        return NotImplemented
    numbers = params["dimension_numbers"]
    found = _convolution(np.shape(lhs) if not isinstance(lhs, StructuredTangent) else lhs.shape, _shape(rhs), params)
    dtype = params["preferred_element_type"] or common_dtype(lhs.dtype, rhs.dtype)
    shape = [axis.size for axis in _in_place(found.out, numbers.out_spec)]
    out_axes = tuple(_in_place(found.out, numbers.out_spec))
    if isinstance(lhs, StructuredTangent):
        tangent, maps, specification = lhs, found.lhs, numbers.lhs_spec
        for slide, axis in zip(found.slides, numbers.lhs_spec[2:], strict=True):
            tangent = slide.padded(tangent, axis)
        factor = _read_array(rhs, _in_place(found.rhs, numbers.rhs_spec), params["precision"])
    else:
        tangent, maps, specification = rhs, found.rhs, numbers.rhs_spec
        factor = _patches(lhs, found, numbers.lhs_spec, params["precision"])
    positions = dict(enumerate(_in_place(maps, specification)))

    def rebuild(term: Term, _: Any) -> Term:
        return narrow(replace(term, out_axes=out_axes).times(factor), dtype)

    return read_at(tangent, positions, [], rebuild, shape).cast(dtype)


def _shape(x: Any) -> tuple[int, ...]:
    return x.shape if isinstance(x, StructuredTangent) else np.shape(x)


def _read_array(array: Any, maps: Sequence[IndexMap], precision: Any) -> Factor:
    """An array as a factor, each axis of which is read along a map."""
    fresh = [Label(n) for n in np.shape(array)]
    return Factor(array, tuple(fresh), precision).substitute(dict(zip(fresh, maps, strict=True)))


def _patches(lhs: Any, found: _Convolution, specification: Sequence[int], precision: Any) -> Factor:
    """The windows of the left operand as a factor."""
    channels = [Label(np.shape(lhs)[d]) for d in specification[:2]]
    spatial = [slide.of_array(o, k) for slide, o, k in zip(found.slides, found.rows, found.places, strict=True)]
    labels = [*channels, *(label for label, _ in spatial)]
    maps = [*found.lhs[:2], *(index_map for _, index_map in spatial)]
    factor = Factor(lhs, tuple(_in_place(labels, specification)), precision)
    return factor.substitute(dict(zip(labels, maps, strict=True)))


def narrow(term: Term, dtype: Any) -> Term:
    """Replaces labels that meet on one axis and nowhere else by one label for their range, where that saves much.

    Two convolutions by windows of 3 reach 5 entries along 9 pairs of places; ten of them would reach 21 along 59049.
    """
    counts: dict[Label, int] = {}
    for axis in term.axes:
        for label in axis.labels:
            counts[label] = counts.get(label, 0) + 1
    views: dict[int, Affine] = {}
    axes: list[IndexMap] = list(term.axes)
    saved = 1.0
    for i, axis in enumerate(term.axes):
        own = [label for label in axis.labels if counts[label] == 1]
        if not isinstance(axis, Affine) or len(own) < 2 or any(label.size == 0 for label in axis.labels):
            continue
        views[i], axes[i], ratio = _narrowed(axis, own)
        saved *= ratio
    if saved <= _MOST_OVERLAP:
        return term
    return _with_views(term, views, axes, dtype)


def _narrowed(axis: Affine, own: Sequence[Label]) -> tuple[Affine, Affine, float]:
    """The view of a new label by the labels of an axis, the axis by the new label, and how much smaller that is."""
    private = Affine(0, 0, tuple((label, step) for label, step in axis.strides if label in own))
    unit = math.gcd(*(step for _, step in private.strides))
    low, high = private.bounds()
    reach, count = (high - low) // unit + 1, math.prod(label.size for label in own)
    if reach >= axis.size:
        return axis, plain(Label(axis.size)), count / axis.size
    label = Label(reach)
    view = Affine(reach, -low // unit, tuple((each, step // unit) for each, step in private.strides))
    rest = tuple((each, step) for each, step in axis.strides if each not in own)
    return view, Affine(axis.size, axis.offset + low, (*rest, (label, unit))), count / reach


def _with_views(term: Term, views: Mapping[int, Affine], axes: Sequence[IndexMap], dtype: Any) -> Term:
    """The term contracted to one factor over new labels for some axes, and over what it carried on the others."""
    new = {i: next(label for label in axes[i].labels if label not in term.labels) for i in views}
    on_new = {label for axis in axes for label in axis.labels}
    carried = {label for factor in term.factors for label in factor.labels}
    carried |= {label for i, view in views.items() for label in view.labels if new[i].size == axes[i].size}
    kept = [label for label in term.axis_labels if label in carried and label in on_new]
    every = [*map(plain, kept), *views.values()]
    labels = (*kept, *new.values())
    array = assemble([term.factors], [every], [label.size for label in labels], dtype)
    rank = len(term.out_axes)
    return Term((Factor(array, labels),), tuple(axes[:rank]), tuple(axes[rank:]))


# -- pooling ---------------------------------------------------------------------------------------------------------


def _pooling(shape: Sequence[int], params: Mapping[str, Any]) -> list[_Slide]:
    return _slides(
        shape,
        params["window_dimensions"],
        params["window_strides"],
        params["padding"],
        params.get("base_dilation"),
        params.get("window_dilation"),
    )


@register(lax.reduce_window_sum_p)
def _reduce_window_sum_rule(x: StructuredTangent, **params: Any) -> StructuredTangent:
    """J'[o, p] = sum_k J[s o + d k, p]: reads axes along affine maps, summed over the places within the window.

    Keeps every delta.
    """
    slides = _pooling(x.shape, params)
    moving = {i: slide for i, slide in enumerate(slides) if not slide.is_trivial}
    rows = {i: Label(slide.count) for i, slide in moving.items()}
    places = {i: Label(slide.window) for i, slide in moving.items()}
    shape = [slide.count for slide in slides]
    for i, slide in moving.items():
        x = slide.padded(x, i)
    positions = {i: slide.position(rows[i], places[i]) for i, slide in moving.items()}

    def rebuild(term: Term, untouched: Mapping[int, IndexMap]) -> Term:
        axes = tuple(untouched[i] if i in untouched else plain(rows[i]) for i in range(len(shape)))
        return narrow(replace(term, out_axes=axes).counted([*places.values()]), x.dtype)

    return read_at(x, positions, [], rebuild, shape)


def _selected(operand: Any, slides: Sequence[_Slide], params: Mapping[str, Any]) -> dict[int, Any]:
    """For each axis along which a window slides, the position of the entry that each window selects; -1 where none."""
    moving = [i for i, slide in enumerate(slides) if not slide.is_trivial]
    sizes = [slides[i].size for i in moving]
    radices = [math.prod(sizes[j + 1 :]) for j in range(len(sizes))]
    flat = jnp.zeros(np.shape(operand), jnp.int32)
    for i, radix in zip(moving, radices, strict=True):
        flat = flat + np.int32(radix) * lax.broadcasted_iota(np.int32, np.shape(operand), i)
    is_max = params["select_prim"] is lax.ge_p
    first = np.asarray(-np.inf if is_max else np.inf, operand.dtype)

    def reducer(x: Any, y: Any) -> Any:
        chosen = params["select_prim"].bind(x[0], y[0])
        return lax.select(chosen, x[0], y[0]), lax.select(chosen, x[1], y[1])

    _, index = lax.reduce_window(
        (lax.stop_gradient(operand), flat),  # JAX cannot differentiate this, and a position has no derivative
        (first, np.int32(-1)),
        reducer,
        params["window_dimensions"],
        params["window_strides"],
        params["padding"],
        params.get("base_dilation"),
        params.get("window_dilation"),
    )
    digits = {i: index // np.int32(r) % np.int32(max(n, 1)) for i, r, n in zip(moving, radices, sizes, strict=True)}
    return {i: jnp.where(index >= 0, digit, -1) for i, digit in digits.items()}


def _selection(operand: Any, params: Mapping[str, Any]) -> tuple[list[Label], dict[int, IndexMap], list[int]]:
    """Labels for the axes of the windows, the positions that they select where they move, and their numbers."""
    slides = _pooling(np.shape(operand), params)
    shape = [slide.count for slide in slides]
    labels = [Label(n) for n in shape]
    key = ("selected", *((name, params[name]) for name in sorted(params)))
    found = shared(key, [operand], lambda: _selected(operand, slides, params))
    positions: dict[int, IndexMap] = {i: Indexed(slides[i].size, array, tuple(labels)) for i, array in found.items()}
    return labels, positions, shape


@register(lax.select_and_gather_add_p)
def _select_and_gather_add_rule(x: Any, operand: Any, **params: Any) -> StructuredTangent:
    """J'[o, p] = J[argmax(o), p]: reads axes where each window selects its entry. Keeps every delta."""
    if isinstance(operand, StructuredTangent):
        return NotImplemented
    labels, positions, shape = _selection(operand, params)
    positions |= {i: plain(label) for i, label in enumerate(labels) if i not in positions}
    return read_at(x, positions, [], lambda term, _: replace(term, out_axes=tuple(map(plain, labels))), shape)


@register(lax.select_and_scatter_add_p)
def _select_and_scatter_add_rule(x: Any, operand: Any, **params: Any) -> StructuredTangent:
    """J'[argmax(o), p] += J[o, p]: out axes move to where each window selects its entry. Keeps every delta."""
    if isinstance(operand, StructuredTangent):
        return NotImplemented
    labels, positions, _ = _selection(operand, params)
    maps = [positions.get(i, plain(label)) for i, label in enumerate(labels)]
    return write_at(x, labels, maps, np.shape(operand))
