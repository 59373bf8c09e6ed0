"""Pooling: sums over windows, and the entries that windows select."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from symjac._algebra.index_map import Indexed, IndexMap, Label, plain
from symjac._algebra.merge import settle
from symjac._algebra.tangent import StructuredTangent, Term, replace
from symjac._engine.dense import apply_each, map_axes
from symjac._engine.interpreter import register
from symjac._engine.sharing import shared
from symjac.rules.indexing import read_at, write_at
from symjac.rules.windows import Slide, narrow, slides_of

_OPTIONS = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")


def _pooling(shape: Sequence[int], params: Mapping[str, Any]) -> list[Slide]:
    return slides_of(
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
    moving = {i: slide for i, slide in enumerate(_pooling(x.shape, params)) if not slide.is_trivial}
    dense = lambda term: _summed(term, x.dtype, list(moving), params)  # noqa: E731
    return apply_each(x, dense, lambda x: _sum_windows(x, moving))


def _summed(term: Term, dtype: Any, axes: Sequence[int], params: Mapping[str, Any]) -> Term | None:
    """A term without structure along the axes of the windows, summed as an array; None for another one."""
    windows = {name: [value[i] for i in axes] for name, value in params.items() if name in _OPTIONS}

    def pool(array: Any) -> Any:
        return lax.reduce_window(array, np.zeros((), dtype), lax.add, **windows)

    return map_axes(term, axes, pool, dtype)


def _sum_windows(x: StructuredTangent, moving: Mapping[int, Slide]) -> StructuredTangent:
    rows = {i: Label(slide.count) for i, slide in moving.items()}
    places = {i: Label(slide.window) for i, slide in moving.items()}
    shape = [moving[i].count if i in moving else n for i, n in enumerate(x.shape)]
    for i, slide in moving.items():
        x = slide.padded(x, i)
    positions = {i: slide.position(rows[i], places[i]) for i, slide in moving.items()}

    def rebuild(term: Term, untouched: Mapping[int, IndexMap]) -> Term:
        axes = tuple(untouched[i] if i in untouched else plain(rows[i]) for i in range(len(shape)))
        return settle(narrow(replace(term, out_axes=axes).counted([*places.values()]), x.dtype), x.dtype)

    return read_at(x, positions, [], rebuild, shape)


def _selected(operand: Any, slides: Sequence[Slide], params: Mapping[str, Any]) -> dict[int, Any]:
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
