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
from symjac._equinox import (
    filter_grad,
    filter_hessian,
    filter_jacfwd,
    filter_jacobian,
    filter_jacrev,
    filter_value_and_grad,
    filter_value_and_jacfwd,
    filter_value_and_jacrev,
)
from symjac._explain import explain
from symjac._filter_jit import filter_jit
from symjac._filter_linearize import filter_linearize
from symjac._interpreter import StructureLostError, register, strict
from symjac._jacobian import Jacobian
from symjac._linearize import linearize
from symjac._memo import cache_info, clear_caches
from symjac._report import Explanation
from symjac._same_object import memoize
from symjac._second_order import hessian_diagonal, laplacian
from symjac._solvers import lineax_operator, lineax_solver
from symjac._transforms import checkpoint, grad, jit, jvp, value_and_grad, vjp, vmap

__all__ = [
    "Explanation",
    "Jacobian",
    "StructureLostError",
    "cache_info",
    "checkpoint",
    "clear_caches",
    "explain",
    "filter_grad",
    "filter_hessian",
    "filter_jacfwd",
    "filter_jacobian",
    "filter_jacrev",
    "filter_jit",
    "filter_linearize",
    "filter_value_and_grad",
    "filter_value_and_jacfwd",
    "filter_value_and_jacrev",
    "grad",
    "hessian",
    "hessian_diagonal",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "laplacian",
    "linearize",
    "lineax_operator",
    "lineax_solver",
    "memoize",
    "register",
    "strict",
    "value_and_grad",
    "value_and_hessian",
    "value_and_jacfwd",
    "value_and_jacrev",
    "vjp",
    "vmap",
]
