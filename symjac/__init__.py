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
from symjac._memo import cache_info, clear_caches
from symjac._interpreter import StructureLostError, register, strict

__all__ = [
    "StructureLostError",
    "cache_info",
    "clear_caches",
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
