"""JAX's transforms, memoised."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array
from jax.tree_util import tree_flatten, tree_leaves, tree_unflatten

from symjac._arguments import Argnums, leaves_and_key, split
from symjac._hoist import hoisted
from symjac._jit import Jitted
from symjac._memo import Traced, can_remember, memoised_call
from symjac._same_object import memoize

_INLINED = {"inline"}
_DONATING = {"donate_argnums", "donate_argnames"}
_STATIC = (type(None), bool, int, float, complex, str, bytes)


class _NeedsValuesError(Exception):
    """A function could not be traced without the values of its arguments, or its results are no arrays."""


def jit(fun: Callable[..., Any] | None = None, /, *, memoize: bool = True, **options: Any) -> Any:
    """Compiles a function, as `jax.jit` does, and once only for functions of the same structure.

    A function that is made anew in each pass of a loop is traced, and then runs the program that was compiled for an
    earlier one, with its own closed-over arrays. Like `jax.jit` this does not look at globals again.

    Args:
        fun: The function. Without it, the result is a decorator.
        memoize: Whether to give the same object for the same function, and to share compiled programs.
        **options: The options of `jax.jit`. With other options than those for donation and `inline`, programs are not
            shared between functions.

    >>> import jax.numpy as jnp
    >>> import symjac
    >>> symjac.jit(jnp.sin) is symjac.jit(jnp.sin)
    True
    """
    if fun is None:
        return functools.partial(jit, memoize=memoize, **options)
    return _jit(fun, **options) if memoize else jax.jit(fun, **options)


@memoize
def _jit(fun: Callable[..., Any], **options: Any) -> Any:
    native = jax.jit(fun, **options)
    return Jitted(native, fun) if options.keys() <= _INLINED | _DONATING else native


def grad(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
    *,
    memoize: bool = True,
) -> Callable[..., Any]:
    """Gradient of a function, as `jax.grad` gives it; traced and compiled once.

    Args:
        fun: The function.
        argnums: As for `jax.grad`.
        has_aux: As for `jax.grad`.
        holomorphic: As for `jax.grad`.
        allow_int: As for `jax.grad`.
        reduce_axes: As for `jax.grad`.
        memoize: Whether a later call may use what was traced in an earlier one.

    >>> import symjac
    >>> float(symjac.grad(lambda x: x**2)(3.0))
    6.0
    """
    options = (argnums, has_aux, holomorphic, allow_int, reduce_axes)
    return _grad(fun, *options) if memoize else jax.grad(fun, *options)


@memoize
def _grad(fun: Callable[..., Any], argnums: Argnums, *options: Any) -> Callable[..., Any]:
    return _compiled("grad", fun, jax.grad(fun, argnums, *options), _positions(argnums))


def value_and_grad(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
    *,
    memoize: bool = True,
) -> Callable[..., Any]:
    """Value and gradient of a function, as `jax.value_and_grad` gives them; traced and compiled once.

    Args:
        fun: The function.
        argnums: As for `jax.value_and_grad`.
        has_aux: As for `jax.value_and_grad`.
        holomorphic: As for `jax.value_and_grad`.
        allow_int: As for `jax.value_and_grad`.
        reduce_axes: As for `jax.value_and_grad`.
        memoize: Whether a later call may use what was traced in an earlier one.
    """
    options = (argnums, has_aux, holomorphic, allow_int, reduce_axes)
    return _value_and_grad(fun, *options) if memoize else jax.value_and_grad(fun, *options)


@memoize
def _value_and_grad(fun: Callable[..., Any], argnums: Argnums, *options: Any) -> Callable[..., Any]:
    theirs = jax.value_and_grad(fun, argnums, *options)
    return _compiled("value_and_grad", fun, theirs, _positions(argnums))


def vmap(
    fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, *args: Any, memoize: bool = True, **options: Any
) -> Callable[..., Any]:
    """Maps a function over axes of its arguments, as `jax.vmap` does; traced and compiled once.

    Args:
        fun: The function.
        in_axes: As for `jax.vmap`.
        out_axes: As for `jax.vmap`.
        *args: As for `jax.vmap`.
        memoize: Whether a later call may use what was traced in an earlier one.
        **options: As for `jax.vmap`.
    """
    transform = _vmap if memoize else jax.vmap
    return transform(fun, in_axes, out_axes, *args, **options)


@memoize
def _vmap(fun: Callable[..., Any], in_axes: Any, *args: Any, **options: Any) -> Callable[..., Any]:
    def mapped(count: int) -> tuple[int, ...]:
        if isinstance(in_axes, (tuple, list)):
            return tuple(i for i, axis in enumerate(in_axes[:count]) if axis is not None)
        return tuple(range(count)) if in_axes is not None else ()

    theirs = jax.vmap(fun, in_axes, *args, **options)
    return _compiled("vmap", fun, theirs, mapped)


@memoize
def checkpoint(fun: Callable[..., Any], *, memoize: bool = True, **options: Any) -> Callable[..., Any]:
    """Makes a function recompute its residuals, as `jax.checkpoint` does; gives the same object for the same function.

    Args:
        fun: The function.
        memoize: Whether to give the same object.
        **options: As for `jax.checkpoint`.
    """
    return jax.checkpoint(fun, **options)


def jvp(
    fun: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False, *, memoize: bool = True
) -> tuple[Any, ...]:
    """Value and directional derivative of a function, as `jax.jvp` gives them; traced and compiled once.

    Args:
        fun: The function.
        primals: The arguments.
        tangents: The direction.
        has_aux: As for `jax.jvp`.
        memoize: Whether to use what was traced in an earlier call.
    """
    if not memoize or not callable(fun):
        return jax.jvp(fun, primals, tangents, has_aux)
    return _jvp(fun, has_aux)(primals, tangents)


@memoize
def _jvp(fun: Callable[..., Any], has_aux: bool) -> Callable[..., Any]:
    def theirs(primals: Any, tangents: Any) -> Any:
        return jax.jvp(fun, primals, tangents, has_aux)

    return _compiled("jvp", fun, theirs, (0, 1))


def vjp(
    fun: Callable[..., Any], *primals: Any, has_aux: bool = False, memoize: bool = True, **options: Any
) -> tuple[Any, ...]:
    """Value of a function and its pullback, as `jax.vjp` gives them; traced and compiled once.

    Args:
        fun: The function.
        *primals: The arguments.
        has_aux: As for `jax.vjp`.
        memoize: Whether to use what was traced in an earlier call.
        **options: As for `jax.vjp`.
    """
    if not memoize or not callable(fun) or options:
        return jax.vjp(fun, *primals, has_aux=has_aux, **options)
    return _vjp(fun, has_aux)(*primals)


@memoize
def _vjp(fun: Callable[..., Any], has_aux: bool) -> Callable[..., Any]:
    def theirs(*primals: Any) -> Any:
        return jax.vjp(fun, *primals, has_aux=has_aux)

    return _compiled("vjp", fun, theirs, lambda count: tuple(range(count)))


_Positions = tuple[int, ...] | Callable[[int], tuple[int, ...]]


def _positions(argnums: Any) -> _Positions:
    """Returns the differentiated positions; where they are none, JAX complains when it is called."""
    try:
        return tuple(map(operator.index, argnums)) if not hasattr(argnums, "__index__") else (operator.index(argnums),)
    except TypeError:
        return ()


def _compiled(
    kind: str, fun: Callable[..., Any], theirs: Callable[..., Any], positions: _Positions
) -> Callable[..., Any]:
    """Returns a function that computes what `theirs`, a transform of `fun`, computes.

    Args:
        kind: The name of the transform.
        fun: The user's function.
        theirs: The transformed function.
        positions: The arguments whose leaves are made arrays; the others are passed on as they are.
    """
    static = (kind, object())

    @functools.wraps(theirs)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        if not can_remember(tree_leaves((args, kwargs))):
            return theirs(*args, **kwargs)
        selected = positions(len(args)) if callable(positions) else positions
        try:
            leaves, key = leaves_and_key(args, kwargs, selected)
        except (TypeError, ValueError):
            return theirs(*args, **kwargs)  # It has the right words for it.
        trace = functools.partial(_traced, theirs, args, kwargs, selected, leaves)
        try:
            return memoised_call(fun, (static, key), leaves, trace)
        except _NeedsValuesError:
            return theirs(*args, **kwargs)

    transformed.__wrapped__ = fun  # type: ignore[attr-defined]
    return transformed


def _traced(
    theirs: Callable[..., Any], args: Any, kwargs: Any, selected: tuple[int, ...], leaves: Sequence[Array]
) -> Traced:
    call = split(args, kwargs, selected, leaves)
    trees: list[Any] = []

    def flat(*leaves: Array) -> list[Any]:
        rebuilt, keywords = call.rebuild(leaves)
        outputs, tree = tree_flatten(theirs(*rebuilt, **keywords))
        static = [leaf if type(leaf) in _STATIC else None for leaf in outputs]
        is_static = [type(leaf) in _STATIC for leaf in outputs]
        trees.append((tree, static, is_static))
        return [leaf for leaf, keep in zip(outputs, is_static, strict=True) if not keep]

    try:
        closed = hoisted(jax.make_jaxpr(flat)(*leaves))
    except (TypeError, IndexError, ValueError, AttributeError) as error:
        raise _NeedsValuesError from error

    def engine(consts: Sequence[Any], leaves: Sequence[Any]) -> list[Array]:
        return jax.core.eval_jaxpr(closed.jaxpr, consts, *leaves)

    return Traced(closed, engine, functools.partial(_finish, *trees[0]), "jaxpr")


def _finish(tree: Any, static: list[Any], is_static: list[bool], arrays: Sequence[Array]) -> Any:
    if not any(is_static):
        return tree_unflatten(tree, arrays)
    remaining = iter(arrays)
    pairs = zip(static, is_static, strict=True)
    return tree_unflatten(tree, [leaf if keep else next(remaining) for leaf, keep in pairs])
