"""Jacobians for JAX that keep their structure."""

from symjac._engine.interpreter import StructureLostError, register, strict
from symjac._equinox.filter_jit import filter_jit
from symjac._equinox.filter_linearize import filter_linearize
from symjac._equinox.solvers import lineax_operator, lineax_solver
from symjac._equinox.transforms import (
    filter_grad,
    filter_hessian,
    filter_jacfwd,
    filter_jacobian,
    filter_jacrev,
    filter_value_and_grad,
    filter_value_and_jacfwd,
    filter_value_and_jacrev,
)
from symjac._memo.calls import cache_info, clear_caches
from symjac._memo.same_object import memoize
from symjac._report.explain import explain
from symjac._report.report import Explanation
from symjac._result.jacobian import Jacobian
from symjac._result.linearize import linearize
from symjac._result.second_order import hessian_diagonal, laplacian
from symjac._transforms.api import (
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    value_and_hessian,
    value_and_jacfwd,
    value_and_jacrev,
)
from symjac._transforms.memoised import checkpoint, grad, jit, jvp, value_and_grad, vjp, vmap

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
