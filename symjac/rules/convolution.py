"""Convolutions: spatial axes are read along affine maps of a position and a place within the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax

from symjac._algebra.factor import Factor, common_dtype
from symjac._algebra.index_map import Affine, IndexMap, Label, plain
from symjac._algebra.merge import settle
from symjac._algebra.tangent import StructuredTangent, Term, replace
from symjac._engine.dense import apply_each, map_axes
from symjac._engine.interpreter import register
from symjac.rules.indexing import read_at
from symjac.rules.windows import Slide, narrow, slides_of

_OPTIONS = (
    "window_strides",
    "padding",
    "lhs_dilation",
    "rhs_dilation",
    "feature_group_count",
    "batch_group_count",
    "precision",
    "preferred_element_type",
)


@dataclass(frozen=True)
class _Convolution:
    """The labels of one convolution, and the maps of the axes of its two operands and of its result.

    Attributes:
        slides: One for each spatial axis.
        lhs, rhs, out: The maps by axis, in the order of the specification: batch or out feature, feature, spatial.
        rows, places: The labels of the spatial positions and of the places within the window.
    """

    slides: list[Slide]
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
    slides = slides_of(
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
    if isinstance(lhs, StructuredTangent):
        dense = lambda term: _convolved(term, lhs.dtype, rhs, params)  # noqa: E731
        return apply_each(lhs, dense, lambda x: _read_windows(x, rhs, params))
    return _read_windows(lhs, rhs, params)


def _convolved(term: Term, dtype: Any, rhs: Any, params: Mapping[str, Any]) -> Term | None:
    """A term without structure along the axes that a window reads, convolved as an array; None for another one."""
    numbers = params["dimension_numbers"]
    options = {name: value for name, value in params.items() if name in _OPTIONS}
    batch, every = numbers.lhs_spec[0], range(len(numbers.lhs_spec))

    def convolve(array: Any) -> Any:
        return lax.conv_general_dilated(array, rhs, dimension_numbers=numbers, **options)

    def convolve_one(array: Any) -> Any:
        return lax.squeeze(convolve(lax.expand_dims(array, [batch])), numbers.out_spec[:1])

    whole = map_axes(term, every, convolve, dtype)
    if whole is not None or params["batch_group_count"] > 1:
        return whole
    read, written = ([d for d in every if d != spec[0]] for spec in (numbers.lhs_spec, numbers.out_spec))
    return map_axes(term, read, convolve_one, dtype, written)


def _read_windows(lhs: Any, rhs: Any, params: Mapping[str, Any]) -> StructuredTangent:
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
        return settle(narrow(replace(term, out_axes=out_axes).times(factor), dtype), dtype)

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
