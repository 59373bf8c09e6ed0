"""The transforms beyond what JAX has: values with derivatives, and the choice of the direction."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import array, assert_same, flops, positive

import symjac
from symjac._cost import cost
from symjac._engine.program import trace
from symjac._transforms.directions import may_turn

A = array(1, 4, 3)
X = array(2, 3)


def with_aux(x):
    return jnp.sin(A @ x), {"x": x, "label": "text"}


# Values


@pytest.mark.parametrize(("transform", "plain"), [("value_and_jacfwd", "jacfwd"), ("value_and_jacrev", "jacrev")])
def test_value_and_jacobian(transform, plain):
    def f(x):
        return {"a": jnp.sin(A @ x), "b": jnp.sum(x)}

    value, jacobian = getattr(symjac, transform)(f)(X)
    assert_same(value, jax.jit(f)(X), "value")
    assert_same(jacobian, getattr(jax, plain)(f)(X), "jacobian")


def test_value_and_hessian():
    def f(x):
        return jnp.sum(jnp.sin(x) ** 2)

    value, hessian = symjac.value_and_hessian(f)(X)
    assert_same(value, jax.jit(f)(X), "value")
    assert_same(hessian, jax.hessian(f)(X), "hessian")


@pytest.mark.parametrize("transform", ["value_and_jacfwd", "value_and_jacrev"])
def test_value_and_aux(transform):
    (value, aux), jacobian = getattr(symjac, transform)(with_aux, has_aux=True)(X)
    assert_same(value, jnp.sin(A @ X), "value")
    assert aux["label"] == "text"
    assert_same(aux["x"], X, "aux")
    assert_same(jacobian, jax.jacfwd(lambda x: jnp.sin(A @ x))(X), "jacobian")


def test_value_of_a_function_that_looks_at_values():
    value, jacobian = symjac.value_and_jacfwd(lambda x: 2.0 * x if x[0] > -100.0 else x)(X)
    assert_same(value, 2.0 * X, "value")
    assert_same(jacobian, 2.0 * jnp.eye(3), "jacobian")


def test_value_where_nothing_is_differentiable():
    value, jacobian = symjac.value_and_jacfwd(lambda x: (jnp.argmax(x), 3.0))(X)
    assert_same(value, (jnp.argmax(X), jnp.asarray(3.0)), "value")
    assert_same(jacobian, jax.jacfwd(lambda x: (jnp.argmax(x), 3.0))(X), "jacobian")


# What comes back is what went in


@pytest.mark.parametrize("transform", ["jacfwd", "jacobian"])
def test_a_matrix_is_returned_itself(transform):
    derivative = getattr(symjac, transform)
    assert derivative(lambda x: A @ x)(X) is A
    assert derivative(jax.jit(lambda x: A @ x))(X) is A
    assert derivative(lambda a, x: a @ x, argnums=1)(A, X) is A
    assert derivative(lambda x, *, a: a @ x)(X, a=A) is A


def test_a_matrix_is_returned_itself_where_values_matter():
    assert symjac.jacfwd(lambda x: A @ x if x[0] > -100.0 else x)(X) is A


def test_reverse_of_a_vector_by_a_matrix():
    assert_same(symjac.jacrev(lambda x: x @ A.T)(X), A, "transposed")
    assert symjac.jacrev(lambda x: x @ jnp.ones((3, 2)))(X).shape == (2, 3)


# The direction


def test_jacobian_takes_the_cheaper_direction():
    wide, tall = positive(3, 200, 3), positive(4, 3, 200)

    def few_outputs(x):
        return jnp.sum(jnp.sin(wide.T @ jnp.sin(x) + jnp.cumsum(x)[:3]) ** 2)[None]

    def few_inputs(x):
        return jnp.sin(tall.T @ x) + jnp.tile(x, 100)[:200]

    for f, x in ((few_outputs, positive(5, 200)), (few_inputs, positive(6, 3))):
        assert_same(symjac.jacobian(f)(x), jax.jacrev(f)(x), "jacobian", rtol=1e-4)
        best = min(flops(jax.jacfwd(f), x), flops(jax.jacrev(f), x))
        margin = 1.1 if jax.__version_info__ >= (0, 10) else 1.15  # JAX 0.7 compiles the cumulative sum differently.
        assert flops(symjac.jacobian(f), x) <= margin * best


@pytest.mark.fallback
def test_jacobian_goes_where_only_one_direction_is_legal():
    def until(x):
        return jax.lax.while_loop(lambda y: jnp.sum(y**2) < 50.0, lambda y: 1.5 * y, x)

    @jax.custom_vjp
    def clipped(x):
        return x**2

    clipped.defvjp(lambda x: (x**2, x), lambda x, g: (jnp.clip(2.0 * g * x, -1.0, 1.0),))
    assert_same(symjac.jacobian(until)(X), jax.jacfwd(until)(X), "forward")
    assert_same(symjac.jacobian(clipped)(X), jax.jacrev(clipped)(X), "reverse")


@pytest.mark.fallback
def test_jacobian_where_no_direction_is_legal():
    @jax.custom_vjp
    def clipped(x):
        return x**2

    clipped.defvjp(lambda x: (x**2, x), lambda x, g: (g * x,))

    def until(x):
        return jax.lax.while_loop(lambda y: jnp.sum(y**2) < 50.0, lambda y: 1.5 * y, clipped(x))

    with pytest.raises(ValueError, match="Reverse-mode"):
        symjac.jacobian(until)(X)


def test_jacobian_has_the_types_of_reverse():
    def f(x):
        return jnp.sin(x).astype(np.float16)

    assert_same(symjac.jacobian(f)(X), jax.jacobian(f)(X), "types")
    assert_same(symjac.jacobian(jnp.sin)(1.0), jax.jacobian(jnp.sin)(1.0), "weak type")
    assert_same(
        symjac.jacobian(lambda x: x["a"] * x["b"], allow_int=True)({"a": 2, "b": 3.0}),
        jax.jacobian(lambda x: x["a"] * x["b"], allow_int=True)({"a": 2, "b": 3.0}),
        "integers",
    )


def traced(f, *leaves):
    return trace(lambda *leaves: ([f(*leaves)], []), leaves, [0])[0]


def test_a_guarded_singularity_is_never_turned():
    weights = positive(7, 500, 500)

    def smooth(x):
        return jnp.sum(jnp.tanh(weights @ x))

    def guarded(x):
        y = weights @ x
        return jnp.sum(jnp.where(y > 0, jnp.sqrt(y), 0.0))

    def looped(x):
        return jax.lax.fori_loop(0, 3, lambda i, y: jnp.tanh(weights @ y), x)[0]

    x = positive(8, 500)
    assert may_turn(traced(smooth, x), reverse=False)
    assert not may_turn(traced(smooth, x), reverse=True)
    assert not may_turn(traced(guarded, x), reverse=False)
    assert not may_turn(traced(looped, x), reverse=False)


def test_forward_turns_where_reverse_is_clearly_cheaper():
    weights = positive(9, 100, 100)

    def f(x):
        y = jnp.tanh(weights @ x)
        return jnp.sum(jnp.tanh(weights @ y) * y * x)[None]

    x = positive(10, 100)
    assert_same(symjac.jacfwd(f)(x), jax.jacfwd(f)(x), "turned", rtol=1e-4)
    assert flops(symjac.jacfwd(f), x) < 0.2 * flops(jax.jacfwd(f), x)


# Symmetry


def test_hessians_are_exactly_symmetric():
    features, labels = array(18, 60, 12), jnp.float32(array(19, 60) > 0)

    def logistic(w):
        z = features @ w["a"] + features[:, :3] @ w["b"]
        return jnp.mean(jnp.logaddexp(0.0, z) - labels * z)

    w = {"a": array(20, 12), "b": array(21, 3)}
    hessian = symjac.hessian(logistic)(w)
    assert_same(hessian, jax.hessian(logistic)(w), "hessian", rtol=1e-4)
    for i in "ab":
        for j in "ab":
            np.testing.assert_array_equal(hessian[i][j], hessian[j][i].T)


def test_a_hessian_by_a_rule_of_the_users_is_left_alone():
    weights = array(22, 40, 40)

    @jax.custom_jvp
    def gradient_is_made_up(x):
        return jnp.sum(weights @ x)

    gradient_is_made_up.defjvp(lambda x, t: (gradient_is_made_up(*x), jnp.tanh(weights @ x[0]) @ (weights @ t[0])))
    x = array(23, 40)
    want = jax.hessian(gradient_is_made_up)(x)
    assert not np.allclose(want, want.T)
    assert_same(symjac.hessian(gradient_is_made_up)(x), want, "hessian", rtol=1e-4)


# Chunks


def recurrent(x):
    weights = positive(12, 60, 60) / 60.0
    return jax.lax.scan(lambda h, _: (jnp.tanh(weights @ h + h[0]), jnp.sum(h)), x, None, length=7)


@pytest.mark.fallback
@pytest.mark.parametrize("transform", ["jacfwd", "jacrev", "jacobian", "value_and_jacfwd"])
@pytest.mark.parametrize("chunk_size", [7, 1000])
def test_chunks_do_not_change_values(transform, chunk_size):
    x = positive(13, 60)
    want = getattr(symjac, transform)(recurrent)(x)
    assert_same(getattr(symjac, transform)(recurrent, chunk_size=chunk_size)(x), want, "chunks", rtol=1e-4)


@pytest.mark.fallback
def test_chunks_of_trees_and_hessians():
    def f(x):
        return jnp.sum(jnp.cumsum(x["a"]) ** 2 * jnp.sum(x["b"])), x["b"][:1]

    x = {"a": positive(14, 5), "b": positive(15, 2, 2)}
    assert_same(symjac.jacfwd(f, chunk_size=2)(x), jax.jacfwd(f)(x), "jacfwd")
    assert_same(symjac.jacrev(f, chunk_size=2)(x), jax.jacrev(f)(x), "jacrev")
    assert_same(symjac.hessian(f, chunk_size=2)(x), jax.hessian(f)(x), "hessian")
    x = {"a": x["a"], "b": jnp.zeros((1, 0))}
    assert_same(symjac.jacfwd(f, chunk_size=2)(x), jax.jacfwd(f)(x), "empty")


@pytest.mark.fallback
def test_chunks_of_a_function_that_looks_at_values():
    def f(x):
        return jnp.tanh(jnp.cumsum(x) * x) if x[0] > 0 else x

    x = positive(16, 10)
    for transform in ("jacfwd", "jacrev"):
        want = getattr(jax, transform)(f)(x)
        assert_same(getattr(symjac, transform)(f, chunk_size=3)(x), want, transform, rtol=1e-4)


@pytest.mark.fallback
@pytest.mark.parametrize("transform", ["jacfwd", "jacrev"])
def test_chunks_bound_the_memory(transform):
    def temporaries(chunk_size):
        derivative = getattr(symjac, transform)(recurrent, chunk_size=chunk_size)
        return jax.jit(derivative).lower(positive(17, 60)).compile().memory_analysis().temp_size_in_bytes

    assert temporaries(4) < 0.6 * temporaries(None)


def test_chunks_leave_structure_alone():
    assert symjac.jacrev(lambda x: A @ x, chunk_size="auto")(X).shape == (4, 3)
    assert symjac.jacfwd(lambda x: A @ x, chunk_size=1)(X) is A
    assert_same(symjac.jacfwd(jnp.sin, chunk_size=1)(X), jax.jacfwd(jnp.sin)(X), "diagonal")


@pytest.mark.parametrize("chunk_size", [0, -1, 1.5, "some", True])
def test_bad_chunk_sizes(chunk_size):
    with pytest.raises(ValueError, match="chunk_size"):
        symjac.jacfwd(jnp.sin, chunk_size=chunk_size)


# The cost model


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x: x @ x, 2 * 8**3),
        (jnp.sin, 64),
        (jnp.sum, 64),
        (lambda x: x.T.reshape(4, 16), 0),
        (lambda x: jax.lax.scan(lambda c, y: (jnp.sin(c), None), x, jnp.arange(5))[0], 5 * 64),
        (lambda x: jax.jit(jnp.sin)(x), 64),
        (lambda x: jax.lax.conv(x[None, None], jnp.ones((1, 1, 3, 3)), (1, 1), "SAME"), 2 * 64 * 9),
    ],
    ids=["dot", "elementwise", "reduction", "layout", "scan", "jit", "convolution"],
)
def test_cost(f, expected):
    assert cost(jax.make_jaxpr(f)(array(11, 8, 8))).flops == expected


def test_cost_leaves_out_dead_code():
    def f(x):
        jnp.sin(x)
        return 2.0 * x

    assert cost(jax.make_jaxpr(f)(X)).flops == 3


# The memo


def test_a_function_and_its_arrays_are_freed():
    class Thing:
        value = 2.0

    for transform in ("jacfwd", "jacrev", "jacobian", "hessian", "value_and_jacfwd"):
        thing = Thing()
        alive = weakref.ref(thing)
        derivative = getattr(symjac, transform)(lambda x, thing=thing: jnp.sum(x**2) * thing.value)
        derivative(X)
        del derivative, thing
        gc.collect()
        assert alive() is None, transform


@pytest.mark.parametrize("transform", ["jacfwd", "jacrev", "hessian"])
def test_numbers_that_vary_are_arguments(transform):
    def f(x, step, count):
        return jnp.sum(jnp.sin(step * x) * (x + count))

    derivative = getattr(symjac, transform)(f)
    derivative(X, 0.1, 1)
    derivative(X, 0.2, 2)
    misses = symjac.cache_info().misses
    for step, count in ((0.3, 3), (-0.0, 4), (2.5, -1)):
        assert_same(derivative(X, step, count), getattr(jax, transform)(f)(X, step, count), "number")
        made_anew = getattr(symjac, transform)(lambda x, step=step, count=count: f(x, step, count))
        assert_same(made_anew(X), getattr(jax, transform)(f)(X, step, count), "closed over")
    assert symjac.cache_info().misses <= misses + 1
