"""Jacobians for JAX that keep their structure."""

from symjac._api import (
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    value_and_hessian,
    value_and_jacfwd,
    value_and_jacrev,
)
from symjac._interpreter import StructureLostError, register, strict

__all__ = [
    "StructureLostError",
    "hessian",
    "jacfwd",
    "jacobian",
    "jacrev",
    "register",
    "strict",
    "value_and_hessian",
    "value_and_jacfwd",
    "value_and_jacrev",
]
