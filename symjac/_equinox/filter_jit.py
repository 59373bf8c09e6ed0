"""`symjac.filter_jit`: Equinox's jit, which compiles once for all functions of the same structure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

import equinox as eqx
import jax
import numpy as np
from jax import Array
from jax.tree_util import register_pytree_node_class, tree_flatten, tree_unflatten

from symjac import _compat
from symjac._equinox.filtered import bound, like
from symjac._memo.calls import can_remember
from symjac._memo.same_object import memoize as _memoize
from symjac._transforms.arguments import static_key
from symjac._transforms.jit import Jitted
from symjac._types import PyTreeDef

_MAX_SIGNATURES = 256
_CALLBACKS = ("pure_callback", "io_callback", "debug_callback")
_Donate = Literal["all", "all-except-first", "warn", "warn-except-first", "none"]


@register_pytree_node_class
@dataclass(frozen=True, eq=False)
class _Output:
    """The outputs of a function, of which those that are no arrays are part of the tree."""

    arrays: Sequence[Any]
    rest: _Rest

    def tree_flatten(self) -> tuple[Sequence[Any], _Rest]:
        return tuple(self.arrays), self.rest

    @classmethod
    def tree_unflatten(cls, rest: _Rest, arrays: Sequence[Any]) -> _Output:
        return cls(arrays, rest)

    def whole(self) -> Any:
        """The outputs as the function gave them."""
        remaining = iter(self.arrays)
        pairs = zip(self.rest.static, self.rest.is_array, strict=True)
        return tree_unflatten(self.rest.tree, [next(remaining) if keep else leaf for leaf, keep in pairs])


@dataclass(frozen=True, eq=False)
class _Rest:
    tree: PyTreeDef
    static: list[Any]
    is_array: list[bool]


@dataclass(frozen=True, eq=False)
class FilterJitted:
    """What `symjac.filter_jit` returns.

    Attributes:
        fun: The user's function; the arrays in it are arguments too.
        native: What Equinox makes of it.
    """

    _symjac_jit: ClassVar[bool] = True
    fun: Callable[..., Any]
    native: Any
    _compiled: dict[Hashable, Jitted | None] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Takes over the name and the docstring of the function."""
        self.__dict__.update(like(self.fun, "filter_jit"))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, compiled."""
        flat, tree = tree_flatten((self.fun, args, kwargs))
        if not can_remember(flat):
            return self.native(*args, **kwargs)
        is_array = [isinstance(leaf, (Array, np.ndarray, np.generic)) for leaf in flat]
        arrays = [leaf for leaf, keep in zip(flat, is_array, strict=True) if keep]
        try:
            parts = [_signature(leaf) if keep else _static(leaf) for leaf, keep in zip(flat, is_array, strict=True)]
            key = (tree, *parts)
            compiled = self._compiled.get(key, self)
        except TypeError:  # Not hashable: Equinox has the words for it.
            key = compiled = None
        if compiled is self:
            static = [None if keep else leaf for leaf, keep in zip(flat, is_array, strict=True)]
            compiled = self._first(key, functools.partial(_called, tree, static, is_array), arrays)
        return self.native(*args, **kwargs) if compiled is None else compiled(*arrays).whole()

    def _first(self, key: Hashable, flat: Callable[..., _Output], arrays: Sequence[Any]) -> Jitted | None:
        """Equinox turns what callbacks raise into errors with the right words, so programs with any are left to it."""
        native = jax.jit(flat)
        calls_back = _compat.contains(native.trace(*arrays).jaxpr.jaxpr, _CALLBACKS)
        compiled = None if calls_back else Jitted(native, flat, donates=False)
        if len(self._compiled) >= _MAX_SIGNATURES:
            self._compiled.clear()
        self._compiled[key] = compiled
        return compiled

    def lower(self, /, *args: Any, **kwargs: Any) -> Any:
        """Lowers the function, as Equinox does."""
        return self.native.lower(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Binds as a method, like a function; to a module so that the result is a pytree."""
        return bound(self, instance)


def _called(tree: PyTreeDef, static: Sequence[Any], is_array: Sequence[bool], *arrays: Array) -> _Output:
    remaining = iter(arrays)
    flat = [next(remaining) if keep else leaf for leaf, keep in zip(static, is_array, strict=True)]
    fun, args, kwargs = tree_unflatten(tree, flat)
    outputs, out_tree = tree_flatten(fun(*args, **kwargs))
    keep = [isinstance(leaf, (Array, np.ndarray, np.generic)) for leaf in outputs]
    rest = _Rest(out_tree, [None if k else leaf for leaf, k in zip(outputs, keep, strict=True)], keep)
    return _Output([leaf for leaf, k in zip(outputs, keep, strict=True) if k], rest)


def _signature(leaf: Any) -> Hashable:
    return leaf.aval if type(leaf) is _compat.ArrayImpl else (type(leaf), jax.typeof(leaf))


def _static(leaf: Any) -> Hashable:
    key = static_key(leaf)
    hash(leaf)
    return (type(leaf), leaf) if key is None else key


def filter_jit(fun: Any = None, *, donate: str = "none", memoize: bool = True) -> Any:
    """Compiles a function, as `equinox.filter_jit` does, and once only for functions of the same structure.

    All arrays, in the arguments and in the function itself, are traced; all else is static. A function that is made
    anew in each pass of a loop is traced, and then runs the program that was compiled for an earlier one.

    Args:
        fun: The function. Without it, the result is a decorator.
        donate: As for `equinox.filter_jit`; with any but "none", programs are not shared between functions.
        memoize: Whether to give the same object for the same function, and to share compiled programs.

    Raises:
        TypeError: where `fun` is not callable.

    >>> import equinox as eqx
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import symjac
    >>> layer = eqx.nn.Linear(2, 3, key=jax.random.key(0))
    >>> symjac.filter_jit(lambda layer, x: (layer(x).shape, "static"))(layer, jnp.ones(2))
    ((3,), 'static')
    """
    if fun is None:
        return functools.partial(filter_jit, donate=donate, memoize=memoize)
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")
    if not memoize:
        return eqx.filter_jit(fun, donate=cast(_Donate, donate))
    return _filter_jit(fun, donate)


@_memoize
def _filter_jit(fun: Callable[..., Any], donate: str) -> Any:
    native = eqx.filter_jit(fun, donate=cast(_Donate, donate))
    return FilterJitted(fun, native) if donate == "none" else native
