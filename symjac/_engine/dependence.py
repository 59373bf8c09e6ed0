"""Which results of an equation depend on which operands, through loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from symjac import _compat


def dependent_outputs(eqn: Any, flags: Sequence[bool]) -> list[bool]:
    """Returns for each result of an equation whether it depends on a flagged operand.

    Of what is not known inside, integers do not: they hold no tangents.
    """
    name, params = eqn.primitive.name, eqn.params
    if name == "scan":
        return through_scan(params["jaxpr"], flags, *_compat.scan_sizes(params))
    if name == "while":
        skip = params["cond_nconsts"]
        return through_while(params["body_jaxpr"], flags[skip:], params["body_nconsts"])
    if name == "cond":
        found = [through(branch, flags[1:]) for branch in params["branches"]]
        return [flags[0] or any(column) for column in zip(*found, strict=True)]
    inner = params.get("jaxpr", params.get("call_jaxpr", params.get("call")))
    if isinstance(inner, ClosedJaxpr | Jaxpr) and len(_opened(inner).outvars) == len(eqn.outvars):
        if len(_opened(inner).invars) == len(flags):
            return through(inner, flags)
    if len(eqn.outvars) == 1:
        return [any(flags)]
    return [any(flags) and _is_inexact(v.aval) for v in eqn.outvars]


def through(jaxpr: Any, flags: Sequence[bool]) -> list[bool]:
    """Returns for each output of a jaxpr whether it depends on a flagged input."""
    opened = _opened(jaxpr)
    padded = [False] * (len(opened.invars) - len(flags)) + list(flags)
    tainted = {var for var, flag in zip(opened.invars, padded, strict=True) if flag}
    for eqn in opened.eqns:
        own = [not isinstance(atom, Literal) and atom in tainted for atom in eqn.invars]
        if any(own):
            tainted |= {var for var, flag in zip(eqn.outvars, dependent_outputs(eqn, own), strict=True) if flag}
    return [not isinstance(atom, Literal) and atom in tainted for atom in opened.outvars]


def _opened(jaxpr: Any) -> Jaxpr:
    return _compat.opened(jaxpr)[0] if isinstance(jaxpr, ClosedJaxpr) else jaxpr


def settled(step: Callable[[list[Any]], list[Any]], carry: list[Any]) -> tuple[list[Any], list[Any]]:
    """What goes round a loop, raised by what comes out of a step until that changes nothing; and the last results.

    Args:
        step: From what is known of the carried values to what is known of the results, the carried ones first.
        carry: What is known of the values that come in. More is known to be greater.
    """
    while True:
        found = step(carry)
        raised = [max(pair) for pair in zip(carry, found[: len(carry)], strict=True)]
        if raised == carry:
            return carry, found
        carry = raised


def through_scan(jaxpr: Any, flags: Sequence[bool], n_consts: int, n_carry: int) -> list[bool]:
    """Returns for each result of a scan over a body whether it depends on a flagged operand."""
    consts, xs = flags[:n_consts], flags[n_consts + n_carry :]
    carry = list(flags[n_consts : n_consts + n_carry])
    carry, found = settled(lambda carry: through(jaxpr, [*consts, *carry, *xs]), carry)
    return [*carry, *found[n_carry:]]


def through_while(jaxpr: Any, flags: Sequence[bool], n_consts: int) -> list[bool]:
    """Returns for each carried value of a loop over a body whether it depends on a flagged constant or value."""
    carry, _ = settled(lambda carry: through(jaxpr, [*flags[:n_consts], *carry]), list(flags[n_consts:]))
    return carry


def _is_inexact(aval: Any) -> bool:
    return hasattr(aval, "dtype") and jnp.issubdtype(aval.dtype, jnp.inexact)
