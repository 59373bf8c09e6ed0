"""Windows that slide along axes: the affine maps that they read along, and the range that several of them reach."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symjac._algebra.factor import Factor
from symjac._algebra.index_map import Affine, IndexMap, Label, plain
from symjac._algebra.materialise import assemble
from symjac._algebra.reading import solve
from symjac._algebra.tangent import StructuredTangent, Term

# Labels that meet on one axis are replaced by one label for their range where that saves more than this.
_MOST_OVERLAP = 2


@dataclass(frozen=True)
class Slide:
    """A window that slides along one axis.

    Result position ``o`` and place ``k`` within the window read entry ``(stride o + dilation k - low) / base``.

    Attributes:
        size: The size of the axis.
        window: The size of the window.
        count: The number of result positions.
    """

    size: int
    window: int
    count: int
    stride: int
    low: int
    base: int
    dilation: int

    @property
    def is_trivial(self) -> bool:
        """Whether each entry is read where it is."""
        return self.window == 1 and self.stride == 1 and self.low == 0 and self.base == 1 and self.count == self.size

    @property
    def extent(self) -> int:
        """How far the windows reach along the padded axis."""
        return self.stride * max(self.count - 1, 0) + self.dilation * max(self.window - 1, 0) + 1

    def position(self, o: Label, k: Label) -> Affine:
        """The position along the padded axis."""
        strides = ((o, self.stride), (k, self.dilation))
        return Affine(self.extent, 0, tuple((label, step) for label, step in strides if label.size > 1))

    def padded(self, x: StructuredTangent, axis: int) -> StructuredTangent:
        """The tangent of the padded and dilated array, as far as the windows reach."""
        shape = [self.extent if i == axis else n for i, n in enumerate(x.shape)]
        result = x.map(lambda term: term.place(axis, self.low, self.extent, self.base), shape=shape)
        assert isinstance(result, StructuredTangent)
        return result

    def of_array(self, o: Label, k: Label) -> tuple[Label, IndexMap]:
        """A label for the axis of an array, and its value at a position and a place; outside where there is padding."""
        label = Label(self.size)
        solution = solve(Affine(self.extent, self.low, ((label, self.base),)), self.position(o, k))
        assert isinstance(solution, tuple)
        return label, solution[0][label]


def slides_of(
    sizes: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base: Sequence[int] | None,
    dilation: Sequence[int] | None,
) -> list[Slide]:
    """The slide of each axis; one entry an axis in each argument, where None stands for ones."""
    found = []
    for i, (n, k) in enumerate(zip(sizes, window, strict=True)):
        b, d = (1 if base is None else base[i]), (1 if dilation is None else dilation[i])
        low, high = (int(side) for side in padding[i])
        padded = (max((n - 1) * b + 1, 0) if n else 0) + low + high
        span = (k - 1) * d + 1 if k else 0
        count = (padded - span) // strides[i] + 1 if padded >= span else 0
        found.append(Slide(n, k, count, int(strides[i]), low, b, d))
    return found


def narrow(term: Term, dtype: Any) -> Term:
    """Replaces labels that meet on one axis and nowhere else by one label for their range, where that saves much.

    Two convolutions by windows of 3 reach 5 entries along 9 pairs of places; ten of them would reach 21 along 59049.
    """
    counts: dict[Label, int] = {}
    for axis in term.axes:
        for label in axis.labels:
            counts[label] = counts.get(label, 0) + 1
    views: dict[int, Affine] = {}
    axes: list[IndexMap] = list(term.axes)
    saved = 1.0
    for i, axis in enumerate(term.axes):
        own = [label for label in axis.labels if counts[label] == 1]
        if not isinstance(axis, Affine) or len(own) < 2 or any(label.size == 0 for label in axis.labels):
            continue
        views[i], axes[i], ratio = _narrowed(axis, own)
        saved *= ratio
    if saved <= _MOST_OVERLAP:
        return term
    return _with_views(term, views, axes, dtype)


def _narrowed(axis: Affine, own: Sequence[Label]) -> tuple[Affine, Affine, float]:
    """The view of a new label by the labels of an axis, the axis by the new label, and how much smaller that is."""
    private = Affine(0, 0, tuple((label, step) for label, step in axis.strides if label in own))
    unit = math.gcd(*(step for _, step in private.strides))
    low, high = private.bounds()
    reach, count = (high - low) // unit + 1, math.prod(label.size for label in own)
    if reach >= axis.size:
        return axis, plain(Label(axis.size)), count / axis.size
    label = Label(reach)
    view = Affine(reach, -low // unit, tuple((each, step // unit) for each, step in private.strides))
    rest = tuple((each, step) for each, step in axis.strides if each not in own)
    return view, Affine(axis.size, axis.offset + low, (*rest, (label, unit))), count / reach


def _with_views(term: Term, views: Mapping[int, Affine], axes: Sequence[IndexMap], dtype: Any) -> Term:
    """The term contracted to one factor over new labels for some axes, and over what it carried on the others."""
    new = {i: next(label for label in axes[i].labels if label not in term.labels) for i in views}
    on_new = {label for axis in axes for label in axis.labels}
    carried = {label for factor in term.factors for label in factor.labels}
    carried |= {label for i, view in views.items() for label in view.labels if new[i].size == axes[i].size}
    kept = [label for label in term.axis_labels if label in carried and label in on_new]
    every = [*map(plain, kept), *views.values()]
    labels = (*kept, *new.values())
    array = assemble([term.factors], [every], [label.size for label in labels], dtype)
    rank = len(term.out_axes)
    return Term((Factor(array, labels),), tuple(axes[:rank]), tuple(axes[rank:]))
