"""A small cost model of jaxprs, to choose between two programs that compute the same arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

from symjac import _compat

_FLOPS_PER_BYTE = 0.25
"""What moving a byte costs. Compilers fuse most of what a jaxpr shows as separate passes over memory."""

_FREE = {
    *(
        "broadcast_in_dim",
        "reshape",
        "squeeze",
        "expand_dims",
        "convert_element_type",
        "copy",
        "copy_p",
        "stop_gradient",
    ),
    *("iota", "optimization_barrier", "pvary", "device_put", "sharding_constraint", "slice", "rev", "name", "split"),
}
_MOVING = {
    *("transpose", "gather", "scatter", "concatenate", "pad", "dynamic_slice", "dynamic_update_slice", "stack"),
    *("unstack", "tile", "select_n", "real", "imag", "complex", "sort"),
}
_CUBIC = {"cholesky", "lu", "qr", "geqrf", "householder_product", "eigh", "eig", "svd", "schur", "triangular_solve"}


@dataclass(frozen=True)
class Cost:
    """What a program costs.

    Attributes:
        flops: Its floating-point operations.
        bytes: The bytes of the arrays that it makes.
    """

    flops: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        """The cost of one program after another."""
        return Cost(self.flops + other.flops, self.bytes + other.bytes)

    def times(self, count: float) -> Cost:
        """The cost of a program that is run several times."""
        return Cost(count * self.flops, count * self.bytes)

    @property
    def total(self) -> float:
        """One number to compare, in floating-point operations."""
        return self.flops + _FLOPS_PER_BYTE * self.bytes


def cost(closed: ClosedJaxpr) -> Cost:
    """Returns the cost of a program, without what neither its outputs nor its effects need."""
    jaxpr, _ = _compat.opened(closed)
    jaxpr, _ = _compat.without_dead_code(jaxpr, [True] * len(jaxpr.invars))
    return jaxpr_cost(jaxpr)


def jaxpr_cost(jaxpr: Jaxpr) -> Cost:
    """Returns the cost of a jaxpr as it is."""
    total = Cost()
    for eqn in jaxpr.eqns:
        total = total + equation_cost(eqn)
    return total


def equation_cost(eqn: Any) -> Cost:
    """Returns the cost of one equation."""
    name = eqn.primitive.name
    inner = [jaxpr_cost(each) for each in _compat.inner_jaxprs(eqn.params)]
    if name == "scan":
        return inner[0].times(eqn.params["length"])
    if name == "cond":
        return max(inner, key=lambda each: each.total)
    if inner and not name.startswith(("scatter", "reduce")):
        return sum(inner, Cost())
    written = float(sum(_size(var.aval) * var.aval.dtype.itemsize for var in eqn.outvars if hasattr(var.aval, "dtype")))
    return Cost(_flops(name, eqn), 0.0 if name in _FREE else written)


def _flops(name: str, eqn: Any) -> float:
    """Returns the floating-point operations of an equation without inner jaxprs."""
    operands = [atom.aval for atom in eqn.invars if hasattr(atom.aval, "dtype")]
    results = [var.aval for var in eqn.outvars if hasattr(var.aval, "dtype")]
    size = float(max(map(_size, results), default=0))
    if name in _FREE or name in _MOVING:
        return 0.0
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return _per_product(results[0]) * size * math.prod(operands[0].shape[i] for i in contracted)
    if name == "conv_general_dilated":
        kernel, numbers = operands[1], eqn.params["dimension_numbers"]
        return _per_product(results[0]) * size * _size(kernel) / max(kernel.shape[numbers.rhs_spec[0]], 1)
    if name in _CUBIC:
        return max(map(_size, operands)) * float(max(operands[0].shape[-2:], default=1))
    if name.startswith("scatter"):
        return float(_size(operands[-1]))
    if name.startswith(("reduce", "cum", "arg")):
        return float(max(map(_size, operands), default=0))
    return size


def _per_product(aval: Any) -> float:
    return 8.0 if jnp.issubdtype(aval.dtype, jnp.complexfloating) else 2.0


def _size(aval: Any) -> int:
    return math.prod(aval.shape) if isinstance(aval.shape, tuple) else 1


def sizes(avals: Sequence[Any]) -> int:
    """Returns the number of elements of several arrays."""
    return sum(map(_size, avals))
