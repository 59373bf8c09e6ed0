"""Index arithmetic that is known while tracing: integer equations on constants, evaluated by numpy.

A gather whose indices are known gives static index maps, and a mask that is known costs nothing at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.core import Literal

from symjac import _compat
from symjac._engine.sharing import shared

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


def _div(x: Any, y: Any) -> np.ndarray:
    """Integer division that rounds towards zero."""
    quotient = np.abs(x) // np.where(y == 0, 1, np.abs(y))
    return np.where(y == 0, -1, np.where((x < 0) != (y < 0), -quotient, quotient))


def _rem(x: Any, y: Any) -> np.ndarray:
    return np.where(y == 0, x, np.fmod(x, np.where(y == 0, 1, y)))


def _dynamic_slice(x: Any, *starts: Any, slice_sizes: Any) -> np.ndarray:
    firsts = [int(np.clip(i, 0, n - size)) for i, n, size in zip(starts, np.shape(x), slice_sizes, strict=True)]
    return x[tuple(slice(first, first + size) for first, size in zip(firsts, slice_sizes, strict=True))]


def _pad(x: Any, value: Any, *, padding_config: Any) -> np.ndarray | None:
    if any(low < 0 or high < 0 or interior for low, high, interior in padding_config):
        return None
    return np.pad(x, [(low, high) for low, high, _ in padding_config], constant_values=value)


def _cumsum(x: Any, *, axis: int, reverse: bool) -> np.ndarray:
    return np.flip(np.cumsum(np.flip(x, axis), axis), axis) if reverse else np.cumsum(x, axis)


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *, axes, **_: function(x, axis=tuple(axes))


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
    lax.abs_p: lambda x, **_: np.abs(x),
    lax.sign_p: lambda x, **_: np.sign(x),
    lax.div_p: _div,
    lax.rem_p: _rem,
    lax.xor_p: lambda x, y, **_: x ^ y,
    lax.integer_pow_p: lambda x, *, y, **_: x**y,
    lax.copy_p: lambda x, **_: x,
    lax.dynamic_slice_p: _dynamic_slice,
    lax.pad_p: _pad,
    lax.cumsum_p: _cumsum,
    lax.reduce_sum_p: _reduction(np.sum),
    lax.reduce_max_p: _reduction(np.max),
    lax.reduce_min_p: _reduction(np.min),
    lax.reduce_and_p: _reduction(np.all),
    lax.reduce_or_p: _reduction(np.any),
}
# Computed by JAX itself.
_COMPILED = (lax.gather_p, lax.scatter_p, lax.scatter_add_p, lax.sort_p, lax.argmax_p, lax.argmin_p, lax.top_k_p)
_MOST_COMPILED = 2**14


def _is_index(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    if dtype is None or getattr(aval, "size", _MOST_ELEMENTS) > _MOST_ELEMENTS:
        return False
    return np.issubdtype(dtype, np.integer) or dtype == np.bool_ if isinstance(dtype, np.dtype) else False


def evaluate(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of an equation without tangents: numpy arrays where they are known while tracing.

    Index arithmetic on the same operands gives the same arrays each time, see `shared`.
    """
    if not all(_is_index(v.aval) for v in (*eqn.invars, *eqn.outvars)) or eqn.effects:
        return _compat.bind_equation(eqn, operands)
    known = evaluate_static(eqn, operands)
    if known is not None:
        return known
    key = (eqn.primitive, tuple(sorted(eqn.params.items())))
    try:
        hash(key)
    except TypeError:
        return _compat.bind_equation(eqn, operands)
    return shared(key, operands, lambda: _compat.bind_equation(eqn, operands))


def evaluate_static(eqn: Any, operands: Sequence[Any]) -> list[np.ndarray] | None:
    """The results of an equation on integers that are all known; None where they are not.

    Args:
        eqn: The equation; its operands and results are integers or booleans.
        operands: Its operands; known ones are numpy arrays or Python numbers.
    """
    if not all(isinstance(x, np.ndarray | np.generic | int) for x in operands):
        return None
    known = [np.asarray(x).astype(v.aval.dtype) for x, v in zip(operands, eqn.invars, strict=True)]
    avals = [v.aval for v in eqn.outvars]
    if eqn.primitive in _compat.call_primitives:
        return _called(eqn, known)
    function = _FUNCTIONS.get(eqn.primitive)
    if function is not None:
        with np.errstate(all="ignore"):
            values = [function(*known, **eqn.params)]
    elif eqn.primitive is _compat.device_put_p:
        values = known
    elif eqn.primitive in _COMPILED and all(aval.size <= _MOST_COMPILED for aval in avals):
        with jax.ensure_compile_time_eval():
            values = [np.asarray(value) for value in _compat.bind_equation(eqn, known)]
    else:
        return None
    if any(value is None or np.shape(value) != tuple(aval.shape) for value, aval in zip(values, avals, strict=True)):
        return None
    return [np.asarray(value).astype(aval.dtype) for value, aval in zip(values, avals, strict=True)]


def _called(eqn: Any, known: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """The results of a call on known integers, where all that it does is known."""
    jaxpr, consts = _compat.called_jaxpr(eqn.params)
    env: dict[Any, Any] = dict(zip(jaxpr.invars, [*consts, *known], strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else env[atom]

    for inner in jaxpr.eqns:
        if not all(_is_index(v.aval) for v in (*inner.invars, *inner.outvars)):
            return None
        results = evaluate_static(inner, [read(atom) for atom in inner.invars])
        if results is None:
            return None
        env.update(zip(inner.outvars, results, strict=True))
    return [np.asarray(read(atom)) for atom in jaxpr.outvars]
