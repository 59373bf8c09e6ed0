"""The algebra: a structured tangent is a sum of einsum terms.

For an intermediate of shape ``S`` and an input leaf of shape ``P`` one term is the array

    J[s, p] = sum over labels t of  product(factors[t...]) * prod_i [s_i == E_i(t)] * prod_j [p_j == F_j(t)]

Glossary:
    label: An index with a size.
    factor: An array whose axes carry labels.
    index map: Which position along an axis belongs to given label values; ``E`` on out axes, ``F`` on in axes.
    delta: A label that both an out axis and an in axis depend on (a Kronecker delta).
    contracted label: One that no axis depends on; it is summed over.
    uniform label: One that no factor carries; the term does not change along it.
    plain axis: An axis that is one label, one to one.
    pull: To read an array at the positions that an out axis takes.
    identity: The term without factors whose out axes and in axes are the same labels.

Nothing here multiplies big arrays: every operation edits labels and maps, slices, or appends a factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from types import NotImplementedType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from symjac._algebra.factor import Factor, cast, multiply, scalar, zeroed
from symjac._algebra.index_map import (
    Affine,
    Indexed,
    IndexMap,
    Label,
    compose,
    indexed,
    intersect,
    is_static,
    plain,
    spread,
    union,
)
from symjac._algebra.reading import as_mask, equal_mask, inside_mask, pull, replace_size, solve
from symjac._algebra.reshape import digits, flatten, fusible, regroup, straddling


@dataclass(frozen=True, eq=False)
class Term:
    """One einsum term of a Jacobian block; see the module's docstring for its meaning."""

    factors: tuple[Factor, ...]
    out_axes: tuple[IndexMap, ...]
    in_axes: tuple[IndexMap, ...]

    @cached_property
    def axes(self) -> tuple[IndexMap, ...]:
        """The out axes, then the in axes."""
        return self.out_axes + self.in_axes

    @cached_property
    def axis_labels(self) -> tuple[Label, ...]:
        """Every label that some axis depends on."""
        return union(axis.labels for axis in self.axes)

    @property
    def labels(self) -> tuple[Label, ...]:
        """Every label of the term."""
        return union([self.axis_labels, *(factor.labels for factor in self.factors)])

    @property
    def stored(self) -> int:
        """The number of elements of the largest factor, or of the deltas where there is none."""
        if not self.factors:
            return max((label.size for label in self.axis_labels), default=1)
        return max(factor.size for factor in self.factors)

    @property
    def is_pending(self) -> bool:
        """Whether a contraction is still to be done."""
        on_axes = set(self.axis_labels)
        return any(label not in on_axes for factor in self.factors for label in factor.labels)

    # -- factors ------------------------------------------------------------------------------------------------

    def times(self, factor: Factor) -> Term:
        """Appends a factor, at once multiplied into the last one where both carry the same labels."""
        if self.factors and set(self.factors[-1].labels) == set(factor.labels):
            return replace(self, factors=(*self.factors[:-1], multiply(self.factors[-1], factor)))
        if not factor.labels:
            for i, own in enumerate(self.factors):
                if not own.labels:
                    return replace(self, factors=(*self.factors[:i], multiply(own, factor), *self.factors[i + 1 :]))
            return replace(self, factors=(factor, *self.factors))
        return replace(self, factors=(*self.factors, factor))

    def scaled(self, array: Any) -> Term:
        """The elementwise product with an array that broadcasts against the out axes."""
        return self.times(pull(array, self.out_axes))

    def divided(self, array: Any) -> Term:
        """The elementwise quotient by an array that broadcasts against the out axes."""
        divisor = pull(array, self.out_axes, fill=1)
        if self.factors and set(self.factors[-1].labels) == set(divisor.labels):
            last = self.factors[-1]
            if last.dtype == divisor.dtype and not (is_static(last.array) and is_static(divisor.array)):
                quotient = lax.div(jnp.asarray(last.array), jnp.asarray(divisor.over(last.labels)))
                return replace(self, factors=(*self.factors[:-1], Factor(quotient, last.labels, last.precision)))
        return self.times(Factor(lax.div(jnp.ones_like(divisor.array), jnp.asarray(divisor.array)), divisor.labels))

    def masked(self, mask: Any) -> Term:
        """Zero where the mask (broadcasting against the out axes) is false, without multiplying what is there.

        Factors that carry exactly what the mask carries, or less, or more, are zeroed, so that a NaN or inf in them
        vanishes; where there is none the mask itself becomes a factor.
        """
        return self.zeroed(pull(mask, self.out_axes))

    def zeroed(self, mask: Factor) -> Term:
        """Zero where a mask, which is a factor of numbers or of booleans, is; see `masked`."""
        carried = set(mask.labels)
        above = [f for f in self.factors if set(f.labels) > carried]
        within = [f for f in self.factors if set(f.labels) == carried or (set(f.labels) < carried and not f.is_static)]
        others = [f for f in self.factors if f not in above and f not in within]
        masked = [zeroed(factor, mask) for factor in above]
        if within:
            masked.append(zeroed(reduce(multiply, within), mask))
        return replace(self, factors=(*others, *(masked or [as_mask(mask.array, mask.labels)])))

    # -- labels -------------------------------------------------------------------------------------------------

    def substitute(self, inner: Mapping[Label, IndexMap]) -> Term:
        """The term after each label is replaced by a map of new labels.

        Values of the maps outside of the label's range contribute nothing: a factor is filled with zeros there, a plain
        axis drops them, and where neither carries the label a mask is appended.
        """
        if not inner:
            return self
        carried = {label for factor in self.factors for label in factor.labels}
        carried |= {axis.labels[0] for axis in self.axes if axis.is_plain}
        guarded = frozenset(label for label in inner if label in carried)
        on_axes = set(self.axis_labels)
        factors = [factor.substitute(inner) for factor in self.factors]
        for label, index_map in inner.items():
            if not index_map.stays_inside and label not in guarded and label not in on_axes:
                factors.append(inside_mask(replace_size(index_map, label.size)))
        return Term(
            tuple(factors),
            tuple(compose(axis, inner, guarded) for axis in self.out_axes),
            tuple(compose(axis, inner, guarded) for axis in self.in_axes),
        )

    def solved(self, inner: Mapping[Label, IndexMap]) -> Term:
        """`substitute`, where a label that no axis depends on after that, by the values of a map, is summed over."""
        return self.substitute(inner).counted([label for label in self.labels if label not in inner])

    def _without_axes(self, axes: Sequence[int]) -> Term:
        return replace(self, out_axes=tuple(a for i, a in enumerate(self.out_axes) if i not in axes))

    def counted(self, before: Sequence[Label]) -> Term:
        """Multiplies by the sizes of the labels of `before` that nothing carries any more: they are summed over."""
        left = set(self.labels)
        size = math.prod(label.size for label in before if label not in left)
        return self if size == 1 else self.times(scalar(size, np.int32))

    # -- out axes -----------------------------------------------------------------------------------------------

    def sum_axes(self, axes: Sequence[int]) -> Term:
        """Sums over out axes."""
        masks = [inside_mask(self.out_axes[i]) for i in axes if not self.out_axes[i].stays_inside]
        term = self._without_axes(axes)
        for mask in masks:
            term = term.zeroed(mask)
        return term.counted(self.labels)

    def transpose(self, permutation: Sequence[int]) -> Term:
        """Permutes the out axes."""
        return replace(self, out_axes=tuple(self.out_axes[i] for i in permutation))

    def broadcast(self, shape: Sequence[int], dimensions: Sequence[int]) -> Term:
        """`lax.broadcast_in_dim`: new axes get uniform labels, and so do stretched axes of size 1."""
        stretched = [i for i, d in enumerate(dimensions) if self.out_axes[i].size != shape[d]]
        kept = {d: self.out_axes[i] for i, d in enumerate(dimensions) if i not in stretched}
        term = self.sum_axes(stretched)
        return replace(
            term, out_axes=tuple(kept[d] if d in kept else plain(Label(int(n))) for d, n in enumerate(shape))
        )

    def restrict(self, axis: int, start: int, stride: int, count: int) -> Term | None:
        """Keeps ``count`` positions ``start + stride * i`` of an out axis; a negative stride reverses it."""
        start, stride, count = int(start), int(stride), int(count)
        own = self.out_axes[axis]
        if isinstance(own, Affine) and len(own.strides) <= 1:
            met = intersect(own, Affine(own.size, start, ((Label(count), stride),)))
            if met is None:
                return None
            inner, position, _ = met
            term = self if not own.strides or inner.is_plain else self.solved({own.labels[0]: inner})
            if own.strides and inner.is_plain:
                position = replace(position, strides=tuple((own.labels[0], s) for _, s in position.strides))
            return term._with_axis(axis, position)
        if count == 1 and isinstance(own, Affine):
            found = solve(own, Affine(own.size, start, ()))
            if found is not NotImplemented and found[1] is None:
                is_met = all(digit.stays_inside for digit in found[0].values())
                return self.solved(found[0])._with_axis(axis, Affine(1, 0, ())) if is_met else None
        if stride == 1 or (isinstance(own, Affine) and all(s % stride == 0 for _, s in own.strides)):
            if isinstance(own, Affine) and (own.offset - start) % stride == 0:
                strides = tuple((label, s // stride) for label, s in own.strides)
                return self._with_axis(axis, Affine(count, (own.offset - start) // stride, strides))
        index = own.index()
        fits = ((index - start) % stride == 0) & (index >= 0) & (index < own.size)
        moved = (index - start) // stride
        moved = np.where(fits, moved, -1) if is_static(index) else jnp.where(fits, moved, -1)
        return self._with_axis(axis, indexed(count, moved, own.labels))

    def _with_axis(self, axis: int, index_map: IndexMap) -> Term:
        return replace(self, out_axes=(*self.out_axes[:axis], index_map, *self.out_axes[axis + 1 :]))

    def place(self, axis: int, offset: int, size: int, scale: int = 1) -> Term | None:
        """Moves position ``i`` of an out axis to ``scale * i + offset`` of an axis of another size; others are zero."""
        own = self.out_axes[axis]
        if isinstance(own, Affine) and not own.stays_inside:  # what is outside must not be moved inside
            if len(own.strides) <= 1:
                inside = self.restrict(axis, 0, 1, own.size)
                return None if inside is None else inside.place(axis, offset, size, scale)
            own = Indexed(own.size, own.index(), own.labels)
        moved = own.shifted(scale=int(scale), offset=int(offset), size=int(size))
        term = self._with_axis(axis, moved)
        if isinstance(moved, Affine) and not moved.stays_inside:
            return term.restrict(axis, 0, 1, size)
        return term

    def read(self, positions: Mapping[int, IndexMap]) -> Term | NotImplementedType:
        """Reads out axes at given positions (a gather); those axes disappear, the positions' labels stay.

        Declines where an axis cannot be solved for its labels (several labels that overlap, or a traced scatter).
        """
        inner: dict[Label, IndexMap] = {}
        masks: list[Factor] = []
        for axis, position in positions.items():
            solved = solve(self.out_axes[axis], position)
            if solved is NotImplemented:
                return NotImplemented
            found, hit = solved
            masks.extend([] if hit is None else [hit])
            for label, index_map in found.items():
                if label in inner:
                    masks.append(equal_mask(inner[label], index_map))
                else:
                    inner[label] = index_map
        term = self._without_axes(list(positions)).solved(inner)
        for mask in masks:
            term = term.zeroed(mask)
        return term

    def reshape(self, old: Sequence[int], new: Sequence[int]) -> Term:
        """Splits and merges out axes; labels are split with them, and deltas stay."""
        term: Term = self
        position = 0
        for old_group, new_group in regroup(old, new):
            group = term.out_axes[position : position + len(old_group)]
            if not new_group:
                term = term.sum_axes([position])
                continue
            if list(old_group) == list(new_group):
                position += len(old_group)
                continue
            flat = flatten(group)
            inner = straddling(flat, new_group)
            if inner:
                term = term.substitute(inner)
                flat = flatten(term.out_axes[position : position + len(old_group)])
            axes = digits(flat, new_group)
            term = replace(
                term, out_axes=(*term.out_axes[:position], *axes, *term.out_axes[position + len(old_group) :])
            )
            if len(new_group) == 1:
                term = term._fused(position)
            position += len(new_group)
        return term

    def _fused(self, axis: int) -> Term:
        """One label instead of several, where they occur together everywhere."""
        flat = self.out_axes[axis]
        if not isinstance(flat, Affine) or not fusible(flat, self.axes, self.factors):
            return self
        label = Label(flat.size)
        together = flat.labels

        def rewrite(index_map: IndexMap) -> IndexMap:
            if not isinstance(index_map, Affine) or together[-1] not in index_map.labels:
                return index_map
            unit = dict(index_map.strides)[together[-1]]
            strides = tuple((each, s) for each, s in index_map.strides if each not in together)
            return Affine(index_map.size, index_map.offset, (*strides, (label, unit)))

        def merge(factor: Factor) -> Factor:
            if together[-1] not in factor.labels:
                return factor
            rest = tuple(each for each in factor.labels if each not in together)
            array = spread(factor.array, factor.labels, (*rest, *together))
            return Factor(
                jnp.reshape(array, (*(each.size for each in rest), label.size)), (*rest, label), factor.precision
            )

        return Term(
            tuple(map(merge, self.factors)), tuple(map(rewrite, self.out_axes)), tuple(map(rewrite, self.in_axes))
        )

    def swapped(self) -> Term:
        """The transposed Jacobian's term."""
        return Term(self.factors, self.in_axes, self.out_axes)


@dataclass(frozen=True, eq=False)
class StructuredTangent:
    """The Jacobian of one intermediate with respect to every input leaf, as sums of terms.

    Attributes:
        shape: The shape of the intermediate.
        dtype: Its dtype.
        in_shapes: The shapes of the input leaves.
        blocks: For each input leaf the terms whose sum is the Jacobian; none where it is zero.
        is_linear: Whether the intermediate is linear in the tangents. One that is not holds its value for each basis
            vector, and no rule may take it.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    in_shapes: tuple[tuple[int, ...], ...]
    blocks: tuple[tuple[Term, ...], ...]
    is_linear: bool = True

    @property
    def is_zero(self) -> bool:
        """Whether it is zero with respect to every leaf."""
        return not any(self.blocks)

    @property
    def size(self) -> int:
        """The number of elements of the intermediate."""
        return math.prod(self.shape)

    def map(
        self,
        function: Callable[[Term], Term | NotImplementedType | None],
        *,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
    ) -> StructuredTangent | NotImplementedType:
        """Applies a linear operation on the out axes to each term.

        Args:
            function: From term to term; None where the term vanishes, NotImplemented to decline.
            shape: The new shape, where it changes.
            dtype: The new dtype, where it changes.
        """
        shape = self.shape if shape is None else tuple(map(int, shape))
        blocks = []
        for block in self.blocks:
            terms = [] if 0 in shape or 0 in self.shape else [function(term) for term in block]
            if any(term is NotImplemented for term in terms):
                return NotImplemented
            blocks.append(tuple(term for term in terms if term is not None and not _vanishes(term)))
        return StructuredTangent(shape, np.dtype(self.dtype if dtype is None else dtype), self.in_shapes, tuple(blocks))

    def scaled(self, array: Any, *, shape: Sequence[int] | None = None) -> StructuredTangent:
        """The elementwise product with an array that broadcasts against the shape."""
        array = array if np.dtype(array.dtype) == np.bool_ else cast(array, array.dtype)
        result = self.map(lambda term: term.scaled(array), shape=shape)
        assert result is not NotImplemented
        return result

    def cast(self, dtype: Any) -> StructuredTangent:
        """The same terms for an intermediate of another dtype; values are converted where they are computed."""
        return replace(self, dtype=np.dtype(dtype))


def _vanishes(term: Term) -> bool:
    return any(label.size == 0 for label in term.labels)


def zero(shape: Sequence[int], dtype: Any, in_shapes: Sequence[tuple[int, ...]]) -> StructuredTangent:
    """The tangent of what does not depend on the inputs."""
    return StructuredTangent(tuple(shape), np.dtype(dtype), tuple(in_shapes), tuple(() for _ in in_shapes))


def identity(leaf: int, dtype: Any, in_shapes: Sequence[tuple[int, ...]]) -> StructuredTangent:
    """The tangent of one input leaf: the identity, which has no factors."""
    shape = in_shapes[leaf]
    axes = tuple(plain(Label(n)) for n in shape)
    block = (Term((), axes, axes),) if 0 not in shape else ()
    blocks = tuple(block if i == leaf else () for i in range(len(in_shapes)))
    return replace(zero(shape, dtype, in_shapes), blocks=blocks)
