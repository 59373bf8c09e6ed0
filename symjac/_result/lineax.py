"""A structured Jacobian as a linear operator of Lineax, whose properties are told from the structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import lineax as lx  # pyright: ignore[reportMissingImports]
import numpy as np

from symjac._result import apply, diagonal
from symjac._result.classify import structure_of
from symjac._result.jacobian import Jacobian
from symjac._result.stored import Leaf


def to_lineax(jacobian: Jacobian) -> lx.AbstractLinearOperator:
    """The operator of the kind that the structure asks for."""
    layout = jacobian.layout
    for leaf in (*layout.outs, *layout.ins):
        if not jnp.issubdtype(leaf.dtype, np.inexact):
            raise TypeError(
                f"a linear operator of Lineax has inexact dtypes, but a leaf has the dtype {leaf.dtype.name}."
            )
    structure = structure_of(layout)
    ins, outs = ([(leaf.shape, leaf.dtype) for leaf in leaves] for leaves in (layout.ins, layout.outs))
    same_space = jacobian.trees.ins == jacobian.trees.outs and ins == outs
    if structure.is_identity and same_space:
        return lx.IdentityLinearOperator(_space(jacobian.trees.ins, layout.ins))
    if structure.is_diagonal and same_space:
        return lx.DiagonalLinearOperator(_as_tree(jacobian, jacobian.diagonal()))
    is_vector = len(layout.ins) == len(layout.outs) == 1 and all(
        len(leaf.shape) == 1 and tree == jax.tree.structure(0)
        for leaf, tree in ((layout.ins[0], jacobian.trees.ins), (layout.outs[0], jacobian.trees.outs))
    )
    if is_vector and structure.is_tridiagonal and ins == outs:
        return lx.TridiagonalLinearOperator(*diagonal.three_diagonals(*jacobian._terms))
    if is_vector and structure.kind == "dense" and not (structure.is_lower_triangular or structure.is_upper_triangular):
        return lx.MatrixLinearOperator(jacobian.as_matrix())
    return JacobianOperator(jacobian)


def _as_tree(jacobian: Jacobian, vector: Any) -> Any:
    leaves = jacobian.layout.ins
    parts = jnp.split(vector, np.cumsum([leaf.size for leaf in leaves])[:-1])
    shaped = [jnp.reshape(part, leaf.shape).astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)]
    return jacobian.trees.ins.unflatten(shaped)


def _space(tree: Any, leaves: tuple[Leaf, ...]) -> Any:
    return tree.unflatten([jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves])


class JacobianOperator(lx.AbstractLinearOperator):
    """A linear operator of Lineax that is a structured Jacobian.

    Attributes:
        jacobian: The Jacobian. One of several arguments takes their tuple.
    """

    jacobian: Jacobian

    def mv(self, vector: Any) -> Any:
        """The product with a vector."""
        return self.jacobian(*vector) if self.jacobian.trees.ins_are_args else self.jacobian(vector)

    def as_matrix(self) -> jax.Array:
        """The dense matrix."""
        return self.jacobian.as_matrix()

    def transpose(self) -> JacobianOperator:
        """The transposed operator."""
        return JacobianOperator(self.jacobian.T)

    def in_structure(self) -> Any:
        """The shapes and dtypes of the inputs."""
        return _space(self.jacobian.trees.ins, self.jacobian.layout.ins)

    def out_structure(self) -> Any:
        """The shapes and dtypes of the outputs."""
        return _space(self.jacobian.trees.outs, self.jacobian.layout.outs)


def _structural(name: str) -> Callable[[JacobianOperator], bool]:
    def answer(operator: JacobianOperator) -> bool:
        return getattr(structure_of(operator.jacobian.layout), name)

    answer.__name__ = answer.__qualname__ = f"_{name}"
    return answer


for _question, _name in (
    (lx.is_diagonal, "is_diagonal"),
    (lx.is_tridiagonal, "is_tridiagonal"),
    (lx.is_lower_triangular, "is_lower_triangular"),
    (lx.is_upper_triangular, "is_upper_triangular"),
    (lx.is_symmetric, "is_symmetric"),
    (lx.has_unit_diagonal, "is_identity"),
    (lx.is_positive_semidefinite, "is_identity"),
):
    _question.register(JacobianOperator)(_structural(_name))


@lx.is_negative_semidefinite.register(JacobianOperator)
def _is_negative_semidefinite(operator: JacobianOperator) -> bool:
    """No structure alone tells it."""
    return False


@lx.diagonal.register(JacobianOperator)
def _diagonal_of_operator(operator: JacobianOperator) -> jax.Array:
    return operator.jacobian.diagonal()


@lx.tridiagonal.register(JacobianOperator)
def _tridiagonal_of_operator(operator: JacobianOperator) -> tuple[jax.Array, jax.Array, jax.Array]:
    return diagonal.three_diagonals(*operator.jacobian._terms)


@lx.linearise.register(JacobianOperator)
def _linearise(operator: JacobianOperator) -> JacobianOperator:
    return operator


@lx.materialise.register(JacobianOperator)
def _materialise(operator: JacobianOperator) -> lx.PyTreeLinearOperator:
    return lx.PyTreeLinearOperator(operator.jacobian.materialise(), operator.out_structure())


@lx.conj.register(JacobianOperator)
def _conj(operator: JacobianOperator) -> JacobianOperator:
    layout, arrays = operator.jacobian._terms
    conjugated = tuple(jnp.conj(a) if jnp.issubdtype(a.dtype, np.complexfloating) else a for a in arrays)
    return JacobianOperator(Jacobian(conjugated, apply.conjugated(layout), operator.jacobian.trees))
