"""Which of the forward and the reverse mode computes a Jacobian.

The array is the same. `symjac.jacobian` counts both and takes the cheaper. `symjac.jacfwd` and `symjac.jacrev` leave
their own direction only where the other one costs less than half, where there is much to gain, and where no NaN could
appear or vanish: a select hides what is singular from the one direction that the other one meets, so a program with
loops, or with both selects and operations that are singular somewhere, is never turned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr, Jaxpr

from symjac import _compat
from symjac._cost import Cost, cost, jaxpr_cost, sizes
from symjac._engine.interpreter import StructureLostError
from symjac._engine.program import TracedFunction, is_inexact
from symjac._memo.calls import NeedsValuesError

_CLEARLY_CHEAPER = 0.5
_WORTH_TRACING_TWICE = 1e6
_LOOPS = {"while", "scan", "cond"}
_SELECTS = {"select_n", "max", "min", "clamp", "custom_jvp_call", "custom_vjp_call", "custom_vmap_call"}
_REGULAR = {
    *("add", "sub", "mul", "neg", "add_any", "dot_general", "conv_general_dilated", "tanh", "sin", "cos", "logistic"),
    *("erf", "square", "reduce_sum", "broadcast_in_dim", "reshape", "transpose", "squeeze", "expand_dims", "slice"),
    *("concatenate", "pad", "rev", "gather", "scatter", "scatter-add", "dynamic_slice", "dynamic_update_slice", "iota"),
    *("convert_element_type", "copy", "stop_gradient", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "sign"),
    *("jit", "pjit", "stack", "unstack", "split", "tile", "select_n", "max", "min", "clamp", "cumsum", "rem"),
}

Arrays = Sequence[Array]


class Run(Protocol):
    """Computes values and blocks in a direction."""

    def __call__(self, consts: Arrays, leaves: Arrays, *, reverse: bool) -> list[Array]:
        """Returns the values and the blocks."""
        ...


def cheapest(run: Run, function: TracedFunction, consts: Arrays, leaves: Arrays) -> list[Array]:
    """Computes in the cheaper of the legal directions; raises what the reverse mode raises where none is legal.

    Where the types of inputs and outputs differ, the reverse one is tried first: it rounds as `jax.jacobian` does.
    """
    n_in, n_out = sizes(function.active_avals), sizes(function.output_avals)
    is_one_type = len({aval.dtype for aval in (*function.active_avals, *function.output_avals)}) == 1
    order = (False, True) if is_one_type and n_in <= n_out else (True, False)
    if not all(map(is_inexact, function.active_avals)):
        order = (True,)
    found: list[ClosedJaxpr] = []
    errors: dict[bool, Exception] = {}
    for reverse in order:
        try:
            found.append(_traced(run, consts, leaves, reverse))
        except (TypeError, NeedsValuesError, StructureLostError) as error:
            errors[reverse] = error
        if found and cost(found[-1]).flops <= _unavoidable(function).flops:
            break
    if not found:
        raise errors[True]
    return _run(min(found, key=lambda closed: cost(closed).total), consts, leaves)


def may_turn(function: TracedFunction, reverse: bool) -> bool:
    """Whether the other direction could be clearly cheaper, and is sure to give the same."""
    avals = [*function.active_avals, *function.output_avals]
    if not all(jnp.issubdtype(aval.dtype, jnp.floating) and aval.dtype == avals[0].dtype for aval in avals):
        return False
    n_in, n_out = sizes(function.active_avals), sizes(function.output_avals)
    own, other = (n_out, n_in) if reverse else (n_in, n_out)
    dense = own * jaxpr_cost(function.jaxpr).flops
    return other < _CLEARLY_CHEAPER * own and dense > _WORTH_TRACING_TWICE and _is_safe(function.jaxpr)


def own_unless_dear(
    run: Run, function: TracedFunction, consts: Arrays, leaves: Arrays, *, reverse: bool
) -> list[Array]:
    """Computes in a direction, unless the other one costs less than half."""
    own = _traced(run, consts, leaves, reverse)
    own_cost = cost(own)
    if own_cost.flops > 2.0 * _unavoidable(function).flops:
        try:
            other = _traced(run, consts, leaves, not reverse)
        except (TypeError, NeedsValuesError, StructureLostError):
            return _run(own, consts, leaves)
        if cost(other).total < _CLEARLY_CHEAPER * own_cost.total:
            return _run(other, consts, leaves)
    return _run(own, consts, leaves)


def _unavoidable(function: TracedFunction) -> Cost:
    """What any direction costs: the function and its derivatives once, and filling the result."""
    written = sizes(function.active_avals) * sizes(function.output_avals)
    return jaxpr_cost(function.jaxpr).times(2.0) + Cost(2.0 * written)


def _traced(run: Run, consts: Arrays, leaves: Arrays, reverse: bool) -> ClosedJaxpr:
    return jax.make_jaxpr(lambda consts, leaves: run(consts, leaves, reverse=reverse))(list(consts), list(leaves))


def _run(closed: ClosedJaxpr, consts: Arrays, leaves: Arrays) -> list[Array]:
    jaxpr, own = _compat.opened(closed)
    return eval_jaxpr(jaxpr, (), *own, *consts, *leaves)


def _is_safe(jaxpr: Jaxpr) -> bool:
    names = set(_primitive_names(jaxpr))
    return not names & _LOOPS and (not names & _SELECTS or names <= _REGULAR)


def _primitive_names(jaxpr: Jaxpr) -> Any:
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for inner in _compat.inner_jaxprs(eqn.params):
            yield from _primitive_names(inner)
