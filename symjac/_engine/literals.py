"""Numbers that a function is called with, or closed over, as arguments of the compiled program where they vary.

A Python number stands in a jaxpr as a literal, so a program would be compiled for each value of a step size, say. The
numbers in which two programs of the same skeleton have differed are made constants of the jaxpr, which are arguments of
what is compiled. The others stay, so that what they tell about the structure is not lost. This is always valid; the
skeleton only tells where it is of use.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from symjac import _compat
from symjac._types import aval_of

_MAX_SKELETONS = 1024
_lock = threading.Lock()
_seen: OrderedDict[Hashable, tuple[tuple[bytes, ...], tuple[bool, ...]]] = OrderedDict()


def with_varying_literals_lifted(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Returns an equal jaxpr that has, as leading constants, the numbers that have varied so far."""
    places = [(i, j) for i, eqn in enumerate(closed.jaxpr.eqns) for j, atom in enumerate(eqn.invars) if _counts(atom)]
    if not places or closed.effects:
        return closed
    literals = [closed.jaxpr.eqns[i].invars[j] for i, j in places]
    varying = _varying(_skeleton(closed.jaxpr), tuple(np.asarray(each.val).tobytes() for each in literals))
    if not any(varying):
        return closed
    chosen = [k for k, flag in enumerate(varying) if flag]
    return _lifted(closed, [places[k] for k in chosen], [literals[k] for k in chosen])


def _counts(atom: Any) -> bool:
    return isinstance(atom, Literal) and jnp.issubdtype(getattr(atom.aval, "dtype", bool), jnp.number)


def _skeleton(jaxpr: Jaxpr) -> Hashable:
    equations = tuple((eqn.primitive.name, len(eqn.invars)) for eqn in jaxpr.eqns)
    avals = [aval_of(var) for var in (*jaxpr.constvars, *jaxpr.invars)]
    return equations, tuple((aval.shape, aval.dtype) for aval in avals)


def _varying(skeleton: Hashable, values: tuple[bytes, ...]) -> tuple[bool, ...]:
    """Returns which literals differ from those of an earlier program of the same skeleton, now or before."""
    with _lock:
        known, varying = _seen.get(skeleton, (values, (False,) * len(values)))
        if len(known) == len(values):
            varying = tuple(flag or a != b for flag, a, b in zip(varying, known, values, strict=True))
        else:
            varying = (False,) * len(values)
        _seen[skeleton] = values, varying
        _seen.move_to_end(skeleton)
        if len(_seen) > _MAX_SKELETONS:
            _seen.popitem(last=False)
    return varying


def _lifted(closed: ClosedJaxpr, places: Sequence[tuple[int, int]], literals: Sequence[Any]) -> ClosedJaxpr:
    jaxpr, consts = _compat.opened(closed)
    variables = [_compat.new_variable(literal.aval) for literal in literals]
    eqns = list(jaxpr.eqns)
    for (i, j), variable in zip(places, variables, strict=True):
        operands = list(eqns[i].invars)
        operands[j] = variable
        eqns[i] = eqns[i].replace(invars=operands)
    values = [_array(literal) for literal in literals]
    lifted = _compat.with_inputs(jaxpr, [*variables, *jaxpr.invars], eqns)
    return _compat.closed(lifted, [*values, *consts])


def _array(literal: Any) -> Any:
    aval = literal.aval
    return _compat.with_element_type(jnp.asarray(literal.val, aval.dtype), aval.dtype, aval.weak_type)
