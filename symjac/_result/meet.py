"""Terms restricted to where their axes meet: diagonals, blocks and norms, without forming a matrix."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from symjac._algebra.factor import Factor
from symjac._algebra.index_map import Affine, Indexed, IndexMap, Label, intersect, is_static, plain, union
from symjac._algebra.materialise import assemble
from symjac._algebra.reading import equal_mask, inside_mask, solve
from symjac._algebra.tangent import Term

# A mask over several labels may hold this many times more than the term does.
_DEAREST_MASK = 64


class TooDenseError(Exception):
    """Where two axes meet cannot be told without an array much larger than those of the term."""


def same_map(a: IndexMap, b: IndexMap) -> bool:
    """Whether two maps of the same labels lead to the same positions."""
    if isinstance(a, Affine) and isinstance(b, Affine):
        return a.offset == b.offset and dict(a.strides) == dict(b.strides)
    if isinstance(a, Indexed) and isinstance(b, Indexed):
        same = a.array is b.array or (is_static(a.array) and is_static(b.array) and np.array_equal(a.array, b.array))
        return a.labels == b.labels and same
    return False


def meet(term: Term) -> Term | None:
    """The part of a term where each out axis is at the same position as the in axis of the same number.

    Returns:
        A term whose in axes equal its out axes; None where they never meet.

    Raises:
        TooDenseError: where that takes an array much larger than those of the term.
    """
    for axis in range(len(term.out_axes)):
        met = _meet_axis(term, term.out_axes[axis], term.in_axes[axis])
        if met is None:
            return None
        term = met
    return term


def _meet_axis(term: Term, a: IndexMap, b: IndexMap) -> Term | None:
    if same_map(a, b):
        return term
    if isinstance(a, Affine) and isinstance(b, Affine) and len(a.strides) < 2 and len(b.strides) < 2:
        return _meet_affine(term, a, b)
    for own, other in ((a, b), (b, a)):
        if own.is_plain and own.labels[0] not in other.labels:
            return term.solved({own.labels[0]: other})
    for own, other in ((a, b), (b, a)):
        if not set(own.labels) & set(other.labels):
            solved = solve(own, other)
            if solved is not NotImplemented:
                inner, mask = solved
                term = term.solved(inner)
                return term if mask is None else term.times(mask)
    size = math.prod(label.size for label in union([a.labels, b.labels]))
    if size > _DEAREST_MASK * max(term.stored, a.size):
        raise TooDenseError
    return term.times(equal_mask(a, b))


def _meet_affine(term: Term, a: Affine, b: Affine) -> Term | None:
    if a.labels == b.labels and a.strides:
        ((label, c),), ((_, g),) = a.strides, b.strides
        if c == g:
            return None  # The offsets differ, or they were the same map.
        position, rest = divmod(b.offset - a.offset, c - g)
        inside = rest == 0 and 0 <= position < label.size
        return term.solved({label: Affine(label.size, position, ())}) if inside else None
    met = intersect(a, b)
    if met is None:
        return None
    t_map, u_map, _ = met
    return term.solved({own.labels[0]: found for own, found in ((a, t_map), (b, u_map)) if own.strides})


def flattened(term: Term, out_shape: Sequence[int], in_shape: Sequence[int]) -> Term:
    """The term of the matrix: one out axis and one in axis."""
    for shape in (out_shape, in_shape):
        term = replace(term, out_axes=(plain(Label(1)),)) if not shape else term.reshape(shape, (math.prod(shape),))
        term = term.swapped()
    return term


def placed(term: Term, row: int, column: int, size: tuple[int, int]) -> Term | None:
    """The term of a block in a larger matrix; None where it has no entry."""
    there = term.place(0, row, size[0])
    there = None if there is None else there.swapped().place(0, column, size[1])
    return None if there is None else there.swapped()


def diagonal_of(terms: Sequence[Term], shape: Sequence[int], dtype: Any) -> Any:
    """The sum of the entries of terms whose out and in positions are the same, as an array of the out shape."""
    met = [found for found in map(meet, terms) if found is not None and all(label.size for label in found.labels)]
    factors = [(*term.factors, *inside(_unlike(term.in_axes, term.out_axes))) for term in met]
    return assemble(factors, [term.out_axes for term in met], shape, dtype)


def _unlike(axes: Sequence[IndexMap], others: Sequence[IndexMap]) -> list[IndexMap]:
    return [axis for axis, other in zip(axes, others, strict=True) if not same_map(axis, other)]


def inside(axes: Iterable[IndexMap]) -> list[Factor]:
    """Masks of where none of the axes is left."""
    return [inside_mask(axis) for axis in axes if not axis.stays_inside]


def row_gram_diagonal(pairs: Sequence[tuple[Term, Term]], shape: Sequence[int], dtype: Any) -> Any:
    """The diagonal of the sum of ``a @ b.conj().T`` over pairs of terms.

    Raises:
        TooDenseError: where the axes of a pair are too hard to match.
    """
    parts = [part for a, b in pairs if (part := _product_at_rows(a, b)) is not None]
    return assemble([term.factors for term in parts], [term.out_axes for term in parts], shape, dtype)


def _product_at_rows(a: Term, b: Term) -> Term | None:
    """The term ``sum_p a[s, p] * conj(b[s, p])``, whose out axes are those of `a`."""
    b = relabelled(b)
    conjugated = tuple(replace(factor, array=_conjugate(factor.array)) for factor in b.factors)
    rank = len(a.out_axes)
    both = Term((*a.factors, *conjugated), (*a.out_axes, *a.in_axes), (*b.out_axes, *b.in_axes))
    met = meet(both)
    if met is None:
        return None
    factors = (*met.factors, *inside(met.out_axes[rank:]))
    return Term(factors, met.out_axes[:rank], ()).counted(met.labels)


def _conjugate(array: Any) -> Any:
    if not jnp.issubdtype(array.dtype, np.complexfloating):
        return array
    return np.conj(array) if is_static(array) else lax.conj(array)


def relabelled(term: Term) -> Term:
    """The same term with labels of its own."""
    fresh = {label: Label(label.size) for label in term.labels}

    def rename(axis: IndexMap) -> IndexMap:
        if isinstance(axis, Affine):
            return replace(axis, strides=tuple((fresh[label], stride) for label, stride in axis.strides))
        return replace(axis, labels=tuple(fresh[label] for label in axis.labels))

    factors = tuple(factor.relabel(fresh) for factor in term.factors)
    return Term(factors, tuple(map(rename, term.out_axes)), tuple(map(rename, term.in_axes)))
