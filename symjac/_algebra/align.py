"""What terms have in common: the deltas that they share, up to a renaming and a shift of labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from symjac._algebra.index_map import Affine, Indexed, IndexMap, Label, is_static
from symjac._algebra.tangent import Term


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
    return _alignment(terms, matcher, joined)


def align_within(terms: Sequence[Term], room: int) -> Alignment | None:
    """What the terms share, or None where the join has more elements than there is room for.

    Most pairs of terms are told apart at the first axes that differ, which is what this is for.
    """
    matcher = _Matcher(terms)
    joined = []
    size = 1
    for maps in zip(*(term.axes for term in terms), strict=True):
        known = matcher.count
        found = matcher.match(maps)
        if found is None:
            low, high = _reach(maps)
            size *= high - low
        elif matcher.count > known:
            size *= math.prod(max(each.size for each in labels) for labels in _fresh(matcher, known))
        if size > room:
            return None
        joined.append(found)
    alignment = _alignment(terms, matcher, joined)
    return alignment if alignment.size <= room else None


def _fresh(matcher: _Matcher, known: int) -> list[list[Label]]:
    """The labels of the terms for each joined label from a number on."""
    numbers = range(known, matcher.count)
    return [[label for own in matcher.names for label, (m, _) in own.items() if m == n] for n in numbers]


def _alignment(terms: Sequence[Term], matcher: _Matcher, joined: Sequence[Any]) -> Alignment:
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
