"""Elementwise linear primitives: they append diagonal factors, or do nothing."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive

from symjac import _compat
from symjac._algebra.factor import Factor, contract, scalar
from symjac._algebra.merge import add_tangents
from symjac._algebra.tangent import StructuredTangent, Term
from symjac._engine.interpreter import register


def deflinear_elementwise(primitive: Primitive) -> None:
    """Registers a primitive that leaves its tangent, or each of its tangents, as it is."""

    def rule(*tangents: Any, **_: Any) -> Any:
        return list(tangents) if primitive.multiple_results else tangents[0]

    rule.__name__ = f"_{primitive.name}_rule"
    rule.__doc__ = f"`{primitive.name}`: the tangent passes through. Keeps every structure."
    register(primitive, elementwise=True)(rule)


deflinear_elementwise(lax.copy_p)
deflinear_elementwise(_compat.name_p)
deflinear_elementwise(_compat.sharding_constraint_p)
for _primitive in (_compat.reshard_p, _compat.pvary_p, _compat.stop_gradient_p):
    if _primitive is not None:
        deflinear_elementwise(_primitive)


@register(lax.reduce_precision_p)
def _reduce_precision_rule(x: StructuredTangent, **params: Any) -> StructuredTangent:
    """Rounds the one factor that each term is contracted into. Keeps every delta."""

    def rounded(term: Term) -> Term:
        if not term.factors:
            return term
        one = contract(term.factors, term.axis_labels, x.dtype)
        array = lax.reduce_precision_p.bind(jnp.asarray(one.array), **params)
        return Term((Factor(array, one.labels, one.precision),), term.out_axes, term.in_axes)

    return x.map(rounded)


@register(lax.neg_p, elementwise=True)
def _neg_rule(x: StructuredTangent) -> StructuredTangent:
    """Appends the scalar factor -1. Keeps every structure."""
    return x.map(lambda term: term.times(scalar(-1, x.dtype)))


def _sum(x: Any, y: Any, sign: int) -> StructuredTangent:
    """The sum of operands of which an array must be zero, for the program is linear."""
    shape = np.broadcast_shapes(np.shape(x) if not isinstance(x, StructuredTangent) else x.shape, _shape(y))
    parts = [_stretched(part, shape) for part in (x, y)]
    if sign < 0 and isinstance(parts[1], StructuredTangent):
        parts[1] = _neg_rule(parts[1])
    tangents = [part for part in parts if isinstance(part, StructuredTangent)]
    return tangents[0] if len(tangents) == 1 else add_tangents(tangents)


def _shape(x: Any) -> tuple[int, ...]:
    return x.shape if isinstance(x, StructuredTangent) else np.shape(x)


def _stretched(x: Any, shape: tuple[int, ...]) -> Any:
    """A tangent whose axes of size 1 are stretched, as new JAX does implicitly in binary operations."""
    if not isinstance(x, StructuredTangent) or x.shape == shape:
        return x
    first = len(shape) - len(x.shape)
    return x.map(lambda term: term.broadcast(shape, range(first, len(shape))), shape=shape)


@register(lax.add_p, elementwise=True)
def _add_rule(x: Any, y: Any, **_: Any) -> StructuredTangent:
    """The terms of both operands, merged. Keeps what both share."""
    return _sum(x, y, 1)


@register(_compat.add_any_p, elementwise=True)
def _add_any_rule(x: Any, y: Any, **_: Any) -> StructuredTangent:
    """The terms of both operands, merged. Keeps what both share."""
    return _sum(x, y, 1)


@register(lax.sub_p, elementwise=True)
def _sub_rule(x: Any, y: Any, **_: Any) -> StructuredTangent:
    """The terms of the first operand and the negated ones of the second, merged. Keeps what both share."""
    return _sum(x, y, -1)


@register(lax.mul_p, elementwise=True)
def _mul_rule(x: Any, y: Any, **_: Any) -> StructuredTangent:
    """J[s, p] c[s]: appends the array as a factor over the out labels. Keeps every delta; declines for two tangents."""
    if isinstance(x, StructuredTangent) and isinstance(y, StructuredTangent):
        return NotImplemented
    tangent, array = (x, y) if isinstance(x, StructuredTangent) else (y, x)
    shape = np.broadcast_shapes(tangent.shape, np.shape(array))
    return _stretched(tangent, shape).scaled(array)


@register(lax.div_p, elementwise=True)
def _div_rule(x: Any, y: Any, **_: Any) -> StructuredTangent:
    """J[s, p] / c[s]: divides the last factor, or appends the inverse. Keeps every delta."""
    if isinstance(y, StructuredTangent):
        return NotImplemented
    shape = np.broadcast_shapes(x.shape, np.shape(y))
    return _stretched(x, shape).map(lambda term: term.divided(y))


@register(lax.convert_element_type_p, elementwise=True)
def _convert_element_type_rule(x: StructuredTangent, *, new_dtype: Any, **_: Any) -> StructuredTangent:
    """Notes the new dtype; values are converted where they are computed. Keeps every structure."""
    if not jnp.issubdtype(new_dtype, np.inexact):
        return NotImplemented
    if jnp.issubdtype(x.dtype, np.complexfloating) and not jnp.issubdtype(new_dtype, np.complexfloating):
        return _real_rule(x).cast(new_dtype)
    return x.cast(new_dtype)


def _with_one_complex_factor(term: Term, dtype: Any) -> Term:
    """Contracts the complex factors into one, so that what is not complex-linear can act on it alone."""
    varying = [f for f in term.factors if jnp.issubdtype(f.dtype, np.complexfloating)]
    if len(varying) < 2:
        return term
    others = [f for f in term.factors if f not in varying]
    keep = {*term.axis_labels, *(label for f in others for label in f.labels)}
    carried = [label for f in varying for label in f.labels]
    one = contract(varying, [label for label in dict.fromkeys(carried) if label in keep], dtype)
    return Term((*others, one), term.out_axes, term.in_axes)


def _on_complex(x: StructuredTangent, function: Any, dtype: Any) -> StructuredTangent:
    def apply(term: Term) -> Term:
        term = _with_one_complex_factor(term, x.dtype)
        changed = [
            Factor(function(jnp.asarray(f.array)), f.labels, f.precision)
            if jnp.issubdtype(f.dtype, np.complexfloating)
            else f
            for f in term.factors
        ]
        return Term(tuple(changed), term.out_axes, term.in_axes)

    return x.map(apply, dtype=dtype)


def _real_dtype(dtype: Any) -> np.dtype:
    return np.dtype(np.float64 if np.dtype(dtype) == np.complex128 else np.float32)


@register(lax.real_p)
def _real_rule(x: StructuredTangent) -> StructuredTangent:
    """Real part of the one complex factor. Keeps every delta."""
    return _on_complex(x, lax.real, _real_dtype(x.dtype))


@register(lax.imag_p)
def _imag_rule(x: StructuredTangent) -> StructuredTangent:
    """Imaginary part of the one complex factor; a term without one vanishes. Keeps every delta."""

    def has_complex(term: Term) -> Term | None:
        return term if any(jnp.issubdtype(f.dtype, np.complexfloating) for f in term.factors) else None

    return _on_complex(x.map(has_complex), lax.imag, _real_dtype(x.dtype))


@register(lax.conj_p)
def _conj_rule(x: StructuredTangent, *, input_dtype: Any) -> StructuredTangent:
    """Conjugates every factor. Keeps every delta."""
    dtype = x.dtype if jnp.issubdtype(x.dtype, np.complexfloating) else np.result_type(x.dtype, np.complex64)
    return _on_complex(x, lax.conj, dtype)


@register(lax.complex_p)
def _complex_rule(x: Any, y: Any) -> StructuredTangent:
    """J_x + i J_y: the terms of both, those of the second with the factor i. Keeps what both share."""
    dtype = np.dtype(np.complex128 if np.dtype(x.dtype) == np.float64 else np.complex64)
    real = x.cast(dtype) if isinstance(x, StructuredTangent) else x
    if not isinstance(y, StructuredTangent):
        return _sum(real, y, 1)
    return _sum(real, y.map(lambda term: term.times(scalar(1j, dtype)), dtype=dtype), 1)


@register(lax.select_n_p, elementwise=True)
def _select_n_rule(which: Any, *cases: Any) -> StructuredTangent:
    """Each case zeroed where another is chosen, without multiplying, so that NaN and inf vanish. Keeps every delta."""
    boolean = np.dtype(which.dtype) == np.bool_
    parts = []
    for i, case in enumerate(cases):
        if isinstance(case, StructuredTangent):
            chosen = (which if i else ~which) if boolean else which == i
            parts.append(case.map(lambda term, chosen=chosen: term.masked(chosen)))
    return parts[0] if len(parts) == 1 else add_tangents(parts)


@register(_compat.device_put_p)
def _device_put_rule(*operands: Any, **_: Any) -> list[Any]:
    """Every operand passes through. Keeps every structure."""
    return list(operands)


@register(lax.optimization_barrier_p)
def _optimization_barrier_rule(*operands: Any) -> list[Any]:
    """Every operand passes through. Keeps every structure."""
    return list(operands)


if _compat.polynomial_p is not None:

    @register(_compat.polynomial_p)
    def _polynomial_rule(x: Any, *coefficients: Any, **_: Any) -> StructuredTangent:
        """The sum of the tangents, each times a power of x. Keeps every delta; declines for a tangent x."""
        if isinstance(x, StructuredTangent):
            return NotImplemented
        shape = np.broadcast_shapes(np.shape(x), *map(np.shape, coefficients))
        parts, power = [], None
        for c in coefficients:  # ascending; one without a tangent is zero, for the program is linear
            if isinstance(c, StructuredTangent):
                axes = tuple(range(len(shape) - len(c.shape), len(shape)))
                wide = c.map(lambda term, axes=axes: term.broadcast(shape, axes), shape=shape)
                parts.append(wide if power is None else wide.scaled(power))
            power = x if power is None else lax.mul(power, x)
        return add_tangents(parts)
