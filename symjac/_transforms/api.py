"""The public transforms, with JAX's signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symjac._engine.chunks import ChunkSize
from symjac._memo.same_object import memoize as same_object
from symjac._transforms.arguments import Argnums
from symjac._transforms.call import transformed


@same_object
def jacfwd(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    memoize: bool = True,
    chunk_size: ChunkSize = None,
) -> Callable[..., Any]:
    """Jacobian of `fun`, as `jax.jacfwd` gives it.

    Args:
        fun: The function. Its differentiated arguments and its outputs are pytrees of arrays or numbers.
        argnums: The position or the positions of the arguments to differentiate with respect to.
        has_aux: Whether `fun` gives a pair of outputs and auxiliary data.
        holomorphic: Whether `fun` is promised to be holomorphic.
        memoize: Whether a later call may use what was traced in an earlier one.
        chunk_size: How many columns of a dense Jacobian to compute at once.

    Returns:
        A function of the same arguments that gives the Jacobian: the tree of the outputs with the tree of the
        differentiated arguments at each leaf, where a block has the shape of the output and then that of the input.
        With `has_aux` a pair of the Jacobian and the auxiliary data.

    Raises:
        TypeError: where `fun` is not callable or `argnums` holds no integers.

    >>> import jax.numpy as jnp
    >>> import symjac
    >>> A = jnp.arange(6.0).reshape(2, 3)
    >>> symjac.jacfwd(lambda x: A @ x)(jnp.ones(3)) is A
    True
    """
    return transformed("jacfwd", fun, argnums, has_aux, holomorphic, memoize=memoize, chunk_size=chunk_size)


@same_object
def jacrev(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    memoize: bool = True,
    chunk_size: ChunkSize = None,
) -> Callable[..., Any]:
    """Jacobian of `fun`, as `jax.jacrev` gives it.

    Args:
        fun: The function. Its differentiated arguments and its outputs are pytrees of arrays or numbers.
        argnums: The position or the positions of the arguments to differentiate with respect to.
        has_aux: Whether `fun` gives a pair of outputs and auxiliary data.
        holomorphic: Whether `fun` is promised to be holomorphic.
        allow_int: Whether integer arguments are allowed; their blocks are zeros.
        memoize: Whether a later call may use what was traced in an earlier one.
        chunk_size: How many rows of a dense Jacobian to compute at once.

    Returns:
        A function of the same arguments that gives the Jacobian, as that of `symjac.jacfwd` does, in the dtypes of
        the arguments.

    Raises:
        TypeError: where `fun` is not callable.

    >>> import jax.numpy as jnp
    >>> import symjac
    >>> A = jnp.arange(6.0).reshape(2, 3)
    >>> print(symjac.jacrev(lambda x: A @ x)(jnp.ones(3)))
    [[0. 1. 2.]
     [3. 4. 5.]]
    """
    return transformed(
        "jacrev", fun, argnums, has_aux, holomorphic, allow_int=allow_int, memoize=memoize, chunk_size=chunk_size
    )


@same_object
def jacobian(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    memoize: bool = True,
    chunk_size: ChunkSize = None,
) -> Callable[..., Any]:
    """Jacobian of `fun` by the cheaper of the forward and the reverse mode.

    Both are counted. The result has the dtypes that `symjac.jacrev` gives it, which is what `jax.jacobian` is.

    Args:
        fun: The function. Its differentiated arguments and its outputs are pytrees of arrays or numbers.
        argnums: The position or the positions of the arguments to differentiate with respect to.
        has_aux: Whether `fun` gives a pair of outputs and auxiliary data.
        holomorphic: Whether `fun` is promised to be holomorphic.
        allow_int: Whether integer arguments are allowed; their blocks are zeros.
        memoize: Whether a later call may use what was traced in an earlier one.
        chunk_size: How many rows or columns of a dense Jacobian to compute at once.

    Returns:
        A function of the same arguments that gives the Jacobian.

    Raises:
        TypeError: where `fun` is not callable.

    >>> import jax.numpy as jnp
    >>> import symjac
    >>> print(symjac.jacobian(jnp.sin)(jnp.zeros(2)))
    [[1. 0.]
     [0. 1.]]
    """
    return transformed(
        "jacobian", fun, argnums, has_aux, holomorphic, allow_int=allow_int, memoize=memoize, chunk_size=chunk_size
    )


@same_object
def hessian(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    memoize: bool = True,
    chunk_size: ChunkSize = None,
) -> Callable[..., Any]:
    """Hessian of `fun`, as `jax.hessian` gives it: the forward Jacobian of the reverse Jacobian.

    Args:
        fun: The function. Its differentiated arguments and its outputs are pytrees of arrays or numbers.
        argnums: The position or the positions of the arguments to differentiate with respect to.
        has_aux: Whether `fun` gives a pair of outputs and auxiliary data.
        holomorphic: Whether `fun` is promised to be holomorphic.
        memoize: Whether a later call may use what was traced in an earlier one.
        chunk_size: How many columns of a dense Hessian to compute at once.

    Returns:
        A function of the same arguments that gives the Hessian: the tree of the outputs, at each leaf the tree of
        the differentiated arguments, and at each leaf of that their tree once more.

    Raises:
        TypeError: where `fun` is not callable or `argnums` holds no integers.

    >>> import jax.numpy as jnp
    >>> import symjac
    >>> print(symjac.hessian(lambda x: jnp.sum(x**3))(jnp.ones(2)))
    [[6. 0.]
     [0. 6.]]
    """
    return transformed("hessian", fun, argnums, has_aux, holomorphic, memoize=memoize, chunk_size=chunk_size)


@same_object
def value_and_jacfwd(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    memoize: bool = True,
    chunk_size: ChunkSize = None,
) -> Callable[..., Any]:
    """The value of `fun` and its Jacobian, from one evaluation.

    The arguments are those of `symjac.jacfwd`.

    Returns:
        A function of the same arguments that gives a pair of what `fun` gives and its Jacobian. With `has_aux` the
        first is the pair of outputs and auxiliary data, as for `jax.value_and_grad`.

    >>> import jax.numpy as jnp
    >>> import symjac
    >>> value, jacobian = symjac.value_and_jacfwd(lambda x: x**2)(3.0)
    >>> print(value, jacobian)
    9.0 6.0
    """
    return transformed(
        "jacfwd", fun, argnums, has_aux, holomorphic, with_value=True, memoize=memoize, chunk_size=chunk_size
    )


@same_object
def value_and_jacrev(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    memoize: bool = True,
    chunk_size: ChunkSize = None,
) -> Callable[..., Any]:
    """The value of `fun` and its Jacobian, from one evaluation, in reverse mode.

    The arguments are those of `symjac.jacrev`, and the result is as for `symjac.value_and_jacfwd`.
    """
    return transformed(
        "jacrev",
        fun,
        argnums,
        has_aux,
        holomorphic,
        allow_int=allow_int,
        with_value=True,
        memoize=memoize,
        chunk_size=chunk_size,
    )


@same_object
def value_and_hessian(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    memoize: bool = True,
    chunk_size: ChunkSize = None,
) -> Callable[..., Any]:
    """The value of `fun` and its Hessian, from one evaluation.

    The arguments are those of `symjac.hessian`, and the result is as for `symjac.value_and_jacfwd`.
    """
    return transformed(
        "hessian", fun, argnums, has_aux, holomorphic, with_value=True, memoize=memoize, chunk_size=chunk_size
    )
