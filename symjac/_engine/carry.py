"""Structures that stand still: what a loop carries, and what branches agree on.

A tangent goes into a traced subprogram, and out of it, as the arrays of its factors; its labels and maps stay behind.
An `Emptier` takes the arrays out and leaves holes, `filled` puts arrays in. A *frame* is a tangent whose terms have one
factor each, without its array: the least structure that several tangents fit in, found by `grown`; `fitted` gives the
arrays of a tangent that fits it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from symjac._algebra.align import Alignment, align
from symjac._algebra.factor import Factor, contract
from symjac._algebra.index_map import Affine, Indexed, IndexMap, Label, is_static
from symjac._algebra.materialise import assemble
from symjac._algebra.merge import in_order, whole_axes
from symjac._algebra.tangent import StructuredTangent, Term


@dataclass(frozen=True, eq=False)
class Hole:
    """The place of an array in a list of arrays.

    Attributes:
        place: The position in the list.
        shape: The array's shape.
        dtype: Its dtype.
    """

    place: int
    shape: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)


class Frame:
    """Stands for the array of a frame."""


class Emptier:
    """Takes the arrays out of tangents and collects them, each once."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []
        self._holes: dict[int, Hole] = {}
        self._maps: dict[int, Indexed] = {}

    def hole(self, array: Any) -> Any:
        """The hole of an array; an array that is known while tracing stays."""
        if is_static(array):
            return array
        found = self._holes.get(id(array))
        if found is None:
            found = Hole(len(self.arrays), tuple(np.shape(array)), array.dtype)
            self._holes[id(array)] = found
            self.arrays.append(array)
        return found

    def __call__(self, value: Any) -> Any:
        """A tangent without its arrays, or the hole of an array."""
        if not isinstance(value, StructuredTangent):
            return self.hole(value)
        return map_arrays(value, self.hole, self._maps)


def map_arrays(tangent: StructuredTangent, function: Any, maps: dict[int, Indexed] | None = None) -> StructuredTangent:
    """Applies a function to the array of each factor and of each index map; equal maps stay one object."""
    known: dict[int, Indexed] = {} if maps is None else maps

    def axis(index_map: IndexMap) -> IndexMap:
        if not isinstance(index_map, Indexed) or is_static(index_map.array):
            return index_map
        if id(index_map) not in known:
            known[id(index_map)] = replace(index_map, array=function(index_map.array))
        return known[id(index_map)]

    def apply(term: Term) -> Term:
        factors = tuple(f if is_static(f.array) else replace(f, array=function(f.array)) for f in term.factors)
        return Term(factors, tuple(map(axis, term.out_axes)), tuple(map(axis, term.in_axes)))

    return replace(tangent, blocks=tuple(tuple(map(apply, block)) for block in tangent.blocks))


def filled(value: Any, arrays: Sequence[Any]) -> Any:
    """A hollow value with its arrays put in."""
    if isinstance(value, StructuredTangent):
        return map_arrays(value, lambda hole: arrays[hole.place] if isinstance(hole, Hole) else hole)
    return arrays[value.place] if isinstance(value, Hole) else value


def same(a: StructuredTangent, b: StructuredTangent) -> bool:
    """Whether two tangents have the very same terms."""
    return all(len(x) == len(y) and all(map(_same_term, x, y)) for x, y in zip(a.blocks, b.blocks, strict=True))


def _same_term(a: Term, b: Term) -> bool:
    if a is b:
        return True
    if a.axes != b.axes or len(a.factors) != len(b.factors):
        return False
    return all(f.array is g.array and f.labels == g.labels for f, g in zip(a.factors, b.factors, strict=True))


# -- frames -----------------------------------------------------------------------------------------------------------

# A frame of a block keeps several terms apart while they are at most so many, and hold so much less than their join.
_MOST_TERMS = 6
_LEAST_GAIN = 4


def grown(old: StructuredTangent, new: Sequence[StructuredTangent]) -> StructuredTangent:
    """The least frame that holds several tangents; `old` itself where it is a frame that holds the others already.

    An axis of a frame whose map has to change becomes dense, so that growing comes to an end. Index maps that belong to
    one trace (their array is a hole) become dense too.

    Args:
        old: A frame, or any tangent at first.
        new: Tangents, hollow or not.
    """
    blocks = []
    for own, *others in zip(old.blocks, *(t.blocks for t in new), strict=True):
        added = [term for block in others for term in block]
        blocks.append(_grown_block(own, added) if added or not _is_frame_block(own) else own)
    return old if all(a is b for a, b in zip(blocks, old.blocks, strict=True)) else replace(old, blocks=tuple(blocks))


