"""Loops: a structure for what is carried is found that stands still, and its arrays go round in one loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Jaxpr

from symjac import _compat
from symjac._algebra.factor import Factor, contract
from symjac._algebra.index_map import Affine, Indexed, IndexMap, Label, is_static, plain, union
from symjac._algebra.merge import add_tangents, add_terms, densify
from symjac._algebra.reading import solve
from symjac._algebra.record import keep_records
from symjac._algebra.tangent import StructuredTangent, Term, zero
from symjac._engine.carry import Emptier, as_it_comes, filled, fitted, frame_avals, framed, grown, is_frame, same
from symjac._engine.dependence import through, through_scan, through_while
from symjac._engine.interpreter import interpret, register, settle_tangent
from symjac._engine.subprogram import Subprogram, abstract, count_equations, interpret_all, subprogram

# A scan of at most so many steps is unrolled, where its body has at most so many equations for each of them.
_MOST_UNROLLED_STEPS = 4
_MOST_UNROLLED_EQUATIONS = 64


@dataclass(frozen=True)
class _Body:
    """The body of a loop.

    Attributes:
        jaxpr: Its inputs are the constants, the carried values and the inputs of the step.
        consts: The constants.
        n_carry: The number of carried values.
        linear: For each result, carried values first, whether it is a tangent.
        inputs: What is read at each step.
        in_shapes: The shapes of the input leaves.
    """

    jaxpr: Jaxpr
    consts: Sequence[Any]
    n_carry: int
    linear: Sequence[bool]
    inputs: _Inputs
    in_shapes: tuple[tuple[int, ...], ...]

    def run(self, values: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """The results of one step."""
        return interpret_all(self.jaxpr, [*self.consts, *values, *inputs], self.linear, self.in_shapes)

    def as_linear(self, value: Any, flag: bool) -> Any:
        """A value in the place of a tangent that is none is zero, for the program is linear."""
        if not flag or isinstance(value, StructuredTangent):
            return value
        return zero(jnp.shape(value), value.dtype, self.in_shapes)


@dataclass(frozen=True)
class _Carry:
    """What goes round a loop: for each value its frame, a tangent that stays the same, or None for an array."""

    slots: Sequence[StructuredTangent | None]

    def avals(self, body: _Body) -> list[jax.ShapeDtypeStruct]:
        """The types of the carried arrays."""
        variables = body.jaxpr.invars[len(body.consts) : len(body.consts) + body.n_carry]
        avals: list[jax.ShapeDtypeStruct] = []
        for slot, variable in zip(self.slots, variables, strict=True):
            if slot is None:
                avals.append(abstract(variable.aval))
            elif is_frame(slot):
                avals.extend(frame_avals(slot))
        return avals

    def values(self, arrays: Sequence[Any]) -> list[Any]:
        """The values from the carried arrays."""
        rest, values = list(arrays), []
        for slot in self.slots:
            if slot is None:
                values.append(rest.pop(0))
            elif is_frame(slot):
                count = sum(map(len, slot.blocks))
                values.append(framed(slot, rest[:count]))
                del rest[:count]
            else:
                values.append(slot)
        return values

    def arrays(self, values: Sequence[Any]) -> list[Any]:
        """The carried arrays from the values."""
        arrays: list[Any] = []
        for slot, value in zip(self.slots, values, strict=True):
            if slot is None:
                arrays.append(value)
            elif is_frame(slot):
                arrays.extend(fitted(value, slot))
        return arrays


def _stand_still(body: _Body, incoming: Sequence[Any]) -> tuple[_Carry, Subprogram]:
    """Finds a carry whose structure a step does not change, and that step as a program.

    It begins with what comes in and grows by what comes out. A tangent that comes out as it went in is not carried.
    """
    carry = _Carry([value if isinstance(value, StructuredTangent) else None for value in incoming])
    slices, is_ordered = body.inputs.types, False
    while True:
        fixed: list[bool] = []

        def step(*arrays: Any, carry: _Carry = carry, fixed: list[bool] = fixed) -> list[Any]:
            count = len(arrays) - len(slices)
            values = carry.values(arrays[:count])
            outs = body.run(values, body.inputs.at(arrays[count:]))
            pairs = zip(values, outs, strict=False)
            fixed[:] = [isinstance(a, StructuredTangent) and same(a, b) for a, b in pairs]
            return outs

        program = subprogram(step, [*carry.avals(body), *slices])
        slots = []
        for slot, out, stays in zip(carry.slots, program.outs, fixed, strict=False):
            slots.append(slot if slot is None or (stays and not is_frame(slot)) else grown(slot, [out]))
        if _are_same(slots, carry.slots):
            if not is_ordered:
                slots = list(map(_ordered, slots, program.outs))
                is_ordered = True
            if _are_same(slots, carry.slots):
                keep_records(program.records, max(body.inputs.length, 1))
                return carry, program
        carry = _Carry(slots)


def _are_same(slots: Sequence[StructuredTangent | None], others: Sequence[StructuredTangent | None]) -> bool:
    return all(a is b for a, b in zip(slots, others, strict=True))


def _ordered(slot: StructuredTangent | None, out: Any) -> StructuredTangent | None:
    """A frame whose arrays lie as a step computes them, so that no step transposes them."""
    return slot if slot is None or not is_frame(slot) else as_it_comes(slot, out)


# -- scan -------------------------------------------------------------------------------------------------------------


@register(lax.scan_p)
def _scan_rule(*operands: Any, jaxpr: Any, length: int, reverse: bool, unroll: Any, **params: Any) -> list[Any]:
    """One scan whose carry holds the arrays of frames; a short one is unrolled.

    Keeps what a step keeps of the carry, once joined. The steps of inputs and of outputs are a shared label.
    """
    n_consts, n_carry = _compat.scan_sizes({**params, "jaxpr": jaxpr})
    opened, closed_over = _compat.opened(jaxpr)
    n_inputs = len(closed_over) + n_consts + n_carry
    linear = through_scan(jaxpr, [isinstance(x, StructuredTangent) for x in operands], n_consts, n_carry)
    xs = [_readable(x) for x in operands[n_consts + n_carry :]]
    inputs = _Inputs(xs, [v.aval for v in opened.invars[n_inputs:]], length)
    in_shapes = next(x.in_shapes for x in operands if isinstance(x, StructuredTangent))
    body = _Body(opened, [*closed_over, *operands[:n_consts]], n_carry, linear, inputs, in_shapes)
    carried = operands[n_consts : n_consts + n_carry]
    incoming = [body.as_linear(x, flag) for x, flag in zip(carried, linear, strict=False)]
    is_small = length <= _MOST_UNROLLED_STEPS and count_equations(opened) <= _MOST_UNROLLED_EQUATIONS
    if length == 1 or (is_small and length > 0):
        return _unrolled(body, incoming, range(length)[:: -1 if reverse else 1])
    return _scanned(body, incoming, reverse=reverse, unroll=unroll)


@dataclass(frozen=True)
class _Inputs:
    """What a scan reads one slice of at each step.

    Attributes:
        values: Arrays and tangents.
        avals: The types of their slices.
        length: The number of steps.
    """

    values: Sequence[Any]
    avals: Sequence[Any]
    length: int

    @property
    def has_tangents(self) -> bool:
        """Whether some are tangents, so that the number of the step is needed."""
        return any(isinstance(x, StructuredTangent) for x in self.values)

    @property
    def arrays(self) -> list[Any]:
        """What `lax.scan` is to read: the arrays, and the number of the step."""
        arrays = [x for x in self.values if not isinstance(x, StructuredTangent)]
        return [*arrays, np.arange(self.length, dtype=np.int32)] if self.has_tangents else arrays

    @property
    def types(self) -> list[Any]:
        """The types of the slices of `arrays`."""
        pairs = zip(self.values, self.avals, strict=True)
        types = [abstract(aval) for x, aval in pairs if not isinstance(x, StructuredTangent)]
        return [*types, jax.ShapeDtypeStruct((), np.int32)] if self.has_tangents else types

    def at(self, slices: Sequence[Any]) -> list[Any]:
        """All slices from those of `arrays`: a tangent is read at the number of the step."""
        if not self.has_tangents:
            return list(slices)
        position = Indexed(self.length, slices[-1], (), stays_inside=True)
        rest = iter(slices)
        return [_read(x, position) if isinstance(x, StructuredTangent) else next(rest) for x in self.values]

    def at_static(self, step: int) -> list[Any]:
        """All slices at a step that is known."""
        position = Affine(self.length, step, ())
        return [_read(x, position) if isinstance(x, StructuredTangent) else _item(x, step) for x in self.values]


def _readable(x: Any) -> Any:
    """An input whose tangent can be read at any step."""
    if not isinstance(x, StructuredTangent):
        return x
    first = Affine(x.shape[0], 0, ())
    unsolved = any(solve(term.out_axes[0], first) is NotImplemented for block in x.blocks for term in block)
    return densify(x, [0]) if unsolved else x


def _read(x: StructuredTangent, position: IndexMap) -> StructuredTangent:
    return x.map(lambda term: term.read({0: position}), shape=x.shape[1:])


def _item(x: Any, step: int) -> Any:
    return x[step] if is_static(x) else lax.index_in_dim(x, step, keepdims=False)


def _unrolled(body: _Body, carried: Sequence[Any], steps: Sequence[int]) -> list[Any]:
    """One step after the other, so that structures may change from each to the next."""
    values, outputs = list(carried), {}
    for step in steps:
        outs = body.run(values, body.inputs.at_static(step))
        values = [settle_tangent(x) if isinstance(x, StructuredTangent) else x for x in outs[: body.n_carry]]
        outputs[step] = outs[body.n_carry :]
    columns = zip(*(outputs[step] for step in sorted(outputs)), strict=True)
    return [*values, *(_stacked(column) for column in columns)]


def _stacked(items: Sequence[Any]) -> Any:
    """Values of all steps along a new first axis."""
    if not isinstance(items[0], StructuredTangent):
        return jnp.stack([jnp.asarray(item) for item in items])
    parts = []
    for i, item in enumerate(items):
        place = Affine(len(items), i, ())
        shape = (len(items), *item.shape)
        parts.append(item.map(lambda t, p=place: replace(t, out_axes=(p, *t.out_axes)), shape=shape))
    return add_tangents(parts)


def _scanned(body: _Body, incoming: Sequence[Any], **options: Any) -> list[Any]:
    carry, program = _stand_still(body, incoming)
    types, length = carry.avals(body), body.inputs.length
    pile = _Pile(program, Label(length))

    def step(*arrays: Any) -> list[Any]:
        outs = program(*arrays)
        number = arrays[-1] if body.inputs.has_tangents else None
        return [*carry.arrays(outs[: body.n_carry]), *pile.added(outs[body.n_carry :], number)]

    whole = subprogram(step, [*types, *body.inputs.types])

    def run(arrays: Sequence[Any], slices: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        outs = whole(*arrays, *slices)
        return outs[: len(types)], outs[len(types) :]

    last, stacked = lax.scan(run, carry.arrays(incoming), body.inputs.arrays, length=length, **options)
    return [*carry.values(last), *pile.values(stacked)]


class _Pile:
    """The outputs of a scan: which arrays of a step are stacked, and what the stacked arrays mean."""

    def __init__(self, program: Subprogram, label: Label) -> None:
        self.program, self.label = program, label
        self._stacked: list[Any] = []

    def added(self, outs: Sequence[Any], number: Any) -> list[Any]:
        """The arrays to be stacked, given the outputs of a step and its number."""
        emptier = Emptier()
        self._stacked = []
        for out in outs:
            if isinstance(out, StructuredTangent):
                self._stacked.append(self._piled(out, number, emptier))
            else:
                self._stacked.append(emptier.hole(jnp.asarray(out)))
        return emptier.arrays

    def values(self, stacked: Sequence[Any]) -> list[Any]:
        """The outputs of all steps."""
        return [filled(value, stacked) for value in self._stacked]

    def _varies(self, array: Any) -> bool:
        return not is_static(array) and not self.program.is_const(array)

    def _piled(self, out: StructuredTangent, number: Any, emptier: Emptier) -> StructuredTangent:
        """The tangent of all steps: what varies gets the label of the step, which is the new first axis."""
        maps: dict[int, IndexMap] = {}

        def axis(own: IndexMap) -> IndexMap:
            if not isinstance(own, Indexed) or not self._varies(own.array):
                return own
            if own.array is number and own.size == self.label.size:
                return plain(self.label)
            if id(own) not in maps:
                maps[id(own)] = Indexed(own.size, emptier.hole(own.array), (self.label, *own.labels), own.stays_inside)
            return maps[id(own)]

        def factor(own: Factor) -> Factor:
            if not self._varies(own.array):
                return own
            return Factor(emptier.hole(own.array), (self.label, *own.labels), own.precision)

        def apply(term: Term) -> Term:
            out_axes = (plain(self.label), *map(axis, term.out_axes))
            return Term(tuple(map(factor, term.factors)), out_axes, tuple(map(axis, term.in_axes)))

        blocks = (add_terms([[self._settled(term, out.dtype) for term in block]], out.dtype) for block in out.blocks)
        settled = replace(out, blocks=tuple(blocks))
        return settled.map(apply, shape=(self.label.size, *out.shape))

    def _settled(self, term: Term, dtype: Any) -> Term:
        """Contracts what varies, where that takes no more room for each step than the factors do."""
        varying = [f for f in term.factors if self._varies(f.array)]
        carried = union(f.labels for f in term.factors)
        result = math.prod(label.size for label in carried if label in set(term.axis_labels))
        if not varying or len(term.factors) == 1 or result > sum(f.size for f in varying):
            return term
        return replace(term, factors=(contract(term.factors, term.axis_labels, dtype, in_order=False),))


# -- while ------------------------------------------------------------------------------------------------------------


@register(lax.while_p)
def _while_rule(
    *operands: Any, cond_jaxpr: Any, cond_nconsts: int, body_jaxpr: Any, body_nconsts: int, **_: Any
) -> list[Any]:
    """One loop whose carry holds the arrays of frames.

    Keeps what a step keeps of the carry, once joined; declines where the condition depends on a tangent.
    """
    start = cond_nconsts + body_nconsts
    if cond_jaxpr.out_avals[0].shape:
        body_jaxpr, consts = _guarded(cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts), operands[:start]
    else:
        consts = operands[cond_nconsts:start]
    opened, closed_over = _compat.opened(body_jaxpr)
    condition, condition_consts = _compat.opened(cond_jaxpr)
    own = [isinstance(x, StructuredTangent) for x in operands]
    linear = through_while(body_jaxpr, own[start - len(consts) :], len(consts))
    if any(through(cond_jaxpr, [*own[:cond_nconsts], *linear])):
        return NotImplemented
    in_shapes = next(x.in_shapes for x in operands if isinstance(x, StructuredTangent))
    body = _Body(opened, [*closed_over, *consts], len(linear), linear, _Inputs([], [], 0), in_shapes)
    incoming = [body.as_linear(x, flag) for x, flag in zip(operands[start:], linear, strict=True)]
    carry, program = _stand_still(body, incoming)

    def goes_on(arrays: Sequence[Any]) -> Any:
        (result,) = interpret(condition, [*condition_consts, *operands[:cond_nconsts], *carry.values(arrays)])
        return jnp.any(result)

    def run(arrays: Sequence[Any]) -> list[Any]:
        return carry.arrays(program(*arrays))

    return carry.values(lax.while_loop(goes_on, run, carry.arrays(incoming)))


def _guarded(cond_jaxpr: Any, body_jaxpr: Any, n_cond: int, n_body: int) -> Any:
    """The body of a loop with one condition for each of a batch: what has come to its end stays as it is."""

    def body(*args: Any) -> list[Any]:
        consts, carry = args[: n_cond + n_body], args[n_cond + n_body :]
        (goes_on,) = _compat.evaluate_closed(cond_jaxpr, [*consts[:n_cond], *carry])
        new = _compat.evaluate_closed(body_jaxpr, [*consts[n_cond:], *carry])
        return [_chosen(goes_on, a, b) for a, b in zip(new, carry, strict=True)]

    avals = [*cond_jaxpr.in_avals[:n_cond], *body_jaxpr.in_avals]
    return jax.make_jaxpr(body)(*map(abstract, avals))


def _chosen(which: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    return lax.select(lax.broadcast_in_dim(which, new.shape, range(which.ndim)), new, old)
