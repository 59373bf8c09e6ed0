"""Programs traced inside of the engine: the body of a loop, or a branch, on arrays and structured tangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import eval_jaxpr
from jax.extend.core import Jaxpr, Literal

from symjac import _compat
from symjac._algebra.record import Record, recording_apart
from symjac._algebra.tangent import StructuredTangent, zero
from symjac._engine.carry import Emptier, Hole, filled
from symjac._engine.interpreter import interpret
from symjac._types import aval_of


@dataclass(frozen=True)
class Subprogram:
    """A traced function from arrays to arrays and tangents.

    Attributes:
        jaxpr: Its inputs are the constants and the arguments, its outputs the arrays of the results.
        consts: The constants; arrays of an outer trace among them.
        outs: The results: each array is a hole, unless it does not depend on the arguments.
        records: What happened at its equations.
    """

    jaxpr: Jaxpr
    consts: Sequence[Any]
    outs: Sequence[Any]
    records: Sequence[Record]

    def __call__(self, *args: Any) -> list[Any]:
        """The results for some arguments."""
        arrays = eval_jaxpr(self.jaxpr, (), *self.consts, *args)
        return [filled(out, arrays) for out in self.outs]

    def is_const(self, array: Any) -> bool:
        """Whether an array of a result is one of the constants."""
        return any(array is const for const in self.consts)


def subprogram(function: Callable[..., Sequence[Any]], avals: Sequence[Any]) -> Subprogram:
    """Traces a function of arrays whose results are arrays and structured tangents."""
    outs: list[Any] = []

    def run(*args: Any) -> list[Any]:
        emptier = Emptier()
        outs[:] = [emptier(value) for value in function(*args)]
        return emptier.arrays

    with recording_apart() as records:
        jaxpr, consts = _compat.opened(jax.make_jaxpr(run)(*avals))
    known = dict(zip(jaxpr.invars, consts, strict=False))
    arrays: list[Any] = []
    for place, atom in enumerate(jaxpr.outvars):
        if isinstance(atom, Literal):
            arrays.append(atom.val)
        else:
            arrays.append(known.get(atom, Hole(place, tuple(aval_of(atom).shape), aval_of(atom).dtype)))
    return Subprogram(jaxpr, consts, [filled(out, arrays) for out in outs], list(records))


def interpret_all(jaxpr: Jaxpr, args: Sequence[Any], linear: Sequence[bool], in_shapes: Any) -> list[Any]:
    """Interprets a jaxpr; in the place of a tangent an array is zero, for the program is linear.

    Args:
        jaxpr: The jaxpr, without constants.
        args: Its arguments.
        linear: For each result whether it is a tangent.
        in_shapes: The shapes of the input leaves.
    """
    outs: list[Any] = []
    for out, flag, atom in zip(interpret(jaxpr, args), linear, jaxpr.outvars, strict=True):
        if flag and not isinstance(out, StructuredTangent):
            out = zero(aval_of(atom).shape, aval_of(atom).dtype, in_shapes)
        elif isinstance(out, bool | int | float | complex):
            out = np.asarray(out, aval_of(atom).dtype)
        outs.append(out)
    return outs


def abstract(aval: Any) -> jax.ShapeDtypeStruct:
    """The type of an array, as an argument of `subprogram`."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def count_equations(jaxpr: Jaxpr) -> int:
    """The number of equations of a jaxpr and of those inside of it."""
    return sum(1 + sum(map(count_equations, _compat.inner_jaxprs(eqn.params))) for eqn in jaxpr.eqns)
