"""The order of accumulation is free, so the compiled programs need little arithmetic. XLA counts it; nothing is run."""

import itertools
import time

import handwritten
import jax
import jax.numpy as jnp
import pytest
from helpers import array, assert_close, flops

import symjac

HAND_WRITTEN = pytest.mark.parametrize("program", [pytest.param(p, id=p.name) for p in handwritten.PROGRAMS])


def weights(*sizes):
    return [array(80 + i, n_out, n_in) / n_in**0.5 for i, (n_in, n_out) in enumerate(itertools.pairwise(sizes))]


def mlp(x, layers):
    for weight in layers[:-1]:
        x = jnp.tanh(weight @ x)
    return layers[-1] @ x


def transformed_flops(transform, x, layers):
    """The weights are arguments of the compiled program, so that XLA does not fold products of them."""
    return flops(lambda point, matrices: transform(lambda y: mlp(y, matrices))(point), x, layers)


def test_a_narrow_output_is_accumulated_in_reverse():
    x, layers = array(90, 1000), weights(1000, 1000, 1000, 10)
    assert transformed_flops(symjac.jacfwd, x, layers) <= 1.5 * transformed_flops(jax.jacrev, x, layers)


def test_an_hourglass_is_accumulated_from_its_neck():
    x, layers = array(91, 1024), weights(1024, 2048, 64, 2048, 1024)
    ours = transformed_flops(symjac.jacfwd, x, layers)
    assert 12 * ours <= min(transformed_flops(jax.jacfwd, x, layers), transformed_flops(jax.jacrev, x, layers))


@HAND_WRITTEN
def test_no_more_arithmetic_than_a_hand_written_jacobian(program):
    ours, theirs = flops(symjac.jacfwd(program.function), *program.args), flops(program.jacobian, *program.args)
    looked_at = jax.eval_shape(program.jacobian, *program.args).size  # A select, where the other one scatters.
    assert ours <= 1.3 * theirs + looked_at, f"{ours:.4g} flops, {theirs:.4g} in the hand-written Jacobian"


@HAND_WRITTEN
def test_the_hand_written_jacobians_are_right(program):
    want = jax.jit(jax.jacfwd(program.function))(*program.args)
    assert_close(jax.jit(program.jacobian)(*program.args), want, "hand-written", rtol=1e-4)
    assert_close(symjac.jacfwd(program.function)(*program.args), want, "symjac", rtol=1e-4)


def residual_mlp(n_blocks):
    layers = [(array(i, 6, 4) / 2, array(i + 1, 4, 6) / 2) for i in range(n_blocks)]

    def apply(x):
        for first, second in layers:
            x = x + second @ jnp.tanh(first @ x)
        return x

    return apply


def softmax_chain(n_softmaxes):
    def apply(x):
        for _ in range(n_softmaxes):
            x = jax.nn.softmax(3.0 * x)
        return x

    return apply


@pytest.mark.parametrize("chain", [residual_mlp, softmax_chain])
def test_deep_programs_cost_what_their_depth_says(chain):
    x, depths = array(92, 4), (16, 32, 64)
    equations, seconds = zip(*(traced(chain(depth), x) for depth in depths), strict=True)
    assert equations[2] - equations[1] <= 2.2 * (equations[1] - equations[0]), equations
    assert seconds[2] <= 8 * seconds[0], seconds  # linear is 4; a square law is 16


def traced(f, x):
    """Traces thrice: the number of equations, inner ones too, and the processor time of the quickest of them."""
    seconds, closed = [], None
    for _ in range(3):
        start = time.process_time()
        closed = jax.make_jaxpr(symjac.jacfwd(lambda y: f(y)))(x)
        seconds.append(time.process_time() - start)
    return count_equations(closed.jaxpr), min(seconds)


def count_equations(jaxpr):
    return sum(1 + sum(map(count_equations, inner_jaxprs(eqn))) for eqn in jaxpr.eqns)


def inner_jaxprs(eqn):
    for parameter in eqn.params.values():
        for value in parameter if isinstance(parameter, tuple | list) else [parameter]:
            jaxpr = getattr(value, "jaxpr", value)  # a closed one holds a plain one
            if hasattr(jaxpr, "eqns"):
                yield jaxpr
