"""The form in which terms are kept: arrays on the one side, and on the other a layout that can be hashed and compared.

A `Term` refers to its labels by identity, and holds index arrays that are known while tracing. In a layout labels are
numbers in order of first appearance and known arrays are compared by their contents, so that two traces of the same
program give equal layouts: then the results have equal tree structures, and JAX compiles nothing twice for them.
"""

from __future__ import annotations

import functools
import hashlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from symjac._algebra.factor import Factor
from symjac._algebra.index_map import Affine, Indexed, IndexMap, Label, is_static
from symjac._algebra.tangent import StructuredTangent, Term

BATCH_MESSAGE = (
    "an array of this Jacobian has the shape {} where {} was expected: a Jacobian that left a `jax.vmap` is a batch of "
    "Jacobians, to be used under another `jax.vmap`."
)


@dataclass(frozen=True, eq=False)
class StaticArray:
    """A numpy array that is compared by its contents."""

    array: np.ndarray
    digest: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        """Whether the other array has the same contents."""
        return self is other or (isinstance(other, StaticArray) and self.digest == other.digest)

    def __hash__(self) -> int:
        """A hash of the contents."""
        return hash(self.digest)


def static_array(value: Any) -> StaticArray:
    """Returns a number or a numpy array in a form that can be compared."""
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    return StaticArray(array, (array.shape, str(array.dtype), hashlib.sha1(array.tobytes()).digest()))


ArrayRef = int | StaticArray
"""The number of an array among the leaves, or an array that is known while tracing."""


@dataclass(frozen=True)
class StoredAxis:
    """An index map: affine with a stride for each label, or given by an array where `index` is not None."""

    size: int
    labels: tuple[int, ...]
    offset: int = 0
    strides: tuple[int, ...] = ()
    index: ArrayRef | None = None
    stays_inside: bool = True


@dataclass(frozen=True)
class StoredFactor:
    """A factor, with the numbers of its labels."""

    array: ArrayRef
    labels: tuple[int, ...]
    precision: Any


@dataclass(frozen=True)
class StoredTerm:
    """A term, with the numbers of its factors in the block."""

    factors: tuple[int, ...]
    out_axes: tuple[StoredAxis, ...]
    in_axes: tuple[StoredAxis, ...]


@dataclass(frozen=True)
class StoredBlock:
    """A sum of terms that share labels and factors.

    Attributes:
        sizes: The size of each label.
        factors: The factors of all terms.
        terms: The terms.
        dtype: The dtype of the block.
        weak_type: Whether the materialised block is of weak type.
    """

    sizes: tuple[int, ...]
    factors: tuple[StoredFactor, ...]
    terms: tuple[StoredTerm, ...]
    dtype: np.dtype
    weak_type: bool = False


@dataclass(frozen=True)
class Leaf:
    """The type of an input or of an output."""

    shape: tuple[int, ...]
    dtype: np.dtype
    weak_type: bool = False

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Layout:
    """Everything about a Jacobian but its arrays and the trees of its inputs and outputs.

    Attributes:
        outs: The types of the outputs.
        ins: The types of the inputs.
        blocks: For each output, for each input, the block.
    """

    outs: tuple[Leaf, ...]
    ins: tuple[Leaf, ...]
    blocks: tuple[tuple[StoredBlock, ...], ...]

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.outs, self.ins, self.blocks))

    def __hash__(self) -> int:
        """A hash of the contents, computed once."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Whether the other layout describes the same."""
        if self is other:
            return True
        if not isinstance(other, Layout) or self._hash != other._hash:
            return False
        return (self.outs, self.ins, self.blocks) == (other.outs, other.ins, other.blocks)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns of the whole matrix."""
        return sum(leaf.size for leaf in self.outs), sum(leaf.size for leaf in self.ins)

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the whole matrix."""
        from symjac._algebra.factor import common_dtype

        dtypes = [block.dtype for row in self.blocks for block in row]
        return common_dtype(*dtypes) if dtypes else np.dtype(np.float32)

    def offsets(self) -> Iterator[tuple[int, int, int, int]]:
        """Gives, for each block, its numbers and its first row and column in the whole matrix."""
        row = 0
        for i, out in enumerate(self.outs):
            column = 0
            for j, leaf in enumerate(self.ins):
                yield i, j, row, column
                column += leaf.size
            row += out.size

    def transposed(self) -> Layout:
        """The layout of the transposed Jacobian, of the same arrays."""
        blocks = tuple(tuple(_swapped(self.blocks[i][j]) for i in range(len(self.outs))) for j in range(len(self.ins)))
        return interned(Layout(self.ins, self.outs, blocks))


def _swapped(block: StoredBlock) -> StoredBlock:
    return replace(block, terms=tuple(StoredTerm(t.factors, t.in_axes, t.out_axes) for t in block.terms))


_known: weakref.WeakValueDictionary[Layout, Layout] = weakref.WeakValueDictionary()


def interned(layout: Layout) -> Layout:
    """Returns the one object that stands for all equal layouts, so that comparing them is fast."""
    return _known.setdefault(layout, layout)


