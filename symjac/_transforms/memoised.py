"""JAX's transforms, memoised."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from symjac._memo.same_object import memoize as same_object
from symjac._transforms.arguments import Argnums
from symjac._transforms.eager import Gradient, compiled, traced, traced_gradient
from symjac._transforms.jit import Jitted

_SHARING = {"inline", "donate_argnums", "donate_argnames"}
"""The options of `jax.jit` with which functions of the same structure share a program."""


@same_object
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
    native = jax.jit(_hashable(fun), **options)
    if not memoize or not options.keys() <= _SHARING:
        return native
    return Jitted(native, fun, donates=bool(options.keys() - {"inline"}))


def _hashable(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that JAX can remember: an `eqx.Module`, for example, cannot be hashed."""
    try:
        hash(fun)
    except TypeError:
        if callable(fun):
            return lambda *args, **kwargs: fun(*args, **kwargs)
    return fun


@same_object
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
    theirs = jax.grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)
    if not memoize or allow_int or reduce_axes:
        return theirs
    gradient = Gradient(isinstance(argnums, Sequence), has_aux, holomorphic, with_value=False)
    return compiled(fun, theirs, argnums, functools.partial(traced_gradient, fun, gradient))


@same_object
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
    theirs = jax.value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)
    if not memoize or allow_int or reduce_axes:
        return theirs
    gradient = Gradient(isinstance(argnums, Sequence), has_aux, holomorphic, with_value=True)
    return compiled(fun, theirs, argnums, functools.partial(traced_gradient, fun, gradient))


@same_object
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
    theirs = jax.vmap(fun, in_axes, out_axes, *args, **options)
    if not memoize:
        return theirs

    def mapped(count: int) -> tuple[int, ...]:
        if isinstance(in_axes, tuple | list):
            return tuple(i for i, axis in enumerate(in_axes[:count]) if axis is not None)
        return tuple(range(count)) if in_axes is not None else ()

    return compiled(fun, theirs, mapped, functools.partial(traced, theirs))


@same_object
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


@same_object
def _jvp(fun: Callable[..., Any], has_aux: bool) -> Callable[..., Any]:
    def theirs(primals: Any, tangents: Any) -> Any:
        return jax.jvp(fun, primals, tangents, has_aux)

    return compiled(fun, theirs, (0, 1), functools.partial(traced, theirs))


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


@same_object
def _vjp(fun: Callable[..., Any], has_aux: bool) -> Callable[..., Any]:
    def theirs(*primals: Any) -> Any:
        return jax.vjp(fun, *primals, has_aux=has_aux)

    return compiled(fun, theirs, lambda count: tuple(range(count)), functools.partial(traced, theirs))
