"""Lifting the arrays that inner jaxprs are closed over to the outermost one.

A function that calls a jitted function which is closed over an array gives a jaxpr whose inner `jit` equation holds
the array. As a constant of the outermost jaxpr it can be an argument of the compiled program, and a result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Primitive, Var
from jax.extend.core.primitives import cond_p, jit_p, scan_p, while_p

from symjac import _compat


def hoisted(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Returns an equal jaxpr, where inner `jit`, `scan`, `while` and `cond` equations hold no arrays."""
    if closed.effects or not _holds_arrays(closed.jaxpr):
        return closed
    jaxpr, consts = _lift(closed)
    return _compat.closed(jaxpr, consts)


def _holds_arrays(jaxpr: Jaxpr) -> bool:
    return any(
        getattr(inner, "consts", ()) or _holds_arrays(getattr(inner, "jaxpr", inner))
        for eqn in jaxpr.eqns
        for inner in _inner_jaxprs(eqn)
    )


def _inner_jaxprs(eqn: JaxprEqn) -> list[Any]:
    values = [each for value in eqn.params.values() for each in (value if isinstance(value, tuple) else (value,))]
    return [value for value in values if isinstance(value, _compat.jaxpr_types)]


def _lift(closed: ClosedJaxpr) -> tuple[Jaxpr, list[Any]]:
    """Returns a jaxpr whose leading inputs are all constants in it, and these constants."""
    jaxpr, consts = _compat.opened(closed)
    n_own = len(consts)
    known = {id(const): var for const, var in zip(consts, jaxpr.invars, strict=False)}
    new: list[Var] = []

    def lift(inner: ClosedJaxpr) -> tuple[Jaxpr, list[Var]]:
        lifted, inner_consts = _lift(inner)
        for const, var in zip(inner_consts, lifted.invars, strict=False):
            if id(const) not in known:
                known[id(const)] = _compat.new_variable(var.aval)
                new.append(known[id(const)])
                consts.append(const)
        return lifted, [known[id(const)] for const in inner_consts]

    eqns = [_RULES[eqn.primitive](eqn, lift) if eqn.primitive in _RULES else eqn for eqn in jaxpr.eqns]
    invars = [*jaxpr.invars[:n_own], *new, *jaxpr.invars[n_own:]]
    return _compat.with_inputs(jaxpr, invars, eqns), consts


_Lift = Callable[[ClosedJaxpr], tuple[Jaxpr, list[Var]]]
"""Opens an inner jaxpr, and gives the outer variables of what it was closed over."""


def _jit_rule(eqn: JaxprEqn, lift: _Lift) -> JaxprEqn:
    jaxpr, consts = lift(eqn.params["jaxpr"])
    n = len(consts)
    params = {
        **eqn.params,
        "jaxpr": ClosedJaxpr(jaxpr, ()),
        "in_shardings": (_compat.UNSPECIFIED,) * n + eqn.params["in_shardings"],
        "in_layouts": (None,) * n + eqn.params["in_layouts"],
        "donated_invars": (False,) * n + eqn.params["donated_invars"],
    }
    return eqn.replace(params=params, invars=[*consts, *eqn.invars])


def _scan_rule(eqn: JaxprEqn, lift: _Lift) -> JaxprEqn:
    jaxpr, consts = lift(eqn.params["jaxpr"])
    params = {**_compat.scan_with_more_consts(eqn.params, len(consts)), "jaxpr": ClosedJaxpr(jaxpr, ())}
    return eqn.replace(params=params, invars=[*consts, *eqn.invars])


def _while_rule(eqn: JaxprEqn, lift: _Lift) -> JaxprEqn:
    cond, cond_consts = lift(eqn.params["cond_jaxpr"])
    body, body_consts = lift(eqn.params["body_jaxpr"])
    n_cond = eqn.params["cond_nconsts"]
    params = {
        **eqn.params,
        "cond_jaxpr": ClosedJaxpr(cond, ()),
        "body_jaxpr": ClosedJaxpr(body, ()),
        "cond_nconsts": n_cond + len(cond_consts),
        "body_nconsts": eqn.params["body_nconsts"] + len(body_consts),
    }
    before, after = eqn.invars[:n_cond], eqn.invars[n_cond:]
    invars = [*cond_consts, *before, *body_consts, *after]
    return eqn.replace(params=params, invars=invars)


def _cond_rule(eqn: JaxprEqn, lift: _Lift) -> JaxprEqn:
    lifted = [lift(branch) for branch in eqn.params["branches"]]
    consts = [const for _, each in lifted for const in each]
    branches, start = [], 0
    for jaxpr, each in lifted:
        others = [_compat.new_variable(const.aval) for const in consts]
        others[start : start + len(each)] = jaxpr.invars[: len(each)]
        branches.append(_compat.with_inputs(jaxpr, [*others, *jaxpr.invars[len(each) :]], jaxpr.eqns))
        start += len(each)
    params = {**eqn.params, "branches": tuple(ClosedJaxpr(branch, ()) for branch in branches)}
    return eqn.replace(params=params, invars=[eqn.invars[0], *consts, *eqn.invars[1:]])


_RULES: dict[Primitive, Callable[[JaxprEqn, _Lift], JaxprEqn]] = {
    jit_p: _jit_rule,
    scan_p: _scan_rule,
    while_p: _while_rule,
    cond_p: _cond_rule,
}
