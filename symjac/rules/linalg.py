"""Solves and Fourier transforms: they act on one or two axes, and keep the deltas of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from symjac import _compat
from symjac._acting import Action, Operand, act, cast_action
from symjac._interpreter import register
from symjac._linearity import is_linear
from symjac._solving import solve
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
    """Solves for the columns of the factors that carry the solved axes, where the solver is a direct one.

    Keeps the deltas of the axes that the solver keeps; declines for several right-hand sides, and for a solver that is
    not linear equation by equation, an iterative one say.
    """
    counts = list(const_lengths)
    start = sum(counts[:2])
    consts, rhs = operands[start : start + counts[2]], operands[sum(counts) :]
    if any(isinstance(x, StructuredTangent) for x in operands[: sum(counts)]):
        return NotImplemented
    jaxpr, closed_over = _compat.opened(jaxprs.solve)
    flags = [False] * (len(jaxpr.invars) - len(rhs)) + [True] * len(rhs)
    if len(rhs) != 1 or len(jaxpr.outvars) != 1 or not is_linear(jaxpr, flags):
        return NotImplemented

    def bind(array: Any) -> Any:
        arrays = [*operands[: sum(counts)], array]
        return lax.linear_solve_p.bind(*arrays, const_lengths=const_lengths, jaxprs=jaxprs)[0]

    solved = solve(rhs[0], bind, jaxpr, [*closed_over, *consts])
    return solved if solved is NotImplemented else [solved]
