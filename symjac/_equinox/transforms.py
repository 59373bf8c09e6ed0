"""Transforms with Equinox's semantics: of a pytree of anything the inexact arrays are differentiated."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
from jax import Array
from jax.core import eval_jaxpr
from jax.tree_util import register_pytree_node_class, tree_flatten, tree_unflatten

from symjac._engine.hoist import hoisted
from symjac._equinox.filtered import FilteredCall, bound, like, separated, taken_apart
from symjac._memo.calls import can_remember, memoised_call
from symjac._memo.holders import Traced
from symjac._memo.same_object import memoize as _memoize
from symjac._transforms.arguments import Call
from symjac._transforms.call import NeedsValuesError, _computed_eagerly, _interned, _traced
from symjac._transforms.modes import Transform

Name = Literal[
    "filter_jacfwd",
    "filter_jacrev",
    "filter_jacobian",
    "filter_hessian",
    "filter_value_and_jacfwd",
    "filter_value_and_jacrev",
    "filter_grad",
    "filter_value_and_grad",
]

_FIRST_ARGUMENT = {
    False: "it was called without arguments. The first is the one that is differentiated.",
    True: "its first argument, the one that is differentiated, must be passed by position and not by keyword.",
}


@dataclass(frozen=True)
class Options:
    """What a filtered transform was asked for.

    Attributes:
        name: The name of the transform.
        has_aux: Whether the function gives auxiliary data too.
        holomorphic: Whether the function is promised to be holomorphic.
        allow_int: Accepted for the sake of `jax.grad`; no integers are ever differentiated.
        memoize: Whether a later call may use what was traced in an earlier one.
        chunk_size: How many rows or columns are computed at once.
    """

    name: Name
    has_aux: bool
    holomorphic: bool = False
    allow_int: bool = False
    memoize: bool = True
    chunk_size: Any = None

    @property
    def with_value(self) -> bool:
        """Whether the outputs are asked for."""
        return "value_and" in self.name

    @property
    def transform(self) -> Transform:
        """What is asked of the engine: what has no Jacobian is auxiliary data, so that there always is some."""
        kind = self.name.rpartition("_")[2]
        flags = (False, False, True, self.holomorphic, False, self.with_value)
        return _interned(kind, (1,), *flags, self.chunk_size)


@register_pytree_node_class
@dataclass(frozen=True, eq=False)
class Filtered:
    """A transformed function. It is a pytree that holds the function, whose arrays are leaves of it if it is a module.

    Attributes:
        fun: The user's function.
        options: What was asked for.
    """

    fun: Callable[..., Any]
    options: Options

    def __post_init__(self) -> None:
        """Takes over the name and the docstring of the function."""
        self.__dict__.update(like(self.fun, self.options.name))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Computes the derivative at the first argument."""
        if not args:
            raise TypeError(f"{self.options.name} of {self.__dict__['__name__']}: {_FIRST_ARGUMENT[bool(kwargs)]}")
        if self.options.name in ("filter_grad", "filter_value_and_grad"):
            return _gradient(self.options, self.fun, args, kwargs)
        return _jacobian(self.options, taken_apart(self.fun, args[:1], args[1:], kwargs))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Binds as a method, like a function; to a module so that the result is a pytree."""
        return bound(self, instance)

    def tree_flatten(self) -> tuple[tuple[Any], Options]:
        """Returns the function as the only child."""
        return (self.fun,), self.options

    @classmethod
    def tree_unflatten(cls, options: Options, children: Sequence[Any]) -> Filtered:
        """Returns the transform of another function."""
        (fun,) = children
        return cls(fun, options)


def _jacobian(options: Options, call: FilteredCall) -> Any:
    if not any(call.is_active):
        raise ValueError(
            f"{options.name}: the first argument holds no floating-point or complex array to differentiate with "
            "respect to. Python numbers do not count: pass `jnp.asarray(x)`."
        )
    transform, key = options.transform, call.key
    function = functools.partial(with_separate_outputs, options.has_aux)
    finish = functools.partial(_joined, options.has_aux, options.with_value)

    def traced() -> Traced:
        found = _traced(transform, function, call.opened())
        return Traced(found.closed, found.engine, Composed(finish, found.finish), found.static)

    try:
        return memoised_call(call.owner, (options, key), call.leaves, traced, options.memoize)
    except NeedsValuesError:
        pass
    return finish(_computed_eagerly(transform, function, call.opened()))


def with_separate_outputs(has_aux: bool, fun: Any, chosen: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Calls a function, and moves the outputs that have no Jacobian to the auxiliary data."""
    result = fun(*chosen, *args, **kwargs)
    if has_aux and not (isinstance(result, (tuple, list)) and len(result) == 2):
        raise TypeError(f"expected function with aux output to return a two-element tuple, but got type {type(result)}")
    output, aux = result if has_aux else (result, None)
    output, static = separated(output)
    return output, (static, aux)


