"""Equinox's own primitives: identities, the select of its loops, and writes into its buffers."""

from __future__ import annotations

import functools
from typing import Any

import equinox.internal as eqxi
import jax
import jax.numpy as jnp

from symjac import _compat
from symjac._algebra.factor import Factor, scalar
from symjac._algebra.merge import add_tangents
from symjac._algebra.tangent import StructuredTangent, Term, replace
from symjac._engine.interpreter import interpret, register
from symjac.rules.elementwise import deflinear_elementwise

deflinear_elementwise(eqxi.nondifferentiable_backward_p)


@register(eqxi.select_if_vmap_p, elementwise=True)
def _select_if_vmap_rule(pred: Any, x: Any, y: Any) -> StructuredTangent:
    """`lax.select(pred, x, y)` where `pred` is batched, else `x`: one factor of each term is selected, or zero.

    Whether `pred` is batched is not known yet, so the primitive is applied to that factor. Keeps every delta.
    """

    def chosen(term: Term, first: bool, dtype: Any) -> Term:
        factors = term.factors or (scalar(1, dtype),)
        last = factors[-1]
        array, zeros = jnp.asarray(last.array), jnp.zeros_like(last.array)
        pair = (array, zeros) if first else (zeros, array)
        selected = Factor(eqxi.select_if_vmap_p.bind(pred, *pair), last.labels, last.precision)
        return replace(term, factors=(*factors[:-1], selected))

    parts = [
        tangent.map(lambda term, first=first, dtype=tangent.dtype: chosen(term, first, dtype))
        for tangent, first in ((x, True), (y, False))
        if isinstance(tangent, StructuredTangent)
    ]
    return parts[0] if len(parts) == 1 else add_tangents(parts)


def _expanded(primitive: Any, *operands: Any, **params: Any) -> list[Any]:
    """Interprets what a primitive is lowered to."""
    avals = [
        jax.ShapeDtypeStruct(x.shape, x.dtype) if isinstance(x, StructuredTangent) else jax.typeof(x) for x in operands
    ]
    jaxpr, consts = _compat.opened(jax.make_jaxpr(functools.partial(primitive.impl, **params))(*avals))
    return interpret(jaxpr, [*consts, *operands])


@register(eqxi.maybe_set_p)
def _maybe_set_rule(pred: Any, xs: Any, x: Any, *index: Any, **params: Any) -> list[Any]:
    """A scatter of `select_if_vmap(pred, x, xs[index])`. Keeps what the scatter keeps; declines for a tangent index."""
    if any(isinstance(operand, StructuredTangent) for operand in (pred, *index)):
        return NotImplemented
    return _expanded(eqxi.maybe_set_p, pred, xs, x, *index, **params)
