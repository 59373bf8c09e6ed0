"""`symjac.linearize`: the value of a function, and its Jacobian as a structured object."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import Array
from jax.core import eval_jaxpr

from symjac import _compat, rules
from symjac._algebra.merge import keeping_entries
from symjac._algebra.tangent import StructuredTangent
from symjac._cost import cost
from symjac._engine.interpreter import push_basis
from symjac._engine.program import (
    LinearProgram,
    TracedFunction,
    eager_forward_program,
    forward_program,
    is_inexact,
    replaced,
    trace,
)
from symjac._memo.calls import memoised_call
from symjac._memo.holders import Traced
from symjac._memo.indices import known_index
from symjac._result.apply import product
from symjac._result.deferred import Packed, defer
from symjac._result.holomorphic import antilinear_equation
from symjac._result.jacobian import Jacobian, Trees
from symjac._result.stored import Leaf, pack
from symjac._transforms.arguments import Call, leaves_and_key, split
from symjac._transforms.call import NeedsValuesError, _check_callable, _flat, _Outputs
from symjac._transforms.modes import Transform, structural_jaxpr
from symjac._types import PyTreeDef

assert rules, "the rules register themselves when they are imported"


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value of `fun` and its Jacobian with its structure: what `jax.linearize` gives, but more than a closure.

    Args:
        fun: The function. Its arguments and its outputs are pytrees of arrays or numbers.
        *primals: The arguments, all of which are differentiated with respect to.
        has_aux: Whether `fun` gives a pair of outputs and auxiliary data.

    Returns:
        A pair of the output and a `symjac.Jacobian`, which is callable with tangents of the primals. With `has_aux`
        a triple of the output, the Jacobian and the auxiliary data.

    Raises:
        TypeError: where `fun` is not callable, or not holomorphic in complex primals.
        ValueError: where there is no primal.

    >>> import jax.numpy as jnp
    >>> import symjac
    >>> y, J = symjac.linearize(jnp.diff, jnp.arange(5.0) ** 2)
    >>> print(J.structure)
    banded(0, 1) 4 x 5
    >>> print(J(jnp.ones(5)))
    [0. 0. 0. 0.]
    """
    _check_callable(fun)
    if not primals:
        raise ValueError("linearize requires at least one primal to differentiate with respect to.")
    argnums = tuple(range(len(primals)))
    leaves, key = leaves_and_key(primals, {}, argnums)

    def traced() -> Traced:
        return _traced(fun, split(primals, {}, argnums, leaves), has_aux)

    try:
        return memoised_call(fun, ("linearize", has_aux, key) if key is not None else None, leaves, traced)
    except NeedsValuesError:
        pass
    return _linearized_eagerly(fun, split(primals, {}, argnums, leaves), has_aux)


_FORWARD = Transform("jacfwd", (0,), False, False, False, False, False, True, None)
_CLEARLY_MORE = 1.05
# Programs of so few operations are not worth two traces.
_SMALL = 4096
# Longer index arrays stay in the program.
_MOST_KNOWN = 2**24


@dataclass(frozen=True)
class _Finish:
    """Makes the user's result of the outputs, the Jacobian and the auxiliary arrays."""

    outputs: _Outputs
    trees: Trees
    has_aux: bool

    def __call__(self, computed: tuple[Sequence[Array], Packed, Sequence[Array]]) -> Any:
        values, jacobian, aux = computed
        output = self.outputs.tree.unflatten(values)
        jacobian = Jacobian(jacobian.arrays, jacobian.form, self.trees)
        if not self.has_aux:
            return output, jacobian
        remaining = iter(aux)
        pairs = zip(self.outputs.aux, self.outputs.aux_is_array, strict=True)
        filled = [next(remaining) if is_array else leaf for leaf, is_array in pairs]
        return output, jacobian, self.outputs.aux_tree.unflatten(filled)


def _finish(outputs: _Outputs, args: PyTreeDef, has_aux: bool) -> _Finish:
    single = args.num_nodes > 1 and len(args.children()) == 1
    trees = Trees(outputs.tree, args.children()[0] if single else args, False, not single)
    return _Finish(outputs, trees, has_aux)


def _traced(fun: Callable[..., Any], call: Call, has_aux: bool) -> Traced:
    active = [i for i in call.active if is_inexact(jax.typeof(call.leaves[i]))]
    outputs: list[_Outputs] = []
    try:
        function, closed = trace(_flat(fun, call, has_aux, outputs), call.leaves, active)
    except (TypeError, IndexError, ValueError) as error:
        raise NeedsValuesError from error

    structure, skipped = structural_jaxpr(_FORWARD, function, closed, call.leaves)

    def engine(consts: Sequence[Array], leaves: Sequence[Array]) -> Any:
        return _cheapest(function, consts[skipped:], leaves, call.active)

    static = ("linearize", function.n_outputs, function.active, call.active)
    return Traced(structure, engine, _finish(outputs[0], call.active_tree, has_aux), static)


