"""What kind of matrix a block is, told by its terms alone."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from symjac._algebra.index_map import Affine, Indexed, IndexMap, Label, is_static, spread, union
from symjac._algebra.reshape import flatten
from symjac._algebra.tangent import Term
from symjac._result.entries import skeleton
from symjac._result.stored import Layout

# The search for the rank tries every way to cut so many factors in two.
_MOST_FACTORS_TO_CUT = 10
# A matrix whose entries fill at least this share of its band is called banded, else sparse.
_FILLED = 0.25


@dataclass(frozen=True)
class BlockStructure:
    """The kind of one block.

    Attributes:
        kind: One of "zero", "identity", "scaled identity", "diagonal", "tridiagonal", "banded", "permutation",
            "selection", "block diagonal", "low rank", "diagonal plus low rank", "sparse", "dense".
        shape: The numbers of rows and of columns.
        entries: The number of stored values: at least the number of entries that are not structurally zero.
        band: The least and the greatest column minus row of an entry; None where it is not known.
        block_shape: The shape of the blocks of a block diagonal matrix.
        rank: A bound on the rank of the low rank part.
    """

    kind: str
    shape: tuple[int, int]
    entries: int
    band: tuple[int, int] | None = None
    block_shape: tuple[int, int] | None = None
    rank: int | None = None

    def __str__(self) -> str:
        """The kind and the shape in a few words."""
        detail = ""
        if self.kind == "banded" and self.band is not None:
            low, high = -self.band[0], self.band[1]
            detail = f"({low})" if low == high else f"({low}, {high})"
        elif self.kind == "block diagonal" and self.block_shape is not None:
            detail = f"({self.block_shape[0]} x {self.block_shape[1]})"
        elif self.rank is not None:
            detail = f"({self.rank})"
        return f"{self.kind}{detail} {self.shape[0]} x {self.shape[1]}"


@dataclass(frozen=True)
class Structure:
    """The kinds of all blocks of a Jacobian, and what follows for the whole matrix.

    Attributes:
        blocks: For each output leaf, for each input leaf, the kind of the block.
        shape: The numbers of rows and of columns of the whole matrix.
        band: The least and the greatest column minus row of an entry of the whole matrix; None where it is not known.
        outs: The names of the output leaves.
        ins: The names of the input leaves.
    """

    blocks: tuple[tuple[BlockStructure, ...], ...]
    shape: tuple[int, int]
    band: tuple[int, int] | None
    outs: tuple[str, ...] = ()
    ins: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of the only block, or of what all blocks make together."""
        kinds = [block.kind for row in self.blocks for block in row]
        if len(kinds) == 1:
            return kinds[0]
        if all(kind == "zero" for kind in kinds):
            return "zero"
        if self.is_diagonal:
            return "identity" if self.is_identity else "diagonal"
        return "tridiagonal" if self.is_tridiagonal else "blocks"

    @property
    def is_square(self) -> bool:
        """Whether there are as many rows as columns."""
        return self.shape[0] == self.shape[1]

    def _within(self, low: float, high: float) -> bool:
        return self.is_square and self.band is not None and low <= self.band[0] and self.band[1] <= high

    @property
    def is_identity(self) -> bool:
        """Whether every diagonal block is an identity, and every other one zero."""
        kinds = {(i, j): block.kind for i, row in enumerate(self.blocks) for j, block in enumerate(row)}
        return self.is_square and all(kind == ("identity" if i == j else "zero") for (i, j), kind in kinds.items())

    @property
    def is_diagonal(self) -> bool:
        """Whether the matrix is diagonal for every value of its arrays."""
        return self._within(0, 0)

    @property
    def is_tridiagonal(self) -> bool:
        """Whether the matrix is tridiagonal for every value of its arrays."""
        return self._within(-1, 1)

    @property
    def is_lower_triangular(self) -> bool:
        """Whether the matrix is lower triangular for every value of its arrays."""
        return self._within(-math.inf, 0)

    @property
    def is_upper_triangular(self) -> bool:
        """Whether the matrix is upper triangular for every value of its arrays."""
        return self._within(0, math.inf)

    @property
    def is_symmetric(self) -> bool:
        """Whether the matrix is symmetric for every value of its arrays; it is told of diagonal ones only."""
        return self.is_diagonal

    def __str__(self) -> str:
        """One line for each block, with the names of its leaves where there are several."""
        if len(self.blocks) == 1 and len(self.blocks[0]) == 1:
            return str(self.blocks[0][0])
        lines = []
        for i, row in enumerate(self.blocks):
            for j, block in enumerate(row):
                lines.append(f"output{_name(self.outs, i)} by input{_name(self.ins, j)}: {block}")
        return "\n".join(lines)


