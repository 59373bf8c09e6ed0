"""Windows in NumPy: convolutions, and reductions of windows with their derivatives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

Arrays = list[np.ndarray]
_NARROW = (np.dtype(jnp.bfloat16), np.dtype(np.float16))


def padded(x: np.ndarray, fill: Any, config: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """An array with padding around it and between its entries; negative padding cuts."""
    inner = [n + max(n - 1, 0) * gap for n, (_, _, gap) in zip(x.shape, config, strict=True)]
    result = np.full([n + max(lo, 0) + max(hi, 0) for n, (lo, hi, _) in zip(inner, config, strict=True)], fill, x.dtype)
    result[_inside(inner, config)] = x
    return result[_cut(result.shape, config)]


def _inside(inner: Sequence[int], config: Sequence[tuple[int, int, int]]) -> tuple[slice, ...]:
    return tuple(slice(max(lo, 0), max(lo, 0) + n, gap + 1) for n, (lo, _, gap) in zip(inner, config, strict=True))


def _cut(shape: Sequence[int], config: Sequence[tuple[int, int, int]]) -> tuple[slice, ...]:
    return tuple(slice(max(-lo, 0), max(n - max(-hi, 0), 0)) for n, (lo, hi, _) in zip(shape, config, strict=True))


def _offsets(
    window: Sequence[int], dilation: Sequence[int], strides: Sequence[int], out: Sequence[int]
) -> Iterator[Any]:
    """For each place within a window, its slice of the padded array, of the shape of the output."""
    for place in itertools.product(*map(range, window)):
        starts = [p * d for p, d in zip(place, dilation, strict=True)]
        yield (
            place,
            tuple(
                slice(start, start + (n - 1) * s + 1 if n else start, s)
                for start, n, s in zip(starts, out, strides, strict=True)
            ),
        )


def convolution(eqn: Any, operands: Arrays) -> Arrays:
    """`lax.conv_general_dilated`, one place of the kernel at a time."""
    params, aval = eqn.params, eqn.outvars[0].aval
    numbers = params["dimension_numbers"]
    wide = [x.astype(np.float32) if x.dtype in _NARROW else x for x in operands]
    x = wide[0].transpose(numbers.lhs_spec)
    kernel = wide[1].transpose(numbers.rhs_spec)
    config = [(lo, hi, gap - 1) for (lo, hi), gap in zip(params["padding"], params["lhs_dilation"], strict=True)]
    x = padded(x, 0, [(0, 0, 0), (0, 0, 0), *config])
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    n, features = x.shape[:2]
    count = kernel.shape[0] // (groups * batches)
    out = [aval.shape[axis] for axis in numbers.out_spec[2:]]
    x = x.reshape((batches, n // batches, groups, features // groups, *x.shape[2:]))
    kernel = kernel.reshape((batches, groups, count, *kernel.shape[1:]))
    total = np.zeros((n // batches, batches, groups, count, *out), np.result_type(x, kernel))
    for place, window in _offsets(kernel.shape[4:], params["rhs_dilation"], params["window_strides"], out):
        part = kernel[(..., *place)] if place else kernel
        total += np.einsum("bngi...,bgoi->nbgo...", x[(..., *window)], part)
    total = total.reshape((n // batches, batches * groups * count, *out))
    return [total.transpose(np.argsort(numbers.out_spec)).astype(aval.dtype)]


def reduction(function: Any, neutral: Callable[[np.dtype], Any]) -> Callable[[Any, Arrays], Arrays]:
    """A reduction of windows by a NumPy function."""

    def run(eqn: Any, operands: Arrays) -> Arrays:
        (x,) = operands
        params, aval = eqn.params, eqn.outvars[0].aval
        config = _config(params)
        x = padded(x.astype(np.float32) if x.dtype in _NARROW else x, neutral(x.dtype), config)
        total = np.full(aval.shape, neutral(aval.dtype), x.dtype)
        dilation = params["window_dilation"]
        for _, window in _offsets(params["window_dimensions"], dilation, params["window_strides"], aval.shape):
            total = function(total, x[window])
        return [total.astype(aval.dtype)]

    return run


def _config(params: dict[str, Any]) -> list[tuple[int, int, int]]:
    dilation = params.get("base_dilation") or (1,) * len(params["padding"])
    return [(lo, hi, gap - 1) for (lo, hi), gap in zip(params["padding"], dilation, strict=True)]


def lowest(dtype: np.dtype) -> Any:
    """What no maximum takes."""
    return -np.inf if jnp.issubdtype(dtype, jnp.floating) else np.iinfo(dtype).min


def highest(dtype: np.dtype) -> Any:
    """What no minimum takes."""
    return np.inf if jnp.issubdtype(dtype, jnp.floating) else np.iinfo(dtype).max


def gather_selected(eqn: Any, operands: Arrays) -> Arrays:
    """`select_and_gather_add`: of each window, the tangent of the entry that is selected."""
    tangents, x = operands
    params, aval = eqn.params, eqn.outvars[0].aval
    x, tangents = (padded(a, f, _config(params)) for a, f in ((x, _unselected(params, x.dtype)), (tangents, 0)))
    best, found = np.full(aval.shape, _unselected(params, x.dtype), x.dtype), np.zeros(aval.shape, tangents.dtype)
    dilation = params["window_dilation"]
    for _, window in _offsets(params["window_dimensions"], dilation, params["window_strides"], aval.shape):
        keep = _selects(params, best, x[window])
        best, found = np.where(keep, best, x[window]), np.where(keep, found, tangents[window])
    return [found]


def scatter_selected(eqn: Any, operands: Arrays) -> Arrays:
    """`select_and_scatter_add`: to the entry that is selected of each window, its entry of the source."""
    source, x = operands
    params = eqn.params
    config = _config(params)
    inner = x.shape
    x = padded(x, _unselected(params, x.dtype), config)
    windows = list(_offsets(params["window_dimensions"], (1,) * x.ndim, params["window_strides"], source.shape))
    best, chosen = np.full(source.shape, _unselected(params, x.dtype), x.dtype), np.full(source.shape, -1)
    for k, (_, window) in enumerate(windows):
        keep = _selects(params, best, x[window])
        best, chosen = np.where(keep, best, x[window]), np.where(keep, chosen, k)
    total = np.zeros(x.shape, source.dtype)
    for k, (_, window) in enumerate(windows):
        total[window] += np.where(chosen == k, source, 0).astype(source.dtype)
    return [total[_inside(inner, config)]]


def _unselected(params: dict[str, Any], dtype: np.dtype) -> Any:
    return lowest(dtype) if params["select_prim"].name == "ge" else highest(dtype)


def _selects(params: dict[str, Any], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a >= b if params["select_prim"].name == "ge" else a <= b
