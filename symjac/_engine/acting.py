"""Linear functions that act on some out axes: only the factors that carry those axes are given to the function.

A delta on such an axis becomes a selection matrix, which the function turns into its own matrix, once; other factors
wait. So the solve of an identity is one inverse, and the solve of ``B @ x`` solves for the columns of ``B``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import NotImplementedType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from symjac._algebra.align import align
from symjac._algebra.factor import Factor, cast, common_dtype, contract
from symjac._algebra.index_map import Affine, IndexMap, Label, is_static, plain, spread, union
from symjac._algebra.merge import densify
from symjac._algebra.record import note
from symjac._algebra.tangent import StructuredTangent, Term, pull

# A selection matrix up to this many elements is a constant of the program; a larger one is computed.
_MOST_CONSTANT = 4096


@dataclass(frozen=True)
class Operand:
    """An array that a function also takes.

    Attributes:
        array: The array; its leading axes belong to out axes, its other axes are the function's own.
        axes: The out axes that the leading axes belong to.
    """

    array: Any
    axes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Action:
    """A linear function of arrays ``(*batch, *acted, columns)``, or ``(*batch, columns, *acted)``.

    Attributes:
        function: Takes such an array and the operands ``(*batch, ...)``, and gives such an array.
        axes: The out axes that it acts on, ascending.
        sizes: Their sizes in the result.
        operands: What else it takes.
        columns_first: Whether the columns stand before the acted axes.
        dtype: The dtype of the result, where it changes.
        complex_linear: Whether it commutes with complex numbers.
    """

    function: Callable[..., Any]
    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    operands: tuple[Operand, ...] = ()
    columns_first: bool = False
    dtype: Any = None
    complex_linear: bool = True


OfTerm = Callable[[Term, Callable[[Term], Term | NotImplementedType]], Term | NotImplementedType]
"""Takes a term, and the function that applies an action to a term."""


def act(
    tangent: StructuredTangent, action: Action, of_term: OfTerm | None = None
) -> StructuredTangent | NotImplementedType:
    """Applies a linear function to some out axes, and keeps the deltas of the others.

    Declines where an operand is to be read outside of its range. Where it is given, `of_term` applies the action to a
    term instead.
    """
    shape = list(tangent.shape)
    for i, n in zip(action.axes, action.sizes, strict=True):
        shape[i] = n
    dtype = tangent.dtype if action.dtype is None else action.dtype

    def act_on(term: Term) -> Term | NotImplementedType:
        return _act(term, action, tangent.dtype)

    function = act_on if of_term is None else lambda term: of_term(term, act_on)
    return _joined(tangent, action.axes).map(function, shape=shape, dtype=dtype)


def along_axes(
    tangent: StructuredTangent, axes: Sequence[int], function: Callable[[Any], Any], dtype: Any = None
) -> StructuredTangent | NotImplementedType:
    """Applies a linear function that acts on some out axes only, and keeps the deltas of the others.

    Args:
        tangent: The tangent.
        axes: The out axes that the function acts on.
        function: From an array with just those axes (in ascending order) to one with as many axes.
        dtype: The new dtype, where it changes.
    """
    axes = tuple(sorted(axes))
    rank = len(axes)
    result = jax.eval_shape(function, jax.ShapeDtypeStruct([tangent.shape[i] for i in axes], tangent.dtype))
    mapped = jax.vmap(function, in_axes=rank, out_axes=rank)
    return act(tangent, Action(mapped, axes, result.shape, dtype=dtype))


def _joined(tangent: StructuredTangent, axes: Sequence[int]) -> StructuredTangent:
    """Joins the terms of a block where the join has no more columns than they have together."""
    blocks = []
    for j, block in enumerate(tangent.blocks):
        if len(block) > 1:
            found = align(block, dense=axes)
            acted = math.prod(tangent.shape[i] for i in axes)
            if found.size <= acted * sum(_columns(term, axes) for term in block):
                only = replace(tangent, blocks=tuple(b if i == j else () for i, b in enumerate(tangent.blocks)))
                block = densify(only, axes).blocks[j]
        blocks.append(block)
    return replace(tangent, blocks=tuple(blocks))


def _columns(term: Term, axes: Sequence[int]) -> int:
    """How many columns the function is applied to for a term, times the batch."""
    acted = union(term.out_axes[i].labels for i in axes)
    touched = union(f.labels for f in term.factors if set(f.labels) & set(acted))
    if all(is_free(term, i) for i in axes):
        return math.prod(label.size for label in touched if label not in acted)
    return math.prod(label.size for label in union([touched, acted]))


def is_free(term: Term, axis: int) -> bool:
    """Whether an out axis is a label of its own."""
    own = term.out_axes[axis]
    return own.is_plain and _is_alone(term, own.labels[0])


def _is_alone(term: Term, label: Label) -> bool:
    """Whether one axis only depends on a label."""
    return sum(label in axis.labels for axis in term.axes) == 1


def _freed(term: Term, axis: int, dtype: Any) -> Term:
    """The term with a label of its own on an out axis: what was there becomes a factor that selects.

    Where no other axis depends on the label there, it is the factors that carry it which are spread along the axis.
    """
    if is_free(term, axis):
        return term
    own = term.out_axes[axis]
    label = Label(own.size)
    out_axes = (*term.out_axes[:axis], plain(label), *term.out_axes[axis + 1 :])
    if isinstance(own, Affine) and len(own.strides) == 1 and own.strides[0][1] > 0:
        old = own.labels[0]
        if old.size > 0 and _is_alone(term, old) and any(old in factor.labels for factor in term.factors):
            return _spread_out(replace(term, out_axes=out_axes), own, label, dtype)
    if own.labels:
        note("along an axis")
    return Term((*term.factors, _selection(label, own, dtype)), out_axes, term.in_axes)


def _spread_out(term: Term, own: Affine, label: Label, dtype: Any) -> Term:
    """The term whose factors that carry the label of a map are one, padded to the axis that the map leads into."""
    ((old, stride),) = own.strides
    carrying, rest, kept = _apart(term, {old})
    whole = contract(carrying, kept, common_dtype(dtype, *(factor.dtype for factor in carrying)))
    place = whole.labels.index(old)
    high = own.size - own.offset - stride * (old.size - 1) - 1
    edges = [(own.offset, high, stride - 1) if i == place else (0, 0, 0) for i in range(len(whole.labels))]
    array = lax.pad(jnp.asarray(whole.array), jnp.zeros((), whole.dtype), edges)
    labels = tuple(label if each is old else each for each in whole.labels)
    return replace(term, factors=(*rest, Factor(array, labels, whole.precision)))


def _selection(label: Label, own: IndexMap, dtype: Any) -> Factor:
    """One where a label is at the position that a map leads to."""
    labels = (label, *own.labels)
    shape = tuple(each.size for each in labels)
    positions = own.index() if math.prod(shape) <= _MOST_CONSTANT else _computed(own)
    where = spread(positions, own.labels, labels)
    if is_static(where):
        places = np.arange(label.size, dtype=np.int32).reshape(-1, *(1 for _ in own.labels))
        return Factor(np.broadcast_to(places == where, shape).astype(dtype), labels)
    places = lax.broadcasted_iota(np.int32, (label.size, *(1 for _ in own.labels)), 0)
    return Factor(jnp.broadcast_to(places == where, shape).astype(dtype), labels)


def _computed(own: IndexMap) -> Any:
    """The positions of a map, not as a constant of the program."""
    if not isinstance(own, Affine):
        return jnp.asarray(own.index())
    shape = tuple(label.size for label in own.labels)
    total = jnp.full(shape, own.offset, jnp.int32)
    for i, (_, stride) in enumerate(own.strides):
        total = total + np.int32(stride) * lax.broadcasted_iota(np.int32, shape, i)
    return total


def _act(term: Term, action: Action, dtype: Any) -> Term | NotImplementedType:
    for axis in action.axes:
        term = _freed(term, axis, dtype)
    pulled = [_pulled(operand, term.out_axes) for operand in action.operands]
    if any(each is NotImplemented for each in pulled):
        return NotImplemented
    acted = tuple(term.out_axes[axis].labels[0] for axis in action.axes)
    batch = union(factor.labels[: len(factor.labels) - rank] for factor, rank in pulled)
    touched, rest = _split(term, acted, batch, action, dtype)
    arrays = [_over_batch(factor, rank, batch) for factor, rank in pulled]
    fresh = tuple(Label(n) for n in action.sizes)
    result = _applied(action, touched, arrays, (batch, acted, fresh))
    out_axes = list(term.out_axes)
    for axis, label in zip(action.axes, fresh, strict=True):
        out_axes[axis] = plain(label)
    return replace(term, factors=(*rest, result), out_axes=tuple(out_axes))


def _applied(action: Action, touched: Factor, arrays: Sequence[Any], kinds: tuple[tuple[Label, ...], ...]) -> Factor:
    """The factor that the function makes of a factor."""
    batch, acted, fresh = kinds
    columns = tuple(label for label in touched.labels if label not in (*batch, *acted))

    def order(own: tuple[Label, ...]) -> tuple[Label, ...]:
        return (*batch, *columns, *own) if action.columns_first else (*batch, *own, *columns)

    def merged(own: tuple[Label, ...]) -> list[int]:
        sizes, count = [label.size for label in own], math.prod(label.size for label in columns)
        return [*(label.size for label in batch), *([count, *sizes] if action.columns_first else [*sizes, count])]

    array = jnp.broadcast_to(jnp.asarray(touched.over(order(acted))), [label.size for label in order(acted)])
    result = action.function(jnp.reshape(array, merged(acted)), *arrays)
    return Factor(jnp.reshape(result, [label.size for label in order(fresh)]), order(fresh), touched.precision)


def _split(
    term: Term, acted: tuple[Label, ...], batch: tuple[Label, ...], action: Action, dtype: Any
) -> tuple[Factor, tuple[Factor, ...]]:
    """What the function is given, and the factors that wait."""
    touched, rest, kept = _apart(term, set(acted))
    whole = [label for label in union(f.labels for f in term.factors) if label in set(term.axis_labels)]
    mixed = not action.complex_linear and any(jnp.issubdtype(f.dtype, np.complexfloating) for f in rest)
    if mixed or _count(whole, acted, batch) < _count(kept, acted, batch):
        return contract(term.factors, whole, dtype), ()
    compute = common_dtype(*(f.dtype for f in touched)) if touched else dtype
    if jnp.issubdtype(dtype, np.complexfloating) or not jnp.issubdtype(compute, np.inexact):
        compute = dtype
    return contract(touched, kept, compute), tuple(rest)


def _apart(term: Term, labels: set[Label]) -> tuple[list[Factor], list[Factor], list[Label]]:
    """The factors that carry any of some labels, the others, and the labels that a product of the first ones keeps."""
    touched = [factor for factor in term.factors if labels.intersection(factor.labels)]
    rest = [factor for factor in term.factors if not labels.intersection(factor.labels)]
    needed = labels.union(term.axis_labels, *(factor.labels for factor in rest))
    return touched, rest, [label for label in union(factor.labels for factor in touched) if label in needed]


def _count(labels: Sequence[Label], acted: Sequence[Label], batch: Sequence[Label]) -> int:
    return math.prod(label.size for label in labels if label not in acted and label not in batch)


def _pulled(operand: Operand, out_axes: Sequence[IndexMap]) -> tuple[Factor, int] | NotImplementedType:
    """An operand over the labels of its out axes and labels of its own, and the number of the latter."""
    maps = [out_axes[i] for i in operand.axes]
    if not all(axis.stays_inside for axis in maps):
        return NotImplemented
    own = [plain(Label(n)) for n in np.shape(operand.array)[len(maps) :]]
    shape = np.shape(operand.array)
    factor = pull(operand.array, [*maps, *own])
    labels = tuple(label for label in factor.labels if all(label is not axis.labels[0] for axis in own))
    order = (*labels, *(axis.labels[0] for axis in own))
    array = jnp.reshape(factor.over(order), [*(label.size for label in labels), *shape[len(maps) :]])
    return Factor(array, order), len(own)


def _over_batch(factor: Factor, rank: int, batch: tuple[Label, ...]) -> Any:
    own = factor.labels[len(factor.labels) - rank :]
    order = (*batch, *own)
    return jnp.broadcast_to(factor.over(order), [label.size for label in order])


def cast_action(function: Callable[..., Any], dtype: Any) -> Callable[..., Any]:
    """The function of an array that is converted to a dtype first."""
    return lambda array, *operands: function(cast(array, dtype), *operands)
