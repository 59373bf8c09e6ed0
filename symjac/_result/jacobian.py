"""The structured result: a Jacobian that keeps its terms until somebody asks for an array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, dtypes
from jax.core import Tracer
from jax.experimental.sparse import BCOO

from symjac._result import apply, diagonal, sparse
from symjac._result.classify import Structure, structure_of
from symjac._result.deferred import LinearForm, expand, layout_of
from symjac._result.entries import count_entries, stored_count
from symjac._result.stored import Layout, Leaf, has_traced_indices
from symjac._types import PyTreeDef


@dataclass(frozen=True)
class Trees:
    """The trees of the outputs and of the inputs.

    Attributes:
        outs: The tree of the outputs.
        ins: The tree of the inputs.
        outs_are_args: Whether `outs` is a tuple that a call of the transposed Jacobian takes as several arguments.
        ins_are_args: Whether `ins` is a tuple that a call takes as several arguments.
    """

    outs: PyTreeDef
    ins: PyTreeDef
    outs_are_args: bool = False
    ins_are_args: bool = False


class Jacobian(eqx.Module):
    """The Jacobian of a function at a point, as `symjac.linearize` gives it.

    It is a linear map, callable with tangents like the second result of `jax.linearize`, and a pytree: its arrays are
    leaves and its structure is static, so that it can leave a `jax.jit`, be carried through a `jax.lax.scan` and be
    mapped by `jax.vmap`. Nothing of it is a dense matrix until one is asked for.

    Rows are the elements of the outputs, columns those of the inputs, leaf by leaf and in row-major order.

    Attributes:
        arrays: The factors of all terms, and the index arrays that are not known while tracing. Where these are dear,
            what a linear program needs, from which the terms are found when they are asked for.
        form: How they make the Jacobian.
        trees: The trees of its inputs and outputs.

    >>> import jax.numpy as jnp
    >>> import symjac
    >>> _, J = symjac.linearize(lambda x: x**2 + x[::-1], jnp.arange(3.0))
    >>> print(J.as_matrix())
    [[0. 0. 1.]
     [0. 3. 0.]
     [1. 0. 4.]]
    >>> print(J @ jnp.ones(3), J.T @ jnp.ones(3), J.diagonal())
    [1. 3. 5.] [1. 3. 5.] [0. 3. 4.]
    """

    arrays: tuple[Any, ...]
    form: Layout | LinearForm = eqx.field(static=True)
    trees: Trees = eqx.field(static=True)

    @property
    def layout(self) -> Layout:
        """How terms make the Jacobian."""
        return layout_of(self.form) if isinstance(self.form, LinearForm) else self.form

    @property
    def _outs(self) -> tuple[Leaf, ...]:
        is_turned = isinstance(self.form, LinearForm) and self.form.is_transposed
        return self.form.ins if is_turned else self.form.outs

    @property
    def _ins(self) -> tuple[Leaf, ...]:
        is_turned = isinstance(self.form, LinearForm) and self.form.is_transposed
        return self.form.outs if is_turned else self.form.ins

    @property
    def _terms(self) -> tuple[Layout, tuple[Any, ...]]:
        return expand(self.form, self.arrays) if isinstance(self.form, LinearForm) else (self.form, self.arrays)

    # -- the linear map -----------------------------------------------------------------------------------------

    def __call__(self, *tangents: Any) -> Any:
        """The product with tangents of the inputs, as `jax.jvp` gives it.

        Raises:
            TypeError: where the tree or a dtype of the tangents is not that of the inputs.
            ValueError: where a shape is not.
        """
        vectors = self._vectors(tangents)
        products = apply.applied(self.form, self.arrays, vectors)
        filled = [_float0(leaf) if p is None else p for p, leaf in zip(products, self._outs, strict=True)]
        return self.trees.outs.unflatten(filled)

    def __matmul__(self, other: Any) -> Any:
        """The product with an array: one in and one out array. A matrix is multiplied column by column."""
        (leaf,) = self._single(self._ins, "input")
        self._single(self._outs, "output")
        if len(leaf.shape) == 1 and np.ndim(other) == 2:
            return jax.vmap(self.__matmul__, 1, 1)(other)
        vectors = self._checked([other], self._ins)
        return apply.applied(self.form, self.arrays, vectors)[0]

    def __rmatmul__(self, other: Any) -> Any:
        """The product of an array with this, which is that of the transposed Jacobian with the array."""
        if np.ndim(other) == 2 and len(self._outs[0].shape) == 1:
            return jax.vmap(self.T.__matmul__)(other)
        return self.T @ other

    __array_ufunc__ = None

    @property
    def T(self) -> Jacobian:
        """The transposed Jacobian, of the same arrays; called, it gives what `jax.vjp` gives."""
        trees = Trees(self.trees.ins, self.trees.outs, self.trees.ins_are_args, self.trees.outs_are_args)
        return Jacobian(self.arrays, self.form.transposed(), trees)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns of the matrix."""
        return sum(leaf.size for leaf in self._outs), sum(leaf.size for leaf in self._ins)

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the matrix."""
        return self.layout.dtype

    # -- dense --------------------------------------------------------------------------------------------------

    def materialise(self) -> Any:
        """The pytree of dense blocks that `jax.jacfwd` gives."""
        rows = apply.materialised(*self._terms)
        return self.trees.outs.unflatten([self.trees.ins.unflatten(row) for row in rows])

    def as_matrix(self) -> Array:
        """The dense matrix, of two dimensions: the leaves ravelled, in order.

        Raises:
            ValueError: where there is no input or no output.
        """
        if not self._outs or not self._ins:
            raise ValueError("a Jacobian without inputs or without outputs has no matrix.")
        if len(self._outs) == len(self._ins) == 1:
            ((block,),) = apply.materialised(*self._terms)
            return block if block.shape == self.shape else jnp.reshape(block, self.shape)
        return apply.matrix(*self._terms)

    # -- parts --------------------------------------------------------------------------------------------------

    def diagonal(self) -> Array:
        """The diagonal of a square matrix, of one dimension.

        Raises:
            ValueError: where the matrix is not square.
        """
        if self.shape[0] != self.shape[1]:
            raise ValueError(f"only a square matrix has a diagonal, but this one is {_by(self.shape)}.")
        return diagonal.diagonal(*self._terms)

    def trace(self) -> Array:
        """The sum of the diagonal of a square matrix.

        Raises:
            ValueError: where the matrix is not square.
        """
        return jnp.sum(self.diagonal())

    def row_norms(self) -> Array:
        """The Euclidean norm of each row of the matrix."""
        return diagonal.row_norms(*self._terms)

    def column_norms(self) -> Array:
        """The Euclidean norm of each column of the matrix: its square is the diagonal of ``J.T @ J``."""
        return diagonal.row_norms(*self.T._terms)

    def blocks(self, axis: int = 0) -> Array:
        """The blocks of a matrix that is block diagonal in a batch axis, as an array of shape ``(batch, m, n)``.

        Args:
            axis: The batch axis of each output and of each input.

        Raises:
            ValueError: where a leaf has no such axis, batch sizes differ, or the matrix is not block diagonal in it.

        >>> import jax.numpy as jnp
        >>> import symjac
        >>> _, J = symjac.linearize(lambda x: jnp.tanh(x @ jnp.ones((3, 2))), jnp.zeros((5, 3)))
        >>> J.blocks(axis=0).shape
        (5, 2, 3)
        """
        outs, ins = (
            tuple(_axis(axis, leaf, kind) for leaf in leaves)
            for leaves, kind in ((self._outs, "output"), (self._ins, "input"))
        )
        pairs = [*zip(outs, self._outs, strict=True), *zip(ins, self._ins, strict=True)]
        sizes = {leaf.shape[k] for k, leaf in pairs}
        if len(sizes) != 1:
            raise ValueError(f"axis {axis} has to be of one size in every leaf, but the sizes are {sorted(sizes)}.")
        return diagonal.batch_blocks(*self._terms, (outs, ins))

    # -- structure ----------------------------------------------------------------------------------------------

    @property
    def structure(self) -> Structure:
        """The kind of each block: "diagonal", "tridiagonal", "block diagonal", "low rank", "dense" ..."""
        outs, ins = (
            tuple(jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(_numbered(tree)))
            for tree in (self.trees.outs, self.trees.ins)
        )
        return replace(structure_of(self.layout), outs=outs, ins=ins)

    @property
    def nse(self) -> int:
        """The number of stored entries: those of `to_bcoo()`, which are not structurally zero."""
        layout, arrays = self._terms
        if any(isinstance(array, Tracer) for array in arrays) and has_traced_indices(layout):
            return min(stored_count(layout), layout.shape[0] * layout.shape[1])
        return count_entries(layout, arrays)

    def __repr__(self) -> str:
        """The structure, the dtype and the number of entries, in a line."""
        kinds = str(structure_of(self.layout)).replace("\n", "; ")
        return f"Jacobian({kinds}, {self.dtype.name}, {stored_count(self.layout)} stored)"

    # -- conversions --------------------------------------------------------------------------------------------

    def to_bcoo(self) -> BCOO:
        """A sparse matrix of JAX: sorted, without duplicates, and without entries that are structurally zero.

        Where positions depend on index arrays that are being traced, it is padded with indices out of bounds.

        >>> import jax.numpy as jnp
        >>> import symjac
        >>> _, J = symjac.linearize(jnp.diff, jnp.zeros(4))
        >>> J.to_bcoo()
        BCOO(float32[3, 4], nse=6)
        """
        return sparse.to_bcoo(*self._terms)

    def to_scipy(self) -> Any:
        """A sparse matrix of SciPy, a `scipy.sparse.csr_array`.

        Raises:
            ImportError: where SciPy is not installed.
            TypeError: where the Jacobian is being traced.
        """
        return sparse.to_scipy(*self._terms)

    def to_lineax(self) -> Any:
        """A linear operator of Lineax, of a kind and with tags that follow from the structure.

        Raises:
            ImportError: where Lineax is not installed.
            TypeError: where an input or an output is not of an inexact dtype.
        """
        try:
            from symjac._result.lineax import to_lineax
        except ImportError as error:
            raise ImportError("Jacobian.to_lineax needs the package lineax, which is not installed.") from error
        return to_lineax(self)

    def spy(self, ax: Any = None) -> Any:
        """Draws the pattern of the matrix with Matplotlib, without forming the matrix.

        Args:
            ax: The axes to draw to. The default is the current ones.

        Returns:
            The axes.

        Raises:
            ImportError: where `ax` is None and Matplotlib is not installed.
        """
        return sparse.spy(*self._terms, ax)

    # -- arguments ----------------------------------------------------------------------------------------------

    def _vectors(self, tangents: Sequence[Any]) -> list[Any]:
        given: Any = tuple(tangents)
        if not self.trees.ins_are_args:
            if len(given) != 1:
                raise TypeError(f"this Jacobian takes 1 tangent, but got {len(given)}.")
            (given,) = given
        leaves, tree = jax.tree.flatten(given)
        if tree != self.trees.ins:
            raise TypeError(f"the tree of the tangents is {tree}, but that of the inputs is {self.trees.ins}.")
        return self._checked(leaves, self._ins)

    def _checked(self, leaves: Sequence[Any], expected: Sequence[Leaf]) -> list[Any]:
        return [_tangent(leaf, own) for leaf, own in zip(leaves, expected, strict=True)]

    def _single(self, leaves: Sequence[Leaf], kind: str) -> Sequence[Leaf]:
        if len(leaves) != 1:
            raise TypeError(f"`@` needs a Jacobian with one {kind} array, but this one has {len(leaves)}: call it.")
        return leaves


def _tangent(value: Any, leaf: Leaf) -> Any:
    """Checks one tangent against the input that it belongs to."""
    if not jnp.issubdtype(leaf.dtype, np.inexact):
        if getattr(value, "dtype", None) != dtypes.float0:
            raise TypeError(f"the tangent of an input of dtype {leaf.dtype.name} has to be of dtype float0.")
        return jnp.zeros(leaf.shape, np.float32)
    aval = jax.typeof(value)
    if tuple(aval.shape) != leaf.shape:
        raise ValueError(f"a tangent has the shape {tuple(aval.shape)}, but the input has the shape {leaf.shape}.")
    if aval.dtype != leaf.dtype:
        if aval.weak_type and np.can_cast(aval.dtype, leaf.dtype, "same_kind"):
            return jnp.asarray(value, leaf.dtype)
        raise TypeError(f"a tangent has the dtype {aval.dtype.name}, but the input has the dtype {leaf.dtype.name}.")
    return value


def _axis(axis: int, leaf: Leaf, kind: str) -> int:
    if not -len(leaf.shape) <= axis < len(leaf.shape):
        raise ValueError(f"an {kind} of shape {leaf.shape} has no axis {axis}, so that it has no blocks along it.")
    return axis % len(leaf.shape)


def _by(shape: tuple[int, int]) -> str:
    return f"{shape[0]} x {shape[1]}"


def _numbered(tree: PyTreeDef) -> Any:
    return tree.unflatten(range(tree.num_leaves))


def _float0(leaf: Leaf) -> np.ndarray:
    return np.zeros(leaf.shape, dtypes.float0)
