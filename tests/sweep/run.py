"""Runs one call of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr
from jax.interpreters import ad

import symjac

from ..fuzz.compare import difference, interpreted
from .table import Call

_met: set[str] = set()


def run(call: Call, transform: str = "jacfwd") -> str:
    """ "same", "both raise", or how symjac differs from JAX."""
    function, args = _of_differentiated(call)
    argnums = tuple(range(len(args)))
    theirs, ours = (getattr(module, transform)(function, argnums) for module in (jax, symjac))
    compute = interpreted
    try:
        want = compute(theirs, args)
    except Exception:
        compute = _called  # What cannot be interpreted, such as a mutable array, is run.
        try:
            want = compute(theirs, args)
        except Exception as error:
            return _raised(lambda: compute(ours, args), error)
    if transform == "jacfwd" and compute is interpreted:
        _meet(jax.make_jaxpr(function)(*args).jaxpr)
    try:
        got = compute(ours, args)
    except Exception as error:
        return f"raises {type(error).__name__}: {str(error)[:300]}"
    return difference(got, want) or "same"


def _called(transformed: Callable[..., Any], args: list[Any]) -> Any:
    return transformed(*jax.tree.map(jnp.asarray, args))


def _raised(attempt: Callable[[], Any], expected: Exception) -> str:
    try:
        attempt()
    except Exception:
        return "both raise"
    return f"works where JAX raises {type(expected).__name__}: {str(expected)[:200]}"


def _of_differentiated(call: Call) -> tuple[Callable[..., Any], list[Any]]:
    """The function of the differentiated arguments alone; outputs that are no arrays of floats are dropped."""

    def function(*values: Any) -> Any:
        filled = list(call.args)
        for i, value in zip(call.argnums, values, strict=True):
            filled[i] = value
        outputs = call.function(*filled)
        return [leaf for leaf in jax.tree.leaves(outputs) if hasattr(leaf, "dtype") and leaf.dtype.kind in "fc"]

    return function, [call.args[i] for i in call.argnums]


def _meet(jaxpr: Jaxpr) -> None:
    for eqn in jaxpr.eqns:
        _met.add(eqn.primitive.name)
        for inner in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                _meet(inner)


def primitives_met() -> set[str]:
    """The names of the primitives in all programs so far."""
    return set(_met)


def primitives_with_derivatives() -> set[str]:
    """The names of the primitives for which JAX has a JVP rule."""
    return {primitive.name for primitive in ad.primitive_jvps}
