"""Sums of terms: the three merges that keep them short, and the join.

* *common factors*: terms with the same axes that have factors in common add what differs, where the sum is small;
* *same pattern*: two terms whose join holds no more than the two apart are joined;
* *join*: where all terms together hold as much as their join, or are too many, each delta that they share is kept and
  the other axes become dense.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from symjac._algebra.align import Alignment, align, align_within
from symjac._algebra.factor import Factor, add, common_dtype, contract, multiply, scalar
from symjac._algebra.index_map import Indexed, IndexMap, Label, plain, union
from symjac._algebra.materialise import assemble
from symjac._algebra.record import is_recording, note
from symjac._algebra.tangent import StructuredTangent, Term

# Where entries are kept, a sum may grow to so many terms.
_MOST_TERMS_WITH_ENTRIES = 64
# More terms than this are joined, unless the join would hold this many times more than the terms.
_MOST_TERMS = 12
_DEAREST_JOIN = 64
# Before they are written, terms that share their deltas are joined where this makes them at most so many times larger.
_SLACK = 4


_keep_entries: ContextVar[bool] = ContextVar("keep_entries", default=False)
_transposed: ContextVar[bool] = ContextVar("transposed", default=False)


@contextlib.contextmanager
def _setting(variable: ContextVar[bool], value: bool) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def keeping_entries() -> contextlib.AbstractContextManager[None]:
    """Within this context terms are joined only where that stores no zeros between them: for sparse results."""
    return _setting(_keep_entries, True)


def _stores_no_zeros(found: Alignment, terms: Sequence[Term]) -> bool:
    """Whether one of the terms has an entry everywhere in the join, where that matters."""
    if not _keep_entries.get():
        return True
    return found.size <= max(math.prod(label.size for label in term.axis_labels) for term in terms)


def join(terms: Sequence[Term], dtype: Any, found: Alignment) -> Term:
    """One term with one factor that equals the sum of the terms, given what `align` found about them."""
    order = _order(terms, found)
    labels = tuple(found.labels[i] for i in order)
    views = [tuple(view[i] for i in order) for view in found.views]
    array = assemble([term.factors for term in terms], views, [label.size for label in labels], dtype)
    rank = len(terms[0].out_axes)
    joined = Term((Factor(array, labels),), found.axes[:rank], found.axes[rank:])
    if is_recording() and found.size > sum(term.stored for term in terms):
        note("joined" if len(terms) > 1 else "made dense")
    return joined


def _order(terms: Sequence[Term], found: Alignment) -> Sequence[int]:
    """The order of the labels of a join: that of an array which has one label for each, and so stays in place."""
    for term, view in zip(terms, found.views, strict=True):
        if all(len(axis.labels) == 1 for axis in view):
            places = {axis.labels[0]: i for i, axis in enumerate(view)}
            whole = [factor for factor in term.factors if set(factor.labels) == set(places)]
            if whole and len(places) == len(view):
                return [places[label] for label in whole[0].labels]
    return range(len(found.labels))


def _merge_common(a: Term, b: Term, room: int = 0) -> Term | None:
    """Adds what differs in two terms that have the other factors in common; None where the sum takes too much room.

    Args:
        a: A term.
        b: A term with the same axes.
        room: The number of elements that the sum may have, where it is larger than what is added.
    """
    if a.out_axes != b.out_axes or a.in_axes != b.in_axes:
        return None
    common = [f for f in a.factors if any(_is_same(f, g) for g in b.factors)]
    rests = [[f for f in term.factors if not any(_is_same(f, g) for g in common)] for term in (a, b)]
    outside = {*a.axis_labels, *(label for f in common for label in f.labels)}
    carried = [union(f.labels for f in rest) for rest in rests]
    both = set(carried[0]) & set(carried[1])
    needed = [[label for label in labels if label in outside or label in both] for labels in carried]
    largest = max((f.size for rest in rests for f in rest), default=1)
    if math.prod(label.size for label in union(needed)) > max(largest, room):
        return None
    work = max(math.prod(label.size for label in labels) for labels in carried)
    if any(set(keep) < set(labels) for keep, labels in zip(needed, carried, strict=True)) and work > _SLACK**2 * room:
        return None
    return replace(a, factors=(*common, add(*(_product(rest, keep) for rest, keep in zip(rests, needed, strict=True)))))


def _is_same(a: Factor, b: Factor) -> bool:
    return a is b or (a.array is b.array and a.labels == b.labels and a.precision == b.precision)


def _product(factors: Sequence[Factor], keep: Sequence[Label]) -> Factor:
    """The product of factors, summed over the labels that are not kept."""
    if not factors:
        return scalar(1, np.int32)
    if set(keep) >= set(union(factor.labels for factor in factors)):
        return reduce(multiply, factors)
    return contract(factors, keep, common_dtype(*(factor.dtype for factor in factors)))


def _merge_pair(a: Term, b: Term, dtype: Any) -> Term | None:
    merged = _merge_common(a, b)
    if merged is not None:
        return merged
    if a.is_pending or b.is_pending:
        return None
    found = align_within([a, b], a.stored + b.stored)
    return join([a, b], dtype, found) if found is not None and _stores_no_zeros(found, [a, b]) else None


def add_terms(blocks: Sequence[Sequence[Term]], dtype: Any) -> tuple[Term, ...]:
    """The sum of several sums of terms, merged."""
    total: list[Term] = []
    for term in (term for block in blocks for term in block):
        for i in range(len(total) - 1, -1, -1):
            merged = _merge_pair(total[i], term, dtype)
            if merged is not None:
                total[i] = merged
                break
        else:
            total.append(term)
    return _join_if_full(total, dtype)


def _join_if_full(terms: Sequence[Term], dtype: Any) -> tuple[Term, ...]:
    terms = _join_clusters(terms, dtype, slack=1)
    if len(terms) < 2:
        return terms
    found = align(terms)
    held = sum(term.stored for term in terms)
    most = _MOST_TERMS_WITH_ENTRIES if _keep_entries.get() else _MOST_TERMS
    is_full = held >= found.size and _stores_no_zeros(found, terms)
    if is_full or (len(terms) > most and found.size <= _DEAREST_JOIN * held):
        return (join(terms, dtype, found),)
    return terms


def _join_clusters(terms: Sequence[Term], dtype: Any, slack: int) -> tuple[Term, ...]:
    """Joins the terms that share all their deltas, where the join holds at most `slack` times as much as they do."""
    clusters: dict[Any, list[Term]] = {}
    for term in terms:
        clusters.setdefault(_deltas(term), []).append(term)
    result: list[Term] = []
    for deltas, cluster in clusters.items():
        found = align(cluster) if deltas and 1 < len(cluster) < len(terms) + slack - 1 else None
        fits = found is not None and found.size <= slack * sum(term.stored for term in cluster)
        if fits and found is not None and _stores_no_zeros(found, cluster):
            result.append(join(cluster, dtype, found))
        else:
            result.extend(cluster)
    return tuple(result)


def _deltas(term: Term) -> frozenset[Any]:
    """The deltas of a term up to a renaming and a shift of labels: for each, how the axes depend on its label."""
    found: dict[Label, list[Any]] = {}
    first: dict[Label, int] = {}
    for i, axis in enumerate(term.axes):
        for label in axis.labels:
            if isinstance(axis, Indexed):
                how: Any = id(axis.array)
            else:
                stride = dict(axis.strides)[label]
                how = (stride, axis.offset - stride * first.setdefault(label, axis.offset // stride))
            found.setdefault(label, []).append((i, how))
    return frozenset(tuple(uses) for uses in found.values() if len(uses) > 1)


def compact(tangent: StructuredTangent, leaf: int) -> StructuredTangent:
    """Fewer terms for the same tangent with respect to one input leaf, to be materialised.

    Terms that share their deltas are joined, and so are all terms where their join is small beside the dense result.
    """
    size = tangent.size * math.prod(tangent.in_shapes[leaf])
    terms = _join_clusters(_merge_all(tangent.blocks[leaf], size // _SLACK**2), tangent.dtype, slack=_SLACK)
    if len(terms) > 1:
        held = sum(term.stored for term in terms)
        found = align_within(terms, _SLACK * min(held, size // _SLACK**2))
        if found is not None:
            terms = (join(terms, tangent.dtype, found),)
    return replace(tangent, blocks=tuple(terms if j == leaf else block for j, block in enumerate(tangent.blocks)))


def _merge_all(terms: Sequence[Term], room: int) -> list[Term]:
    """Merges each term into an earlier one with which it has a factor in common, where the sum has room."""
    total: list[Term] = []
    for term in terms:
        for i, other in enumerate(total):
            shares = any(_is_same(f, g) and f.labels for f in term.factors for g in other.factors)
            merged = _merge_common(other, term, room) if shares else None
            if merged is not None:
                total[i] = merged
                break
        else:
            total.append(term)
    return total


def add_tangents(tangents: Sequence[StructuredTangent], dtype: Any = None) -> StructuredTangent:
    """The sum of tangents of the same shape."""
    first = tangents[0]
    dtype = first.dtype if dtype is None else np.dtype(dtype)
    blocks = tuple(add_terms(blocks, dtype) for blocks in zip(*(t.blocks for t in tangents), strict=True))
    return StructuredTangent(first.shape, dtype, first.in_shapes, blocks)


def densify(tangent: StructuredTangent, out_axes: Sequence[int]) -> StructuredTangent:
    """The tangent with one term a block, in which the given out axes are plain, dense and carried by its one factor.

    The deltas of the other axes stay where all terms share them.
    """
    blocks = []
    for block in tangent.blocks:
        if not block:
            blocks.append(())
            continue
        found = align(block, dense=out_axes)
        term = join(block, tangent.dtype, whole_axes(found, out_axes, block))
        blocks.append((term,))
    return replace(tangent, blocks=tuple(blocks))


def whole_axes(found: Alignment, out_axes: Sequence[int], terms: Sequence[Term]) -> Alignment:
    """Dense axes over their whole range."""
    labels, axes = list(found.labels), list(found.axes)
    views = [list(view) for view in found.views]
    for i in out_axes:
        axis = axes[i]
        if axis.is_plain:
            continue
        place = labels.index(axis.labels[0])
        labels[place] = Label(axis.size)
        axes[i] = plain(labels[place])
        for view, term in zip(views, terms, strict=True):
            view[place] = term.axes[i]
    return Alignment(tuple(axes), tuple(labels), tuple(map(tuple, views)))


def settle(term: Term, dtype: Any) -> Term:
    """Contracts what is pending as far as that does not take more room: for a tangent with several uses."""
    if not term.is_pending:
        return term
    on_axes = set(term.axis_labels)
    order = in_order(term.axis_labels, term.out_axes, term.in_axes)
    whole = contract(term.factors, order, dtype) if _shrinks(term, on_axes) else None
    if whole is not None:
        return replace(term, factors=(whole,))
    return term


def in_order(labels: Sequence[Label], out_axes: Sequence[IndexMap], in_axes: Sequence[IndexMap]) -> list[Label]:
    """Labels in the order in which arrays that are multiplied on and on lie best, the same as that of the result.

    What both sides share comes first, then the rows of the Jacobian, which are the in axes of a transposed program.
    """
    rows, columns = (union(axis.labels for axis in axes) for axes in (out_axes, in_axes))
    if _transposed.get():
        rows, columns = columns, rows
    return sorted(labels, key=lambda label: (label in columns) + (label in columns and label not in rows))


def lying(*, transposed: bool) -> contextlib.AbstractContextManager[None]:
    """Within this context, `in_order` is that of a program for the transposed Jacobian, or is not."""
    return _setting(_transposed, transposed)


def is_transposed() -> bool:
    """Whether the program is one for the transposed Jacobian."""
    return _transposed.get()


def _shrinks(term: Term, on_axes: set[Label]) -> bool:
    """Whether the contracted factor is no larger than the factors are."""
    carried = union(factor.labels for factor in term.factors)
    result = math.prod(label.size for label in carried if label in on_axes)
    return result <= 2 * sum(factor.size for factor in term.factors)
