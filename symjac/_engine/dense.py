"""The dense way through an equation, or a program: materialise its tangents and map it over the basis.

What has no structure where an operation acts need not go all that way: it is written into in place, or the operation is
mapped over the other axes alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import eval_jaxpr
from jax.extend.core import Jaxpr

from symjac import _compat
from symjac._algebra.factor import Factor
from symjac._algebra.index_map import Affine, IndexMap, Label, plain, union
from symjac._algebra.materialise import assemble, materialise
from symjac._algebra.merge import is_transposed
from symjac._algebra.tangent import StructuredTangent, Term, identity, replace, zero
from symjac._engine.dependence import dependent_outputs
from symjac._types import aval_of


def map_over_basis(
    eqn: Any, operands: Sequence[Any], in_shapes: Sequence[tuple[int, ...]], is_linear: bool = True
) -> list[Any]:
    """The results of an equation: one `vmap` over the basis of all input leaves that its tangents depend on.

    Args:
        eqn: The equation.
        operands: Its operands.
        in_shapes: The shapes of the input leaves.
        is_linear: Whether it is linear in the tangents, so that a basis vector of another leaf gives zero.
    """
    places = [i for i, x in enumerate(operands) if isinstance(x, StructuredTangent)]
    tangents = [operands[i] for i in places]
    leaves = [j for j in range(len(in_shapes)) if not is_linear or any(t.blocks[j] for t in tangents)]
    leaves = [j for j in leaves if 0 not in in_shapes[j]]
    flags = dependent_outputs(eqn, [isinstance(x, StructuredTangent) for x in operands])

    def bind(*rows: Any) -> list[Any]:
        filled = list(operands)
        for i, row in zip(places, rows, strict=True):
            filled[i] = _compat.varying_as(row, eqn.invars[i].aval)
        return _compat.bind_equation(eqn, filled)

    if not leaves:
        outs = bind(*(jnp.zeros(t.shape, t.dtype) for t in tangents))
        return [_zero(out, in_shapes) if flag else out for out, flag in zip(outs, flags, strict=True)]
    basis = [_rows(tangent, leaves) for tangent in tangents]
    # What does not depend on the tangents may still come out mapped, from what is not known inside.
    outs = jax.vmap(bind, out_axes=0 if _is_opaque(eqn) else [0 if flag else None for flag in flags])(*basis)
    results = []
    for out, flag in zip(outs, flags, strict=True):
        if flag:
            results.append(replace(_tangent(out, leaves, in_shapes), is_linear=is_linear))
        else:
            results.append(lax.index_in_dim(out, 0, keepdims=False) if _is_opaque(eqn) else out)
    return results


def map_program(jaxpr: Jaxpr, arrays: Sequence[Any], in_avals: Sequence[Any], n_values: int) -> list[Any]:
    """The results of a whole program, for each basis vector by itself: its values, and then its out tangents.

    Args:
        jaxpr: An opened jaxpr of the arrays and the tangents.
        arrays: The arrays.
        in_avals: The types of the tangents.
        n_values: The number of values.
    """
    in_shapes = tuple(tuple(aval.shape) for aval in in_avals)
    zeros = [_compat.varying_as(jnp.zeros(aval.shape, aval.dtype), aval) for aval in in_avals]
    values = eval_jaxpr(jaxpr, (), *arrays, *zeros)[:n_values]
    leaves = [j for j in range(len(in_avals)) if 0 not in in_shapes[j]]
    found = jaxpr.outvars[n_values:]
    if not leaves:
        return [*values, *(zero(a.shape, a.dtype, in_shapes) for a in map(aval_of, found))]
    seeds = [_rows(identity(j, aval.dtype, in_shapes), leaves) for j, aval in enumerate(in_avals)]
    basis = [_compat.varying_as(seed, aval) for seed, aval in zip(seeds, in_avals, strict=True)]
    rows = jax.vmap(lambda *tangents: eval_jaxpr(jaxpr, (), *arrays, *tangents)[n_values:])(*basis)
    return [*values, *(_tangent(row, leaves, in_shapes) for row in rows)]


def write_in_place(x: Any, update: Any, write: Callable[[Any, Any, int], Any]) -> StructuredTangent | None:
    """Writes into a tangent without structure as into an array, which a loop does in place.

    Args:
        x: What is written into.
        update: What is written: a tangent, or an array for all entries of an input leaf.
        write: Writes into an array. Both have the axes of an input leaf too: so many before their own, or all behind.

    Returns:
        The tangent; None where some structure would be lost.
    """
    if not isinstance(x, StructuredTangent):
        return None
    is_tangent = isinstance(update, StructuredTangent)
    is_wider = is_tangent and any(new and not old for new, old in zip(update.blocks, x.blocks, strict=True))
    if is_wider or not all(map(_is_full, x.blocks)):
        return None
    before, blocks = is_transposed(), []
    for j, block in enumerate(x.blocks):
        for term in block:
            own, n_in = materialise(x, j, transposed=before), len(term.in_axes)
            if is_tangent:
                new = materialise(update, j, transposed=before)
            else:
                shape = (*x.in_shapes[j], *update.shape) if before else (*update.shape, *x.in_shapes[j])
                start = n_in if before else 0
                new = lax.broadcast_in_dim(update, shape, range(start, start + update.ndim))
            axes = (*term.in_axes, *term.out_axes) if before else term.axes
            written = write(own, new, n_in if before else 0)
            block = (replace(term, factors=(Factor(written, tuple(axis.labels[0] for axis in axes)),)),)
        blocks.append(block)
    return replace(x, blocks=tuple(blocks))


def apply_each(
    x: StructuredTangent,
    dense: Callable[[Term], Term | None],
    structured: Callable[[StructuredTangent], StructuredTangent],
) -> StructuredTangent:
    """A linear operation: of each term by itself where `dense` knows how, and of all other terms by `structured`."""
    found = [[None if 0 in x.shape else dense(term) for term in block] for block in x.blocks]
    pairs = [list(zip(block, new, strict=True)) for block, new in zip(x.blocks, found, strict=True)]
    rest = replace(x, blocks=tuple(tuple(term for term, new in block if new is None) for block in pairs))
    result = structured(rest)
    blocks = [[term for term in block if term is not None] for block in found]
    return replace(result, blocks=tuple((*a, *b) for a, b in zip(blocks, result.blocks, strict=True)))


def map_axes(
    term: Term, axes: Sequence[int], function: Callable[[Any], Any], dtype: Any, places: Sequence[int] | None = None
) -> Term | None:
    """A linear function of some out axes of a term that has no structure along them.

    Args:
        term: The term.
        axes: The numbers of the out axes.
        function: From an array with these axes, in this order, to the array that comes in their place.
        dtype: The dtype of the intermediate.
        places: The numbers of the result's axes among the new out axes, ascending; `axes` where they stay in place.

    Returns:
        The term; None where it has structure along an axis, or nothing that changes along any.
    """
    own = [term.out_axes[i] for i in axes]
    others = [axis for i, axis in enumerate(term.out_axes) if i not in axes]
    labels = union(axis.labels for axis in own)
    elsewhere = union(axis.labels for axis in (*others, *term.in_axes))
    inside = [factor for factor in term.factors if set(labels).intersection(factor.labels)]
    if not inside or not all(map(_covers, own)) or set(labels).intersection(elsewhere):
        return None
    outside = [factor for factor in term.factors if factor not in inside]
    kept = set(elsewhere).union(*(factor.labels for factor in outside))
    rest = [label for label in union(factor.labels for factor in inside) if label in kept]
    sizes, shape = [label.size for label in rest], [axis.size for axis in own]
    array = assemble([inside], [[*map(plain, rest), *own]], [*sizes, *shape], dtype)
    array = jax.vmap(function)(jnp.reshape(array, (math.prod(sizes), *shape))) if rest else function(array)
    new = [Label(n) for n in array.shape[1 if rest else 0 :]]
    joined = Factor(jnp.reshape(array, (*sizes, *(label.size for label in new))), (*rest, *new))
    places, mapped, unmapped = axes if places is None else places, map(plain, new), iter(others)
    out_axes = [next(mapped) if i in places else next(unmapped) for i in range(len(term.out_axes))]
    return Term((*outside, joined), tuple(out_axes), term.in_axes)


def _covers(axis: IndexMap) -> bool:
    """Whether a map leads to each position of its axis once."""
    return isinstance(axis, Affine) and axis.stays_inside and math.prod(x.size for x in axis.labels) == axis.size


def _is_full(block: Sequence[Term]) -> bool:
    """Whether a block is nothing, or one computed array with an axis for each of its axes."""
    if not block:
        return True
    (term, *others) = block
    labels = [axis.labels[0] for axis in term.axes if axis.is_plain]
    is_whole = not others and len(term.factors) == 1 and len(set(labels)) == len(term.axes)
    return is_whole and not term.factors[0].is_static and set(term.factors[0].labels) == set(labels)


def _is_opaque(eqn: Any) -> bool:
    return len(eqn.outvars) > 1 and eqn.primitive.name not in ("scan", "while", "cond")


def _zero(out: Any, in_shapes: Sequence[tuple[int, ...]]) -> StructuredTangent:
    return zero(jnp.shape(out), out.dtype, in_shapes)


def _rows(tangent: StructuredTangent, leaves: Sequence[int]) -> Any:
    """The dense Jacobians of all leaves, one row for each basis vector: shape ``(rows, *tangent.shape)``."""
    rows = [
        jnp.reshape(materialise(tangent, j, transposed=True), (math.prod(tangent.in_shapes[j]), *tangent.shape))
        for j in leaves
    ]
    return rows[0] if len(rows) == 1 else lax.concatenate(rows, 0)


def _tangent(rows: Any, leaves: Sequence[int], in_shapes: Sequence[tuple[int, ...]]) -> StructuredTangent:
    """The structured tangent of dense rows."""
    shape = rows.shape[1:]
    blocks: list[tuple[Term, ...]] = [() for _ in in_shapes]
    start = 0
    for j in leaves:
        size = math.prod(in_shapes[j])
        part = lax.slice_in_dim(rows, start, start + size) if len(leaves) > 1 else rows
        start += size
        in_labels = tuple(Label(n) for n in in_shapes[j])
        out_labels = tuple(Label(n) for n in shape)
        factor = Factor(jnp.reshape(part, (*in_shapes[j], *shape)), (*in_labels, *out_labels))
        blocks[j] = (Term((factor,), tuple(map(plain, out_labels)), tuple(map(plain, in_labels))),)
    return StructuredTangent(tuple(shape), rows.dtype, tuple(in_shapes), tuple(blocks))
