"""Which programs have equal keys."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from symjac._engine.hoist import hoisted
from symjac._memo.structure import Identity, Uncertain, canonical, structural_key

A = jnp.arange(9.0).reshape(3, 3) + jnp.eye(3)
X = jnp.arange(1.0, 4.0)

PROGRAMS = {
    "matmul": lambda a: lambda x: a @ x,
    "elementwise": lambda a: lambda x: jnp.tanh(x) * 2.0 + a[0],
    "grad": lambda a: jax.grad(lambda x: jnp.sum(jnp.sin(a @ x))),
    "jit": lambda a: jax.jit(lambda x: a @ x),
    "scan": lambda a: lambda x: lax.scan(lambda c, t: (a @ c * t, c), x, X)[1],
    "cond": lambda a: lambda x: lax.cond(x[0] > 0, lambda x: a @ x, lambda x: x, x),
    "while": lambda a: lambda x: lax.while_loop(lambda c: jnp.sum(c) < 100.0, lambda c: a @ c + 1.0, x),
    "solve": lambda a: lambda x: jnp.linalg.solve(a, x),
    "fft": lambda a: lambda x: jnp.abs(jnp.fft.fft(a @ x)),
    "remat": lambda a: jax.checkpoint(lambda x: jnp.sin(a @ x)),
    "random": lambda a: lambda x: a @ x + jax.random.normal(jax.random.key(0), (3,)),
    "gather": lambda a: lambda x: a[jnp.array([0, 2])] @ x,
    "relu": lambda a: lambda x: jax.nn.relu(a @ x),
    "softmax": lambda a: lambda x: jax.nn.softmax(a @ x),
    "gelu": lambda a: jax.vmap(lambda row: jax.nn.gelu(row)),
}


def key(f, *args, static=(), context=None):
    closed = hoisted(jax.make_jaxpr(lambda *args: f(*args))(*args))
    return structural_key(closed, static, context)


@pytest.mark.parametrize("name", PROGRAMS)
def test_fresh_traces_of_fresh_functions_are_equal(name):
    x = A if name == "gelu" else X
    first, second = key(PROGRAMS[name](A), x), key(PROGRAMS[name](A + 1), x)
    assert first is not None
    assert first == second
    assert hash(first) == hash(second)


DIFFERENT = [
    lambda x: x * 2.0,
    lambda x: x * 3.0,
    lambda x: x + 2.0,
    lambda x: 2.0 * x,
    lambda x: (x * 2.0, x),
    lambda x: (x, x * 2.0),
    lambda x: x * -0.0,
    lambda x: x * 0.0,
    lambda x: x * float("nan"),
    lambda x: jnp.sum(x),
    lambda x: jnp.sum(x, keepdims=True),
    lambda x: x**2,
    lambda x: x**3,
    lambda x: jax.jit(lambda y: y * 2.0)(x),
    lambda x: jax.jit(lambda y: y * 3.0)(x),
    lambda x: lax.scan(lambda c, _: (c * 2.0, None), x, None, length=3)[0],
    lambda x: lax.scan(lambda c, _: (c * 2.0, None), x, None, length=4)[0],
    lambda x: lax.scan(lambda c, _: (c * 2.5, None), x, None, length=4)[0],
    lambda x: x.astype(jnp.bfloat16),
    lambda x: x.astype(jnp.float16),
    lambda x: jnp.dot(x, x, precision="highest"),
    lambda x: jnp.dot(x, x),
    lambda x: x - x[::-1],
    lambda x: x[::-1] - x,
    lambda x: jax.nn.relu(x),
    lambda x: jax.nn.relu6(x),
]


def test_different_programs_are_different():
    keys = [key(f, X) for f in DIFFERENT]
    assert None not in keys
    assert len(set(keys)) == len(DIFFERENT)


def test_types_count():
    f = lambda x: x * 2.0  # noqa: E731
    args = [X, X[:2], X.astype(jnp.float16), X.astype(jnp.int32), jnp.float32(1.0), 1.0]
    keys = [key(f, x) for x in args if x is not args[3]]
    assert len(set(keys)) == len(keys)


def test_static_and_context_count():
    keys = {
        key(jnp.sin, X, static=static, context=context) for static in ((), (1,), (True,), (1.0,)) for context in (0, 1)
    }
    assert len(keys) == 8


def test_what_is_not_certain_has_no_key():
    called = lambda x: jax.pure_callback(lambda x: np.asarray(x), x, x)  # noqa: E731
    assert key(called, X) is None
    assert key(jnp.sin, X, static=(object, lambda: None)) is None


def test_canonical_values():
    assert canonical(1) != canonical(True) != canonical(1.0)
    assert canonical(0.0) != canonical(-0.0)
    assert canonical(float("nan")) == canonical(float("nan"))
    assert canonical([1]) != canonical((1,))
    assert canonical({"a": [1]}) == canonical({"a": [1]})
    assert canonical(np.ones(2)) == canonical(np.ones(2)) != canonical(np.ones(2, np.float32))
    assert canonical(functools.partial(max, 1)) == canonical(functools.partial(max, 1))
    assert canonical(jax.tree.structure({"a": (1, None)})) == canonical(jax.tree.structure({"a": (1, None)}))
    for value in (lambda: None, type("T", (), {})()):
        with pytest.raises(Uncertain):
            canonical(value)


def test_identity_ends_with_the_object():
    class Thing:
        pass

    thing = Thing()
    first, second = Identity(thing), Identity(thing)
    assert first == second
    del thing
    assert first != second
    assert first == first


@pytest.mark.parametrize("name", ["jit", "scan", "cond", "while"])
def test_hoisted_arrays_are_constants(name):
    inner = jax.jit(lambda x: A @ x / 9.0)
    programs = {
        "jit": lambda x: inner(x) + jax.jit(lambda x: inner(x) + A[0])(x),
        "scan": lambda x: lax.scan(lambda c, t: (inner(c) * t, c), x, X)[1],
        "cond": lambda x: lax.cond(x[0] > 0, inner, lambda x: x + inner(x), x),
        "while": lambda x: lax.while_loop(lambda c: jnp.sum(inner(c)) < 100.0, lambda c: inner(c) + 1.0, x),
    }
    f = programs[name]
    closed = hoisted(jax.make_jaxpr(f)(X))
    assert any(const is A for const in closed.consts)
    (got,) = jax.jit(lambda consts, x: jax.core.eval_jaxpr(closed.jaxpr, consts, x))(closed.consts, X)
    np.testing.assert_allclose(got, f(X), rtol=1e-5)