@dataclass(frozen=True)
class Composed:
    """One function after another."""

    second: Callable[[Any], Any]
    first: Callable[[Any], Any]

    def __call__(self, arrays: Any) -> Any:
        return self.second(self.first(arrays))


def _joined(has_aux: bool, with_value: bool, computed: Any) -> Any:
    """Undoes `with_separate_outputs`. The Jacobian of the only differentiated argument stands in a 1-tuple's tree."""
    if with_value:
        (value, (static, aux)), (jacobian) = computed
        value = value if static is None else eqx.combine(value, static)
        return ((value, aux), jacobian) if has_aux else (value, jacobian)
    jacobian, (_, aux) = computed
    return (jacobian, aux) if has_aux else jacobian


def _gradient(options: Options, fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Equinox's gradient, traced and compiled once."""
    transform = eqx.filter_grad if options.name == "filter_grad" else eqx.filter_value_and_grad
    settings = {"has_aux": options.has_aux, "holomorphic": options.holomorphic, "allow_int": options.allow_int}

    def theirs(fun: Any, chosen: Any, args: Any, kwargs: Any) -> Any:
        return transform(fun, **settings)(*chosen, *args, **kwargs)

    call = taken_apart(fun, args[:1], args[1:], kwargs)
    leaves = call.leaves
    if not options.memoize or not can_remember(leaves):
        return theirs(fun, args[:1], args[1:], kwargs)
    try:
        return memoised_call(call.owner, (options, call.key), leaves, lambda: _plainly_traced(theirs, call.opened()))
    except NeedsValuesError:
        return theirs(fun, args[:1], args[1:], kwargs)


def _plainly_traced(theirs: Callable[..., Any], call: Call) -> Traced:
    """Traces a transform of JAX's or Equinox's, for the memo; outputs that are no arrays are noted."""
    trees: list[Any] = []

    def flat(*leaves: Array) -> list[Any]:
        args, _ = call.rebuild(leaves)
        outputs, tree = tree_flatten(theirs(*args))
        is_array = [isinstance(leaf, Array) for leaf in outputs]
        trees.append((tree, [None if keep else leaf for leaf, keep in zip(outputs, is_array, strict=True)], is_array))
        return [leaf for leaf, keep in zip(outputs, is_array, strict=True) if keep]

    try:
        closed = hoisted(jax.make_jaxpr(flat)(*call.leaves))
    except (TypeError, IndexError, ValueError, AttributeError) as error:
        raise NeedsValuesError from error

    def engine(consts: Sequence[Any], leaves: Sequence[Any]) -> list[Array]:
        return eval_jaxpr(closed.jaxpr, consts, *leaves)

    return Traced(closed, engine, functools.partial(_filled, *trees[0]), "jaxpr")


def _filled(tree: Any, static: Sequence[Any], is_array: Sequence[bool], arrays: Sequence[Array]) -> Any:
    remaining = iter(arrays)
    return tree_unflatten(
        tree, [next(remaining) if keep else leaf for leaf, keep in zip(static, is_array, strict=True)]
    )


def _filtered(fun: Any, **options: Any) -> Any:
    """Returns a transformed function, or, without a function, a decorator."""
    if fun is None:
        return functools.partial(_filtered, **options)
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")
    return (_same_filtered if options.get("memoize", True) else _new_filtered)(fun, **options)


def _new_filtered(fun: Callable[..., Any], **options: Any) -> Filtered:
    return Filtered(fun, Options(**options))


_same_filtered = _memoize(_new_filtered)


def filter_jacfwd(
    fun: Any = None, has_aux: bool = False, *, holomorphic: bool = False, memoize: bool = True, chunk_size: Any = None
) -> Any:
    """Jacobian of `fun` with respect to the inexact arrays in its first argument, in forward mode.

    As `equinox.filter_jacfwd`, with the structure of `symjac.jacfwd`. Besides it is a decorator, with and without
    options and for methods; gives the same object for the same function; and is traced and compiled once for arguments
    of the same types, whatever the arrays in the arguments, or in `fun` if that is a module, are.

    Args:
        fun: The function. Its arguments are pytrees of anything. Of its outputs, arrays and numbers are differentiated.
            Without it, the result is a decorator.
        has_aux: Whether `fun` gives a pair of outputs and auxiliary data.
        holomorphic: Whether `fun` is promised to be holomorphic.
        memoize: Whether a later call may use what was traced in an earlier one.
        chunk_size: How many columns of a dense Jacobian to compute at once.

    Returns:
        A function of the same arguments, the first by position. Its result has the tree of the outputs, at each leaf
        the tree of the first argument, and None for all that is not differentiated. With `has_aux` it is a pair of that
        and the auxiliary data.

    Raises:
        TypeError: when called without a positional argument.
        ValueError: when called with a first argument that holds no inexact array.

    >>> import equinox as eqx
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import symjac
    >>> model = eqx.nn.Linear(2, 3, key=jax.random.key(0))
    >>> jacobian = symjac.filter_jacfwd(lambda model, x: model(x))(model, jnp.ones(2))
    >>> jacobian.weight.shape, jacobian.bias.shape
    ((3, 3, 2), (3, 3))
    """
    settings = {"holomorphic": holomorphic, "memoize": memoize, "chunk_size": chunk_size}
    return _filtered(fun, name="filter_jacfwd", has_aux=has_aux, **settings)


def filter_jacrev(
    fun: Any = None, has_aux: bool = False, *, holomorphic: bool = False, memoize: bool = True, chunk_size: Any = None
) -> Any:
    """Jacobian of `fun` with respect to the inexact arrays in its first argument, in reverse mode.

    The arguments and the result are those of `symjac.filter_jacfwd`.
    """
    settings = {"holomorphic": holomorphic, "memoize": memoize, "chunk_size": chunk_size}
    return _filtered(fun, name="filter_jacrev", has_aux=has_aux, **settings)


def filter_jacobian(
    fun: Any = None, has_aux: bool = False, *, holomorphic: bool = False, memoize: bool = True, chunk_size: Any = None
) -> Any:
    """Jacobian of `fun` with respect to the inexact arrays in its first argument, in the cheaper of the two modes.

    The arguments and the result are those of `symjac.filter_jacfwd`.
    """
    settings = {"holomorphic": holomorphic, "memoize": memoize, "chunk_size": chunk_size}
    return _filtered(fun, name="filter_jacobian", has_aux=has_aux, **settings)


def filter_hessian(
    fun: Any = None, has_aux: bool = False, *, holomorphic: bool = False, memoize: bool = True, chunk_size: Any = None
) -> Any:
    """Hessian of `fun` with respect to the inexact arrays in its first argument, as `equinox.filter_hessian` gives it.

    The arguments are those of `symjac.filter_jacfwd`. The result has the tree of the outputs, at each leaf that of the
    first argument, and at each leaf of that the same tree once more.
    """
    settings = {"holomorphic": holomorphic, "memoize": memoize, "chunk_size": chunk_size}
    return _filtered(fun, name="filter_hessian", has_aux=has_aux, **settings)


def filter_value_and_jacfwd(
    fun: Any = None, has_aux: bool = False, *, holomorphic: bool = False, memoize: bool = True, chunk_size: Any = None
) -> Any:
    """The value of `fun` and its Jacobian as `symjac.filter_jacfwd` gives it, from one evaluation.

    The result is a pair of the outputs and the Jacobian. With `has_aux` the first is a pair of outputs and auxiliary
    data, as for `equinox.filter_value_and_grad`.
    """
    settings = {"holomorphic": holomorphic, "memoize": memoize, "chunk_size": chunk_size}
    return _filtered(fun, name="filter_value_and_jacfwd", has_aux=has_aux, **settings)


def filter_value_and_jacrev(
    fun: Any = None, has_aux: bool = False, *, holomorphic: bool = False, memoize: bool = True, chunk_size: Any = None
) -> Any:
    """The value of `fun` and its Jacobian as `symjac.filter_jacrev` gives it, from one evaluation.

    The result is as for `symjac.filter_value_and_jacfwd`.
    """
    settings = {"holomorphic": holomorphic, "memoize": memoize, "chunk_size": chunk_size}
    return _filtered(fun, name="filter_value_and_jacrev", has_aux=has_aux, **settings)


def filter_grad(
    fun: Any = None,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    memoize: bool = True,
) -> Any:
    """Gradient of `fun` with respect to the inexact arrays in its first argument, as `equinox.filter_grad` gives it.

    It is traced and compiled once for arguments of the same types, and the same object for the same function.

    Args:
        fun: The function. Without it, the result is a decorator.
        has_aux: As for `equinox.filter_grad`.
        holomorphic: As for `jax.grad`.
        allow_int: As for `jax.grad`.
        memoize: Whether a later call may use what was traced in an earlier one.
    """
    settings = {"holomorphic": holomorphic, "allow_int": allow_int, "memoize": memoize}
    return _filtered(fun, name="filter_grad", has_aux=has_aux, **settings)


def filter_value_and_grad(
    fun: Any = None,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    memoize: bool = True,
) -> Any:
    """Value and gradient of `fun`, as `equinox.filter_value_and_grad` gives them; traced and compiled once.

    The arguments are those of `symjac.filter_grad`.
    """
    settings = {"holomorphic": holomorphic, "allow_int": allow_int, "memoize": memoize}
    return _filtered(fun, name="filter_value_and_grad", has_aux=has_aux, **settings)
