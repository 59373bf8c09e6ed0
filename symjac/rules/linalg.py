"""Solves and Fourier transforms: they act on one or two axes, and keep the deltas of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax
from jax.extend.core import Jaxpr, Literal

from symjac import _compat
from symjac._acting import Action, Operand, act, cast_action
from symjac._interpreter import interpret, register
from symjac._tangent import StructuredTangent


@register(lax.linalg.triangular_solve_p)
def _triangular_solve_rule(a: Any, b: Any, *, left_side: bool, **params: Any) -> StructuredTangent:
    """Solves for the columns of the factor that carries the solved axis. Keeps the deltas of the others."""
    if isinstance(a, StructuredTangent):
        return NotImplemented
    rank = len(b.shape)
    axis = rank - 2 if left_side else rank - 1

    def solve(x: Any, a: Any) -> Any:
        return lax.linalg.triangular_solve_p.bind(a, x, left_side=left_side, **params)

    operands = (Operand(a, tuple(range(rank - 2))),)
    function = cast_action(solve, b.dtype)
    return act(b, Action(function, (axis,), (b.shape[axis],), operands, columns_first=not left_side))


@register(lax.linalg.tridiagonal_solve_p)
def _tridiagonal_solve_rule(dl: Any, d: Any, du: Any, b: Any, **params: Any) -> StructuredTangent:
    """Solves for the columns of the factor that carries the solved axis. Keeps the deltas of the others."""
    if any(isinstance(x, StructuredTangent) for x in (dl, d, du)):
        return NotImplemented
    rank = len(b.shape)

    def solve(x: Any, *diagonals: Any) -> Any:
        return lax.linalg.tridiagonal_solve_p.bind(*diagonals, x, **params)

    operands = tuple(Operand(x, tuple(range(rank - 2))) for x in (dl, d, du))
    return act(b, Action(cast_action(solve, b.dtype), (rank - 2,), (b.shape[rank - 2],), operands))


@register(lax.fft_p)
def _fft_rule(x: StructuredTangent, *, fft_type: Any, fft_lengths: Sequence[int]) -> StructuredTangent:
    """One transform after the other, each along one axis: an identity gives the matrix of each. Keeps other deltas."""
    kind = lax.FftType(fft_type) if not isinstance(fft_type, str) else lax.FftType[fft_type]
    first = len(x.shape) - len(fft_lengths)
    real = {lax.FftType.RFFT: lax.FftType.FFT, lax.FftType.IRFFT: lax.FftType.IFFT}
    steps = [(first + i, real.get(kind, kind), n) for i, n in enumerate(fft_lengths)]
    if kind in real:
        steps[-1] = (steps[-1][0], kind, fft_lengths[-1])
    for axis, step, length in reversed(steps) if kind == lax.FftType.RFFT else steps:
        x = _fft_along(x, axis, step, length)
        if x is NotImplemented:
            return NotImplemented
    return x


def _fft_along(x: StructuredTangent, axis: int, kind: lax.FftType, length: int) -> StructuredTangent:
    def transform(rows: Any) -> Any:
        return lax.fft(rows, kind, (length,))

    if kind == lax.FftType.RFFT:
        dtype, size = np.result_type(x.dtype, np.complex64), length // 2 + 1
        return act(x, Action(cast_action(transform, x.dtype), (axis,), (size,), columns_first=True, dtype=dtype))
    if kind == lax.FftType.IRFFT:
        dtype = np.dtype(np.float64 if x.dtype == np.complex128 else np.float32)
        function = cast_action(transform, x.dtype)
        return act(x, Action(function, (axis,), (length,), columns_first=True, dtype=dtype, complex_linear=False))
    return act(x, Action(cast_action(transform, x.dtype), (axis,), (length,), columns_first=True))


@register(lax.linear_solve_p)
def _custom_linear_solve_rule(*operands: Any, const_lengths: Any, jaxprs: Any) -> list[Any]:
    """Interprets the solver on the tangents of the right-hand sides, where it is a direct one.

    Keeps what its equations keep; declines for a solver that is not linear equation by equation, an iterative one say.
    """
    counts = list(const_lengths)
    start = sum(counts[:2])
    consts, rhs = operands[start : start + counts[2]], operands[sum(counts) :]
    if any(isinstance(x, StructuredTangent) for x in operands[: sum(counts)]):
        return NotImplemented
    jaxpr, closed_over = _compat.opened(jaxprs.solve)
    args = [*closed_over, *consts, *rhs]
    if len(jaxpr.outvars) != len(rhs) or not _is_linear(jaxpr, [isinstance(x, StructuredTangent) for x in args]):
        return NotImplemented
    return interpret(jaxpr, args)


_LINEAR = {
    lax.broadcast_in_dim_p,
    lax.convert_element_type_p,
    lax.copy_p,
    lax.fft_p,
    lax.neg_p,
    lax.reduce_sum_p,
    lax.reshape_p,
    lax.rev_p,
    lax.slice_p,
    lax.squeeze_p,
    lax.transpose_p,
    lax.real_p,
    lax.imag_p,
    lax.conj_p,
    *(p for p in (_compat.tile_p, _compat.unstack_p, _compat.device_put_p) if p is not None),
}
# Linear in all operands together.
_JOINTLY_LINEAR = {lax.add_p, lax.sub_p, lax.concatenate_p, lax.complex_p, _compat.add_any_p, _compat.stack_p}
# Linear in each operand, if the others do not depend on it.
_MULTILINEAR = {lax.mul_p, lax.dot_general_p}
# Linear in one operand.
_LINEAR_IN = {
    lax.div_p: 0,
    lax.gather_p: 0,
    lax.dynamic_slice_p: 0,
    lax.linalg.triangular_solve_p: 1,
    lax.linalg.tridiagonal_solve_p: 3,
}


def _is_linear(jaxpr: Jaxpr, flags: Sequence[bool]) -> bool:
    """Whether each equation of a jaxpr is linear in what depends on the flagged inputs."""
    tainted = {var for var, flag in zip(jaxpr.invars, flags, strict=True) if flag}
    for eqn in jaxpr.eqns:
        own = [not isinstance(atom, Literal) and atom in tainted for atom in eqn.invars]
        if not any(own):
            continue
        if not _is_linear_equation(eqn, own):
            return False
        tainted.update(eqn.outvars)
    return True


def _is_linear_equation(eqn: Any, own: Sequence[bool]) -> bool:
    primitive = eqn.primitive
    if primitive in _compat.call_primitives:
        inner, consts = _compat.called_jaxpr(eqn.params)
        return _is_linear(inner, [False] * len(consts) + list(own))
    if primitive in _LINEAR_IN:
        return [i for i, flag in enumerate(own) if flag] == [_LINEAR_IN[primitive]]
    if primitive in _MULTILINEAR:
        return sum(own) == 1
    return primitive in _LINEAR or (primitive in _JOINTLY_LINEAR and all(own))
