"""The structure of a program as a hashable key.

Two jaxprs have equal keys only where they compute the same from the same inputs. The constants at the top level are
inputs: only their types count. Where equality is not certain there is no key.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import weakref
from collections.abc import Hashable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Primitive
from jax.extend.core.primitives import custom_jvp_call_p, custom_vjp_call_p

from symjac import _compat
from symjac._memo.code import is_installed
from symjac._types import PyTreeDef

_MAX_BYTES = 65536

_HASHABLE = (
    *(np.dtype, np.ufunc, Primitive, _compat.AbstractValue, jax.sharding.Sharding, jax.sharding.PartitionSpec),
    *(jax.sharding.Mesh, jax.sharding.AbstractMesh, jax.Device, jax.lax.DotAlgorithm),
)
_HASHABLE_NAMES = frozenset({"UnspecifiedValue", "AUTO", "Layout", "Format", "PRNGImpl", "AxisEnv"})
_EFFECT_NAMES = frozenset({"DebugEffect", "OrderedDebugEffect", "IOEffect", "OrderedIOEffect"})


class Uncertain(Exception):
    """The equality of something is not certain."""


class StructuralKey:
    """A nested tuple that is hashed once.

    Attributes:
        skeleton: The key without the values of the literals, such as Python numbers that a function is closed over.
    """

    __slots__ = ("_hash", "_parts", "skeleton")

    def __init__(self, parts: Hashable, skeleton: StructuralKey | None = None):
        """Hashes the parts; raises TypeError where that is impossible."""
        self._parts, self._hash, self.skeleton = parts, hash(parts), skeleton

    def __hash__(self) -> int:
        """Returns the hash of the parts."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Whether all parts are equal."""
        return isinstance(other, StructuralKey) and self._hash == other._hash and self._parts == other._parts


class Identity:
    """An object by its identity, held weakly: equal only to the same live object."""

    __slots__ = ("_id", "_ref")

    def __init__(self, value: Any):
        """Refers to the value; raises TypeError where it cannot be referred to weakly."""
        self._id, self._ref = id(value), weakref.ref(value)

    def __hash__(self) -> int:
        """Returns a hash of the identity."""
        return hash(self._id)

    def __eq__(self, other: object) -> bool:
        """Whether both refer to the same live object."""
        if not isinstance(other, Identity):
            return False
        value = self._ref()
        return self is other or (value is not None and value is other._ref())


def structural_key(closed: ClosedJaxpr, static: Any = (), context: Hashable = None) -> StructuralKey | None:
    """Returns a key of what a program computes from its constants and arguments.

    Args:
        closed: The program, which will not be differentiated. Its constants count as arguments.
        static: What else the use of the program depends on.
        context: The settings that it was traced under.

    Returns:
        None where the equality of anything is not certain.
    """
    try:
        literals: list[Hashable] = []
        skeleton = StructuralKey((_jaxpr(closed.jaxpr, literals), canonical(static), context))
        return StructuralKey((skeleton, tuple(literals)), skeleton)
    except (Uncertain, TypeError):
        return None


def canonical(value: Any) -> Hashable:
    """Returns a hashable stand-in for a value: equal only where the values are of the same type and equal.

    Raises:
        Uncertain: where the equality of the value is not certain.
    """
    kind = type(value)
    if value is None or kind in (bool, int, str, bytes, range, type(Ellipsis)):
        return (kind, value)
    if kind in (float, complex):
        return (kind, repr(value))  # Tells -0.0 from 0.0, and takes a NaN to equal itself.
    if isinstance(value, tuple) or kind is list:
        return (kind, tuple(canonical(each) for each in value))
    if isinstance(value, dict):
        return (kind, tuple((canonical(key), canonical(each)) for key, each in value.items()))
    if kind in (frozenset, set):
        return (kind, frozenset(canonical(each) for each in value))
    if isinstance(value, enum.Enum):
        return (kind.__module__, kind.__qualname__, value.name)
    if kind is slice:
        return (kind, canonical((value.start, value.stop, value.step)))
    if isinstance(value, np.ndarray | np.generic):
        return _constant(value)
    if isinstance(value, _HASHABLE) and kind.__module__.startswith(("jax", "numpy", "ml_dtypes")):
        return value
    return _canonical_object(value, kind)


