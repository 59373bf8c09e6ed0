"""Linear solves on structured right-hand sides.

The derivative of `lax.custom_linear_solve` with respect to its matrix belongs to the primitive: what its solver closes
over, a factorisation say, is behind a `stop_gradient`. So that derivatives of a Jacobian are right the primitive itself
is bound, mapped over the columns; its solver is only looked at, to find the axes of the right-hand side that it keeps.
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
from jax.extend.core import Jaxpr

from symjac._algebra.record import recording_apart
from symjac._algebra.tangent import StructuredTangent, identity
from symjac._engine.acting import Action, Operand, act, cast_action
from symjac._engine.interpreter import interpret


@dataclass(frozen=True)
class _Axes:
    """What a solver does with the axes of its right-hand side.

    Attributes:
        acted: The axes that it acts on.
        batch: The axes along which it solves with one matrix after the other.
        free: The axes along which it solves with the same matrix.
    """

    acted: tuple[int, ...]
    batch: tuple[int, ...]
    free: tuple[int, ...]


def solve(
    rhs: StructuredTangent, bind: Callable[[Any], Any], jaxpr: Jaxpr, consts: Sequence[Any]
) -> StructuredTangent | NotImplementedType:
    """Solves for a structured right-hand side, and keeps the deltas of the axes that the solver keeps.

    Args:
        rhs: The right-hand side.
        bind: Solves for one dense right-hand side.
        jaxpr: The solver: of `consts` and a right-hand side.
        consts: What it takes before the right-hand side.
    """
    axes = _plain_batch(_axes_of(jaxpr, consts, rhs), rhs)
    sizes = tuple(rhs.shape[i] for i in axes.acted)
    # What carries the labels of the batch along, so that they lead.
    leading = (Operand(jnp.zeros([rhs.shape[i] for i in axes.batch], jnp.int8), axes.batch),) if axes.batch else ()

    order = (*axes.batch, *axes.acted, *axes.free)
    width = math.prod(rhs.shape[i] for i in axes.free)

    def one(part: Any) -> Any:
        """From ``(*batch, *acted, width)`` to the same: the free axes hold as many columns as they have room for."""
        whole = lax.transpose(jnp.reshape(part, [rhs.shape[i] for i in order]), np.argsort(order).tolist())
        return jnp.reshape(lax.transpose(bind(whole), order), part.shape)

    def function(array: Any, *_: Any) -> Any:
        """From ``(*batch, *acted, columns)`` to the same."""
        *sizes, columns = array.shape
        count = -(-columns // width)
        padding = [(0, 0, 0)] * len(sizes) + [(0, count * width - columns, 0)]
        padded = lax.pad(array, np.zeros((), array.dtype), padding)
        parts = jnp.reshape(padded, (*sizes, count, width))
        solved = jax.vmap(one, in_axes=-2, out_axes=-2)(parts)
        return lax.slice_in_dim(jnp.reshape(solved, padded.shape), 0, columns, axis=-1)

    return act(rhs, Action(cast_action(function, rhs.dtype), axes.acted, sizes, leading))


def _axes_of(jaxpr: Jaxpr, consts: Sequence[Any], rhs: StructuredTangent) -> _Axes:
    """Pushes an identity through the solver, without computing anything."""
    rank = len(rhs.shape)
    found = [_Axes(tuple(range(rank)), (), ())]

    def probe(*arrays: Any) -> int:
        (out,) = interpret(jaxpr, [*arrays, identity(0, rhs.dtype, (rhs.shape,))])
        if isinstance(out, StructuredTangent) and len(out.blocks[0]) == 1:
            (term,) = out.blocks[0]
            carried = {label for factor in term.factors for label in factor.labels}
            kept = [
                i
                for i, (own, other) in enumerate(zip(term.out_axes, term.in_axes, strict=True))
                if own.is_plain and other.is_plain and own.labels == other.labels
            ]
            batch = tuple(i for i in kept if term.out_axes[i].labels[0] in carried)
            free = tuple(i for i in kept if i not in batch)
            found.append(_Axes(tuple(i for i in range(rank) if i not in kept), batch, free))
        return 0

    with recording_apart():
        jax.eval_shape(probe, *consts)
    return found[-1]


def _plain_batch(axes: _Axes, rhs: StructuredTangent) -> _Axes:
    """Batch axes that are not labels of their own in each term, or have one entry, have to be acted on too."""
    terms = [term for block in rhs.blocks for term in block]

    def is_own(i: int) -> bool:
        return all(
            t.out_axes[i].is_plain and sum(t.out_axes[i].labels[0] in own.labels for own in t.out_axes) == 1
            for t in terms
        )

    moved = tuple(i for i in axes.batch if rhs.shape[i] == 1 or not is_own(i))
    batch = tuple(i for i in axes.batch if i not in moved)
    return replace(axes, acted=tuple(sorted((*axes.acted, *moved))), batch=batch)
