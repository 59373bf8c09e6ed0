"""The diagonal of a Hessian and its trace, without the matrix where structure allows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.tree_util import tree_flatten, tree_unflatten

from symjac._memo.same_object import memoize as same_object
from symjac._result.jacobian import Jacobian
from symjac._result.linearize import linearize
from symjac._transforms.arguments import Argnums, normalised_argnums
from symjac._transforms.call import _check_callable


@same_object
def hessian_diagonal(fun: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """The diagonal of the Hessian of a scalar function, without the matrix where structure allows it.

    Args:
        fun: The function. Its differentiated arguments are pytrees of real arrays or numbers, its output is a scalar.
        argnums: The position or the positions of the arguments to differentiate with respect to.

    Returns:
        A function of the same arguments that gives the second derivative by each entry: a tree like the
        differentiated argument, with arrays of the same shapes; a tuple of them where `argnums` is a sequence.

    Raises:
        TypeError: where `fun` is not callable, `argnums` holds no integers, or (when called) the output is no scalar.

    >>> import jax.numpy as jnp
    >>> import symjac
    >>> print(symjac.hessian_diagonal(lambda x: jnp.sum(x**3))(jnp.arange(3.0)))
    [ 0.  6. 12.]
    """
    _check_callable(fun)
    argnums = normalised_argnums(argnums)

    def diagonal_of(*args: Any, **kwargs: Any) -> Any:
        jacobian, chosen = _jacobian_of_gradient(fun, argnums, args, kwargs)
        leaves, tree = tree_flatten(chosen)
        diagonal, start, parts = jacobian.diagonal(), 0, []
        for leaf in leaves:
            size = math.prod(jnp.shape(leaf))
            part = diagonal[start : start + size].reshape(jnp.shape(leaf))
            parts.append(part.astype(jnp.result_type(leaf)))
            start += size
        result = tree_unflatten(tree, parts)
        return result[0] if isinstance(argnums, int) else result

    return diagonal_of


@same_object
def laplacian(fun: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Array]:
    """The trace of the Hessian of a scalar function, without the matrix where structure allows it.

    Args:
        fun: The function. Its differentiated arguments are pytrees of real arrays or numbers, its output is a scalar.
        argnums: The position or the positions of the arguments to differentiate with respect to.

    Returns:
        A function of the same arguments that gives the sum of the second derivatives by each entry, a scalar.

    Raises:
        TypeError: where `fun` is not callable, `argnums` holds no integers, or (when called) the output is no scalar.

    >>> import jax.numpy as jnp
    >>> import symjac
    >>> print(symjac.laplacian(lambda x: jnp.sum(x**2))(jnp.arange(3.0)))
    6.0
    """
    _check_callable(fun)
    argnums = normalised_argnums(argnums)

    def laplacian_of(*args: Any, **kwargs: Any) -> Array:
        return _jacobian_of_gradient(fun, argnums, args, kwargs)[0].trace()

    return laplacian_of


def _jacobian_of_gradient(
    fun: Callable[..., Any], argnums: int | Sequence[int], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Jacobian, tuple[Any, ...]]:
    """The structured Hessian, as the Jacobian of the gradient, and the arguments it is with respect to."""
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for position in positions:
        if not -len(args) <= position < len(args):
            raise ValueError(f"argnums {position} is out of range for {len(args)} positional arguments.")
    chosen = tuple(args[position] for position in positions)

    def of_chosen(*values: Any) -> Any:
        filled = list(args)
        for position, value in zip(positions, values, strict=True):
            filled[position] = value
        return fun(*filled, **kwargs)

    _, jacobian = linearize(jax.grad(of_chosen, tuple(range(len(positions)))), *chosen)
    return jacobian, chosen
