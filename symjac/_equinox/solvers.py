"""Structure handed over to Lineax, and through it to Optimistix and Diffrax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symjac._equinox.filter_linearize import linearized


def lineax_operator(fn: Callable[[Any, Any], Any], x: Any, args: Any = None) -> Any:
    """The Jacobian of `fn(x, args)` with respect to `x` as a linear operator of Lineax, with derived tags.

    As `lineax.JacobianLinearOperator(fn, x, args)`, but the kind of operator (identity, diagonal, tridiagonal, dense or
    one that keeps its structure) and what `lineax.is_diagonal`, `is_tridiagonal` and so on answer follow from the
    program of `fn`. So `lineax.linear_solve` takes the right solver without tags that a user has to vouch for.

    Args:
        fn: A function of `x` and `args`.
        x: Where to take the Jacobian: a pytree of floating-point or complex arrays.
        args: Passed on to `fn`, and not differentiated.

    Returns:
        A `lineax.AbstractLinearOperator`.

    Raises:
        ImportError: where Lineax is not installed.
        ValueError: where `x` holds no floating-point or complex array.

    >>> import jax.numpy as jnp
    >>> import pytest
    >>> import symjac
    >>> lx = pytest.importorskip("lineax")
    >>> operator = symjac.lineax_operator(lambda x, args: jnp.sin(x) * args, jnp.zeros(3), 2.0)
    >>> lx.is_diagonal(operator)
    True
    """
    _imported("lineax_operator")
    _, jacobian, _ = linearized("lineax_operator", fn, (x,), (args,), False)
    return jacobian.to_lineax()


def lineax_solver(dense: Any = None) -> Any:
    """A linear solver of Lineax that finds the structure of any operator, and solves with it in linear time.

    It is for all that takes a `lineax.AbstractLinearSolver`: `lineax.linear_solve`, `optimistix.Newton` and `Chord`,
    and the implicit solvers of Diffrax, whose Newton matrix reaches the linear solver as a function. That matrix is
    found with its structure while tracing. Diagonal, tridiagonal, banded (in an order that is searched for) and block
    diagonal matrices are solved with directly; for others the matrix is formed, with the structure that it has, and
    solved with by `dense`.

        root_finder = diffrax.with_stepsize_controller_tols(diffrax.VeryChord)(linear_solver=symjac.lineax_solver())
        solver = diffrax.Kvaerno5(root_finder=root_finder)

    Args:
        dense: The solver for all other matrices. The default is `lineax.AutoLinearSolver(well_posed=None)`.

    Returns:
        A `lineax.AbstractLinearSolver`.

    Raises:
        ImportError: where Lineax is not installed.
    """
    _imported("lineax_solver")
    from symjac._equinox.lineax_solver import StructuredSolver

    return StructuredSolver() if dense is None else StructuredSolver(dense)


def _imported(name: str) -> None:
    try:
        import lineax  # noqa: F401
    except ImportError as error:
        raise ImportError(f"symjac.{name} needs the package lineax, which is not installed.") from error