def is_frame(tangent: StructuredTangent) -> bool:
    """Whether the factors of a tangent only stand for arrays."""
    return all(map(_is_frame_block, tangent.blocks))


def _is_frame_block(block: tuple[Term, ...]) -> bool:
    return all(len(term.factors) == 1 and isinstance(term.factors[0].array, Frame) for term in block)


def _grown_block(old: tuple[Term, ...], new: Sequence[Term]) -> tuple[Term, ...]:
    apart = _apart(old, new)
    if apart is not None and len(apart) > 1:
        return old if len(apart) == len(old) and _is_frame_block(old) else apart
    start = old if len(old) == 1 and _is_frame_block(old) else ()
    joined = _joined(start, [*old, *new])
    return old if start and joined is old[0] else (joined,)


def _apart(old: tuple[Term, ...], new: Sequence[Term]) -> tuple[Term, ...] | None:
    """One frame for each pattern of the terms; None where they are too many, or hold about as much as their join."""
    found: dict[Any, Term] = {}
    for term in (*old, *new):
        frame = term if _is_frame_block((term,)) else _joined((), [term])
        found.setdefault(tuple(_signature(frame.axes)), frame)
        if len(found) > _MOST_TERMS:
            return None
    frames = tuple(found.values())
    held = sum(frame.factors[0].size for frame in frames)
    return frames if held * _LEAST_GAIN <= _joined((), frames).factors[0].size else None


def _joined(old: tuple[Term, ...], terms: Sequence[Term]) -> Term:
    """One frame that holds all terms; the only term of `old` where that is a frame which does."""
    rank = len(terms[0].axes)
    dense = {i for i in range(rank) for term in terms if _is_fleeting(term.axes[i])}
    before = _signature(old[0].axes) if old else None
    while True:
        found = whole_axes(align(terms, dense=sorted(dense)), sorted(dense), terms)
        after = _signature(found.axes)
        if after == before:
            return old[0]
        lonely = {i for i in range(rank) if _is_lonely(after[i]) and not found.axes[i].is_plain}
        changed = {i for i in range(rank) if before is not None and after[i] != before[i]}
        if (lonely | changed) <= dense:
            break
        dense |= lonely | changed
    out = len(terms[0].out_axes)
    out_axes, in_axes = found.axes[:out], found.axes[out:]
    labels = in_order(found.labels, out_axes, in_axes)
    return Term((Factor(Frame(), tuple(labels)),), out_axes, in_axes)


def _is_fleeting(axis: IndexMap) -> bool:
    return isinstance(axis, Indexed) and isinstance(axis.array, Hole)


def _signature(axes: Sequence[IndexMap]) -> list[tuple[Any, ...]]:
    """For each axis its map, with a label described by its size and by the axes that it occurs on."""
    uses: dict[Label, tuple[int, ...]] = {}
    for i, axis in enumerate(axes):
        for label in axis.labels:
            uses[label] = (*uses.get(label, ()), i)
    signature = []
    for axis in axes:
        labels = tuple((label.size, uses[label]) for label in axis.labels)
        if isinstance(axis, Indexed):
            array = axis.array.tobytes() if isinstance(axis.array, np.ndarray) else id(axis.array)
            signature.append((array, labels))
        else:
            signature.append((axis.offset, tuple(stride for _, stride in axis.strides), labels))
    return signature


def _is_lonely(described: tuple[Any, ...]) -> bool:
    """Whether an axis has labels, none of which occurs on another axis."""
    labels = described[-1]
    return bool(labels) and all(len(set(uses)) == 1 for _, uses in labels)


def _aligned(frame: Term, terms: Sequence[Term]) -> Alignment:
    """What a frame shares with terms that it holds; a dense axis of it stays one, wherever their maps lead."""
    lonely = [i for i, described in enumerate(_signature(frame.axes)) if _is_lonely(described)]
    return align([frame, *terms], dense=lonely)


