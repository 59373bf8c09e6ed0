"""From a function of array leaves to a linear program: a jaxpr of primals and tangents, linear in the tangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr, Jaxpr

from symjac import _compat
from symjac._engine.hoist import hoisted
from symjac._engine.literals import with_varying_literals_lifted


@dataclass(frozen=True)
class LinearProgram:
    """A jaxpr of primals and tangents that is linear in the tangents.

    Attributes:
        closed: Its inputs are the primals and then the tangents, its outputs the values and then the out tangents.
            A forward program takes a tangent for each differentiated leaf and gives one for each inexact output. A
            reverse program takes a cotangent for each inexact output and gives one for each differentiated leaf.
        n_primals: The number of primals.
        n_values: The number of values.
        output_avals: For a forward program the types of the outputs. Their weak types may differ from those that the
            function gives by itself, for a derivative rule computes the output in its own way.
    """

    closed: ClosedJaxpr
    n_primals: int
    n_values: int
    output_avals: tuple[Any, ...] = ()

    def opened(self) -> tuple[LinearProgram, list[Any]]:
        """Returns the program with its constants as leading primals, and these constants."""
        jaxpr, consts = _compat.opened(self.closed)
        return LinearProgram(ClosedJaxpr(jaxpr, ()), self.n_primals + len(consts), self.n_values), consts


TraceReference = Callable[[], Any]
"""Gives a trace as long as something holds on to it."""


@dataclass(frozen=True)
class TracedFunction:
    """A function of array leaves, traced to a jaxpr that holds no arrays.

    Attributes:
        jaxpr: Its inputs are the closed-over arrays and then the leaves; its outputs are those to be differentiated
            and then the auxiliary ones.
        n_outputs: The number of outputs to be differentiated.
        n_leaves: The number of leaves.
        active: The positions, among the leaves, of those to be differentiated with respect to.
        traced_by: The trace that made it.
    """

    jaxpr: Jaxpr
    n_outputs: int
    n_leaves: int
    active: tuple[int, ...]
    traced_by: TraceReference

    @property
    def output_avals(self) -> list[Any]:
        """The abstract values of the outputs to be differentiated."""
        return [out.aval for out in self.jaxpr.outvars[: self.n_outputs]]

    @property
    def active_avals(self) -> list[Any]:
        """The abstract values of the leaves to be differentiated with respect to, in the order of `active`."""
        first = len(self.jaxpr.invars) - self.n_leaves
        return [self.jaxpr.invars[first + i].aval for i in self.active]

    def of_active(self, consts: Sequence[Array], leaves: Sequence[Array]) -> FlatFunction:
        """Returns the function of the active leaves alone, which gives the outputs and the auxiliary arrays."""

        def function(*active_leaves: Array) -> tuple[list[Array], list[Array]]:
            outs = eval_jaxpr(self.jaxpr, (), *consts, *replaced(leaves, self.active, active_leaves))
            return outs[: self.n_outputs], outs[self.n_outputs :]

        return function


FlatFunction = Callable[..., tuple[list[Array], list[Array]]]


def replaced(leaves: Sequence[Any], positions: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """Returns the leaves with those at some positions replaced."""
    filled = list(leaves)
    for i, value in zip(positions, values, strict=True):
        filled[i] = value
    return filled


def is_inexact(aval: Any) -> bool:
    """Whether values of this type have tangents of it."""
    return jnp.issubdtype(aval.dtype, jnp.inexact)


def trace(
    function: FlatFunction, leaves: Sequence[Array], active: Sequence[int], *, for_memo: bool = False
) -> tuple[TracedFunction, ClosedJaxpr]:
    """Traces a function of array leaves, once.

    Args:
        function: Takes the leaves, gives the outputs and the auxiliary arrays.
        leaves: Its arguments; only their types matter.
        active: The positions of the leaves to be differentiated with respect to.
        for_memo: Whether the result is for any later call too, so that varying numbers are to be arguments.

    Returns:
        The traced function, and the jaxpr closed over the arrays that `function` closes over.
    """
    n_outputs = 0
    traced_by = _compat.no_trace

    def flat(*leaves: Array) -> list[Array]:
        nonlocal n_outputs, traced_by
        outputs, aux = function(*leaves)
        n_outputs = len(outputs)
        traced_by = _compat.trace_of(leaves[0] if leaves else None)
        return [*outputs, *aux]

    closed = hoisted(jax.make_jaxpr(flat)(*leaves))
    if for_memo:
        closed = with_varying_literals_lifted(closed)
    jaxpr, _ = _compat.opened(closed)
    return TracedFunction(jaxpr, n_outputs, len(leaves), tuple(active), traced_by), closed


def check_alive(consts: Sequence[Any], traced_by: TraceReference) -> None:
    """Raises `UnexpectedTracerError` where a constant is a value of the trace that made a function, which has ended.

    A derivative rule may hold on to such a value. JAX itself tells so only when the value is used.
    """
    ended = traced_by()
    if ended is not None and any(_compat.trace_of(const)() is ended for const in consts):
        raise jax.errors.UnexpectedTracerError("A derivative rule holds on to a value of the trace that met it.")


def forward_program(
    function: TracedFunction, consts: Sequence[Array], leaves: Sequence[Array], with_value: bool
) -> LinearProgram:
    """Returns the program of `jax.jvp`: its values are the outputs, where asked for, and the auxiliary arrays."""
    inexact = [is_inexact(aval) for aval in function.output_avals]
    types: tuple[Any, ...] = ()

    def jvp(primals: Sequence[Array], tangents: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        nonlocal types
        active = [primals[i] for i in function.active]
        outputs, out_tangents, aux = jax.jvp(function.of_active(consts, primals), active, tangents, has_aux=True)
        types = tuple(map(jax.typeof, outputs))
        values = [*outputs, *aux] if with_value else aux
        return values, [t for t, keep in zip(out_tangents, inexact, strict=True) if keep]

    program = _linear_program(jvp, leaves, [leaves[i] for i in function.active], function.traced_by)
    return replace(program, output_avals=types)


def reverse_program(
    function: TracedFunction, consts: Sequence[Array], leaves: Sequence[Array], with_value: bool
) -> LinearProgram:
    """Returns the program of `jax.vjp`: its values are the outputs, where asked for, and the auxiliary arrays."""
    inexact = [is_inexact(aval) for aval in function.active_avals]

    def vjp(primals: Sequence[Array], cotangents: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        active = [primals[i] for i in function.active]
        outputs, pullback, aux = jax.vjp(function.of_active(consts, primals), *active, has_aux=True)
        values = [*outputs, *aux] if with_value else aux
        return values, [t for t, keep in zip(pullback(list(cotangents)), inexact, strict=True) if keep]

    return _linear_program(vjp, leaves, function.output_avals, function.traced_by)


def eager_forward_program(
    function: FlatFunction, active: Sequence[Array]
) -> tuple[LinearProgram, list[Array], list[Array]]:
    """Linearises a function that looks at the values of its arguments.

    Returns:
        A program without primals and values, the outputs, and the auxiliary arrays.
    """
    outputs, pushforward, aux = jax.linearize(function, *active, has_aux=True)
    inexact = [is_inexact(jax.typeof(output)) for output in outputs]

    def linear(primals: Sequence[Array], tangents: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        return [], [t for t, keep in zip(pushforward(*tangents), inexact, strict=True) if keep]

    return _linear_program(linear, [], list(active)), outputs, aux


def pullback_program(pullback: Any, outputs: Sequence[Array], active: Sequence[Array]) -> LinearProgram:
    """Returns the program, without primals and values, of what `jax.vjp` gave for a list of outputs."""
    inexact = [is_inexact(jax.typeof(leaf)) for leaf in active]

    def linear(primals: Sequence[Array], cotangents: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        return [], [t for t, keep in zip(pullback(list(cotangents)), inexact, strict=True) if keep]

    return _linear_program(linear, [], outputs)


def _linear_program(
    function: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    traced_by: TraceReference = _compat.no_trace,
) -> LinearProgram:
    """Traces a function of primals and tangents, which gives values and out tangents, and removes its dead code."""
    n_values = 0

    def flat(primals: Sequence[Array], tangents: Sequence[Array]) -> list[Array]:
        nonlocal n_values
        values, out_tangents = function(primals, tangents)
        n_values = len(values)
        return [*values, *out_tangents]

    jaxpr, consts = _compat.opened(jax.make_jaxpr(flat)(list(primals), list(tangents)))
    check_alive(consts, traced_by)
    n_inputs = len(primals) + len(tangents)
    jaxpr, used = _compat.without_dead_code(jaxpr, [False] * len(consts) + [True] * n_inputs)
    consts = [const for const, keep in zip(consts, used, strict=False) if keep]
    return LinearProgram(_compat.closed(jaxpr, consts), len(primals), n_values)
