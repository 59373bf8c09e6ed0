"""What a transform computes from the arrays of a traced function: forward, reverse, or forward over reverse."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr

from symjac import _compat, rules
from symjac._algebra.record import direction_scope
from symjac._engine.bounds import Direction, in_place_of
from symjac._engine.chunks import ChunkSize, chunk_for, peak_bytes, push_in_chunks
from symjac._engine.interpreter import materialise, push_basis
from symjac._engine.program import (
    FlatFunction,
    LinearProgram,
    TracedFunction,
    check_alive,
    eager_forward_program,
    forward_program,
    is_inexact,
    pullback_program,
    replaced,
    reverse_program,
    trace,
)
from symjac._memo.calls import NeedsValuesError
from symjac._transforms.directions import cheapest, may_turn, own_unless_dear
from symjac._transforms.symmetry import symmetric

Kind = Literal["jacfwd", "jacrev", "jacobian", "hessian"]
BlockOf = Callable[[int, int], Array]
EagerResult = tuple[list[Array], list[Array], list[Array]]
"""The outputs, the auxiliary arrays and the blocks."""

assert rules, "the rules register themselves when they are imported"


@dataclass(frozen=True, eq=False)
class Transform:
    """What is asked for. Equal requests are one object, so that they hash fast.

    Attributes:
        kind: The name of the transform.
        argnums: The positions of the arguments to differentiate with respect to.
        is_tuple: Whether the result holds a tuple for the arguments, even where there is one.
        is_inner_tuple: The same, for the inner derivative of a Hessian.
        has_aux: Whether the function gives auxiliary data too.
        holomorphic: Whether the function is promised to be holomorphic.
        allow_int: Whether integer inputs have a (zero) derivative.
        with_value: Whether the outputs are asked for too.
        chunk_size: How many rows or columns are computed at once.
    """

    kind: Kind
    argnums: tuple[int, ...]
    is_tuple: bool
    is_inner_tuple: bool
    has_aux: bool
    holomorphic: bool
    allow_int: bool
    with_value: bool
    chunk_size: ChunkSize


def evaluate(
    transform: Transform, function: TracedFunction, consts: Sequence[Array], leaves: Sequence[Array]
) -> list[Array]:
    """Returns the outputs, where asked for, then the auxiliary arrays, then the blocks of the Jacobian by rows."""
    if transform.kind == "hessian":
        gradient, closed = trace(_gradient(transform, function, consts), leaves, function.active)
        check_alive(closed.consts, function.traced_by)

        def hessian(leaves: Sequence[Array]) -> list[Array]:
            return _derivative(gradient, closed.consts, leaves, chunk_size=transform.chunk_size)

        return symmetric(function, gradient, hessian, leaves)

    def run(consts: Sequence[Array], leaves: Sequence[Array], *, reverse: bool) -> list[Array]:
        options = {"as_inputs": transform.kind != "jacfwd", "chunk_size": transform.chunk_size}
        asked_for: Direction = "forward" if transform.kind == "jacfwd" else "reverse"
        with in_place_of(asked_for if reverse == (asked_for == "forward") else None):
            return _derivative(function, consts, leaves, transform.with_value, reverse=reverse, **options)

    if transform.kind == "jacobian":
        return cheapest(run, function, consts, leaves)
    reverse = transform.kind == "jacrev"
    if may_turn(function, reverse):
        return own_unless_dear(run, function, consts, leaves, reverse=reverse)
    return run(consts, leaves, reverse=reverse)


def structural_jaxpr(
    transform: Transform, function: TracedFunction, closed: ClosedJaxpr, leaves: Sequence[Array]
) -> tuple[ClosedJaxpr, int]:
    """Returns a jaxpr that determines what `evaluate` computes, and the number of constants it has ahead of others.

    It is the function's own, unless that holds rules of the user's: these are Python functions, made anew in each
    trace, and cannot be compared. A linear program holds what they gave instead.
    """
    if not _compat.has_custom_rules(closed.jaxpr):
        return closed, 0
    if transform.kind in ("jacrev", "jacobian"):
        directions = function.output_avals
    else:
        directions = [leaves[i] for i in function.active]

    def derivative(consts: Sequence[Array], leaves: Sequence[Array], directions: Sequence[Array]) -> Any:
        active = [leaves[i] for i in function.active]
        flat = function.of_active(consts, leaves)
        if transform.kind in ("jacrev", "jacobian"):
            outputs, pullback, aux = jax.vjp(flat, *active, has_aux=True)
            return outputs, aux, pullback(list(directions))
        if transform.kind == "hessian":
            gradient = _gradient(transform, function, consts)
            return jax.jvp(lambda *active: gradient(*replaced(leaves, function.active, active)), active, directions)
        return jax.jvp(flat, active, directions, has_aux=True)

    consts = list(closed.consts)
    jaxpr, extra = _compat.opened(jax.make_jaxpr(derivative)(consts, list(leaves), directions))
    return _compat.closed(jaxpr, [*extra, *consts]), len(extra)


def _derivative(
    function: TracedFunction,
    consts: Sequence[Array],
    leaves: Sequence[Array],
    with_value: bool = False,
    *,
    reverse: bool = False,
    as_inputs: bool = False,
    chunk_size: ChunkSize = None,
) -> list[Array]:
    """Returns the values and the blocks, computed in a direction, with the dtypes of the inputs or of the outputs."""
    with direction_scope("reverse" if reverse else "forward"):
        with _values_may_help() if reverse else contextlib.nullcontext():
            program = (reverse_program if reverse else forward_program)(function, consts, leaves, with_value)
        values, block = _push(program, leaves, reverse, chunk_size)
        outputs = function.output_avals if reverse else program.output_avals
        return [*values, *_blocks(outputs, function.active_avals, block, reverse, as_inputs)]


@contextlib.contextmanager
def _values_may_help() -> Iterator[None]:
    """Reverse mode has to know the number of steps of a loop, which may be the value of an argument."""
    try:
        yield
    except ValueError as error:
        raise NeedsValuesError from error


def _push(
    program: LinearProgram, primals: Sequence[Array], transposed: bool, chunk_size: ChunkSize
) -> tuple[list[Array], BlockOf]:
    """Returns the values, and the function that gives the block of an out tangent and a tangent input."""
    consts = program.closed.consts

    def structured(primals: Sequence[Array]) -> list[Array]:
        values, tangents = push_basis(program, consts, primals, transposed=transposed)
        n_inputs = len(program.closed.in_avals) - program.n_primals
        return [*values, *(materialise(t, j, transposed=transposed) for t in tangents for j in range(n_inputs))]

    if chunk_size is not None:
        temporaries = peak_bytes(_compat.opened(jax.make_jaxpr(structured)(list(primals)))[0])
        chunk = chunk_for(program, temporaries, chunk_size)
        if chunk is not None:
            values, blocks = push_in_chunks(program, consts, primals, chunk, transposed=transposed)
            return values, lambda i, j: blocks[i][j]
    values, tangents = push_basis(program, consts, primals, transposed=transposed)
    return values, lambda i, j: materialise(tangents[i], j, transposed=transposed)


def _gradient(transform: Transform, function: TracedFunction, consts: Sequence[Array]) -> FlatFunction:
    """Returns the function whose forward Jacobian is the Hessian; its auxiliary arrays include the outputs if asked."""

    def flat(*leaves: Array) -> tuple[list[Array], list[Array]]:
        if [aval.shape for aval in function.output_avals] == [()]:
            active = [leaves[i] for i in function.active]
            with _values_may_help():
                outputs, pullback, aux = jax.vjp(function.of_active(consts, leaves), *active, has_aux=True)
                gradient = _typed_gradient(outputs, pullback, active)
            return gradient, [*outputs, *aux] if transform.with_value else aux
        arrays = _derivative(function, consts, leaves, transform.with_value, reverse=True, as_inputs=True)
        first = len(arrays) - len(function.output_avals) * len(function.active)
        return arrays[first:], arrays[:first]

    return flat


def _typed_gradient(outputs: Sequence[Array], pullback: Any, active: Sequence[Array]) -> list[Array]:
    """Returns the gradient of one scalar, with the dtypes and weak types of the inputs."""
    cotangents = pullback([jnp.ones_like(outputs[0])])
    return [_typed(c, jax.typeof(leaf)) for c, leaf in zip(cotangents, active, strict=True)]


def evaluate_eagerly(
    transform: Transform, function: FlatFunction, leaves: Sequence[Array], active: Sequence[int]
) -> list[Array]:
    """Does what `evaluate` does for a function that looks at the values of its arguments."""

    def of_active(*active_leaves: Array) -> tuple[list[Array], list[Array]]:
        return function(*replaced(leaves, active, active_leaves))

    def gradient(*active_leaves: Array) -> tuple[list[Array], list[Array]]:
        outputs, pullback, aux = jax.vjp(of_active, *active_leaves, has_aux=True)
        if [jnp.shape(output) for output in outputs] == [()]:
            blocks = _typed_gradient(outputs, pullback, active_leaves)
        else:
            blocks = _transposed_blocks(outputs, pullback, active_leaves, None)
        return blocks, [*outputs, *aux] if transform.with_value else aux

    inputs = [leaves[i] for i in active]
    if transform.kind == "hessian":
        _, aux, blocks = _eager_forward(gradient, inputs, transform.chunk_size)
        return [*aux, *blocks]
    outputs, aux, blocks = _eager_derivative(transform, of_active, inputs)
    return [*(outputs if transform.with_value else []), *aux, *blocks]


def _eager_derivative(transform: Transform, function: FlatFunction, inputs: Sequence[Array]) -> EagerResult:
    if transform.kind == "jacfwd":
        return _eager_forward(function, inputs, transform.chunk_size)
    try:
        outputs, pullback, aux = jax.vjp(function, *inputs, has_aux=True)
        return outputs, aux, _transposed_blocks(outputs, pullback, inputs, transform.chunk_size)
    except ValueError:
        if transform.kind == "jacrev":
            raise
        with contextlib.suppress(TypeError):
            outputs, aux, blocks = _eager_forward(function, inputs, transform.chunk_size)
            avals = _typeofs(inputs)
            return outputs, aux, [_typed(block, avals[i % len(avals)]) for i, block in enumerate(blocks)]
        raise


def _eager_forward(function: FlatFunction, inputs: Sequence[Array], chunk_size: ChunkSize) -> EagerResult:
    program, outputs, aux = eager_forward_program(function, inputs)
    _, block = _push(program, [], False, chunk_size)
    return outputs, aux, _blocks(_typeofs(outputs), _typeofs(inputs), block, reverse=False, as_inputs=False)


def _transposed_blocks(
    outputs: Sequence[Array], pullback: Any, inputs: Sequence[Array], chunk_size: ChunkSize
) -> list[Array]:
    _, block = _push(pullback_program(pullback, outputs, inputs), [], True, chunk_size)
    return _blocks(_typeofs(outputs), _typeofs(inputs), block, reverse=True, as_inputs=True)


def _typeofs(arrays: Sequence[Array]) -> list[Any]:
    return [jax.typeof(array) for array in arrays]


def _blocks(
    outputs: Sequence[Any], inputs: Sequence[Any], block: BlockOf, reverse: bool, as_inputs: bool
) -> list[Array]:
    """Returns the dense blocks by rows; integers, which have no tangents, have zeros."""
    rows, columns = _positions(outputs), _positions(inputs)
    blocks = []
    for i, output in enumerate(outputs):
        for j, leaf in enumerate(inputs):
            like = leaf if as_inputs else output
            if i not in rows or j not in columns:
                found = jnp.zeros(output.shape + leaf.shape, like.dtype)
            else:
                found = block(columns[j], rows[i]) if reverse else block(rows[i], columns[j])
            spread = _spec(output, not as_inputs) + _spec(leaf, as_inputs)
            blocks.append(_compat.sharded_by(_typed(found, like), spread))
    return blocks


def _spec(aval: Any, is_spread: bool) -> tuple[Any, ...]:
    """Over which axes of the mesh JAX's Jacobian is spread along the axes of an output or of an input."""
    return tuple(aval.sharding.spec) if is_spread else (None,) * len(aval.shape)


def _positions(avals: Sequence[Any]) -> dict[int, int]:
    """Returns the position of each inexact one among the inexact ones."""
    inexact = [i for i, aval in enumerate(avals) if is_inexact(aval)]
    return {i: position for position, i in enumerate(inexact)}


def _typed(array: Array, aval: Any) -> Array:
    """Returns the array with the dtype and the weak type of another."""
    return _compat.with_element_type(array, aval.dtype, aval.weak_type)