def _cheapest(function: TracedFunction, consts: Sequence[Array], leaves: Sequence[Array], inputs: Sequence[int]) -> Any:
    """Finds the terms, or defers that where they, or products with them, cost clearly more than one of `jax.jvp`."""
    known = [known_index(const, _MOST_KNOWN) for const in consts]

    def evaluate(consts: Sequence[Array], leaves: Sequence[Array]) -> Any:
        own: list[Any] = [const if value is None else value for const, value in zip(consts, known, strict=True)]
        return _evaluate(function, own, leaves, inputs)

    with_terms, shapes = jax.make_jaxpr(evaluate, return_shape=True)(consts, leaves)
    limit = _SMALL + _CLEARLY_MORE * cost(forward_program(function, consts, leaves, with_value=True).closed).total
    if cost(with_terms).total > limit or _product_cost(shapes[1]) > limit - _SMALL // 2:
        try:
            return _deferred(function, consts, leaves, inputs)
        except (TypeError, ValueError, NotImplementedError):
            pass  # A function that `jax.linearize` does not take.
    outs = eval_jaxpr(with_terms.jaxpr, with_terms.consts, *jax.tree.leaves((consts, leaves)))
    return jax.tree.unflatten(jax.tree.structure(shapes), outs)


def _product_cost(jacobian: Packed) -> float:
    """What a product with a vector costs by terms, or with the transpose, whichever is dearer."""
    costs = []
    for form in (jacobian.layout, jacobian.layout.transposed()):
        vectors = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in form.ins]
        costs.append(cost(jax.make_jaxpr(functools.partial(product, form))(jacobian.arrays, vectors)).total)
    return max(costs)


def _deferred(function: TracedFunction, consts: Sequence[Array], leaves: Sequence[Array], inputs: Sequence[int]) -> Any:
    ins = [_leaf(jax.typeof(leaves[i])) for i in inputs]
    active = [position for position, i in enumerate(inputs) if i in function.active]
    outs = [_leaf(aval) for aval in function.output_avals]
    values, aux, form, arrays = defer(function, consts, leaves, ins, outs, active)
    return values, Packed(arrays, form), aux


def _evaluate(function: TracedFunction, consts: Sequence[Array], leaves: Sequence[Array], inputs: Sequence[int]) -> Any:
    program = forward_program(function, consts, leaves, with_value=True)
    _check_holomorphic(program)
    with keeping_entries():
        values, tangents = push_basis(program, program.closed.consts, leaves)
    outputs, aux = values[: function.n_outputs], values[function.n_outputs :]
    avals = [jax.typeof(leaves[i]) for i in inputs]
    active = [position for position, i in enumerate(inputs) if i in function.active]
    return outputs, _jacobian(tangents, function.output_avals, avals, active), aux


def _check_holomorphic(program: LinearProgram) -> None:
    eqn = antilinear_equation(program)
    if eqn is not None:
        raise TypeError(
            "linearize requires functions that are holomorphic in complex primals, for others have no complex "
            f"Jacobian, but {eqn.primitive.name} meets a complex tangent at {_compat.user_line(eqn)}. Take real and "
            "imaginary parts as primals, or use jax.linearize."
        )


def _linearized_eagerly(fun: Callable[..., Any], call: Call, has_aux: bool) -> Any:
    """Linearises a function that looks at the values of its arguments, without compiling anything."""
    outputs: list[_Outputs] = []
    function = _flat(fun, call, has_aux, outputs)
    avals = [jax.typeof(leaf) for leaf in call.leaves]
    active = [i for i in call.active if is_inexact(avals[i])]

    def of_active(*active_leaves: Array) -> tuple[list[Array], list[Array]]:
        return function(*replaced(call.leaves, active, active_leaves))

    program, values, aux = eager_forward_program(of_active, [call.leaves[i] for i in active])
    _check_holomorphic(program)
    with keeping_entries():
        _, tangents = push_basis(program, program.closed.consts, [])
    positions = [position for position, i in enumerate(call.active) if i in active]
    inputs = [avals[i] for i in call.active]
    jacobian = _jacobian(tangents, [jax.typeof(value) for value in values], inputs, positions)
    return _finish(outputs[0], call.active_tree, has_aux)((values, jacobian, aux))


def _jacobian(
    tangents: Sequence[StructuredTangent], outputs: Sequence[Any], inputs: Sequence[Any], active: Sequence[int]
) -> Packed:
    """Stores the tangents of the inexact outputs; the trees are not known here."""
    remaining = iter(tangents)
    rows = [next(remaining) if is_inexact(aval) else None for aval in outputs]
    layout, arrays = pack(rows, [_leaf(aval) for aval in outputs], [_leaf(aval) for aval in inputs], active)
    return Packed(arrays, layout)


def _leaf(aval: Any) -> Leaf:
    return Leaf(tuple(aval.shape), aval.dtype, bool(aval.weak_type))
