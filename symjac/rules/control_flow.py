"""Calls are entered, and the results of branches are brought to a common structure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive

from symjac import _compat
from symjac._algebra.record import keep_records
from symjac._algebra.tangent import StructuredTangent, zero
from symjac._engine.carry import fitted, framed, grown
from symjac._engine.dependence import through
from symjac._engine.interpreter import interpret, register
from symjac._engine.subprogram import Subprogram, interpret_all, subprogram


def defcall(primitive: Primitive) -> None:
    """Registers a primitive that only calls a jaxpr: the interpreter enters it."""

    def rule(*operands: Any, **params: Any) -> list[Any]:
        jaxpr, consts = _compat.called_jaxpr(params)
        return interpret(jaxpr, [*consts, *operands])

    rule.__name__ = f"_{primitive.name}_rule"
    rule.__doc__ = f"`{primitive.name}`: interprets the jaxpr inside. Keeps every structure."
    register(primitive)(rule)


for _primitive in _compat.call_primitives:
    defcall(_primitive)


@register(lax.cond_p)
def _cond_rule(index: Any, *operands: Any, branches: Sequence[Any], **_: Any) -> list[Any]:
    """One `lax.switch` whose branches return the arrays of a structure that holds the results of all of them.

    Keeps what all branches keep; declines where the index is a tangent.
    """
    if isinstance(index, StructuredTangent):
        return NotImplemented
    flags = [isinstance(x, StructuredTangent) for x in operands]
    in_shapes = next(x.in_shapes for x in operands if isinstance(x, StructuredTangent))
    found = [through(branch, flags) for branch in branches]
    linear = [any(column) for column in zip(*found, strict=True)]
    programs = [_branch(branch, operands, linear, in_shapes) for branch in branches]
    frames: list[StructuredTangent | None] = []
    for first, *rest in zip(*(program.outs for program in programs), strict=True):
        empty = zero(first.shape, first.dtype, in_shapes) if isinstance(first, StructuredTangent) else None
        frames.append(None if empty is None else grown(empty, [first, *rest]))

    def arrays(program: Subprogram) -> list[Any]:
        flat: list[Any] = []
        for out, frame in zip(program(), frames, strict=True):
            flat.extend([jnp.asarray(out)] if frame is None else fitted(out, frame))
        return flat

    chosen = lax.switch(jnp.asarray(index, jnp.int32), [lambda p=program: arrays(p) for program in programs])
    results = []
    for frame in frames:
        count = 1 if frame is None else sum(map(len, frame.blocks))
        results.append(chosen[0] if frame is None else framed(frame, chosen[:count]))
        chosen = chosen[count:]
    return results


def _branch(branch: Any, operands: Sequence[Any], linear: Sequence[bool], in_shapes: Any) -> Subprogram:
    """A branch as a program without arguments."""
    jaxpr, consts = _compat.opened(branch)

    program = subprogram(lambda: interpret_all(jaxpr, [*consts, *operands], linear, in_shapes), [])
    keep_records(program.records)
    return program
