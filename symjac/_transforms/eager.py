"""Calls of a transformed function outside of `jit`: traced, compiled, and remembered."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import Array
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr
from jax.tree_util import tree_flatten, tree_leaves

from symjac import _compat
from symjac._engine.hoist import hoisted
from symjac._engine.literals import with_varying_literals_lifted
from symjac._memo.calls import MISS, NeedsValuesError, Shortcut, can_remember, memoised_call
from symjac._memo.holders import Traced, holder_of
from symjac._transforms.arguments import Call, leaves_and_key, split
from symjac._types import PyTreeDef

Positions = int | Sequence[int] | Callable[[int], tuple[int, ...]]
"""The positions of the arguments that are made arrays; or, for a number of arguments, a function that gives them."""

Trace = Callable[[Call], Traced]


def compiled(
    fun: Callable[..., Any], theirs: Callable[..., Any], positions: Positions, trace: Trace
) -> Callable[..., Any]:
    """Returns a function that computes what `theirs`, a transform of `fun`, computes.

    Args:
        fun: The user's function.
        theirs: What JAX's transform made of it. It serves where nothing can be remembered, and where it will complain.
        positions: The arguments whose leaves are made arrays; the others are passed on as they are.
        trace: Traces a call.
    """
    owner = object()

    def arguments(args: Any, kwargs: Any) -> tuple[list[Array], Any, tuple[int, ...]]:
        selected: tuple[int, ...] = positions(len(args)) if callable(positions) else _indices(positions)
        leaves, key = leaves_and_key(args, kwargs, selected)
        return leaves, key, selected

    def traced_call(args: Any, kwargs: Any, selected: tuple[int, ...], leaves: list[Array]) -> Traced:
        try:
            call = split(args, kwargs, selected, leaves)
        except (TypeError, ValueError) as error:
            raise NeedsValuesError from error
        return trace(call)

    def of_arguments(args: Any, kwargs: Any) -> tuple[Traced, list[Array]]:
        leaves, _, selected = arguments(args, kwargs)
        return traced_call(args, kwargs, selected, leaves), leaves

    shortcut = Shortcut()

    @functools.wraps(theirs)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and (result := shortcut.call(args)) is not MISS:
            return result
        if not can_remember(tree_leaves((args, kwargs))):
            return theirs(*args, **kwargs)
        try:
            leaves, key, selected = arguments(args, kwargs)
        except (TypeError, ValueError):
            return theirs(*args, **kwargs)  # It has the right words for it.
        try:
            result = memoised_call(fun, (owner, key), leaves, lambda: traced_call(args, kwargs, selected, leaves))
        except NeedsValuesError:
            return theirs(*args, **kwargs)
        if not kwargs:
            shortcut.learn(fun, (owner, key), args)
        return result

    transformed.__wrapped__ = fun
    holder = holder_of(transformed)
    if holder is not None:
        holder.trace = of_arguments
    return transformed


def _indices(positions: Any) -> tuple[int, ...]:
    return tuple(map(operator.index, positions)) if isinstance(positions, Sequence) else (operator.index(positions),)


def traced(theirs: Callable[..., Any], call: Call) -> Traced:
    """Traces a transformed function."""
    closed, tree = _traced_flat(theirs, call)
    return Traced(closed, _evaluation(closed), tree.unflatten, "jaxpr")


@dataclass(frozen=True)
class Gradient:
    """What `traced_gradient` is asked for; the attributes are the options of JAX's transforms."""

    is_tuple: bool
    has_aux: bool
    holomorphic: bool
    with_value: bool

    @property
    def gives_value(self) -> bool:
        """Whether the value of the function, with its auxiliary data, is among the outputs."""
        return self.with_value or self.has_aux


def traced_gradient(fun: Callable[..., Any], gradient: Gradient, call: Call) -> Traced:
    """Traces a function whose gradient is asked for: it is differentiated only where the program is not known yet."""
    closed, tree = _traced_flat(fun, call)
    consts = list(closed.consts)

    def engine(consts: Sequence[Any], leaves: Sequence[Array]) -> list[Array]:
        def of_active(*active: Any) -> Any:
            filled = list(leaves)
            for i, leaf in zip(call.active, tree_leaves(active), strict=True):
                filled[i] = leaf
            return tree.unflatten(eval_jaxpr(closed.jaxpr, consts, *filled))

        active = call.active_tree.unflatten([leaves[i] for i in call.active])
        positions = tuple(range(len(active)))
        transform = jax.value_and_grad(of_active, positions, gradient.has_aux, gradient.holomorphic)
        value, gradients = transform(*active)
        return [*(tree_leaves(value) if gradient.gives_value else []), *tree_leaves(gradients)]

    finish = functools.partial(_finished_gradient, gradient, tree, call.active_tree)
    if not _compat.has_custom_rules(closed.jaxpr):
        return Traced(closed, engine, finish, (gradient, call.active, _shape_of(tree)))
    # The rules are Python functions, made anew in each trace. What they give can be compared.
    jaxpr, own = _compat.opened(jax.make_jaxpr(engine)(consts, call.leaves))
    whole = _compat.closed(jaxpr, [*own, *consts])
    return Traced(whole, _evaluation(whole), finish, "jaxpr")


def _finished_gradient(gradient: Gradient, tree: PyTreeDef, active_tree: PyTreeDef, arrays: Sequence[Array]) -> Any:
    n_values = tree.num_leaves if gradient.gives_value else 0
    gradients = active_tree.unflatten(arrays[n_values:])
    if not gradient.is_tuple:
        (gradients,) = gradients
    if not gradient.gives_value:
        return gradients
    value = tree.unflatten(arrays[:n_values])
    if gradient.with_value:
        return tuple(value) if gradient.has_aux else value, gradients
    return gradients, value[1]


def _shape_of(tree: PyTreeDef) -> Any:
    """What the derivative of a function depends on, of the tree of its outputs."""
    data = tree.node_data()
    return data and data[0].__name__, [(child.num_leaves, child.node_data() is None) for child in tree.children()]


def _traced_flat(function: Callable[..., Any], call: Call) -> tuple[ClosedJaxpr, PyTreeDef]:
    """Traces a function of the arguments of a call; returns its jaxpr and the tree of its results."""
    trees: list[PyTreeDef] = []

    def flat(*leaves: Array) -> list[Array]:
        args, kwargs = call.rebuild(leaves)
        outputs, tree = tree_flatten(function(*args, **kwargs))
        if not all(isinstance(output, Array) for output in outputs):
            raise NeedsValuesError
        trees.append(tree)
        return outputs

    try:
        closed = hoisted(jax.make_jaxpr(flat)(*call.leaves))
    except (TypeError, IndexError, ValueError, AttributeError) as error:
        raise NeedsValuesError from error
    return with_varying_literals_lifted(closed) if can_remember(call.leaves) else closed, trees[0]


def _evaluation(closed: ClosedJaxpr) -> Callable[[Sequence[Any], Sequence[Array]], list[Array]]:
    def engine(consts: Sequence[Any], leaves: Sequence[Array]) -> list[Array]:
        return eval_jaxpr(closed.jaxpr, consts, *leaves)

    return engine
