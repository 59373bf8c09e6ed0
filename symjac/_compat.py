"""Everything taken from JAX's private modules, and every branch on JAX's version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax._src.array import ArrayImpl as ArrayImpl
from jax._src.interpreters import partial_eval
from jax._src.lax.lax import _convert_element_type
from jax.extend.core import ClosedJaxpr, Jaxpr


def with_element_type(x: jax.Array, dtype: Any, weak_type: bool) -> jax.Array:
    """Returns `x` with the given dtype and weak type, and `x` itself where it has them."""
    aval = jax.typeof(x)
    if aval.dtype == dtype and aval.weak_type == weak_type:
        return x
    return _convert_element_type(x, dtype, weak_type)


def opened(closed: ClosedJaxpr) -> tuple[Jaxpr, list[Any]]:
    """Returns a jaxpr whose leading inputs are the constants of `closed`, and these constants."""
    return partial_eval.convert_constvars_jaxpr(closed.jaxpr), list(closed.consts)


def without_dead_code(jaxpr: Jaxpr, keep: Sequence[bool]) -> tuple[Jaxpr, list[bool]]:
    """Removes what no output and no effect of an opened jaxpr needs.

    Args:
        jaxpr: The jaxpr, without constants.
        keep: For each input, whether it stays where it is not used.

    Returns:
        The jaxpr, and for each input of the old one whether it is an input of the new one.
    """
    return partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), instantiate=list(keep))


def closed(jaxpr: Jaxpr, consts: Sequence[Any]) -> ClosedJaxpr:
    """Returns a jaxpr whose leading inputs are bound to constants: the inverse of `opened`."""
    if hasattr(Jaxpr, "consts"):  # JAX 0.12 has one class for both.
        return ClosedJaxpr(jaxpr, list(consts))
    return ClosedJaxpr(partial_eval.convert_invars_to_constvars(jaxpr, len(consts)), list(consts))
