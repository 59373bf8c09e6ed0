"""`symjac.filter_linearize`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx

from symjac._equinox.filtered import taken_apart
from symjac._equinox.transforms import Composed, with_separate_outputs
from symjac._memo.calls import NeedsValuesError, memoised_call
from symjac._memo.holders import Traced
from symjac._result import linearize


def filter_linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value of `fun` and its Jacobian with its structure, with respect to the inexact arrays in its arguments.

    As `symjac.linearize`, for arguments and outputs that are pytrees of anything.

    Args:
        fun: The function.
        *primals: Its arguments.
        has_aux: Whether `fun` gives a pair of outputs and auxiliary data.

    Returns:
        A pair of the output and a `symjac.Jacobian`, whose trees hold None for all that is not differentiated. With
        `has_aux` a triple of the output, the Jacobian and the auxiliary data.

    Raises:
        ValueError: where no argument holds an inexact array.

    >>> import equinox as eqx
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import symjac
    >>> layer = eqx.nn.Linear(2, 3, key=jax.random.key(0))
    >>> y, jacobian = symjac.filter_linearize(layer, jnp.ones(2))
    >>> jacobian(jnp.zeros(2)).shape
    (3,)
    """
    value, jacobian, aux = linearized("filter_linearize", fun, primals, (), has_aux)
    return (value, jacobian, aux) if has_aux else (value, jacobian)


def linearized(name: str, fun: Callable[..., Any], chosen: Sequence[Any], args: Sequence[Any], has_aux: bool) -> Any:
    """The value of `fun(*chosen, *args)`, its Jacobian with respect to the arrays in `chosen`, and auxiliary data."""
    call = taken_apart(fun, chosen, args, {})
    if not any(call.is_active):
        raise ValueError(f"{name}: there is no floating-point or complex array to differentiate with respect to.")
    key = call.key
    function = functools.partial(with_separate_outputs, has_aux)

    def traced() -> Traced:
        found = linearize._traced(function, call.opened(), True)
        return Traced(found.closed, found.engine, Composed(_joined, found.finish), found.static)

    whole = None if key is None else ("filter_linearize", has_aux, key)
    try:
        return memoised_call(call.owner, whole, call.leaves, traced)
    except NeedsValuesError:
        pass
    return _joined(linearize._linearized_eagerly(function, call.opened(), True))


def _joined(computed: Any) -> Any:
    value, jacobian, (static, aux) = computed
    return value if static is None else eqx.combine(value, static), jacobian, aux
