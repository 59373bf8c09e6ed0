"""What a Jacobian computes from its arrays. Each function is compiled once for each layout, and inlined in a trace."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from symjac import _compat
from symjac._algebra.factor import Factor, cast, common_dtype
from symjac._algebra.materialise import assemble
from symjac._algebra.reading import inside_mask, pull
from symjac._algebra.tangent import StructuredTangent, Term
from symjac._engine.interpreter import engine_settings, materialise
from symjac._result.deferred import LinearForm, expand, push
from symjac._result.stored import Layout, StaticArray, StoredBlock, StoredFactor, interned, static_array, unpack


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function whose first argument is a layout, for each layout, under the engine's own settings."""

    def run(layout: Layout, *args: Any) -> Any:
        with engine_settings():
            return function(layout, *args)

    run.__name__ = run.__qualname__ = function.__name__.strip("_")
    return functools.wraps(function)(jax.jit(run, static_argnums=0, inline=True))


def whole_factor(terms: Sequence[Term], shape: Sequence[int]) -> Any | None:
    """The array of the only factor of the only term, where that is the dense block itself."""
    if len(terms) != 1 or len(terms[0].factors) != 1 or not isinstance(terms[0].factors[0].array, jax.Array):
        return None
    (term,) = terms
    (factor,) = term.factors
    labels = tuple(axis.labels[0] for axis in term.axes if axis.is_plain)
    return factor.array if labels == factor.labels and len(labels) == len(shape) else None


def materialised(layout: Layout, arrays: Sequence[Any]) -> list[list[Any]]:
    """The dense blocks. One that an array is already is that array."""
    blocks = unpack(layout, arrays)
    dense: list[list[Any]] = [[None] * len(layout.ins) for _ in layout.outs]
    for i, j, _, _ in layout.offsets():
        array = whole_factor(blocks[i][j], layout.outs[i].shape + layout.ins[j].shape)
        own = layout.blocks[i][j]
        if array is not None and array.dtype == own.dtype and jax.typeof(array).weak_type == own.weak_type:
            dense[i][j] = array
    missing = tuple((i, j) for i, j, _, _ in layout.offsets() if dense[i][j] is None)
    if missing:
        for (i, j), array in zip(missing, _materialised_blocks(layout, _Chosen(missing), tuple(arrays)), strict=True):
            dense[i][j] = array
    return dense


class _Chosen(tuple[tuple[int, int], ...]):
    """The numbers of some blocks."""


@functools.partial(jax.jit, static_argnums=(0, 1), inline=True)
def _materialised_blocks(layout: Layout, chosen: _Chosen, arrays: Sequence[Any]) -> list[Any]:
    with engine_settings():
        blocks = unpack(layout, arrays)
        return [_dense_block(layout, blocks[i][j], i, j) for i, j in chosen]


def _dense_block(layout: Layout, terms: Sequence[Term], i: int, j: int) -> Any:
    own = layout.blocks[i][j]
    tangent = StructuredTangent(layout.outs[i].shape, own.dtype, (layout.ins[j].shape,), (tuple(terms),))
    array = materialise(tangent, 0)
    return _compat.with_element_type(array, own.dtype, own.weak_type)


@compiled
def matrix(layout: Layout, arrays: Sequence[Any]) -> Any:
    """The whole dense matrix, of two dimensions."""
    blocks = unpack(layout, arrays)
    rows = []
    for i, out in enumerate(layout.outs):
        dense = [_dense_block(layout, blocks[i][j], i, j) for j in range(len(layout.ins))]
        row = [
            cast(jnp.reshape(block, (out.size, leaf.size)), layout.dtype)
            for block, leaf in zip(dense, layout.ins, strict=True)
        ]
        rows.append(row[0] if len(row) == 1 else lax.concatenate(row, 1))
    return rows[0] if len(rows) == 1 else lax.concatenate(rows, 0)


@compiled
def applied(form: Layout | LinearForm, arrays: Sequence[Any], vectors: Sequence[Any]) -> list[Any]:
    """The product with one vector for each input; None for an output that is not of an inexact dtype."""
    if isinstance(form, LinearForm):
        try:
            return push(form, arrays, vectors)
        except NotImplementedError:  # Not every loop can be transposed.
            form, arrays = expand(form, arrays)
    return product(form, arrays, vectors)


def product(layout: Layout, arrays: Sequence[Any], vectors: Sequence[Any]) -> list[Any]:
    """The product by terms: each pulls its vector along its in axes, and contracts it with its factors."""
    blocks = unpack(layout, arrays)
    results = []
    for i, out in enumerate(layout.outs):
        if not jnp.issubdtype(out.dtype, np.inexact):
            results.append(None)
            continue
        factors, axes = [], []
        for j, terms in enumerate(blocks[i]):
            for term in terms:
                factors.append((*term.factors, *_pulled(vectors[j], term)))
                axes.append(term.out_axes)
        results.append(_typed_sum(factors, axes, out.shape, out))
    return results


def _pulled(vector: Any, term: Term) -> Iterator[Factor]:
    """A vector read along the in axes of a term; `pull` reads an axis of one entry wherever its map leads."""
    yield pull(vector, term.in_axes)
    yield from (inside_mask(axis) for axis in term.in_axes if axis.size == 1 and not axis.stays_inside)


def _typed_sum(factors: Sequence[Any], axes: Sequence[Any], shape: Sequence[int], leaf: Any) -> Any:
    dtypes = [factor.dtype for own in factors for factor in own if jnp.issubdtype(factor.dtype, np.inexact)]
    is_complex = any(jnp.issubdtype(dtype, np.complexfloating) for dtype in dtypes)
    if is_complex and not jnp.issubdtype(leaf.dtype, np.complexfloating):
        total = lax.real(jnp.asarray(assemble(factors, axes, shape, common_dtype(leaf.dtype, np.complex64))))
    else:
        total = assemble(factors, axes, shape, leaf.dtype)
    return _compat.with_element_type(total, leaf.dtype, False)


def conjugated(layout: Layout) -> Layout:
    """The layout with its static factors conjugated."""

    def factor(own: StoredFactor) -> StoredFactor:
        if isinstance(own.array, StaticArray) and np.iscomplexobj(own.array.array):
            return replace(own, array=static_array(np.conj(own.array.array)))
        return own

    def block(own: StoredBlock) -> StoredBlock:
        return replace(own, factors=tuple(map(factor, own.factors)))

    return interned(replace(layout, blocks=tuple(tuple(map(block, row)) for row in layout.blocks)))
