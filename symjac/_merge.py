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
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from symjac._factor import Factor, add, common_dtype, contract, multiply, scalar
from symjac._index_map import Affine, Indexed, IndexMap, Label, is_static, plain, union
from symjac._materialise import assemble
from symjac._record import is_recording, note
from symjac._tangent import StructuredTangent, Term

# Where entries are kept, a sum may grow to so many terms.
_MOST_TERMS_WITH_ENTRIES = 64
# More terms than this are joined, unless the join would hold this many times more than the terms.
_MOST_TERMS = 12
_DEAREST_JOIN = 64
# Before they are written, terms that share their deltas are joined where this makes them at most so many times larger.
_SLACK = 4


_keep_entries: ContextVar[bool] = ContextVar("keep_entries", default=False)


@contextlib.contextmanager
def keeping_entries() -> Iterator[None]:
    """Within this context terms are joined only where that stores no zeros between them: for sparse results."""
    token = _keep_entries.set(True)
    try:
        yield
    finally:
        _keep_entries.reset(token)


def _stores_no_zeros(found: Alignment, terms: Sequence[Term]) -> bool:
    """Whether one of the terms has an entry everywhere in the join, where that matters."""
    if not _keep_entries.get():
        return True
    return found.size <= max(math.prod(label.size for label in term.axis_labels) for term in terms)


@dataclass(frozen=True)
class Alignment:
    """What several terms have in common.

    Attributes:
        axes: The joined axes; one whose map differs between the terms is dense.
        kept: The labels of the matched axes.
        views: For each term the maps from the joined labels and dense axes, in the order of `labels`.
        labels: All labels of the joined factor.
    """

    axes: tuple[IndexMap, ...]
    labels: tuple[Label, ...]
    views: tuple[tuple[IndexMap, ...], ...]

    @property
    def size(self) -> int:
        """The number of elements of the join."""
        return math.prod(label.size for label in self.labels)


