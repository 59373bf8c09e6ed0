"""Compares `symjac.linearize` and the methods of its Jacobian with dense arithmetic on JAX's Jacobian."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import symjac

from .compare import Outcome, Result, difference, interpreted, is_singular, outcome_of, traced_function
from .program import Program, const


def compare_jacobian(program: Program) -> Outcome:
    """Compares all methods on one program, with respect to all of its inputs."""
    args = program.arguments()
    if {np.asarray(arg).dtype.name for arg in args} != {"float64"}:
        return Outcome("skipped", "linearize", "not in double precision")
    f = _of_floats(traced_function(program))
    dense = jax.jacfwd(f, tuple(range(len(args))))
    expected = lambda *a: _expected(f, dense, a, program.reverse)  # noqa: E731
    try:
        if not jax.tree.leaves(jax.eval_shape(f, *args)):
            return Outcome("skipped", "linearize", "no output of double precision")
        want = interpreted(expected, args)
    except Exception as error:
        return Outcome("skipped", "linearize", f"JAX raises {type(error).__name__}: {str(error)[:80]}")
    try:
        got = interpreted(lambda *a: _found(f, a, program.reverse), args)
    except Exception as error:
        return Outcome("failed", "linearize", f"raises {type(error).__name__}: {str(error)[:500]}")
    for name in got:
        message = difference(_untyped(got[name]), _untyped(want[name]))
        if name == "vjp" and message is not None:  # JAX's two modes differ where an index is out of bounds.
            message = difference(_untyped(got[name]), _untyped(want["rows times matrix"])) and message
        if message is not None:
            outcome = outcome_of(message, "linearize", lambda: is_singular(expected, args))
            return replace(outcome, message=f"{name} {message}")
    return Outcome("same", "linearize")


def _of_floats(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function with those outputs only that are of double precision."""

    def function(*args: Any) -> list[Any]:
        return [leaf for leaf in jax.tree.leaves(f(*args)) if leaf.dtype == np.float64]

    return function


def _tangents(values: Any, seed: int) -> Any:
    leaves, tree = jax.tree.flatten(values)
    return tree.unflatten([jnp.asarray(const(seed + i, tuple(jnp.shape(v)))) for i, v in enumerate(leaves)])


def _expected(f: Callable[..., Any], dense: Callable[..., Any], args: Any, reverse: bool) -> dict[str, Any]:
    blocks = dense(*args)
    out = f(*args)
    found: dict[str, Any] = {"value": out, "blocks": blocks}
    n_in = sum(int(jnp.size(a)) for a in args)
    matrix = jnp.concatenate(
        [
            jnp.concatenate(
                [jnp.reshape(b, (o.size, -1 if o.size else jnp.size(a))) for b, a in zip(row, args, strict=True)], 1
            )
            for row, o in zip(blocks, out, strict=True)
        ]
    )
    found["matrix"] = matrix
    found["rows"], found["columns"] = (jnp.sum(jnp.abs(matrix) ** 2, axis=axis) for axis in (1, 0))
    if matrix.shape[0] == n_in:
        found["diagonal"] = jnp.diagonal(matrix)
    found["jvp"] = jax.jvp(f, args, tuple(_tangents(list(args), 3)))[1]
    if reverse:
        cotangents = _tangents(out, 7)
        found["vjp"] = jax.vjp(f, *args)[1](cotangents)
        found["rows times matrix"] = _rows_times(matrix, cotangents, args)
    return found


def _rows_times(matrix: Any, cotangents: Any, args: Any) -> list[Any]:
    pulled = jnp.concatenate([jnp.ravel(each) for each in cotangents]) @ matrix
    starts = np.cumsum([0, *(int(jnp.size(a)) for a in args)])
    return [
        jnp.reshape(pulled[start : start + jnp.size(a)], jnp.shape(a)) for start, a in zip(starts, args, strict=False)
    ]


def _found(f: Callable[..., Any], args: Any, reverse: bool) -> dict[str, Any]:
    out, jacobian = symjac.linearize(f, *args)
    matrix = jacobian.as_matrix()
    found: dict[str, Any] = {"value": out, "blocks": jacobian.materialise(), "matrix": matrix}
    found["rows"], found["columns"] = jacobian.row_norms() ** 2, jacobian.column_norms() ** 2
    if matrix.shape[0] == matrix.shape[1]:
        found["diagonal"] = jacobian.diagonal()
    found["jvp"] = jacobian(*_tangents(list(args), 3))
    if reverse:
        found["vjp"] = jacobian.T(_tangents(out, 7))
    return found


def _untyped(tree: Any) -> Any:
    """Weak types do not matter here, and neither does whether one argument is in a tuple."""
    leaves = jax.tree.leaves(tree, is_leaf=lambda leaf: isinstance(leaf, Result))
    return [Result(leaf.value, False) for leaf in leaves]
