"""Calls whose function and arguments are pytrees of anything: which leaves are arrays, and which are differentiated."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import Array
from jax.tree_util import tree_flatten, tree_structure, tree_unflatten

from symjac import _compat
from symjac._transforms.arguments import Call, as_array, static_key
from symjac._types import PyTreeDef

_LEAF = tree_structure(0)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, _compat.PjitFunction, jax.custom_jvp, jax.custom_vjp)


@dataclass(frozen=True)
class FilteredCall:
    """A call `fun(*args, **kwargs)` taken apart.

    Attributes:
        flat: The leaves of the function, where it is a pytree with leaves, of the differentiated arguments and of all
            others. Each leaf that is differentiated is an array of JAX's.
        is_array: Which of them are arrays of JAX's.
        is_active: Which of them are differentiated.
        trees: The trees of the function, of the differentiated arguments and of the others.
        fun: The function.
    """

    flat: list[Any]
    is_array: list[bool]
    is_active: list[bool]
    trees: tuple[PyTreeDef, PyTreeDef, PyTreeDef]
    fun: Any

    @property
    def owner(self) -> Any:
        """What the memo remembers the call by: the function, or that which functions of its kind have in common."""
        if is_leaf(self.fun):
            return self.fun
        return self.fun.func if isinstance(self.fun, eqx.Partial) else type(self.fun).__call__

    @property
    def leaves(self) -> list[Array]:
        """The arrays."""
        return [leaf for leaf, keep in zip(self.flat, self.is_array, strict=True) if keep]

    @property
    def key(self) -> Hashable:
        """All that the call depends on but the owner and the values of arrays; None where that may change unseen."""
        parts = [
            jax.typeof(leaf) if keep else _static_key(leaf) for leaf, keep in zip(self.flat, self.is_array, strict=True)
        ]
        return None if any(part is None for part in parts) else (self.trees, *parts)

    def opened(self) -> Call:
        """Returns the call in the form that the transforms take: of the function, the arguments and the keywords."""
        numbered = [i for i, keep in enumerate(self.is_array) if keep]
        active = tuple(position for position, i in enumerate(numbered) if self.is_active[i])
        chosen, first = self.trees[1], self.trees[0].num_leaves
        kept = [self.flat[i] if self.is_active[i] else None for i in range(first, first + chosen.num_leaves)]
        static = [None if keep else leaf for leaf, keep in zip(self.flat, self.is_array, strict=True)]
        fun = self.fun if is_leaf(self.fun) else None
        rebuild = functools.partial(_rebuilt, fun, self.trees, static, self.is_array)
        return Call(self.leaves, active, tree_structure(tree_unflatten(chosen, kept)), rebuild)


def taken_apart(
    fun: Callable[..., Any], chosen: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> FilteredCall:
    """Takes a call `fun(*chosen, *args, **kwargs)` apart, whose inexact arrays in `chosen` are differentiated."""
    fun = _as_tree(fun)
    own, tree = tree_flatten(None if is_leaf(fun) else fun)
    first, first_tree = tree_flatten(tuple(chosen))
    rest, rest_tree = tree_flatten((tuple(args), kwargs))
    inexact = [eqx.is_inexact_array(leaf) for leaf in first]
    first = [as_array(leaf) if keep else leaf for leaf, keep in zip(first, inexact, strict=True)]
    flat = [*own, *first, *rest]
    is_array = [type(leaf) is _compat.ArrayImpl or isinstance(leaf, Array) for leaf in flat]
    is_active = [False] * len(own) + inexact + [False] * len(rest)
    return FilteredCall(flat, is_array, is_active, (tree, first_tree, rest_tree), fun)


def is_leaf(fun: Any) -> bool:
    """Whether a function is no pytree that may hold arrays."""
    return isinstance(fun, types.FunctionType) or tree_structure(fun) == _LEAF


def _as_tree(fun: Any) -> Any:
    """Methods of modules that Python has bound hide the module, and those that Equinox has bound hold dicts."""
    if _is_method(fun) and not is_leaf(fun.__self__):
        return eqx.Partial(fun.__func__, fun.__self__)
    return fun


def _is_method(fun: Any) -> bool:
    return isinstance(fun, types.MethodType) or (isinstance(fun, eqx.Module) and hasattr(fun, "__func__"))


def _static_key(leaf: Any) -> Hashable | None:
    """Functions are among the leaves of a module; the memo looks at what they reach."""
    key = static_key(leaf)
    return leaf if key is None and isinstance(leaf, _FUNCTIONS) else key


def _rebuilt(
    fun: Any, trees: Sequence[PyTreeDef], static: Sequence[Any], is_array: Sequence[bool], leaves: Sequence[Array]
) -> tuple[list[Any], dict[str, Any]]:
    """Returns the function, the differentiated arguments, the others and the keywords as positional arguments."""
    remaining = iter(leaves)
    flat = [next(remaining) if keep else leaf for leaf, keep in zip(static, is_array, strict=True)]
    parts = []
    for tree in trees:
        parts.append(tree_unflatten(tree, flat[: tree.num_leaves]))
        flat = flat[tree.num_leaves :]
    own, chosen, (args, kwargs) = parts
    return [own if fun is None else fun, chosen, args, kwargs], {}


def is_output(leaf: Any) -> bool:
    """Whether an output has a Jacobian: arrays and numbers have, all else is passed on."""
    if isinstance(leaf, bool):
        return False
    return isinstance(leaf, (Array, np.ndarray, np.generic, int, float, complex))


def separated(output: Any) -> tuple[Any, Any]:
    """Returns the outputs that have a Jacobian, and the others, or None where there are no others."""
    if all(map(is_output, jax.tree.leaves(output))):
        return output, None
    return eqx.partition(output, is_output)


def bound(method: Any, instance: Any) -> Any:
    """Returns a method of an instance; of a module as Equinox does, so that the module's arrays are not hidden."""
    if instance is None:
        return method
    return eqx.Partial(method, instance) if isinstance(instance, eqx.Module) else types.MethodType(method, instance)


def like(fun: Any, name: str) -> dict[str, Any]:
    """The attributes by which a transformed function shows what it was made of."""
    shown = getattr(fun, "__name__", type(fun).__name__)
    doc = f"`symjac.{name}` of {shown}.\n\n{getattr(fun, '__doc__', None) or ''}".rstrip()
    names = {"__name__": shown, "__qualname__": getattr(fun, "__qualname__", shown), "__doc__": doc, "__wrapped__": fun}
    return names | {"__module__": getattr(fun, "__module__", __name__)}
