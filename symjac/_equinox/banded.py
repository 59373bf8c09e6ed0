"""Linear systems with a banded matrix: block tridiagonal QR, of a cost linear in the number of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

_PRECISION = lax.Precision.HIGHEST


@dataclass(frozen=True, eq=False)
class Order:
    """An order of the rows and columns of a square matrix that brings its entries close to the diagonal.

    Attributes:
        permutation: The number of the row that comes first, second ...; None where the order is the given one.
        bandwidth: The greatest distance of an entry from the diagonal then.
    """

    permutation: np.ndarray | None
    bandwidth: int


def best_order(rows: np.ndarray, columns: np.ndarray, n: int) -> Order:
    """The given order, or that of reverse Cuthill and McKee where it has at most half the bandwidth.

    Args:
        rows: The row of each entry.
        columns: The column of each entry.
        n: The number of rows and of columns.
    """
    given = Order(None, _bandwidth(rows, columns))
    if given.bandwidth <= 2:
        return given
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    matrix = csr_array((np.ones(len(rows), np.int8), (rows, columns)), shape=(n, n))
    permutation = np.asarray(reverse_cuthill_mckee(csr_array(matrix + matrix.T), symmetric_mode=True), np.int32)
    place = np.empty(n, np.int32)
    place[permutation] = np.arange(n, dtype=np.int32)
    found = Order(permutation, _bandwidth(place[rows], place[columns]))
    return found if 2 * found.bandwidth <= given.bandwidth else given


def _bandwidth(rows: np.ndarray, columns: np.ndarray) -> int:
    return int(np.abs(rows.astype(np.int64) - columns).max(initial=0))


class Tridiagonal(eqx.Module):
    """A tridiagonal matrix, which is factorised as it is solved, with pivots.

    Attributes:
        diagonal: The diagonal.
        lower: The diagonal below it, of the same size; its first number is not used.
        upper: The diagonal above it, of the same size; its last number is not used.
    """

    diagonal: Array
    lower: Array
    upper: Array

    def solve(self, vector: Array) -> Array:
        """The solution for one right hand side."""
        return lax.linalg.tridiagonal_solve(self.lower, self.diagonal, self.upper, vector[:, None])[:, 0]

    def transposed(self) -> Tridiagonal:
        """The transposed matrix."""
        upper = jnp.roll(self.lower, -1)
        return Tridiagonal(self.diagonal, jnp.roll(self.upper, 1), upper)


class BlockTridiagonal(eqx.Module):
    """The QR factors of a block tridiagonal matrix with ``m`` blocks of size ``w``, row of blocks by row of blocks.

    Step ``i`` eliminates the block below the diagonal by an orthogonal matrix of size ``2 w``, so that no pivots are
    needed. The upper triangular factor has two blocks beside the diagonal.

    Attributes:
        q: The orthogonal matrices, ``(m, 2 w, 2 w)``.
        r: The rows of blocks of the triangular factor, ``(m, w, 3 w)``.
        is_transposed: Whether the transposed matrix is solved with.
    """

    q: Array
    r: Array
    is_transposed: bool = eqx.field(static=True, default=False)

    def transposed(self) -> BlockTridiagonal:
        """The transposed matrix, of the same factors."""
        return BlockTridiagonal(self.q, self.r, not self.is_transposed)

    def conjugated(self) -> BlockTridiagonal:
        """The conjugated matrix."""
        return BlockTridiagonal(jnp.conj(self.q), jnp.conj(self.r), self.is_transposed)

    def solve(self, vector: Array) -> Array:
        """The solution for one right hand side of size ``m * w``."""
        parts = jnp.reshape(vector, self.r.shape[:2]).astype(jnp.promote_types(vector.dtype, self.r.dtype))
        parts = self._by_transposed(parts) if self.is_transposed else self._by_own(parts)
        return jnp.reshape(parts, -1)

    def _by_own(self, parts: Array) -> Array:
        """``Q.H`` from the first block to the last, then back substitution."""

        def turn(above: Array, step: Any) -> tuple[Array, Array]:
            q, below = step
            turned = _dot(jnp.conj(q.T), jnp.concatenate([above, below]))
            w = below.shape[0]
            return turned[w:], turned[:w]

        def substitute(known: tuple[Array, Array], step: Any) -> Any:
            r, right = step
            w = right.shape[0]
            right = right - _dot(r[:, w : 2 * w], known[0]) - _dot(r[:, 2 * w :], known[1])
            x = jax.scipy.linalg.solve_triangular(r[:, :w], right)
            return (x, known[0]), x

        following = jnp.concatenate([parts[1:], jnp.zeros_like(parts[:1])])
        _, turned = lax.scan(turn, parts[0], (self.q, following))
        zero = jnp.zeros_like(parts[0])
        return lax.scan(substitute, (zero, zero), (self.r, turned), reverse=True)[1]

    def _by_transposed(self, parts: Array) -> Array:
        """Forward substitution with ``R.T``, then ``conj(Q)`` from the last block to the first."""

        def substitute(pending: tuple[Array, Array], step: Any) -> Any:
            r, right = step
            w = right.shape[0]
            x = jax.scipy.linalg.solve_triangular(r[:, :w], right - pending[0], trans=1)
            first, second = _dot(r[:, w : 2 * w].T, x), _dot(r[:, 2 * w :].T, x)
            return (pending[1] + first, second), x

        def turn(below: Array, step: Any) -> tuple[Array, Array]:
            q, above = step
            w = above.shape[0]
            turned = _dot(jnp.conj(q), jnp.concatenate([above, below]))
            return turned[:w], turned[w:]

        zero = jnp.zeros_like(parts[0])
        _, solved = lax.scan(substitute, (zero, zero), (self.r, parts))
        first, rest = lax.scan(turn, zero, (self.q, solved), reverse=True)
        return jnp.concatenate([first[None], rest[:-1]])


def factorise(rows: np.ndarray, columns: np.ndarray, values: Array, n: int, bandwidth: int) -> Any:
    """Factorises a matrix that is given by its entries, in time linear in `n`.

    Args:
        rows: The row of each entry.
        columns: The column of each entry.
        values: Their values.
        n: The number of rows and of columns.
        bandwidth: The greatest distance of an entry from the diagonal.
    """
    if bandwidth <= 1:
        bands = jnp.zeros((3, n), values.dtype).at[columns - rows + 1, rows].set(values)
        return Tridiagonal(bands[1], bands[0], bands[2])
    w = bandwidth
    m = -(-n // w)
    blocks = jnp.zeros((m, w, 3 * w), values.dtype)
    blocks = blocks.at[rows // w, rows % w, columns - (rows // w - 1) * w].set(values)
    tail = np.arange(n, m * w)  # The last block is filled up by the identity.
    return _factorise(blocks.at[tail // w, tail % w, tail % w + w].set(1))


def _factorise(blocks: Array) -> BlockTridiagonal:
    w = blocks.shape[1]

    def eliminate(row: Array, below: Array) -> tuple[Array, tuple[Array, Array]]:
        """`row` is what is left of the row of blocks above, `below` the next one of the matrix: three blocks each."""
        q, r = jnp.linalg.qr(jnp.concatenate([row[:, :w], below[:, :w]]), mode="complete")
        rest = jnp.stack([row[:, w : 2 * w], row[:, 2 * w :], below[:, w : 2 * w], below[:, 2 * w :]])
        above = jnp.concatenate([rest[0], rest[1]], axis=1)
        under = jnp.concatenate([rest[2], rest[3]], axis=1)
        turned = _dot(jnp.conj(q.T), jnp.concatenate([above, under]))
        done = jnp.concatenate([r[:w], turned[:w]], axis=1)
        return jnp.concatenate([turned[w:], jnp.zeros_like(r[:w])], axis=1), (q, done)

    first = jnp.concatenate([blocks[0, :, w:], jnp.zeros_like(blocks[0, :, :w])], axis=1)
    following = jnp.concatenate([blocks[1:], jnp.zeros_like(blocks[:1])])
    _, (q, r) = lax.scan(eliminate, first, following)
    return BlockTridiagonal(q, r)


def _dot(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=_PRECISION)
