"""One call of a transformed function: from the user's arguments to arrays, and from arrays to the user's trees."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import Array
from jax.tree_util import tree_flatten, tree_structure

from symjac import _compat
from symjac._engine.chunks import checked_chunk_size
from symjac._engine.program import FlatFunction, trace
from symjac._memo.calls import MISS, NeedsValuesError, Shortcut, can_remember, memoised_call
from symjac._memo.holders import Traced, holder_of
from symjac._transforms import checks
from symjac._transforms.arguments import Argnums, Call, leaves_and_key, normalised_argnums, split
from symjac._transforms.modes import Kind, Transform, evaluate, evaluate_eagerly, structural_jaxpr
from symjac._types import PyTreeDef

_interned = functools.lru_cache(maxsize=None)(Transform)
_LEAF = tree_structure(0)

_DOCSTRING = (
    "Jacobian of {fun} with respect to positional argument(s) {argnums}. Takes the same arguments as {fun} but returns "
    "the jacobian of the output with respect to the arguments at positions {argnums}."
)


@dataclass(frozen=True)
class _Outputs:
    """How the results of a function were flattened.

    Attributes:
        tree: The tree of the outputs to be differentiated.
        aux_tree: The tree of the auxiliary data.
        aux: Its leaves, where an array is replaced by None.
        aux_is_array: Which of them are arrays.
    """

    tree: PyTreeDef
    aux_tree: PyTreeDef
    aux: list[Any]
    aux_is_array: list[bool]


def transformed(
    kind: Kind,
    fun: Callable[..., Any],
    argnums: Argnums,
    has_aux: bool,
    holomorphic: bool,
    *,
    memoize: bool,
    chunk_size: Any,
    allow_int: bool = False,
    with_value: bool = False,
) -> Callable[..., Any]:
    """Returns the transformed function; the arguments are those of the public transforms."""
    _check_callable(fun)
    chunk_size = checked_chunk_size(chunk_size)
    is_inner_tuple = not isinstance(argnums, int)
    if kind in ("jacfwd", "hessian"):
        argnums = normalised_argnums(argnums)
    is_tuple = not isinstance(argnums, int)

    @functools.lru_cache(maxsize=1)
    def request() -> Transform:
        """`jax.jacrev` accepts any `argnums`, and complains when it is called."""
        positions = normalised_argnums(argnums)
        positions = (positions,) if isinstance(positions, int) else positions
        return _interned(
            kind, positions, is_tuple, is_inner_tuple, has_aux, holomorphic, allow_int, with_value, chunk_size
        )

    shortcut = Shortcut()

    @_like(fun, argnums)
    def jacfun(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and (result := shortcut.call(args)) is not MISS:
            return result
        transform = request()
        leaves, key = leaves_and_key(args, kwargs, transform.argnums)

        def traced() -> Traced:
            return _traced(transform, fun, split(args, kwargs, transform.argnums, leaves))

        try:
            result = memoised_call(fun, (transform, key), leaves, traced, memoize)
        except NeedsValuesError:
            result = MISS
        if result is MISS:
            return _computed_eagerly(transform, fun, split(args, kwargs, transform.argnums, leaves))
        if memoize and not kwargs:
            shortcut.learn(fun, (transform, key), args)
        return result

    def of_arguments(args: Any, kwargs: Any) -> tuple[Traced, Sequence[Array]]:
        transform = request()
        leaves, _ = leaves_and_key(args, kwargs, transform.argnums)
        return _traced(transform, fun, split(args, kwargs, transform.argnums, leaves)), leaves

    if memoize and (holder := holder_of(jacfun)) is not None:
        holder.trace = of_arguments  # For `symjac.jit`.
    return jacfun


def _check_callable(fun: Any) -> None:
    if not callable(fun) or isinstance(fun, staticmethod):
        raise TypeError(f"Expected a callable value, got {fun}")
    if inspect.isgeneratorfunction(fun):
        raise TypeError(f"Expected a function, got a generator function: {fun}")


def _like(fun: Callable[..., Any], argnums: Argnums) -> Callable[[Any], Any]:
    """Gives the transformed function the name, the annotations and the attributes of `fun`."""

    def decorate(jacfun: Any) -> Any:
        name = _name(fun)
        jacfun.__dict__.update(getattr(fun, "__dict__", {}))
        jacfun.__annotations__ = getattr(fun, "__annotations__", {})
        jacfun.__name__ = name
        jacfun.__qualname__ = getattr(fun, "__qualname__", name)
        jacfun.__module__ = getattr(fun, "__module__", "<unknown module>")
        jacfun.__doc__ = _DOCSTRING.format(fun=name, argnums=argnums)
        jacfun.__wrapped__ = fun
        return jacfun

    return decorate


def _name(fun: Any) -> str:
    if isinstance(fun, functools.partial):
        return _name(fun.func)
    return getattr(fun, "__name__", "<unnamed function>")


def _flat(fun: Callable[..., Any], call: Call, has_aux: bool, outputs: list[_Outputs]) -> FlatFunction:
    """Returns `fun` as a function of array leaves, which records the trees of its results in `outputs`."""

    def flat(*leaves: Array) -> tuple[list[Array], list[Array]]:
        args, kwargs = call.rebuild(leaves)
        result = fun(*args, **kwargs)
        if has_aux and not (isinstance(result, (tuple, list)) and len(result) == 2):
            raise TypeError(
                "expected function with aux output to return a two-element tuple, but got type "
                f"{type(result)} with value {result}"
            )
        output, aux = result if has_aux else (result, None)
        values, tree = tree_flatten(output)
        aux_leaves, aux_tree = tree_flatten(aux)
        is_array = [isinstance(leaf, Array) for leaf in aux_leaves]
        static = [None if array else leaf for leaf, array in zip(aux_leaves, is_array, strict=True)]
        outputs.append(_Outputs(tree, aux_tree, static, is_array))
        return values, [leaf for leaf, array in zip(aux_leaves, is_array, strict=True) if array]

    return flat


def _traced(transform: Transform, fun: Callable[..., Any], call: Call) -> Traced:
    """Traces the function of a call, for the memo."""
    _check_inputs(transform, [jax.typeof(call.leaves[i]) for i in call.active])
    outputs: list[_Outputs] = []
    try:
        flat = _flat(fun, call, transform.has_aux, outputs)
        function, closed = trace(flat, call.leaves, call.active, for_memo=can_remember(call.leaves))
    except (TypeError, IndexError, ValueError) as error:
        raise NeedsValuesError from error
    _check_outputs(transform, function.output_avals)
    try:
        structure, skipped = structural_jaxpr(transform, function, closed, call.leaves)
    except ValueError as error:
        raise NeedsValuesError from error

    def engine(consts: Sequence[Array], leaves: Sequence[Array]) -> list[Array]:
        return evaluate(transform, function, consts[skipped:], leaves)

    static = (transform, function.n_outputs, function.active)
    return Traced(structure, engine, _finish(transform, outputs[0], call.active_tree), static)


def _computed_eagerly(transform: Transform, fun: Callable[..., Any], call: Call) -> Any:
    """Computes the result for a function that looks at the values of its arguments, without compiling anything."""
    outputs: list[_Outputs] = []
    function = _flat(fun, call, transform.has_aux, outputs)

    def checked(*leaves: Array) -> tuple[list[Array], list[Array]]:
        values, aux = function(*leaves)
        _check_outputs(transform, [jax.typeof(value) for value in values])
        return values, aux

    arrays = evaluate_eagerly(transform, checked, call.leaves, call.active)
    return _finish(transform, outputs[0], call.active_tree)(arrays)


def _check_inputs(transform: Transform, avals: Sequence[Any]) -> None:
    if transform.kind in ("jacfwd", "hessian"):
        checks.check_forward_inputs(avals, transform.holomorphic)
    else:
        checks.check_reverse_inputs(avals, transform.holomorphic, transform.allow_int)


def _check_outputs(transform: Transform, avals: Sequence[Any]) -> None:
    if transform.kind == "jacfwd":
        checks.check_forward_outputs(avals, transform.holomorphic)
    else:
        checks.check_reverse_outputs(avals, transform.holomorphic)


def _finish(transform: Transform, outputs: _Outputs, active_tree: PyTreeDef) -> Callable[[Sequence[Array]], Any]:
    """Returns the function that makes the user's result of the arrays that `evaluate` gives."""
    tree = _result_tree(transform, outputs.tree, active_tree)
    if transform.with_value or transform.has_aux:
        return functools.partial(_with_value_and_aux, transform, outputs, tree)
    if tree == _LEAF:
        return operator.itemgetter(0)
    return tree.unflatten


def _result_tree(transform: Transform, outputs: PyTreeDef, active_tree: PyTreeDef) -> PyTreeDef:
    single = active_tree if transform.is_tuple else active_tree.children()[0]
    if transform.kind != "hessian":
        return _compat.composed(outputs, single)
    inner = active_tree if transform.is_inner_tuple else active_tree.children()[0]
    return _compat.composed(_compat.composed(outputs, inner), single)


def _with_value_and_aux(transform: Transform, outputs: _Outputs, tree: PyTreeDef, arrays: Sequence[Array]) -> Any:
    n_values = outputs.tree.num_leaves if transform.with_value else 0
    n_aux = sum(outputs.aux_is_array)
    result = tree.unflatten(arrays[n_values + n_aux :])
    remaining = iter(arrays[n_values : n_values + n_aux])
    pairs = zip(outputs.aux, outputs.aux_is_array, strict=True)
    aux = outputs.aux_tree.unflatten([next(remaining) if array else leaf for leaf, array in pairs])
    if not transform.with_value:
        return result, aux
    value = outputs.tree.unflatten(arrays[:n_values])
    return ((value, aux) if transform.has_aux else value), result