class _Matcher:
    """Finds for each axis whether all terms have the same map there, up to a renaming and a shift of labels."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = terms
        # for each term: own label -> (number of the joined label, shift): joined = own + shift
        self.names: list[dict[Label, tuple[int, int]]] = [{} for _ in terms]
        self.count = 0

    def match(self, maps: Sequence[IndexMap]) -> tuple[Any, tuple[Any, ...]] | None:
        """The joined map as (offset, ((name, stride), ...)) or (indexed map, names); None where they differ."""
        first = maps[0]
        if any(type(m) is not type(first) or len(m.labels) != len(first.labels) for m in maps):
            return None
        trial = [dict(names) for names in self.names]
        count = self.count
        for labels in zip(*(m.labels for m in maps), strict=True):
            known = {names[label][0] if label in names else None for names, label in zip(trial, labels, strict=True)}
            if len(known) != 1:
                return None
            if known == {None}:
                shifts = self._free_shifts(maps, labels)
                for names, label, shift in zip(trial, labels, shifts, strict=True):
                    names[label] = (count, shift)
                count += 1
        joined = _joined_maps(maps, trial)
        if joined is None:
            return None
        self.names, self.count = trial, count
        return joined

    def _free_shifts(self, maps: Sequence[IndexMap], labels: Sequence[Label]) -> list[int]:
        """Shifts that make the offsets of single-label affine maps agree."""
        affine = [m for m in maps if isinstance(m, Affine) and len(m.strides) == 1]
        if len(affine) < len(maps):
            return [0] * len(maps)
        stride = affine[0].strides[0][1]
        differences = [m.offset - affine[0].offset for m in affine]
        if any(m.strides[0][1] != stride or d % stride for m, d in zip(affine, differences, strict=True)):
            return [0] * len(maps)
        return [d // stride for d in differences]


def _joined_maps(
    maps: Sequence[IndexMap], names: Sequence[dict[Label, tuple[int, int]]]
) -> tuple[Any, tuple[Any, ...]] | None:
    first = maps[0]
    if isinstance(first, Indexed):
        if any(shift for m, own in zip(maps, names, strict=True) for shift in [own[each][1] for each in m.labels]):
            return None
        order = [names[0][label][0] for label in first.labels]
        for m, own in zip(maps[1:], names[1:], strict=True):
            assert isinstance(m, Indexed)
            if [own[label][0] for label in m.labels] != order or not _same_array(first.array, m.array):
                return None
        return first, tuple(order)
    found = set()
    for m, own in zip(maps, names, strict=True):
        assert isinstance(m, Affine)
        offset = m.offset - sum(stride * own[label][1] for label, stride in m.strides)
        found.add((offset, tuple((own[label][0], stride) for label, stride in m.strides)))
    return found.pop() if len(found) == 1 else None


def _same_array(a: Any, b: Any) -> bool:
    return a is b or (is_static(a) and is_static(b) and np.array_equal(a, b))


def align(terms: Sequence[Term], dense: Sequence[int] = ()) -> Alignment:
    """What the terms share: matched axes keep their maps, all others (and those in `dense`) become dense."""
    matcher = _Matcher(terms)
    rank = len(terms[0].axes)
    joined = [None if i in dense else matcher.match([term.axes[i] for term in terms]) for i in range(rank)]
    lows = [
        min(own[each][1] for own in matcher.names for each in own if own[each][0] == n) for n in range(matcher.count)
    ]
    highs = [
        max(own[each][1] + each.size for own in matcher.names for each in own if own[each][0] == n)
        for n in range(matcher.count)
    ]
    labels = [Label(high - low) for low, high in zip(lows, highs, strict=True)]
    views: list[list[IndexMap]] = [[] for _ in terms]
    for n, label in enumerate(labels):
        for own, view in zip(matcher.names, views, strict=True):
            old, shift = next((each, s) for each, (m, s) in own.items() if m == n)
            view.append(Affine(label.size, shift - lows[n], ((old, 1),)))
    axes: list[IndexMap] = []
    for i, found in enumerate(joined):
        maps = [term.axes[i] for term in terms]
        if found is None:
            low, high = _reach(maps)
            label = Label(high - low)
            labels.append(label)
            axes.append(Affine(maps[0].size, low, ((label, 1),)))
            for view, index_map in zip(views, maps, strict=True):
                view.append(
                    index_map if label.size == index_map.size else index_map.shifted(offset=-low, size=label.size)
                )
        elif isinstance(found[0], Indexed):
            shared, order = found
            axes.append(replace(shared, labels=tuple(labels[n] for n in order)))
        else:
            offset, strides = found
            offset += sum(stride * lows[n] for n, stride in strides)
            axes.append(Affine(maps[0].size, offset, tuple((labels[n], stride) for n, stride in strides)))
    return Alignment(tuple(axes), tuple(labels), tuple(map(tuple, views)))


def _reach(maps: Sequence[IndexMap]) -> tuple[int, int]:
    """The range of positions that affine maps can reach; the whole axis for others."""
    size = maps[0].size
    bounds = [m.bounds() for m in maps if isinstance(m, Affine)]
    if len(bounds) < len(maps):
        return 0, size
    low, high = max(0, min(b[0] for b in bounds)), min(size, max(b[1] for b in bounds) + 1)
    return (low, high) if low < high else (0, size)


def join(terms: Sequence[Term], dtype: Any, found: Alignment) -> Term:
    """One term with one factor that equals the sum of the terms, given what `align` found about them."""
    shape = tuple(label.size for label in found.labels)
    array = assemble([term.factors for term in terms], found.views, shape, dtype)
    rank = len(terms[0].out_axes)
    joined = Term((Factor(array, found.labels),), found.axes[:rank], found.axes[rank:])
    if is_recording() and found.size > sum(term.stored for term in terms):
        note("joined" if len(terms) > 1 else "made dense")
    return joined


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
    found = align([a, b])
    if found.size > a.stored + b.stored or not _stores_no_zeros(found, [a, b]):
        return None
    return join([a, b], dtype, found)


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


def compact(tangent: StructuredTangent) -> StructuredTangent:
    """Fewer terms for the same tangent, to be materialised.

    Terms that share their deltas are joined, and so are all terms where their join is small beside the dense result.
    """
    blocks = []
    for block, in_shape in zip(tangent.blocks, tangent.in_shapes, strict=True):
        size = tangent.size * math.prod(in_shape)
        terms = _join_clusters(_merge_all(block, size // _SLACK**2), tangent.dtype, slack=_SLACK)
        if len(terms) > 1:
            found = align(terms)
            held = sum(term.stored for term in terms)
            if found.size <= _SLACK * min(held, size // _SLACK**2):
                terms = (join(terms, tangent.dtype, found),)
        blocks.append(terms)
    return replace(tangent, blocks=tuple(blocks))


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
    whole = contract(term.factors, term.axis_labels, dtype) if _shrinks(term, on_axes) else None
    if whole is not None:
        return replace(term, factors=(whole,))
    return term


def _shrinks(term: Term, on_axes: set[Label]) -> bool:
    """Whether the contracted factor is no larger than the factors are."""
    carried = union(factor.labels for factor in term.factors)
    result = math.prod(label.size for label in carried if label in on_axes)
    return result <= 2 * sum(factor.size for factor in term.factors)
