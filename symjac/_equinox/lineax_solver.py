"""A linear solver of Lineax that finds the structure of its operator, and solves with that."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from symjac._equinox.banded import Order, Tridiagonal, best_order, factorise
from symjac._result import diagonal
from symjac._result.classify import structure_of
from symjac._result.entries import pattern_of, stored_count, stored_values
from symjac._result.jacobian import Jacobian
from symjac._result.linearize import linearize
from symjac._result.lineax import JacobianOperator
from symjac._result.stored import Layout, has_traced_indices

# A band is used where the matrix has so many times its bandwidth of rows, at least.
_ROWS_PER_BANDWIDTH = 8
_LEAST_ROWS = 32


class _Diagonal(eqx.Module):
    """A diagonal matrix."""

    diagonal: Array

    def solve(self, vector: Array) -> Array:
        """The solution for one right hand side."""
        return vector / self.diagonal

    def transposed(self) -> _Diagonal:
        """The transposed matrix."""
        return self


class _Blocks(eqx.Module):
    """A matrix that is block diagonal in one axis of an array, with LU factors of each block.

    Attributes:
        factors: The LU factors and the pivots of each block.
        shape: The shape of the array.
        axis: The axis.
        is_transposed: Whether the transposed matrix is solved with.
    """

    factors: tuple[Array, Array]
    shape: tuple[int, ...] = eqx.field(static=True)
    axis: int = eqx.field(static=True)
    is_transposed: bool = eqx.field(static=True, default=False)

    def solve(self, vector: Array) -> Array:
        """The solution for one right hand side."""
        moved = jnp.moveaxis(jnp.reshape(vector, self.shape), self.axis, 0)
        trans = 1 if self.is_transposed else 0
        rows = jnp.reshape(moved, (moved.shape[0], -1))
        solved = jax.vmap(lambda lu, b: jax.scipy.linalg.lu_solve(lu, b, trans=trans))(self.factors, rows)
        return jnp.reshape(jnp.moveaxis(jnp.reshape(solved, moved.shape), 0, self.axis), -1)

    def transposed(self) -> _Blocks:
        """The transposed matrix, of the same factors."""
        return _Blocks(self.factors, self.shape, self.axis, not self.is_transposed)


class _Ordered(eqx.Module):
    """A banded matrix in another order of its rows and columns, filled up to whole blocks.

    Attributes:
        matrix: The factors of the matrix in that order.
        permutation: The order, and its inverse; None where it is the given one.
        padding: How many rows were added.
    """

    matrix: Any
    permutation: tuple[Array, Array] | None
    padding: int = eqx.field(static=True)

    def solve(self, vector: Array) -> Array:
        """The solution for one right hand side."""
        n = vector.size
        ordered = vector if self.permutation is None else vector[self.permutation[0]]
        solved = self.matrix.solve(jnp.pad(ordered, (0, self.padding)))[:n]
        return solved if self.permutation is None else solved[self.permutation[1]]

    def transposed(self) -> _Ordered:
        """The transposed matrix, in the same order."""
        return _Ordered(self.matrix.transposed(), self.permutation, self.padding)


class _Dense(eqx.Module):
    """What another solver made of a dense matrix."""

    state: Any
    solver: lx.AbstractLinearSolver


class _Prepared(eqx.Module):
    """What `StructuredSolver` made of an operator.

    Attributes:
        matrix: The factors.
        spaces: The structures of what goes in and what comes out.
    """

    matrix: _Diagonal | _Blocks | _Ordered | Tridiagonal | _Dense
    spaces: Any = eqx.field(static=True)


class StructuredSolver(lx.AbstractLinearSolver):
    """Finds the structure of any operator of Lineax from the program of its `mv`, and solves with it.

    The Newton matrix of an implicit solver reaches the linear solver as a linear function. Its Jacobian, which is the
    matrix, is found with its structure, while tracing. Diagonal, tridiagonal, banded (after reordering, if need be)
    and block diagonal matrices are solved with in time linear in the number of rows; for all others the matrix is
    formed and given to another solver.

    Attributes:
        dense: The solver for matrices without such a structure, and for those that are not square.
    """

    dense: lx.AbstractLinearSolver = lx.AutoLinearSolver(well_posed=None)

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> _Prepared:
        """Finds the structure, and factorises."""
        spaces = jax.tree.flatten((operator.in_structure(), operator.out_structure()))
        spaces = (tuple(spaces[0]), spaces[1])
        jacobian = _jacobian_of(operator)
        matrix = _structured(jacobian) if jacobian.shape[0] == jacobian.shape[1] else None
        if matrix is None:
            formed = lx.MatrixLinearOperator(jacobian.as_matrix(), _tags(operator))
            matrix = _Dense(self.dense.init(formed, options), self.dense)
        return _Prepared(matrix, spaces)

    def compute(self, state: _Prepared, vector: Any, options: dict[str, Any]) -> tuple[Any, lx.RESULTS, dict[str, Any]]:
        """Solves for one right hand side."""
        flat, _ = ravel_pytree(vector)
        if isinstance(state.matrix, _Dense):
            solution, result, stats = state.matrix.solver.compute(state.matrix.state, flat, options)
        else:
            solution, result, stats = state.matrix.solve(flat), lx.RESULTS.successful, {}
        ins, _ = jax.tree.unflatten(state.spaces[1], state.spaces[0])
        return _unravelled(solution, ins), result, stats

    def transpose(self, state: _Prepared, options: dict[str, Any]) -> tuple[_Prepared, dict[str, Any]]:
        """Makes what `init` made of an operator that of the transposed one."""
        ins, outs = jax.tree.unflatten(state.spaces[1], state.spaces[0])
        leaves, tree = jax.tree.flatten((outs, ins))
        spaces = (tuple(leaves), tree)
        if isinstance(state.matrix, _Dense):
            solver = state.matrix.solver
            inner, options = solver.transpose(state.matrix.state, options)
            return _Prepared(_Dense(inner, solver), spaces), options
        return _Prepared(state.matrix.transposed(), spaces), options

    def conj(self, state: _Prepared, options: dict[str, Any]) -> tuple[_Prepared, dict[str, Any]]:
        """Makes what `init` made of an operator that of the conjugated one."""
        if isinstance(state.matrix, _Dense):
            solver = state.matrix.solver
            inner, options = solver.conj(state.matrix.state, options)
            return _Prepared(_Dense(inner, solver), state.spaces), options
        return jax.tree.map(lambda a: jnp.conj(a) if jnp.iscomplexobj(a) else a, state), options

    def assume_full_rank(self) -> bool:
        """Whether a singular matrix is an error."""
        return self.dense.assume_full_rank()


def _jacobian_of(operator: lx.AbstractLinearOperator) -> Jacobian:
    if isinstance(operator, JacobianOperator):
        return operator.jacobian
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), operator.in_structure())
    _, jacobian = linearize(operator.mv, zeros)
    return jacobian


def _structured(jacobian: Jacobian) -> Any | None:
    """The factors of a square matrix, or None where it has no structure that helps."""
    layout, arrays = jacobian._terms
    structure, n = structure_of(layout), layout.shape[0]
    if structure.is_diagonal:
        return _Diagonal(jacobian.diagonal())
    if structure.is_tridiagonal and n > 2:
        main, lower, upper = diagonal.three_diagonals(layout, arrays)
        zero = jnp.zeros(1, main.dtype)
        return Tridiagonal(main, jnp.concatenate([zero, lower]), jnp.concatenate([upper, zero]))
    if structure.kind == "block diagonal":
        blocks = _blocks(jacobian, layout)
        if blocks is not None:
            return blocks
    return _banded(layout, arrays)


def _blocks(jacobian: Jacobian, layout: Layout) -> _Blocks | None:
    """The first axis along which there are blocks that are square, and smaller than the matrix."""
    (out,), (leaf,) = layout.outs, layout.ins
    if out.shape != leaf.shape:
        return None
    for axis in range(len(leaf.shape)):
        try:
            found = jacobian.blocks(axis)
        except ValueError:
            continue
        if found.shape[0] > 1:
            return _Blocks(jax.vmap(jax.scipy.linalg.lu_factor)(found), leaf.shape, axis)
    return None


def _banded(layout: Layout, arrays: Any) -> _Ordered | None:
    """The factors of a matrix with few entries, in the order in which these are close to the diagonal."""
    n = layout.shape[0]
    if n < _LEAST_ROWS or has_traced_indices(layout) or stored_count(layout) * _ROWS_PER_BANDWIDTH > 2 * n * n:
        return None
    pattern = pattern_of(layout)
    rows, columns = pattern.indices.T
    order = best_order(rows, columns, n)
    if order.bandwidth * _ROWS_PER_BANDWIDTH > n:
        return None
    values = stored_values(layout, arrays, pattern)
    rows, columns, permutation = _in_order(order, rows, columns)
    padding = -n % max(order.bandwidth, 1) if order.bandwidth > 1 else 0
    return _Ordered(factorise(rows, columns, values, n, order.bandwidth), permutation, padding)


def _in_order(order: Order, rows: np.ndarray, columns: np.ndarray) -> Any:
    if order.permutation is None:
        return rows, columns, None
    place = np.empty_like(order.permutation)
    place[order.permutation] = np.arange(len(place), dtype=place.dtype)
    return place[rows], place[columns], (jnp.asarray(order.permutation), jnp.asarray(place))


def _tags(operator: lx.AbstractLinearOperator) -> frozenset[object]:
    pairs = (
        (lx.is_symmetric, lx.symmetric_tag),
        (lx.is_lower_triangular, lx.lower_triangular_tag),
        (lx.is_upper_triangular, lx.upper_triangular_tag),
        (lx.is_positive_semidefinite, lx.positive_semidefinite_tag),
        (lx.is_negative_semidefinite, lx.negative_semidefinite_tag),
    )
    return frozenset(tag for asked, tag in pairs if asked(operator))


def _unravelled(flat: Array, structure: Any) -> Any:
    leaves, tree = jax.tree.flatten(structure)
    parts = jnp.split(flat, np.cumsum([leaf.size for leaf in leaves])[:-1]) if len(leaves) > 1 else [flat]
    shaped = [jnp.reshape(part, leaf.shape).astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(tree, shaped)
