"""Index arithmetic that is known while tracing: integer equations on constants, evaluated by numpy.

A gather whose indices are known gives static index maps, and a mask that is known costs nothing at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

# Longer arrays stay in the program, where they are computed when it runs.
_MOST_ELEMENTS = 2**22


def _broadcast_in_dim(x: Any, *, shape: Any, broadcast_dimensions: Any, **_: Any) -> np.ndarray:
    sizes = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, np.shape(x), strict=True):
        sizes[axis] = size
    return np.broadcast_to(np.reshape(x, sizes), shape)


def _iota(*, dtype: Any, shape: Any, dimension: Any, **_: Any) -> np.ndarray:
    sizes = [-1 if axis == dimension else 1 for axis in range(len(shape))]
    return np.broadcast_to(np.arange(shape[dimension], dtype=dtype).reshape(sizes), shape)


def _select_n(which: Any, *cases: Any) -> np.ndarray:
    return np.choose(np.asarray(which, np.int32), cases)


def _slice(x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> np.ndarray:
    steps = strides or (1,) * len(start_indices)
    return x[tuple(slice(a, b, s) for a, b, s in zip(start_indices, limit_indices, steps, strict=True))]


def _reshape(x: Any, *, new_sizes: Any, dimensions: Any = None, **_: Any) -> np.ndarray:
    return np.reshape(x if dimensions is None else np.transpose(x, dimensions), new_sizes)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    lax.iota_p: _iota,
    lax.add_p: lambda x, y, **_: x + y,
    lax.sub_p: lambda x, y, **_: x - y,
    lax.mul_p: lambda x, y, **_: x * y,
    lax.neg_p: lambda x, **_: -x,
    lax.max_p: lambda x, y, **_: np.maximum(x, y),
    lax.min_p: lambda x, y, **_: np.minimum(x, y),
    lax.clamp_p: lambda low, x, high: np.minimum(np.maximum(x, low), high),
    lax.eq_p: lambda x, y, **_: x == y,
    lax.ne_p: lambda x, y, **_: x != y,
    lax.lt_p: lambda x, y, **_: x < y,
    lax.le_p: lambda x, y, **_: x <= y,
    lax.gt_p: lambda x, y, **_: x > y,
    lax.ge_p: lambda x, y, **_: x >= y,
    lax.and_p: lambda x, y, **_: x & y,
    lax.or_p: lambda x, y, **_: x | y,
    lax.not_p: lambda x, **_: ~x,
    lax.select_n_p: _select_n,
    lax.broadcast_in_dim_p: _broadcast_in_dim,
    lax.reshape_p: _reshape,
    lax.squeeze_p: lambda x, *, dimensions: np.squeeze(x, dimensions),
    lax.transpose_p: lambda x, *, permutation: np.transpose(x, permutation),
    lax.rev_p: lambda x, *, dimensions: np.flip(x, dimensions),
    lax.slice_p: _slice,
    lax.concatenate_p: lambda *xs, dimension: np.concatenate(xs, dimension),
    lax.convert_element_type_p: lambda x, *, new_dtype, **_: np.asarray(x).astype(new_dtype),
}


def _is_index(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    if dtype is None or getattr(aval, "size", _MOST_ELEMENTS) > _MOST_ELEMENTS:
        return False
    return np.issubdtype(dtype, np.integer) or dtype == np.bool_ if isinstance(dtype, np.dtype) else False


def evaluate_static(eqn: Any, operands: Sequence[Any]) -> np.ndarray | None:
    """The value of an equation on integers that are all known; None where it is none of those.

    Args:
        eqn: The equation.
        operands: Its operands; known ones are numpy arrays or Python numbers.
    """
    function = _FUNCTIONS.get(eqn.primitive)
    if function is None or not all(_is_index(v.aval) for v in (*eqn.invars, *eqn.outvars)):
        return None
    if not all(isinstance(x, np.ndarray | np.generic | int) for x in operands):
        return None
    known = [np.asarray(x).astype(v.aval.dtype) for x, v in zip(operands, eqn.invars, strict=True)]
    with np.errstate(all="ignore"):
        value = np.asarray(function(*known, **eqn.params))
    aval = eqn.outvars[0].aval
    return value.astype(aval.dtype) if value.shape == tuple(aval.shape) else None
