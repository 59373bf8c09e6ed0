"""Whether a linear program is complex-linear in its complex tangents, so that it has a complex matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from symjac import _compat
from symjac._engine.dependence import dependent_outputs, through_scan, through_while
from symjac._engine.program import LinearProgram

_NOT_COMPLEX_LINEAR = (lax.conj_p, lax.real_p, lax.imag_p)


def antilinear_equation(program: LinearProgram) -> Any | None:
    """The first equation that takes a part or the conjugate of what depends on a complex tangent, if one does."""
    jaxpr, _ = _compat.opened(program.closed)
    n_tangents = len(program.closed.jaxpr.invars) - program.n_primals
    first = len(jaxpr.invars) - n_tangents
    flags = [k >= first and _is_complex(var.aval) for k, var in enumerate(jaxpr.invars)]
    return _found(jaxpr, flags) if any(flags) else None


def _is_complex(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, np.complexfloating)


def _found(jaxpr: Jaxpr, flags: Sequence[bool]) -> Any | None:
    tainted = {var for var, flag in zip(jaxpr.invars, flags, strict=True) if flag}
    for eqn in jaxpr.eqns:
        own = [not isinstance(atom, Literal) and atom in tainted for atom in eqn.invars]
        if not any(own):
            continue
        if eqn.primitive in _NOT_COMPLEX_LINEAR or _drops_the_imaginary_part(eqn, own):
            return eqn
        for inner, inner_flags in _inside(eqn, own):
            found = _found(inner, inner_flags)
            if found is not None:
                return found
        tainted |= {var for var, flag in zip(eqn.outvars, dependent_outputs(eqn, own), strict=True) if flag}
    return None


def _drops_the_imaginary_part(eqn: Any, flags: Sequence[bool]) -> bool:
    if eqn.primitive is not lax.convert_element_type_p:
        return False
    return _is_complex(eqn.invars[0].aval) and not _is_complex(eqn.outvars[0].aval)


def _inside(eqn: Any, flags: Sequence[bool]) -> list[tuple[Jaxpr, list[bool]]]:
    """The jaxprs that an equation runs, with flags for their inputs; those of loops once nothing changes any more."""
    name, params = eqn.primitive.name, eqn.params
    if name == "scan":
        n_consts, n_carry = _compat.scan_sizes(params)
        carry = through_scan(params["jaxpr"], flags, n_consts, n_carry)[:n_carry]
        return [_padded(params["jaxpr"], [*flags[:n_consts], *carry, *flags[n_consts + n_carry :]])]
    if name == "while":
        own, n_consts = flags[params["cond_nconsts"] :], params["body_nconsts"]
        return [_padded(params["body_jaxpr"], [*own[:n_consts], *through_while(params["body_jaxpr"], own, n_consts)])]
    if name == "cond":
        return [_padded(branch, flags[1:]) for branch in params["branches"]]
    inner = params.get("jaxpr", params.get("call_jaxpr"))
    is_call = isinstance(inner, ClosedJaxpr | Jaxpr) and len(_opened(inner).invars) >= len(flags)
    return [_padded(inner, flags)] if is_call else []


def _padded(jaxpr: Any, flags: Sequence[bool]) -> tuple[Jaxpr, list[bool]]:
    opened = _opened(jaxpr)
    return opened, [False] * (len(opened.invars) - len(flags)) + list(flags)


def _opened(jaxpr: Any) -> Jaxpr:
    return _compat.opened(jaxpr)[0] if isinstance(jaxpr, ClosedJaxpr) else jaxpr