def fitted(tangent: StructuredTangent, frame: StructuredTangent) -> list[Any]:
    """The arrays of a frame for a tangent that it holds."""
    arrays: list[Any] = []
    for block, frames in zip(tangent.blocks, frame.blocks, strict=True):
        groups: list[list[Term]] = [[] for _ in frames]
        for term in block:
            groups[_place(term, frames)].append(term)
        arrays.extend(_fitted(group, own, frame.dtype) for group, own in zip(groups, frames, strict=True))
    return arrays


def _place(term: Term, frames: Sequence[Term]) -> int:
    """The number of the smallest frame that holds a term."""
    if len(frames) == 1:
        return 0
    fitting = [i for i, own in enumerate(frames) if _signature(_aligned(own, [term]).axes) == _signature(own.axes)]
    return min(fitting, key=lambda i: frames[i].factors[0].size)


def _fitted(terms: Sequence[Term], frame: Term, dtype: Any) -> Any:
    labels = frame.factors[0].labels
    shape = tuple(label.size for label in labels)
    if not terms:
        return assemble([], [], shape, dtype)
    found = _aligned(frame, terms)
    assert _signature(found.axes) == _signature(frame.axes), "a structure does not fit its frame"
    order = [view.labels[0] for view in found.views[0]]
    places = [order.index(label) for label in labels]
    views = [tuple(view[i] for i in places) for view in found.views[1:]]
    return assemble([term.factors for term in terms], views, shape, dtype)


def as_it_comes(frame: StructuredTangent, tangent: StructuredTangent) -> StructuredTangent:
    """The frame with its axes in the order in which the arrays of a hollow tangent come out; itself where it is so."""
    blocks = []
    for block, frames in zip(tangent.blocks, frame.blocks, strict=True):
        if len(block) == 1 and len(frames) == 1:
            frames = (_as_it_comes(frames[0], block[0], frame.dtype),)
        blocks.append(frames)
    unchanged = all(a is b for x, y in zip(blocks, frame.blocks, strict=True) for a, b in zip(x, y, strict=True))
    return frame if unchanged else replace(frame, blocks=tuple(blocks))


def _as_it_comes(frame: Term, term: Term, dtype: Any) -> Term:
    (factor,) = frame.factors
    found = _aligned(frame, [term])
    own = {view.labels[0]: other for view, other in zip(*found.views, strict=True)}
    if not all(isinstance(view, Affine) and view.is_plain for view in own.values()):
        return frame
    names = {view.labels[0]: label for label, view in own.items()}
    order = _order(term, [own[label].labels[0] for label in factor.labels], dtype)
    if set(order) != set(names) or len(names) != len(factor.labels):
        return frame
    labels = tuple(names[label] for label in order)
    return frame if labels == factor.labels else replace(frame, factors=(replace(factor, labels=labels),))


def _order(term: Term, keep: Sequence[Label], dtype: Any) -> tuple[Label, ...]:
    """The order of the labels of the contraction of a hollow term."""
    order: list[Label] = []

    def run(arrays: dict[int, Any]) -> Any:
        factors = [replace(f, array=arrays[f.array.place]) if isinstance(f.array, Hole) else f for f in term.factors]
        result = contract(factors, keep, dtype)
        order[:] = result.labels
        return result.array

    holes = [f.array for f in term.factors if isinstance(f.array, Hole)]
    jax.eval_shape(run, {hole.place: jax.ShapeDtypeStruct(hole.shape, hole.dtype) for hole in holes})
    return tuple(order)


def framed(frame: StructuredTangent, arrays: Sequence[Any]) -> StructuredTangent:
    """The tangent that a frame and its arrays stand for."""
    rest = iter(arrays)
    blocks = [
        tuple(replace(term, factors=(replace(term.factors[0], array=next(rest)),)) for term in block)
        for block in frame.blocks
    ]
    return replace(frame, blocks=tuple(blocks))


def frame_avals(frame: StructuredTangent) -> list[jax.ShapeDtypeStruct]:
    """The shapes and dtypes of the arrays of a frame."""
    return [
        jax.ShapeDtypeStruct(tuple(label.size for label in term.factors[0].labels), frame.dtype)
        for block in frame.blocks
        for term in block
    ]
