"""Which of the forward and the reverse mode computes a Jacobian.

The array is the same. `symjac.jacobian` counts both and takes the cheaper. `symjac.jacfwd` and `symjac.jacrev` leave
their own direction only where the other one costs less than half, where there is much to gain, and where no NaN could
appear or vanish: a select hides what is singular from the one direction that the other one meets, so a program with
loops, or with both selects and operations that are singular somewhere, is never turned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.lax import GatherScatterMode

from symjac import _compat
from symjac._cost import Cost, cost, jaxpr_cost, sizes
from symjac._engine.interpreter import StructureLostError
from symjac._engine.program import TracedFunction, is_inexact
from symjac._memo.calls import NeedsValuesError
from symjac._types import aval_of

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

    The reverse one, that of `jax.jacobian`, is tried first where the two may round or be singular in other ways.
    """
    n_in, n_out = sizes(function.active_avals), sizes(function.output_avals)
    is_one_type = len({aval.dtype for aval in (*function.active_avals, *function.output_avals)}) == 1
    order = (False, True) if n_in <= n_out and is_one_type and _is_safe(function.jaxpr) else (True, False)
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
    if other >= _CLEARLY_CHEAPER * own or dense <= _WORTH_TRACING_TWICE or not _is_safe(function.jaxpr):
        return False
    return reverse or not any(map(_fills_with_nan, _equations(function.jaxpr)))


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
    """Whether both modes meet the same singularities. A select of integers, such as of indices, hides none."""
    equations = list(_equations(jaxpr))
    names = {eqn.primitive.name for eqn in equations if any(map(_is_inexact, eqn.outvars))}
    if any(eqn.primitive.name in _LOOPS for eqn in equations):
        return False
    return not names & _SELECTS or names <= _REGULAR


def _is_inexact(variable: Any) -> bool:
    aval = aval_of(variable)
    return hasattr(aval, "dtype") and is_inexact(aval)


def _fills_with_nan(eqn: JaxprEqn) -> bool:
    """Whether forward mode has NaNs where the function reads outside, of which reverse mode does not know."""
    if eqn.primitive is not lax.gather_p or eqn.params["fill_value"] == 0:
        return False
    return GatherScatterMode.from_any(eqn.params["mode"]) == GatherScatterMode.FILL_OR_DROP


def _equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in _compat.inner_jaxprs(eqn.params):
            yield from _equations(inner)
