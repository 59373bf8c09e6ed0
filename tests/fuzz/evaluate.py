# ruff: noqa: E501
"""Runs a jaxpr of tiny arrays with NumPy, since compiling each operation for each shape takes far longer.

What NumPy does not do in one line is left to JAX, one equation at a time.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special as special
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from symjac import _compat

from .evaluate_indexing import assign, by, gather, scatter, sort, top_k
from .evaluate_windows import convolution, gather_selected, highest, lowest, padded, reduction, scatter_selected

Function = Callable[..., Any]
_NARROW = (np.dtype(jnp.bfloat16), np.dtype(np.float16))
_SINGULAR: ContextVar[list[str] | None] = ContextVar("_SINGULAR", default=None)


@contextlib.contextmanager
def noting_singularities() -> Iterator[list[str]]:
    """Gives a list to which `evaluate` adds the primitives that make a NaN or an infinity of finite operands."""
    found: list[str] = []
    token = _SINGULAR.set(found)
    try:
        yield found
    finally:
        _SINGULAR.reset(token)


def evaluate(closed: ClosedJaxpr, args: Sequence[Any]) -> list[np.ndarray]:
    """The results of a jaxpr, as NumPy arrays."""
    with np.errstate(all="ignore"):
        return _run(closed.jaxpr, [np.asarray(c) for c in closed.consts], args)


def _run(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[np.ndarray]:
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    for var, arg in zip(jaxpr.invars, args, strict=True):
        env[var] = _typed(arg, var.aval)

    def read(atom: Any) -> Any:
        return _typed(atom.val, atom.aval) if isinstance(atom, Literal) else env[atom]

    singular = _SINGULAR.get()
    for eqn in jaxpr.eqns:
        operands = [read(a) for a in eqn.invars]
        results = _equation(eqn, operands)
        env.update(zip(eqn.outvars, results, strict=True))
        if singular is not None and all(map(_is_finite, operands)) and not all(map(_is_finite, results)):
            singular.append(eqn.primitive.name)
    return [read(atom) for atom in jaxpr.outvars]


def _is_finite(value: Any) -> bool:
    return not jnp.issubdtype(value.dtype, np.inexact) or bool(np.isfinite(np.asarray(value)).all())


def _typed(value: Any, aval: Any) -> Any:
    return np.asarray(value, aval.dtype) if _is_ordinary(aval) else value


def _is_ordinary(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    return dtype is not None and not jnp.issubdtype(dtype, jax.dtypes.extended)


def _equation(eqn: Any, operands: list[Any]) -> list[Any]:
    name = eqn.primitive.name
    if name in _STRUCTURED:
        return _STRUCTURED[name](eqn, operands)
    function = _SIMPLE.get(name)
    if function is not None and all(_is_ordinary(v.aval) for v in eqn.outvars):
        result = function(*operands, **_relevant(name, eqn.params))
        if result is not NotImplemented:
            aval = eqn.outvars[0].aval
            array = np.asarray(result)
            if array.shape != aval.shape:
                array = np.broadcast_to(array, aval.shape)
            return [array.astype(aval.dtype, copy=False)]
    results = _compat.bind_equation(eqn, list(map(_device, operands)))
    return [np.asarray(r) if _is_ordinary(v.aval) else r for r, v in zip(results, eqn.outvars, strict=True)]


def _device(value: Any) -> Any:
    return jnp.asarray(value) if isinstance(value, np.ndarray | np.generic) else value


_KEPT = {
    "broadcast_in_dim": ("shape", "broadcast_dimensions"),
    "reshape": ("new_sizes", "dimensions"),
    "transpose": ("permutation",),
    "squeeze": ("dimensions",),
    "slice": ("start_indices", "limit_indices", "strides"),
    "pad": ("padding_config",),
    "concatenate": ("dimension",),
    "rev": ("dimensions",),
    "iota": ("dtype", "shape", "dimension"),
    "convert_element_type": ("new_dtype",),
    "integer_pow": ("y",),
    "dot_general": ("dimension_numbers",),
    "dynamic_slice": ("slice_sizes",),
    "split": (),
    "stack": ("axis",),
    "round": ("rounding_method",),
    "tile": ("reps",),
    "triangular_solve": ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal"),
    "fft": ("fft_type", "fft_lengths"),
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"), ("axes",)),
    **dict.fromkeys(("cumsum", "cumprod"), ("axis", "reverse")),
}


def _relevant(name: str, params: dict[str, Any]) -> dict[str, Any]:
    return {key: params[key] for key in _KEPT.get(name, ()) if key in params}


# -- one result ----------------------------------------------------------------------------------------------------


def _wide(function: Function) -> Function:
    """Computes narrow floats in single precision."""

    @functools.wraps(function)
    def wrapped(*operands: Any, **params: Any) -> Any:
        narrow = [x.dtype for x in operands if x.dtype in _NARROW]
        if not narrow:
            return function(*operands, **params)
        result = function(*(x.astype(np.float32) if x.dtype in _NARROW else x for x in operands), **params)
        return np.asarray(result).astype(narrow[0]) if np.asarray(result).dtype == np.float32 else result

    return wrapped


def _integer_pow(x: Any, *, y: int) -> Any:
    if y < 0:
        return 1 / _integer_pow(x, y=-y)
    result = np.ones_like(x)
    for _ in range(y):
        result = result * x
    return result


def _broadcast_in_dim(x: Any, *_: Any, shape: Any, broadcast_dimensions: Any) -> Any:
    spread = [1] * len(shape)
    for size, place in zip(x.shape, broadcast_dimensions, strict=True):
        spread[place] = size
    return np.broadcast_to(x.reshape(spread), shape)


def _reshape(x: Any, *_: Any, new_sizes: Any, dimensions: Any = None) -> Any:
    return NotImplemented if dimensions is not None else x.reshape(new_sizes)


def _slice(x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    strides = strides or [1] * x.ndim
    return x[tuple(slice(*part) for part in zip(start_indices, limit_indices, strides, strict=True))]


def _pad(x: Any, fill: Any, *, padding_config: Any) -> Any:
    return padded(x, fill, padding_config)


def _iota(*_: Any, dtype: Any, shape: Any, dimension: int) -> Any:
    spread = [1] * len(shape)
    spread[dimension] = shape[dimension]
    return np.broadcast_to(np.arange(shape[dimension]).reshape(spread), shape).astype(dtype)


def _convert(x: Any, *, new_dtype: Any) -> Any:
    if np.iscomplexobj(x) and not jnp.issubdtype(new_dtype, jnp.complexfloating):
        x = x.real
    if jnp.issubdtype(new_dtype, jnp.integer) and jnp.issubdtype(x.dtype, jnp.floating):
        return x.astype(new_dtype) if np.isfinite(x).all() and np.all(np.abs(x) < 2**31) else NotImplemented
    return x != 0 if new_dtype == np.bool_ else x.astype(new_dtype)


def _dot_general(a: Any, b: Any, *, dimension_numbers: Any) -> Any:
    (a_contract, b_contract), (a_batch, b_batch) = dimension_numbers
    a_free = [i for i in range(a.ndim) if i not in (*a_contract, *a_batch)]
    b_free = [i for i in range(b.ndim) if i not in (*b_contract, *b_batch)]
    batch = [a.shape[i] for i in a_batch]
    inner = math.prod(a.shape[i] for i in a_contract)
    left = a.transpose([*a_batch, *a_free, *a_contract]).reshape((*batch, math.prod(a.shape[i] for i in a_free), inner))
    right = b.transpose([*b_batch, *b_contract, *b_free]).reshape(
        (*batch, inner, math.prod(b.shape[i] for i in b_free))
    )
    return (left @ right).reshape((*batch, *(a.shape[i] for i in a_free), *(b.shape[i] for i in b_free)))


def _triangular_solve(
    a: Any, b: Any, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool, unit_diagonal: bool
) -> Any:
    a = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        a = a - a * np.eye(a.shape[-1], dtype=a.dtype) + np.eye(a.shape[-1], dtype=a.dtype)
    a = np.conj(a) if conjugate_a else a
    a = np.swapaxes(a, -1, -2) if transpose_a else a
    try:
        if left_side:
            return np.linalg.solve(a, b)
        return np.swapaxes(np.linalg.solve(np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2)), -1, -2)
    except np.linalg.LinAlgError:
        return NotImplemented


def _fft(x: Any, *, fft_type: Any, fft_lengths: Any) -> Any:
    axes = tuple(range(x.ndim - len(fft_lengths), x.ndim))
    function = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}
    return NotImplemented if x.size == 0 else function[fft_type.name](x, fft_lengths, axes)


def _polygamma(n: Any, x: Any) -> Any:
    return special.polygamma(n.astype(int), x) if np.all((x > 0) & (n > 0)) else NotImplemented


def _select_n(which: Any, *cases: Any) -> Any:
    if len(cases) == 1:
        return cases[0]
    if which.dtype == bool:
        return np.where(which, cases[1], cases[0])
    return NotImplemented


def _starts(x: Any, sizes: Sequence[int], starts: Sequence[Any]) -> tuple[slice, ...]:
    clamped = [min(max(int(s), 0), n - size) for s, n, size in zip(starts, x.shape, sizes, strict=True)]
    return tuple(slice(start, start + size) for start, size in zip(clamped, sizes, strict=True))


def _dynamic_slice(x: Any, *starts: Any, slice_sizes: Any) -> Any:
    return x[_starts(x, slice_sizes, starts)]


def _dynamic_update_slice(x: Any, update: Any, *starts: Any) -> Any:
    result = x.copy()
    result[_starts(x, update.shape, starts)] = update
    return result


def _sign(x: Any) -> Any:
    return NotImplemented if np.iscomplexobj(x) else np.sign(x)


def _rem(a: Any, b: Any) -> Any:
    return np.fmod(a, b) if jnp.issubdtype(a.dtype, jnp.floating) or np.all(b != 0) else NotImplemented


def _round(x: Any, *, rounding_method: Any) -> Any:
    return np.rint(x) if int(rounding_method) == 1 else np.trunc(x + np.copysign(0.5, x))


def _cumulative(function: Any) -> Function:
    def run(x: Any, *, axis: int, reverse: bool) -> Any:
        x = np.flip(x, axis) if reverse else x
        x = function.accumulate(x, axis)
        return np.flip(x, axis) if reverse else x

    return _wide(run)


def _division(a: Any, b: Any) -> Any:
    if jnp.issubdtype(a.dtype, jnp.inexact):
        return a / b
    if np.any(b == 0):
        return NotImplemented
    quotient = np.abs(a) // np.abs(b)
    return np.where((a < 0) != (b < 0), -quotient, quotient)


def _reducer(function: Any) -> Function:
    def run(x: Any, *, axes: Any) -> Any:
        return function(x, axis=tuple(axes), dtype=x.dtype)

    return _wide(run)


def _extreme(function: Any) -> Function:
    def run(x: Any, *, axes: Any) -> Any:
        if np.iscomplexobj(x) or 0 in [x.shape[a] for a in axes]:
            return NotImplemented
        return function(x, axis=tuple(axes))

    return run


_UNARY = {
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "exp": np.exp, "log": np.log, "exp2": np.exp2,
    "log1p": np.log1p, "expm1": np.expm1, "sqrt": np.sqrt, "cbrt": np.cbrt, "sinh": np.sinh, "cosh": np.cosh,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "square": np.square, "abs": np.abs,
    "neg": np.negative, "floor": np.floor, "ceil": np.ceil, "is_finite": np.isfinite,
    "rsqrt": lambda x: 1 / np.sqrt(x), "logistic": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip
_BINARY = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "div": _division, "max": np.maximum,
    "min": np.minimum, "atan2": np.arctan2, "pow": np.power,
}  # fmt: skip
_PLAIN: dict[str, Function] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "not": np.invert, "xor": np.bitwise_xor,
    "copy": lambda x: x, "copy_p": lambda x: x, "stop_gradient": lambda x: x, "real": np.real, "imag": np.imag,
    "conj": np.conj, "complex": lambda a, b: a + 1j * b, "select_n": _select_n,
    "broadcast_in_dim": _broadcast_in_dim, "reshape": _reshape, "slice": _slice, "pad": _pad, "iota": _iota,
    "transpose": lambda x, *, permutation: x.transpose(permutation),
    "squeeze": lambda x, *, dimensions: np.squeeze(x, tuple(dimensions)),
    "concatenate": lambda *xs, dimension: np.concatenate(xs, dimension),
    "rev": lambda x, *, dimensions: np.flip(x, tuple(dimensions)),
    "stack": lambda *xs, axis: np.stack(xs, axis),
    "convert_element_type": _convert, "dynamic_slice": _dynamic_slice, "dynamic_update_slice": _dynamic_update_slice,
    "reduce_max": _extreme(np.max), "reduce_min": _extreme(np.min),
    "reduce_and": lambda x, *, axes: np.all(x, axis=tuple(axes)) if x.dtype == bool else NotImplemented,
    "reduce_or": lambda x, *, axes: np.any(x, axis=tuple(axes)) if x.dtype == bool else NotImplemented,
}  # fmt: skip
_SIMPLE: dict[str, Function] = {
    **_PLAIN,
    **{name: _wide(function) for name, function in (_UNARY | _BINARY).items()},
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "sign": _sign,
    "rem": _wide(_rem),
    "round": _wide(_round),
    "erf": _wide(special.erf),
    "erf_inv": _wide(special.erfinv),
    "lgamma": _wide(special.gammaln),
    "digamma": _wide(special.digamma),
    "erfc": _wide(special.erfc),
    "polygamma": _wide(_polygamma),
    "triangular_solve": _triangular_solve,
    "fft": _fft,
    "integer_pow": _wide(_integer_pow),
    "dot_general": _wide(_dot_general),
    "reduce_sum": _reducer(np.sum),
    "reduce_prod": _reducer(np.prod),
    "cumsum": _cumulative(np.add),
    "cumprod": _cumulative(np.multiply),
}


# -- functions inside of functions -----------------------------------------------------------------------------------


def _inner(key: str) -> Function:
    def run(eqn: Any, operands: list[Any]) -> list[Any]:
        inner = eqn.params[key]
        return evaluate(inner, operands) if isinstance(inner, ClosedJaxpr) else _run(inner, (), operands)

    return run


def _cond(eqn: Any, operands: list[Any]) -> list[Any]:
    branches = eqn.params["branches"]
    chosen = min(max(int(operands[0]), 0), len(branches) - 1)
    return evaluate(branches[chosen], operands[1:])


def _while(eqn: Any, operands: list[Any]) -> list[Any]:
    n_cond, n_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    cond_consts, body_consts = operands[:n_cond], operands[n_cond : n_cond + n_body]
    carry = operands[n_cond + n_body :]
    while np.any(goes_on := evaluate(eqn.params["cond_jaxpr"], [*cond_consts, *carry])[0]):
        found = evaluate(eqn.params["body_jaxpr"], [*body_consts, *carry])
        carry = [_where_leading(goes_on, new, old) for new, old in zip(found, carry, strict=True)]
    return carry


def _where_leading(condition: Any, new: Any, old: Any) -> Any:
    """Of a batch of loops, those that go on take the new value."""
    if np.ndim(condition) == 0:
        return new
    return np.where(np.reshape(condition, np.shape(condition) + (1,) * (np.ndim(new) - np.ndim(condition))), new, old)


def _scan(eqn: Any, operands: list[Any]) -> list[Any]:
    params = eqn.params
    n_consts, n_carry = _compat.scan_sizes(params)
    length = params["length"]
    consts, carry, xs = operands[:n_consts], operands[n_consts : n_consts + n_carry], operands[n_consts + n_carry :]
    avals = [v.aval for v in eqn.outvars[n_carry:]]
    ys = [np.zeros(a.shape, a.dtype) for a in avals]
    steps = range(length - 1, -1, -1) if params["reverse"] else range(length)
    for i in steps:
        results = evaluate(params["jaxpr"], [*consts, *carry, *(x[i] for x in xs)])
        carry = results[:n_carry]
        for y, value in zip(ys, results[n_carry:], strict=True):
            y[i] = value
    return [*carry, *ys]


def _same(eqn: Any, operands: list[Any]) -> list[Any]:
    return list(operands)


def _split(eqn: Any, operands: list[Any]) -> list[Any]:
    return np.split(operands[0], np.cumsum(eqn.params["sizes"])[:-1], eqn.params["axis"])


def _tile(eqn: Any, operands: list[Any]) -> list[Any]:
    return [np.tile(operands[0], eqn.params["reps"])]


def _unstack(eqn: Any, operands: list[Any]) -> list[Any]:
    axis = eqn.params["axis"]
    return [np.take(operands[0], i, axis) for i in range(operands[0].shape[axis])]


def _solve(eqn: Any, operands: list[Any]) -> list[Any]:
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    start = lengths.matvec + lengths.vecmat
    consts = operands[start : start + lengths.solve]
    return evaluate(jaxprs.solve, [*consts, *operands[sum(lengths) :]])


_STRUCTURED: dict[str, Function] = {
    "jit": _inner("jaxpr"), "pjit": _inner("jaxpr"), "closed_call": _inner("call_jaxpr"), "core_call": _inner("call_jaxpr"),
    "custom_jvp_call": _inner("call_jaxpr"), "custom_vjp_call": _inner("call_jaxpr"), "checkpoint": _inner("jaxpr"),
    "remat2": _inner("jaxpr"), "cond": _cond, "while": _while, "scan": _scan, "optimization_barrier": _same,
    "split": _split, "tile": _tile, "unstack": _unstack, "gather": gather, "sort": sort, "top_k": top_k,
    "scatter": scatter(assign), "scatter-add": scatter(by(np.add)), "scatter_add": scatter(by(np.add)),
    "scatter-mul": scatter(by(np.multiply)), "scatter_mul": scatter(by(np.multiply)),
    "scatter-min": scatter(by(np.minimum)), "scatter_min": scatter(by(np.minimum)),
    "scatter-max": scatter(by(np.maximum)), "scatter_max": scatter(by(np.maximum)),
    "conv_general_dilated": convolution, "reduce_window_sum": reduction(np.add, lambda _: 0),
    "reduce_window_max": reduction(np.maximum, lowest), "reduce_window_min": reduction(np.minimum, highest),
    "select_and_gather_add": gather_selected, "select_and_scatter_add": scatter_selected,
    "custom_linear_solve": _solve, "scatter-sub": scatter(by(np.subtract)), "scatter_sub": scatter(by(np.subtract)),
}  # fmt: skip
