"""Solves: they act on one or two axes, and keep the deltas of the others."""

from __future__ import annotations

from typing import Any

from jax import lax

from symjac import _compat
from symjac._algebra.tangent import StructuredTangent
from symjac._engine.acting import Action, Operand, act, cast_action
from symjac._engine.interpreter import register
from symjac._engine.linearity import is_linear
from symjac._engine.solving import solve


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
