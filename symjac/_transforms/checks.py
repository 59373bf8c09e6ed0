"""The errors of `jax.jacfwd` and `jax.jacrev` for inputs and outputs of the wrong type, with JAX's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import dtypes


def check_forward_inputs(avals: Sequence[Any], holomorphic: bool) -> None:
    """Raises TypeError unless all inputs are real, or all are complex and the function is holomorphic."""
    for dtype in (aval.dtype for aval in avals):
        if jnp.issubdtype(dtype, dtypes.extended):
            raise TypeError(f"jacfwd with input element type {dtype.name}")
        if holomorphic and not jnp.issubdtype(dtype, np.complexfloating):
            raise TypeError(f"jacfwd with holomorphic=True requires inputs with complex dtype, but got {dtype.name}.")
        if not holomorphic and not jnp.issubdtype(dtype, np.floating):
            raise TypeError(
                "jacfwd requires real-valued inputs (input dtype that is a sub-dtype of np.floating), but got "
                f"{dtype.name}. For holomorphic differentiation, pass holomorphic=True. For differentiation of "
                "non-holomorphic functions involving complex inputs or integer inputs, use jax.jvp directly."
            )
    if not avals:
        raise ValueError("jacfwd requires at least one array to differentiate with respect to")


def check_forward_outputs(avals: Sequence[Any], holomorphic: bool) -> None:
    """Raises TypeError where an output has no Jacobian."""
    for dtype in (aval.dtype for aval in avals):
        if holomorphic and not jnp.issubdtype(dtype, np.complexfloating):
            raise TypeError(f"jacfwd with holomorphic=True requires outputs with complex dtype, but got {dtype.name}.")
        if jnp.issubdtype(dtype, dtypes.extended):
            raise NotImplementedError(f"jacfwd with output element type {dtype.name}")
        if jnp.issubdtype(dtype, np.bool_):
            raise TypeError(f"jacfwd requires real-, complex- or integer-valued outputs, but got {dtype.name}.")


def check_reverse_inputs(avals: Sequence[Any], holomorphic: bool, allow_int: bool) -> None:
    """Raises TypeError unless all inputs are real or complex, or integers are allowed."""
    for dtype in (aval.dtype for aval in avals):
        if holomorphic and not jnp.issubdtype(dtype, np.complexfloating):
            raise TypeError(f"jacrev with holomorphic=True requires inputs with complex dtype, but got {dtype.name}.")
        if not allow_int and not jnp.issubdtype(dtype, np.inexact):
            raise TypeError(
                "jacrev requires real- or complex-valued inputs (input dtype that is a sub-dtype of np.inexact), but "
                f"got {dtype.name}. If you want to use Boolean- or integer-valued inputs, use vjp or set allow_int to "
                "True."
            )
        if jnp.issubdtype(dtype, np.bool_):
            raise TypeError(f"jacrev has no Jacobian with respect to inputs of dtype {dtype.name}.")
    if not avals:
        raise ValueError("jacrev requires at least one array to differentiate with respect to")


def check_reverse_outputs(avals: Sequence[Any], holomorphic: bool) -> None:
    """Raises TypeError unless all outputs are real, or all are complex and the function is holomorphic."""
    for dtype in (aval.dtype for aval in avals):
        if jnp.issubdtype(dtype, dtypes.extended):
            raise TypeError(f"jacrev with output element type {dtype.name}")
        if holomorphic and not jnp.issubdtype(dtype, np.complexfloating):
            raise TypeError(f"jacrev with holomorphic=True requires outputs with complex dtype, but got {dtype.name}.")
        if not holomorphic and jnp.issubdtype(dtype, np.complexfloating):
            raise TypeError(
                "jacrev requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got "
                f"{dtype.name}. For holomorphic differentiation, pass holomorphic=True. For differentiation of "
                "non-holomorphic functions involving complex outputs, use jax.vjp directly."
            )
        if not jnp.issubdtype(dtype, np.inexact):
            raise TypeError(
                "jacrev requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got "
                f"{dtype.name}. For differentiation of functions with integer outputs, use jax.vjp directly."
            )
    if not avals:
        raise ValueError("jacrev requires at least one output")
