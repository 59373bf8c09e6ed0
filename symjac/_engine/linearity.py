"""Whether equations are linear in their tangents.

The program of a derivative is linear as a whole, but what it computes on the way need not be: an iterative solver
divides by norms, and a library tests a solution for NaN. Rules for linear functions must not see that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from symjac import _compat
from symjac._engine.dependence import dependent_outputs, through, through_scan, through_while

# Linear in each operand, if the others do not depend on what it depends on.
_MULTILINEAR = {lax.mul_p, lax.dot_general_p, lax.conv_general_dilated_p, _compat.ragged_dot_p}
# Linear in one operand, or from one operand on.
_LINEAR_IN = {
    lax.div_p: slice(0, 1),
    lax.gather_p: slice(0, 1),
    lax.dynamic_slice_p: slice(0, 1),
    lax.dynamic_update_slice_p: slice(0, 2),
    lax.select_n_p: slice(1, None),
    lax.linalg.triangular_solve_p: slice(1, 2),
    lax.linalg.tridiagonal_solve_p: slice(3, 4),
    lax.reduce_precision_p: slice(0, 1),
    lax.reduce_window_sum_p: slice(0, 1),
}


def is_linear(jaxpr: Jaxpr | ClosedJaxpr, flags: Sequence[bool]) -> bool:
    """Whether each equation of a jaxpr is linear in what depends on the flagged inputs.

    Args:
        jaxpr: The jaxpr.
        flags: For each input, or for the last ones, whether it is flagged.
    """
    opened = _compat.opened(jaxpr)[0] if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    padded = [False] * (len(opened.invars) - len(flags)) + list(flags)
    tainted = {var for var, flag in zip(opened.invars, padded, strict=True) if flag}
    for eqn in opened.eqns:
        own = [not isinstance(atom, Literal) and atom in tainted for atom in eqn.invars]
        if not any(own):
            continue
        if not is_linear_equation(eqn, own):
            return False
        tainted |= {var for var, flag in zip(eqn.outvars, dependent_outputs(eqn, own), strict=True) if flag}
    return True


def is_linear_equation(eqn: Any, own: Sequence[bool]) -> bool:
    """Whether an equation is linear in its flagged operands; what is opaque is taken to be."""
    primitive, params = eqn.primitive, eqn.params
    if primitive in _compat.call_primitives:
        return is_linear(_compat.called_jaxpr(params)[0], own)
    if primitive is lax.scan_p:
        n_consts, n_carry = _compat.scan_sizes(params)
        carry = through_scan(params["jaxpr"], own, n_consts, n_carry)[:n_carry]
        return is_linear(params["jaxpr"], [*own[:n_consts], *carry, *own[n_consts + n_carry :]])
    if primitive is lax.while_p:
        return _is_linear_while(params, own)
    if primitive is lax.cond_p:
        return not own[0] and all(is_linear(branch, own[1:]) for branch in params["branches"])
    if primitive is lax.linear_solve_p:
        return not any(own[: sum(params["const_lengths"])])
    if primitive in _MULTILINEAR:
        return sum(own) == 1
    if primitive in _LINEAR_IN:
        inside = own[_LINEAR_IN[primitive]]
        return sum(inside) == sum(own)
    if len(eqn.outvars) == 1 and not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.inexact):
        return False
    return primitive not in _compat.nonlinear_primitives


def _is_linear_while(params: Any, own: Sequence[bool]) -> bool:
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    carry = through_while(params["body_jaxpr"], own[n_cond:], n_body)
    if any(through(params["cond_jaxpr"], [*own[:n_cond], *carry])):
        return False
    return is_linear(params["body_jaxpr"], [*own[n_cond : n_cond + n_body], *carry])