def _canonical_object(value: Any, kind: type) -> Hashable:
    if isinstance(value, PyTreeDef):
        return _treedef(value)
    if kind is object:
        return value
    if isinstance(value, type):
        return value if is_installed(value) else Identity(value)
    if isinstance(value, functools.partial):
        return (kind, canonical(value.func), canonical(value.args), canonical(value.keywords))
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | _compat.PjitFunction):
        return _module_level(value)
    if kind.__module__.startswith(("jax", "numpy", "symjac")):
        if kind.__name__ in _HASHABLE_NAMES or kind.__module__ == "jax._src.flattree":
            return value
        if kind.__name__ == "_FlatCallback":
            return (kind, canonical(value.callback_func), canonical(value.in_tree))
        if dataclasses.is_dataclass(value):
            return (kind, tuple(canonical(getattr(value, field.name)) for field in dataclasses.fields(value)))
    raise Uncertain(value)


def _module_level(value: Any) -> Hashable:
    """A function of an installed package that reaches nothing but its module."""
    function = getattr(value, "__wrapped__", value)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    closed = isinstance(function, types.FunctionType) and function.__closure__ is not None
    bound = isinstance(function, types.BuiltinFunctionType) and not isinstance(function.__self__, types.ModuleType)
    if closed or bound or not is_installed(function):
        raise Uncertain(value)
    return value


def _treedef(value: PyTreeDef) -> Hashable:
    data = value.node_data()
    children = tuple(_treedef(child) for child in value.children())
    if data is None:
        return (value.num_leaves, children)
    kind, aux = data
    return (canonical(kind), canonical(_compat.plain_aux(aux)), children)


def _constant(value: Any) -> Hashable:
    """An array by its contents."""
    array = np.asarray(value)
    if array.nbytes > _MAX_BYTES or array.dtype.hasobject:
        raise Uncertain(value)
    return (str(array.dtype), array.shape, array.tobytes(), type(value) is np.ndarray)


def _aval(aval: Any) -> Hashable:
    return (type(aval), aval, getattr(aval, "weak_type", None))


def _jaxpr(jaxpr: Any, literals: list[Hashable]) -> Hashable:
    """The key of a jaxpr, with its variables numbered in the order of their definition.

    The values of its literals are appended to a list.
    """
    numbers: dict[Any, int] = {}

    def define(var: Any) -> Hashable:
        numbers[var] = len(numbers)
        return _aval(var.aval)

    def read(atom: Any) -> Hashable:
        if isinstance(atom, Literal):
            literals.append(_literal(atom.val))
            return ("literal", _aval(atom.aval))
        return numbers[atom]

    inputs = tuple(define(var) for var in (*jaxpr.constvars, *jaxpr.invars))
    equations = tuple(
        (
            eqn.primitive,
            tuple(read(atom) for atom in eqn.invars),
            _params(eqn, literals),
            tuple(define(var) for var in eqn.outvars),
            tuple(_effect(effect) for effect in eqn.effects),
            tuple(canonical(part) for part in _compat.context_of(eqn)),
        )
        for eqn in jaxpr.eqns
    )
    return (len(jaxpr.constvars), inputs, equations, tuple(read(atom) for atom in jaxpr.outvars))


def _literal(value: Any) -> Hashable:
    if isinstance(value, bool | int | float | complex):
        return canonical(value)
    if isinstance(value, _compat.array_types):
        return _constant(value)
    raise Uncertain(value)


def _effect(effect: Any) -> Hashable:
    if type(effect).__name__ not in _EFFECT_NAMES:
        raise Uncertain(effect)
    return (type(effect), effect)


def _params(eqn: JaxprEqn, literals: list[Hashable]) -> Hashable:
    if eqn.primitive in (custom_jvp_call_p, custom_vjp_call_p):
        # The rules are functions made anew in each trace, and without a meaning here: nothing is differentiated.
        return _param(eqn.params["call_jaxpr"], literals)
    return tuple((name, _param(eqn.params[name], literals)) for name in sorted(eqn.params))


def _param(value: Any, literals: list[Hashable]) -> Hashable:
    if isinstance(value, _compat.jaxpr_types):
        consts = tuple(_nested_constant(const) for const in getattr(value, "consts", ()))
        return (_jaxpr(getattr(value, "jaxpr", value), literals), consts)
    if isinstance(value, tuple | list):
        return (type(value), tuple(_param(each, literals) for each in value))
    return canonical(value)


def _nested_constant(const: Any) -> Hashable:
    if isinstance(const, Tracer) or const.nbytes > _MAX_BYTES // 16:
        raise Uncertain(const)
    return _constant(const)
