"""What a function can reach, and whether that is immutable and unchanged.

A program may be used again without tracing where everything that the function can reach is immutable, and the same as
when it was traced. A function reaches its closure, its defaults, the globals and module attributes that its code
names, and, through the functions among them, what those reach. Arrays, numbers, strings, installed modules and frozen
values are immutable. The contents of small lists, dicts and numpy arrays are compared. Anything else counts as mutable.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import gc
import inspect
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jax.custom_batching import custom_vmap

from symjac import _compat
from symjac._memo.code import (
    MEMO_NAME,
    is_impure,
    is_installed,
    is_installed_file,
    is_installed_module,
    is_own,
    names_of,
)
from symjac._memo.expect import Atom, Cells, Contents, Elements, Entries, Mapped, Same
from symjac._types import PyTreeDef

_MAX_DEPTH = 30
_MAX_CHECKS = 1000
_MAX_BYTES = 4096
_MAX_LOOKED_AT = 10_000
_NOT_LOOKED_INTO = (types.ModuleType, type, types.CodeType, types.FrameType, type(functools.lru_cache(len)))

_ATOMS = (
    *(type(None), bool, int, float, complex, str, bytes, range, type(Ellipsis), type(NotImplemented), enum.Enum),
    *(np.dtype, np.generic, np.ufunc, jax.ShapeDtypeStruct, jax.Device, _compat.AbstractValue),
    *(jax.sharding.Sharding, jax.sharding.Mesh, jax.sharding.PartitionSpec, type(_compat.UNSPECIFIED)),
    *(inspect.Signature, types.CodeType, types.GenericAlias, types.GetSetDescriptorType, types.MemberDescriptorType),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    type(jax.named_scope("name")),
)
_COMMON_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
_CUSTOM_RULES = (jax.custom_jvp, jax.custom_vjp, custom_vmap)
_CLASS_NAMES = frozenset(
    "__module__ __doc__ __dict__ __weakref__ __annotations__ __qualname__ __firstlineno__ __static_attributes__ "
    "__annotate__ __annotate_func__ __annotations_cache__ __dataclass_fields__ __dataclass_params__ __match_args__ "
    "__abstractmethods__ _abc_impl __parameters__ __orig_bases__ __slots__ __hash__".split()
)
"""What a class holds without a function of it using it."""


class Mutable(Exception):
    """The function reaches something that may change without notice."""


@dataclass(frozen=True)
class Reach:
    """What a function reached when it was traced.

    Attributes:
        nodes: The checks.
        arrays: Weak references to the arrays among it, by their id.
    """

    nodes: tuple[Cells | Mapped, ...]
    arrays: Mapping[int, weakref.ref[Any]]

    def reference_to(self, array: Any) -> weakref.ref[Any] | None:
        """The weak reference to an array among it, or None."""
        known = self.arrays.get(id(array))
        return known if known is not None and known() is array else None

    def unchanged(self) -> bool:
        """Whether all of it is still the same."""
        try:
            for node in self.nodes:
                if not node.unchanged():
                    return False
        except Exception:  # An emptied cell, a list that changes its size in another thread, an odd `__eq__` ...
            return False
        return True


def find_reach(fun: Callable[..., Any], static: Any = None) -> Reach | None:
    """Finds what a function, and the static arguments of a call, can reach.

    Returns:
        None where anything among it is mutable.
    """
    walker = _Walker()
    try:
        walker.visit(fun, 0)
        walker.visit_fixed(static, 0)
        walker.visit_modules()
    except Mutable:
        return None
    except Exception:  # Odd user objects may raise anything from their special methods.
        return None
    return Reach(tuple(walker.nodes), walker.arrays)


def made_by_trace(consts: Sequence[Any], fun: Any, reach: Reach | None) -> set[int]:
    """The ids of the constants, of those given, that are JAX's arrays and that the function does not hold.

    They were made while it was traced. What the function reaches is known, but for what is mutable and for functions
    under jit: there references are followed.
    """
    arrays = {
        id(const)
        for const in consts
        if isinstance(const, jax.Array) and (reach is None or reach.reference_to(const) is None)
    }
    seen: set[int] = set()
    found: list[Any] = [fun]
    while found and not seen >= arrays and len(seen) < _MAX_LOOKED_AT:
        referents = [each for each in gc.get_referents(*found) if not _belongs_to_library(each)]
        fresh = {id(each): each for each in referents if id(each) not in seen}
        seen |= fresh.keys()
        found = list(fresh.values())
    return arrays - seen


def _belongs_to_library(value: Any) -> bool:
    """Whether a value leads to what libraries hold, such as the caches that hold what was traced."""
    if isinstance(value, types.FunctionType):
        return is_installed_file(value.__code__.co_filename)
    return isinstance(value, _NOT_LOOKED_INTO)


class _Walker:
    """Walks from a function to all it can reach, and notes a check for each place on the way."""

    def __init__(self) -> None:
        self.nodes: list[Cells | Mapped] = []
        self.arrays: dict[int, weakref.ref[Any]] = {}
        self.names: set[str] = set()
        self.modules: dict[int, types.ModuleType] = {}
        self.seen: dict[int, Any] = {}  # Holds what was seen, so that no id is used twice.
        self.checks = 0

    def visit(self, value: Any, depth: int) -> Any:
        """Returns an expectation for a value, and visits what the value reaches."""
        self.checks += 1
        if depth > _MAX_DEPTH or self.checks > _MAX_CHECKS:
            raise Mutable(value)
        if type(value) in _COMMON_ATOMS:
            return Atom(value)
        if type(value) is _compat.ArrayImpl:
            return self._array(value)
        if isinstance(value, Tracer | np.void):  # A record is the one scalar that can be written to.
            raise Mutable(value)
        if type(value) is object or (isinstance(value, _ATOMS) and not isinstance(value, type)):
            return Atom(value)
        if isinstance(value, jax.Array):
            return self._array(value)
        container = self._container(value, depth + 1)
        if container is not None:
            return container
        if id(value) not in self.seen:
            self.seen[id(value)] = value
            self._reference(value, depth + 1)
        return Atom(value) if isinstance(value, PyTreeDef) else Same(value)

    def _array(self, value: jax.Array) -> Same:
        same = Same(value)
        self.arrays[id(value)] = same.ref
        return same

    def visit_fixed(self, value: Any, depth: int) -> None:
        """Visits a value of which no check is noted: it must not be one whose contents would have to be compared."""
        if not _is_fixed(self.visit(value, depth)):
            raise Mutable(value)

    def _container(self, value: Any, depth: int) -> Any:
        """Returns an expectation for the contents of a container, or None for anything else."""
        kind = type(value)
        if isinstance(value, tuple) and kind is not tuple:
            if hasattr(value, "__dict__"):  # No tuple can be referred to weakly.
                raise Mutable(value)
            self.visit(kind, depth)  # What its methods reach.
        if isinstance(value, tuple) or kind is list:
            return Elements(kind, tuple(self.visit(each, depth) for each in value))
        if kind is dict:
            if not all(type(key) in (str, int) for key in value):
                raise Mutable(value)
            return Entries(kind, tuple(value), tuple(self.visit(each, depth) for each in value.values()))
        if kind is frozenset and all(type(each) in (str, int) for each in value):
            return Atom(value)
        if kind is slice:
            self.visit_fixed((value.start, value.stop, value.step), depth)
            return Atom(value)
        if kind is np.ndarray:
            if value.nbytes > _MAX_BYTES or value.dtype.hasobject:
                raise Mutable(value)
            return Contents(value.shape, value.dtype, value.tobytes())
        return None

    def _reference(self, value: Any, depth: int) -> None:
        """Visits what is behind something that is compared by identity."""
        if isinstance(value, types.FunctionType):
            self._function(value, depth)
        elif isinstance(value, types.MethodType):
            self.visit_fixed((value.__func__, value.__self__), depth)
        elif isinstance(value, _compat.PjitFunction) or getattr(type(value), "_symjac_jit", False):
            pass  # As in JAX: what a jitted function reaches is looked at once.
        elif isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            self._builtin(value, depth)
        elif isinstance(value, types.ModuleType):
            self._module(value)
        elif isinstance(value, type):
            self._class(value, depth)
        elif isinstance(value, PyTreeDef):
            self._treedef(value, depth)
        elif isinstance(value, staticmethod | classmethod):
            self.visit_fixed(value.__func__, depth)
        elif isinstance(value, property):
            self.visit_fixed((value.fget, value.fset, value.fdel), depth)
        else:
            self._instance(value, depth)

    def _instance(self, value: Any, depth: int) -> None:
        if isinstance(value, functools.partial):
            self._namespace(value, lambda p: {"func": p.func, "args": p.args, "keywords": p.keywords}, depth)
            self._namespace(value, vars, depth)
        elif isinstance(value, _CUSTOM_RULES):
            self._namespace(value, vars, depth)
        elif hasattr(value, "__wrapped__") and type(value) is functools._lru_cache_wrapper:
            self.visit_fixed(value.__wrapped__, depth)
        elif _is_frozen(value):
            self._fields(value, depth)
            self.visit(type(value), depth)
        elif not _is_stateless(value):
            raise Mutable(value)

    def _fields(self, value: Any, depth: int) -> None:
        """Visits the fields of a frozen instance: of these only the contents of containers can change."""
        entries = {key: self.visit(each, depth) for key, each in vars(value).items()}
        entries = {key: entry for key, entry in entries.items() if not _is_fixed(entry)}
        if entries:
            self.nodes.append(Mapped(weakref.ref(value), vars, entries))

    def _namespace(self, owner: Any, read: Callable[[Any], Mapping[str, Any]], depth: int) -> None:
        """Visits all that a namespace holds."""
        namespace = {key: value for key, value in dict(read(owner)).items() if key not in _CLASS_NAMES}
        entries = {key: self.visit(value, depth) for key, value in namespace.items() if key != MEMO_NAME}
        size = None if isinstance(owner, (types.FunctionType, *_CUSTOM_RULES)) else len(read(owner))
        if entries or size:
            self.nodes.append(Mapped(weakref.ref(owner), read, entries, (), size))

    def _function(self, value: types.FunctionType, depth: int) -> None:
        installed = is_installed(value)
        if installed and is_impure(value.__module__):
            raise Mutable(value)
        if is_own(value) and "__wrapped__" in value.__dict__:
            self.visit_fixed(value.__dict__["__wrapped__"], depth)  # The rest of the closure is options.
            return
        cells = [self.visit(cell.cell_contents, depth) for cell in value.__closure__ or ()]
        if installed and not cells and not value.__dict__:
            return
        ref = weakref.ref(value)
        defaults, kwdefaults = self.visit(value.__defaults__, depth), self.visit(value.__kwdefaults__, depth)
        self.nodes.append(Cells(ref, value.__code__, defaults, kwdefaults, cells))
        self._namespace(value, operator.attrgetter("__dict__"), depth)
        if not installed:
            self._globals(value, ref, depth)

    def _globals(self, value: types.FunctionType, ref: Callable[[], Any], depth: int) -> None:
        names = names_of(value.__code__)
        if not names.are_pure:
            raise Mutable(value)
        self.names |= names.all_
        for name in names.imports or ():
            module = sys.modules.get(name)
            if module is None or not is_installed_module(module):
                raise Mutable(value)
            self.visit(module, depth)
        namespace = value.__globals__
        present = {name: namespace[name] for name in sorted(names.globals_) if name in namespace}
        absent = tuple(sorted(names.globals_ - present.keys()))
        if any(not hasattr(builtins, name) for name in absent):
            raise Mutable(value)
        entries = {name: self.visit(each, depth) for name, each in present.items()}
        self.nodes.append(Mapped(ref, operator.attrgetter("__globals__"), entries, absent))

    def _builtin(self, value: Any, depth: int) -> None:
        if is_impure(getattr(value, "__module__", None)):
            raise Mutable(value)
        owner = value.__self__
        if owner is not None and not isinstance(owner, types.ModuleType):
            self.visit_fixed(owner, depth)

    def _module(self, value: types.ModuleType) -> None:
        if is_impure(value.__name__):
            raise Mutable(value)
        self.modules[id(value)] = value

    def visit_modules(self) -> None:
        """Visits the attributes of modules that any code names, until nothing new is found."""
        done: set[tuple[int, str]] = set()
        while todo := {(key, name) for key in self.modules for name in self.names} - done:
            done |= todo
            for key in {key for key, _ in todo}:
                self._attributes(self.modules[key], sorted(name for k, name in todo if k == key))

    def _attributes(self, module: types.ModuleType, names: Iterable[str]) -> None:
        namespace = vars(module)
        found = {name: namespace[name] for name in names if name in namespace}
        if is_installed_module(module):
            for value in found.values():
                if isinstance(value, types.ModuleType) and value.__name__.startswith("numpy.random"):
                    raise Mutable(value)
            return
        if "__getattr__" in namespace:
            raise Mutable(module)
        entries = {name: self.visit(value, 1) for name, value in found.items()}
        if entries:
            self.nodes.append(Mapped(weakref.ref(module), vars, entries))

    def _class(self, value: type, depth: int) -> None:
        if is_installed(value):
            if is_impure(value.__module__):
                raise Mutable(value)
            return
        self._namespace(value, vars, depth)
        for base in value.__mro__[1:]:
            self.visit(base, depth)
        self.visit(type(value), depth)

    def _treedef(self, value: Any, depth: int) -> None:
        data = value.node_data()
        if data is not None:
            kind, aux = data
            self.visit(kind, depth)
            self.visit_fixed(_compat.plain_aux(tuple(aux) if isinstance(aux, list) else aux), depth)
        for child in value.children():
            self._treedef(child, depth + 1)


def _is_fixed(expected: Any) -> bool:
    if isinstance(expected, Elements):
        return issubclass(expected.kind, tuple) and all(map(_is_fixed, expected.elements))
    return isinstance(expected, Atom | Same)


def _is_frozen(value: Any) -> bool:
    """Whether an instance has fields that cannot be assigned to."""
    if isinstance(value, eqx.Module):
        return True
    parameters = getattr(type(value), "__dataclass_params__", None)
    return dataclasses.is_dataclass(value) and bool(parameters and parameters.frozen) and hasattr(value, "__dict__")


def _is_stateless(value: Any) -> bool:
    """Whether an instance of a class of JAX's is a value."""
    return type(value).__name__ == "ufunc" and type(value).__module__.startswith("jax")