class _Arrays:
    """Numbers arrays by identity."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []
        self.numbers: dict[int, int] = {}

    def ref(self, array: Any) -> ArrayRef:
        if is_static(array):
            return static_array(array)
        number = self.numbers.setdefault(id(array), len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(array)
        return number


def pack(
    tangents: Sequence[StructuredTangent | None], outs: Sequence[Leaf], ins: Sequence[Leaf], active: Sequence[int]
) -> tuple[Layout, tuple[Any, ...]]:
    """Takes structured tangents apart.

    Args:
        tangents: The tangent of each output; None where it has none.
        outs: The types of the outputs.
        ins: The types of the inputs.
        active: The numbers of the inputs that the blocks of the tangents belong to.

    Returns:
        The layout and the arrays, each once.
    """
    arrays = _Arrays()
    rows = []
    for tangent, out in zip(tangents, outs, strict=True):
        blocks = dict(zip(active, tangent.blocks, strict=True)) if tangent is not None else {}
        rows.append(tuple(_pack_block(blocks.get(j, ()), out, arrays) for j in range(len(ins))))
    return interned(Layout(tuple(outs), tuple(ins), tuple(rows))), tuple(arrays.arrays)


def _pack_block(terms: Sequence[Term], out: Leaf, arrays: _Arrays) -> StoredBlock:
    numbers: dict[Label, int] = {}
    factors: dict[int, int] = {}
    stored_factors: list[StoredFactor] = []

    def number(label: Label) -> int:
        return numbers.setdefault(label, len(numbers))

    def axis(index_map: IndexMap) -> StoredAxis:
        labels = tuple(number(label) for label in index_map.labels)
        if isinstance(index_map, Affine):
            strides = tuple(stride for _, stride in index_map.strides)
            return StoredAxis(index_map.size, labels, index_map.offset, strides)
        index = arrays.ref(index_map.array)
        return StoredAxis(index_map.size, labels, index=index, stays_inside=index_map.stays_inside)

    def factor(own: Factor) -> int:
        if id(own) not in factors:
            factors[id(own)] = len(stored_factors)
            labels = tuple(number(label) for label in own.labels)
            stored_factors.append(StoredFactor(arrays.ref(own.array), labels, own.precision))
        return factors[id(own)]

    stored = tuple(
        StoredTerm(
            out_axes=tuple(map(axis, term.out_axes)),
            in_axes=tuple(map(axis, term.in_axes)),
            factors=tuple(map(factor, term.factors)),
        )
        for term in terms
    )
    return StoredBlock(tuple(label.size for label in numbers), tuple(stored_factors), stored, out.dtype, out.weak_type)


def unpack(layout: Layout, arrays: Sequence[Any]) -> list[list[tuple[Term, ...]]]:
    """The terms of each block: the inverse of `pack`.

    Raises:
        ValueError: where the arrays do not fit, as after a `vmap` that the caller is outside of.
    """
    return [[unpack_block(block, arrays) for block in row] for row in layout.blocks]


def unpack_block(block: StoredBlock, arrays: Sequence[Any]) -> tuple[Term, ...]:
    """The terms of one block."""
    labels = [Label(n) for n in block.sizes]

    def lookup(ref: ArrayRef, own: Sequence[int]) -> Any:
        array = ref.array if isinstance(ref, StaticArray) else arrays[ref]
        expected = tuple(block.sizes[n] for n in own)
        if np.shape(array) != expected:
            raise ValueError(BATCH_MESSAGE.format(np.shape(array), expected))
        return array

    def axis(own: StoredAxis) -> IndexMap:
        names = tuple(labels[n] for n in own.labels)
        if own.index is None:
            return Affine(own.size, own.offset, tuple(zip(names, own.strides, strict=True)))
        return Indexed(own.size, lookup(own.index, own.labels), names, own.stays_inside)

    factors = [
        Factor(lookup(f.array, f.labels), tuple(labels[n] for n in f.labels), f.precision) for f in block.factors
    ]
    return tuple(
        Term(tuple(factors[n] for n in t.factors), tuple(map(axis, t.out_axes)), tuple(map(axis, t.in_axes)))
        for t in block.terms
    )


def with_static_indices(layout: Layout, arrays: Sequence[Any]) -> Layout:
    """The layout in which index arrays among the leaves, whose values are known, are static."""

    def axis(own: StoredAxis) -> StoredAxis:
        return replace(own, index=static_array(np.asarray(arrays[own.index]))) if isinstance(own.index, int) else own

    return map_axes(layout, axis) if has_traced_indices(layout) else layout


def map_axes(layout: Layout, function: Callable[[StoredAxis], StoredAxis]) -> Layout:
    """The layout with each axis of each term replaced."""

    def block(own: StoredBlock) -> StoredBlock:
        terms = tuple(
            StoredTerm(t.factors, tuple(map(function, t.out_axes)), tuple(map(function, t.in_axes))) for t in own.terms
        )
        return replace(own, terms=terms)

    return interned(replace(layout, blocks=tuple(tuple(map(block, row)) for row in layout.blocks)))


def has_traced_indices(layout: Layout) -> bool:
    """Whether a position depends on an array among the leaves."""
    axes = [axis for row in layout.blocks for b in row for t in b.terms for axis in (*t.out_axes, *t.in_axes)]
    return any(isinstance(axis.index, int) for axis in axes)
