"""A transform that gives the same object for the same function and equal options."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from symjac._memo.code import MEMO_NAME
from symjac._memo.holders import has_attributes, holder_of, memo_lock
from symjac._memo.structure import Identity, Uncertain, canonical

_MAX_DERIVED = 128
_PLAIN = (type(None), bool, int, str)
_Transform = TypeVar("_Transform", bound=Callable[..., Any])


def memoize(transform: _Transform) -> _Transform:
    """Makes a transform give the same object for the same function and equal options.

    So a transform that is applied anew in each pass of a loop is not a mistake any more: what JAX and symjac remember
    of its result is still there. The first argument of the transform is the function. The result lives as long as the
    function. Options may be lists or dicts. With the option `memoize=False`, if the transform has it, and for functions
    that cannot be remembered, such as bound methods, each result is a new one.

    Args:
        transform: Any transform: of symjac, of JAX, of the user.

    Returns:
        The transform, with the same signature.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import symjac
    >>> remat = symjac.memoize(jax.checkpoint)
    >>> remat(jnp.sin) is remat(jnp.sin)
    True
    """
    try:
        signature = inspect.signature(transform)
    except (TypeError, ValueError):
        signature = None

    @functools.wraps(transform)
    def memoised(*args: Any, **kwargs: Any) -> Any:
        plain = _plain_key(transform, args, kwargs)
        result = None if plain is None else _known(args[0], plain)
        if result is not None:
            return result
        found = _place(transform, signature, args, kwargs)
        if found is None:
            return transform(*args, **kwargs)
        fun, derived, key = found
        with memo_lock:
            reference = derived.get(key)
            result = None if reference is None else reference()
            if result is None:
                args, kwargs = _copied(list(args)), _copied(kwargs)
                result = transform(*args, **kwargs)
                keep = has_attributes(fun) and (reference is not None or not _is_local(fun))
                _store(derived, key, result, keep)
                if plain is not None:
                    _store(derived, plain, result, keep)
        return result

    return memoised  # type: ignore[return-value]  # It has the signature of `transform`.


def _plain_key(transform: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable | None:
    """Returns a key of options as they were written, or None where it takes more to compare them."""
    if len(args) == 1 and not kwargs:
        return transform
    if not args:
        return None
    key = [transform]
    for value in (*args[1:], *kwargs.values()):
        if type(value) is tuple:
            if any(type(each) not in _PLAIN for each in value):
                return None
            key.extend(map(type, value))
        elif type(value) not in _PLAIN:
            return None
        key.append(type(value))
    return (*key, args[1:], tuple(kwargs.items()))


def _known(fun: Any, key: Hashable) -> Any:
    """Returns the result that is kept in an attribute of the function, if there is one."""
    namespace = getattr(fun, "__dict__", None)
    holder = namespace.get(MEMO_NAME) if type(namespace) is dict else None
    if holder is None or holder.owner() is not fun:
        return None
    return holder.derived.get(key, _dead)()


def _dead() -> None:
    """Stands for the reference to an object that is gone."""


def _place(
    transform: Any, signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, dict[Hashable, Callable[[], Any]], Hashable] | None:
    """Returns the function, where results are kept, and the key of this one; None where it cannot be kept."""
    try:
        if signature is None:
            fun, *options = args
            named = kwargs
        else:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            (_, fun), *rest = bound.arguments.items()
            defaults = {name: parameter.default for name, parameter in signature.parameters.items()}
            options, named = [], {name: value for name, value in rest if value is not defaults[name]}
            if bound.arguments.get("memoize") is False:
                return None
        if not callable(fun):
            return None
        key = (transform, tuple(map(_option, options)), tuple((name, _option(named[name])) for name in sorted(named)))
        holder = holder_of(fun)
    except (TypeError, ValueError, Uncertain):
        return None  # The transform itself complains, if there is anything to complain of.
    return None if holder is None else (fun, holder.derived, key)


def _option(value: Any) -> Hashable:
    """Returns what identifies an option: its value, or, for objects and functions, their identity."""
    if type(value) in (list, tuple):
        return (type(value), tuple(map(_option, value)))
    if type(value) is dict:
        return (dict, tuple((canonical(key), _option(each)) for key, each in value.items()))
    try:
        return canonical(value)
    except Uncertain:
        if callable(value):
            return Identity(value)
        raise


def _copied(value: Any) -> Any:
    """Copies the containers in the options, so that nobody changes them later."""
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    if type(value) is dict:
        return {key: _copied(each) for key, each in value.items()}
    return value


def _is_local(fun: Any) -> bool:
    """Whether a function was made by another one, and may be made anew in each pass of a loop.

    Its result is kept alive from the second time on that it is asked for: a function that is used once and its result
    should go together at once, without waiting for the garbage collector.
    """
    return "<locals>" in getattr(fun, "__qualname__", "") or getattr(fun, "__name__", "") == "<lambda>"


def _store(derived: dict[Hashable, Callable[[], Any]], key: Hashable, result: Any, keep: bool) -> None:
    """Keeps the result: alive where that makes a cycle with the function alone, else for as long as the user does."""
    try:
        derived[key] = functools.partial(_itself, result) if keep else weakref.ref(result)
    except TypeError:
        return
    while len(derived) > _MAX_DERIVED:
        derived.pop(next(iter(derived)), None)


def _itself(result: Any) -> Any:
    return result