def _name(names: Sequence[str], i: int) -> str:
    return names[i] if i < len(names) else f" {i}"


_structures: weakref.WeakKeyDictionary[Layout, Structure] = weakref.WeakKeyDictionary()


def structure_of(layout: Layout) -> Structure:
    """The kinds of the blocks of a layout. They are found once."""
    found = _structures.get(layout)
    if found is None:
        found = _structures[layout] = _structure(layout)
    return found


def _structure(layout: Layout) -> Structure:
    shapes = [[(out.size, leaf.size) for leaf in layout.ins] for out in layout.outs]
    blocks = tuple(
        tuple(classify(skeleton(block), shapes[i][j]) for j, block in enumerate(row))
        for i, row in enumerate(layout.blocks)
    )
    bands = []
    for i, j, row, column in layout.offsets():
        block = blocks[i][j]
        if block.kind != "zero":
            bands.append(None if block.band is None else (block.band[0] + column - row, block.band[1] + column - row))
    return Structure(blocks, layout.shape, _hull(bands))


def _hull(bands: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    """The least band that holds all of them; None where one is unknown."""
    known = [band for band in bands if band is not None]
    if len(known) < len(bands):
        return None
    return min((low for low, _ in known), default=0), max((high for _, high in known), default=0)


def classify(terms: Sequence[Term], shape: tuple[int, int]) -> BlockStructure:
    """The kind of a sum of terms, as a matrix of the given shape."""
    if not terms:
        return BlockStructure("zero", shape, 0)
    entries = min(sum(map(_n_entries, terms)), shape[0] * shape[1])
    found = BlockStructure("dense", shape, entries, _hull([_band(term) for term in terms]))
    for way in (_on_the_diagonal, _one_label, _tridiagonal, _block_diagonal, _banded, _low_rank):
        kind = way(terms, found)
        if kind is not None:
            return kind
    return replace(found, kind="sparse") if 2 * entries <= shape[0] * shape[1] else found


def _n_entries(term: Term) -> int:
    return math.prod(label.size for label in term.axis_labels)


def _band(term: Term) -> tuple[int, int] | None:
    """The least and the greatest column minus row of the entries."""
    rows, columns = _flat(term.out_axes), _flat(term.in_axes)
    if rows is None or columns is None:
        return None
    if isinstance(rows, Affine) and isinstance(columns, Affine):
        strides = dict(columns.strides)
        for label, stride in rows.strides:
            strides[label] = strides.get(label, 0) - stride
        difference = Affine(1, columns.offset - rows.offset, tuple((label, s) for label, s in strides.items() if s))
        return difference.bounds()
    labels = union([rows.labels, columns.labels])
    if math.prod(label.size for label in labels) > 8 * max(_elements(rows), _elements(columns)):
        return None
    row, column = (spread(np.asarray(m.index()), m.labels, labels) for m in (rows, columns))
    valid = (row >= 0) & (row < rows.size) & (column >= 0) & (column < columns.size)
    difference = (column - row)[np.broadcast_to(valid, np.broadcast_shapes(row.shape, column.shape))]
    return (int(difference.min()), int(difference.max())) if difference.size else (0, 0)


def _flat(axes: Sequence[IndexMap]) -> IndexMap | None:
    """The position along all axes; None where it depends on arrays that are not known."""
    known = all(isinstance(axis, Affine) or is_static(axis.array) for axis in axes)
    return flatten(axes) if known else None


def _elements(index_map: IndexMap) -> int:
    return math.prod(label.size for label in index_map.labels)


def _on_the_diagonal(terms: Sequence[Term], found: BlockStructure) -> BlockStructure | None:
    if found.band != (0, 0) or found.shape[0] != found.shape[1] or found.shape[0] == 0:
        return None
    if len(terms) == 1 and _n_entries(terms[0]) == found.shape[0] and all(axis.stays_inside for axis in terms[0].axes):
        if not terms[0].factors:
            return replace(found, kind="identity")
        if not any(factor.labels for factor in terms[0].factors):
            return replace(found, kind="scaled identity")
    return replace(found, kind="diagonal")


def _one_label(terms: Sequence[Term], found: BlockStructure) -> BlockStructure | None:
    """One entry of value one at most in each row: a selection, or a permutation."""
    if len(terms) != 1 or terms[0].factors:
        return None
    rows, columns = _flat(terms[0].out_axes), _flat(terms[0].in_axes)
    if rows is None or not _injective(rows, terms[0]):
        return None
    complete = _n_entries(terms[0]) == found.shape[0] == found.shape[1]
    if complete and columns is not None and rows.stays_inside and columns.stays_inside:
        return replace(found, kind="permutation" if _injective(columns, terms[0]) else "selection")
    return replace(found, kind="selection")


def _injective(index_map: IndexMap, term: Term) -> bool:
    """Whether no two entries of a term are at the same position."""
    if set(index_map.labels) != set(term.axis_labels):
        return False
    if isinstance(index_map, Indexed):
        kept = index_map.array[(index_map.array >= 0) & (index_map.array < index_map.size)]
        return len(np.unique(kept)) == kept.size
    reach = 1
    for label, stride in sorted(index_map.strides, key=lambda pair: abs(pair[1])):
        if abs(stride) < reach:
            return False
        reach = abs(stride) * label.size
    return True


def _tridiagonal(terms: Sequence[Term], found: BlockStructure) -> BlockStructure | None:
    if found.band is None or found.shape[0] != found.shape[1] or found.shape[0] <= 2:
        return None
    return replace(found, kind="tridiagonal") if -1 <= found.band[0] and found.band[1] <= 1 else None


def _banded(terms: Sequence[Term], found: BlockStructure) -> BlockStructure | None:
    if found.band is None:
        return None
    low, high = found.band
    width = high - low + 1
    filled = width * min(found.shape) * _FILLED <= found.entries
    return replace(found, kind="banded") if filled and 2 * width <= max(found.shape) else None


def _block_diagonal(terms: Sequence[Term], found: BlockStructure) -> BlockStructure | None:
    """Dense along some axes, and a delta along others that all terms share."""
    shared = None
    for term in terms:
        pairs = _matched_axes(term)
        shared = pairs if shared is None else [pair for pair in shared if pair in pairs]
    if not shared:
        return None
    outs, ins = zip(*shared, strict=True)
    rows = math.prod(a.size for i, a in enumerate(terms[0].out_axes) if i not in outs)
    columns = math.prod(a.size for j, a in enumerate(terms[0].in_axes) if j not in ins)
    if rows * columns == 1 or (2 * found.entries < rows * columns * math.prod(terms[0].out_axes[i].size for i in outs)):
        return None
    return replace(found, kind="block diagonal", block_shape=(rows, columns))


def _matched_axes(term: Term) -> list[tuple[int, int]]:
    """The pairs of a plain out axis and a plain in axis of the same label, on no other axis."""
    uses = [label for axis in term.axes for label in axis.labels]
    places = {axis.labels[0]: i for i, axis in enumerate(term.out_axes) if axis.is_plain}
    return [
        (places[axis.labels[0]], j)
        for j, axis in enumerate(term.in_axes)
        if axis.is_plain and axis.labels[0] in places and uses.count(axis.labels[0]) == 2
    ]


def _low_rank(terms: Sequence[Term], found: BlockStructure) -> BlockStructure | None:
    diagonal = [term for term in terms if _band(term) == (0, 0) and found.shape[0] == found.shape[1]]
    rest = [term for term in terms if not any(term is other for other in diagonal)]
    ranks = [rank for rank in map(_rank, rest) if rank is not None]
    if not rest or len(ranks) < len(rest):
        return None
    rank = sum(ranks)
    if 2 * rank > min(found.shape):
        return None
    return replace(found, kind="diagonal plus low rank" if diagonal else "low rank", rank=rank)


def _rank(term: Term) -> int | None:
    """A bound on the rank of a term without deltas: the cheapest cut between its rows and its columns."""
    out_labels = {label for axis in term.out_axes for label in axis.labels}
    in_labels = {label for axis in term.in_axes for label in axis.labels}
    factors = [factor for factor in term.factors if factor.labels]
    if out_labels & in_labels or len(factors) > _MOST_FACTORS_TO_CUT:
        return None
    best: int | None = None
    for sides in itertools.product((False, True), repeat=len(factors)):
        left, right = set(out_labels), set(in_labels)
        for factor, side in zip(factors, sides, strict=True):
            (right if side else left).update(factor.labels)
        cut = _product(left & right)
        best = cut if best is None else min(best, cut)
    return best


def _product(labels: set[Label]) -> int:
    return math.prod(label.size for label in labels)
