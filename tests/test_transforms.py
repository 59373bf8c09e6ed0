"""The memoised transforms against JAX's."""

from __future__ import annotations

import copy
import functools
import gc
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same

import symjac

X = jnp.arange(1.0, 4.0)
M = jnp.arange(6.0).reshape(2, 3)


def loss(x):
    return jnp.sum(jnp.sin(x) * x**2)


def two(a, b):
    return jnp.sum(a * b[0])


def closed_over(b):
    return lambda x: jnp.sum(b * x**3)


def with_aux(x):
    return loss(x), {"doubled": 2.0 * x, "none": None}


def tree_loss(p, x):
    return jnp.sum((p["w"] * x + p["b"]) ** 2)


PARAMS = {"w": X, "b": jnp.float32(0.5)}

CALLS = {
    "grad": lambda m: m.grad(loss)(X),
    "grad of a number": lambda m: m.grad(lambda x: x**2)(3.0),
    "grad argnums": lambda m: m.grad(two, argnums=1)(X, X + 1),
    "grad argnums tuple": lambda m: m.grad(two, argnums=(0, 1))(X, X + 1),
    "grad argnums reversed": lambda m: m.grad(two, argnums=(1, 0))(X, X + 1),
    "grad argnums list": lambda m: m.grad(two, argnums=[1])(X, X + 1),
    "grad argnums negative": lambda m: m.grad(two, argnums=-1)(X, X + 1),
    "grad has_aux": lambda m: m.grad(with_aux, has_aux=True)(X),
    "grad keyword": lambda m: m.grad(two)(X, b=X + 1),
    "grad tree": lambda m: m.grad(tree_loss)(PARAMS, X),
    "grad numpy": lambda m: m.grad(tree_loss)(PARAMS, np.arange(3.0, dtype=np.float32)),
    "grad static": lambda m: m.grad(lambda x, mode, k: jnp.sum(x**k) if mode == "a" else 0.0)(X, "a", 2),
    "grad float16": lambda m: m.grad(loss)(X.astype(jnp.float16)),
    "grad holomorphic": lambda m: m.grad(lambda z: z**2, holomorphic=True)(1.0 + 2.0j),
    "grad complex": lambda m: m.grad(lambda z: jnp.real(z * jnp.conj(z)))(1.0 + 2.0j),
    "grad relu": lambda m: m.grad(lambda x: jnp.sum(jax.nn.relu(x - 2.0)))(X),
    "grad of grad": lambda m: m.grad(m.grad(lambda x: x**4))(2.0),
    "grad of jit": lambda m: m.grad(m.jit(loss))(X),
    "grad scan": lambda m: m.grad(lambda x: jax.lax.scan(lambda c, t: (c * t, c), x, X)[0].sum())(X),
    "grad branch on value": lambda m: m.grad(lambda x: x**2 if x > 0 else -x)(-2.0),
    "grad constant": lambda m: m.grad(lambda x: jnp.float32(1.0))(X),
    "grad module": lambda m: m.grad(lambda q, x: jnp.sum(q(x)))(eqx.nn.Linear(3, 2, key=jax.random.key(0)), X),
    "value_and_grad": lambda m: m.value_and_grad(loss)(X),
    "value_and_grad has_aux": lambda m: m.value_and_grad(with_aux, has_aux=True)(X),
    "value_and_grad argnums": lambda m: m.value_and_grad(two, (0, 1))(X, X),
    "vmap": lambda m: m.vmap(loss)(M),
    "vmap in_axes": lambda m: m.vmap(two, in_axes=(0, None))(M, X),
    "vmap in_axes list": lambda m: m.vmap(two, in_axes=[0, None])(M, X),
    "vmap in_axes tree": lambda m: m.vmap(tree_loss, in_axes=({"w": 0, "b": None}, None))({"w": M, "b": 1.0}, X),
    "vmap out_axes": lambda m: m.vmap(jnp.sin, out_axes=1)(M),
    "vmap axis_name": lambda m: m.vmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")(M),
    "vmap axis_size": lambda m: m.vmap(lambda: jnp.float32(1.0), axis_size=3)(),
    "vmap numpy": lambda m: m.vmap(jnp.sin)(np.ones((2, 3), np.float32)),
    "vmap of grad": lambda m: m.vmap(m.grad(loss))(M),
    "jvp": lambda m: m.jvp(loss, (X,), (X,)),
    "jvp has_aux": lambda m: m.jvp(with_aux, (X,), (X,), has_aux=True),
    "vjp": lambda m: (m.vjp(jnp.sin, X)[0], m.vjp(jnp.sin, X)[1](X)),
    "vjp has_aux": lambda m: (lambda r: (r[0], r[1](1.0), r[2]))(m.vjp(with_aux, X, has_aux=True)),
    "vjp two": lambda m: m.vjp(two, X, X)[1](1.0),
    "jit": lambda m: m.jit(loss)(X),
    "jit tree": lambda m: m.jit(tree_loss)(PARAMS, x=X),
    "jit scalars": lambda m: (m.jit(lambda x, y: x * y)(2, 3.0), m.jit(lambda x: x)(True), m.jit(lambda x: x)(1j)),
    "jit numpy": lambda m: m.jit(lambda x: x * 2)(np.arange(3)),
    "jit statics": lambda m: (
        m.jit(two, static_argnames=())(X, X),
        m.jit(lambda x, k: x**k, static_argnums=(1,))(X, 2),
    ),
    "jit statics list": lambda m: m.jit(lambda x, k: x**k, static_argnums=[1])(X, 2),
    "jit donate": lambda m: m.jit(lambda x: x + 1, donate_argnums=0)(jnp.ones(3)),
    "jit identity": lambda m: m.jit(lambda x: (x, X))(X + 1),
    "jit none": lambda m: m.jit(lambda x: None)(X),
    "jit of grad": lambda m: m.jit(m.grad(loss))(X),
    "jit of grad numpy": lambda m: [m.jit(m.grad(two))(X, k * np.ones(3, np.float32)) for k in (1, 2)],
    "jit of grad of number": lambda m: [m.jit(m.grad(lambda x, k: x**2 * k))(2.0, k) for k in (1.0, 2.0)],
    "jit of value_and_grad": lambda m: m.jit(m.value_and_grad(with_aux, has_aux=True))(X),
    "jit of vmap": lambda m: m.jit(m.vmap(two, in_axes=(0, None)))(M, X),
    "jit of jacfwd": lambda m: [m.jit(m.jacfwd(jnp.sin))(X * k) for k in (1.0, 2.0)],
    "jit of hessian": lambda m: m.jit(m.hessian(loss))(X),
    "jit of jit": lambda m: m.jit(m.jit(loss))(X),
    "jit with axis name": lambda m: m.vmap(m.jit(lambda x: jax.lax.psum(x, "i")), axis_name="i")(M),
    "checkpoint": lambda m: m.grad(m.checkpoint(loss))(X),
    "checkpoint policy": lambda m: m.grad(m.checkpoint(loss, policy=jax.checkpoint_policies.dots_saveable))(X),
}


@pytest.mark.parametrize("name", CALLS)
def test_same_as_jax(name):
    want = CALLS[name](jax)
    for _ in range(2):
        assert_same(CALLS[name](symjac), want, name, rtol=1e-5)


ERRORS = {
    "grad of a vector": lambda m: m.grad(jnp.sin)(X),
    "grad of ints": lambda m: m.grad(lambda x: x * 1.0)(1),
    "grad of a string": lambda m: m.grad(lambda x: x)("a"),
    "grad argnums": lambda m: m.grad(loss, argnums=3)(X),
    "grad argnums type": lambda m: m.grad(loss, argnums=1.5)(X),
    "grad of no function": lambda m: m.grad(3),
    "grad aux": lambda m: m.grad(loss, has_aux=True)(X),
    "grad complex": lambda m: m.grad(lambda z: z)(1j),
    "grad pair": lambda m: m.grad(lambda x: (x, x))(1.0),
    "grad dict": lambda m: m.grad(lambda x: {"a": x, "b": x}, has_aux=True)(1.0),
    "user error": lambda m: m.grad(lambda x: x.no_such_attribute)(1.0),
    "value_and_grad of a vector": lambda m: m.value_and_grad(jnp.sin)(X),
    "vmap sizes": lambda m: m.vmap(jnp.add)(M, X),
    "vmap scalar": lambda m: m.vmap(jnp.sin)(1.0),
    "vmap in_axes": lambda m: m.vmap(jnp.sin, in_axes=(0, 1))(M),
    "vmap axes type": lambda m: m.vmap(jnp.sin, in_axes="a"),
    "jit string": lambda m: m.jit(lambda x: x)("a"),
    "jit value": lambda m: m.jit(lambda x: x if x > 0 else -x)(1.0),
    "jit of grad value": lambda m: m.jit(m.grad(lambda x: x**2 if x > 0 else -x))(1.0),
    "jit of grad vector": lambda m: m.jit(m.grad(jnp.sin))(X),
    "jit of no function": lambda m: m.jit(3),
    "jit option": lambda m: m.jit(loss, no_such_option=1),
    "jit static": lambda m: m.jit(lambda x, k: x, static_argnums=1)(X, [1]),
    "jvp trees": lambda m: m.jvp(jnp.sin, (X,), (X, X)),
    "jvp dtypes": lambda m: m.jvp(jnp.sin, (X,), (X.astype(jnp.int32),)),
    "vjp of no function": lambda m: m.vjp(3, X),
}


@pytest.mark.parametrize("name", ERRORS)
def test_same_errors_as_jax(name):
    with pytest.raises(Exception) as theirs:
        ERRORS[name](jax)
    with pytest.raises(theirs.type) as ours:
        ERRORS[name](symjac)
    assert str(ours.value).split("\n")[0][:60] == str(theirs.value).split("\n")[0][:60]


def same(make):
    first = make()
    return first is make()


def test_the_same_object():
    s = symjac
    for f in (loss, lambda x: loss(x), jax.jit(loss), jax.custom_jvp(loss), s.jit(loss), jnp.sin, abs):
        for transform in (
            s.jit,
            s.grad,
            s.value_and_grad,
            s.vmap,
            s.checkpoint,
            s.jacfwd,
            s.jacrev,
            s.jacobian,
            s.hessian,
        ):
            assert same(lambda transform=transform, f=f: transform(f))
    assert same(lambda: s.jit(s.grad(loss)))
    assert same(lambda: s.jit(s.vmap(s.grad(loss))))
    assert same(lambda: s.jit(s.jit(loss)))
    assert same(lambda: s.grad(s.grad(loss)))
    assert same(lambda: s.value_and_jacfwd(loss))


def test_equal_options_give_the_same_object():
    s = symjac
    assert same(lambda: s.grad(two, argnums=1))
    assert same(lambda: s.grad(two, [0, 1]))
    assert same(lambda: s.jit(two, static_argnums=[0]))
    assert same(lambda: s.jit(two, static_argnames="a"))
    assert same(lambda: s.vmap(tree_loss, in_axes=({"w": 0, "b": None}, [0])))
    assert same(lambda: s.checkpoint(loss, policy=jax.checkpoint_policies.dots_saveable))
    assert s.grad(two) is s.grad(two, 0) is s.grad(two, argnums=0) is s.grad(fun=two)
    options = [s.grad(two, argnums=k) for k in (0, 1, (0,), (1,), (0, 1), (1, 0))]
    assert len(set(map(id, options))) == len(options)
    assert s.vmap(two, in_axes=(0, None)) is not s.vmap(two, in_axes=(None, 0))
    assert s.jacfwd(two, argnums=True) is not s.jacfwd(two, argnums=1)


def test_options_that_change_later_do_not_change_the_result():
    axes = [0, None]
    first = symjac.vmap(two, in_axes=axes)
    axes[:] = [None, 0]
    assert symjac.vmap(two, in_axes=axes) is not first
    assert first(M, X).shape == (2,)
    np.testing.assert_allclose(first(M, X), jax.vmap(two, in_axes=(0, None))(M, X))


def test_without_memoize_objects_are_new():
    for transform in (symjac.grad, symjac.jit, symjac.vmap, symjac.jacfwd, symjac.checkpoint):
        assert transform(loss, memoize=False) is not transform(loss, memoize=False)


def test_memoize_takes_any_transform():
    made = []

    def transform(f, *, scale, table=None):
        made.append(scale)
        return lambda x: scale * f(x)

    memoised = symjac.memoize(transform)
    assert same(lambda: memoised(loss, scale=2.0, table={"a": [1]}))
    assert made == [2.0]
    assert memoised(loss, scale=3.0)(X) == 3.0 * loss(X)
    assert memoised.__name__ == "transform"
    linearized = symjac.memoize(jax.linear_transpose)
    assert callable(linearized(lambda x: 2.0 * x, X))
    with pytest.raises(TypeError):
        memoised(loss)


def test_mixed_with_jax():
    traces = []

    def f(x):
        traces.append(None)
        return loss(x)

    for _ in range(5):
        jax.jit(symjac.grad(f))(X)
        symjac.jit(jax.grad(loss))(X)
    assert len(traces) <= 2


class Unhashable:
    __hash__ = None

    def __init__(self, w):
        self.w = w

    def __eq__(self, other):
        return self.w == getattr(other, "w", None)

    def __call__(self, x):
        return jnp.sum(self.w * x)


def test_callables_that_cannot_be_compared():
    for w in (X, 2.0 * X):
        f = Unhashable(w)
        for transform in (symjac.grad, symjac.jit, symjac.vmap, symjac.jacfwd, symjac.hessian):
            name = transform.__name__
            x = M if name == "vmap" else X
            theirs = f if name == "jit" else getattr(jax, name)(f)  # `jax.jit` refuses such an `f`.
            np.testing.assert_allclose(transform(f)(x), theirs(x))
        f.w = f.w + 1.0
        np.testing.assert_allclose(symjac.grad(f)(X), f.w)


def test_jit_of_a_module():
    for k in range(3):
        model = eqx.nn.Linear(3, 2, key=jax.random.key(k))
        np.testing.assert_allclose(symjac.jit(model)(X), model(X), rtol=1e-5)


def test_attributes():
    for transform in (symjac.grad, symjac.value_and_grad, symjac.vmap, symjac.jit, symjac.checkpoint):
        ours, theirs = transform(loss), getattr(jax, transform.__name__)(loss)
        for attribute in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__"):
            assert getattr(ours, attribute) == getattr(theirs, attribute)
        assert ours.__wrapped__ is loss
        assert callable(copy.copy(ours))
        with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
            pickle.dumps(transform(lambda x: x))


def test_functions_can_still_be_copied_and_pickled():
    symjac.grad(loss)(X)
    assert pickle.loads(pickle.dumps(loss)) is loss
    assert copy.deepcopy(loss) is loss

    @functools.wraps(loss)
    def wrapper(x):
        return 2.0 * loss(x)

    assert symjac.grad(wrapper) is not symjac.grad(loss)
    np.testing.assert_allclose(symjac.grad(wrapper)(X), 2.0 * symjac.grad(loss)(X), rtol=1e-6)


def test_the_object_of_jit():
    f = symjac.jit(loss)
    np.testing.assert_allclose(f.lower(X).compile()(X), loss(X))
    assert f.trace(X).jaxpr.out_avals == jax.jit(loss).trace(X).jaxpr.out_avals
    assert f.eval_shape(X).shape == ()
    assert symjac.grad(loss) and jax.eval_shape(symjac.grad(loss), X).shape == (3,)
    f.clear_cache()
    np.testing.assert_allclose(f(X), loss(X), rtol=1e-6)
    assert repr(f) == repr(jax.jit(loss)) or "loss" in repr(f)


def test_jit_as_a_decorator():
    class Model:
        def __init__(self, k):
            self.k = k

        @functools.partial(symjac.jit, static_argnums=0)
        def f(self, x):
            return self.k * x

    assert float(Model(2.0).f(3.0)) == 6.0

    @symjac.jit
    def f(x):
        return 2.0 * x

    @symjac.jit(donate_argnums=0)
    def g(x):
        return 2.0 * x

    assert float(f(3.0)) == float(g(jnp.float32(3.0))) == 6.0


def test_donated_arguments_are_given_up():
    def f(x):
        return x + 1

    for _ in range(3):
        a, b = jnp.ones(3), jnp.ones(3)
        symjac.jit(f, donate_argnums=0)(a)
        jax.jit(f, donate_argnums=0)(b)
        assert a.is_deleted() == b.is_deleted()
        c = jnp.ones(3)
        assert symjac.jit(lambda x: x)(c) is not c
        assert not c.is_deleted()


def test_under_and_over_other_transforms():
    for outer in (jax.jit, lambda f: jax.vmap(f), lambda f: jax.jacfwd(f), lambda f: jax.checkpoint(f)):
        x = M if outer(loss).__name__ == "vmap" else X
        got = outer(lambda x: symjac.jit(symjac.grad(loss))(x) + symjac.grad(symjac.jit(loss))(x))(x)
        want = outer(lambda x: 2.0 * jax.grad(loss)(x))(x)
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_no_reference_cycle_for_a_function_that_is_used_once():
    gc.collect()
    gc.disable()
    try:
        a = jnp.ones(3)
        count = len(jax.live_arrays())
        for transform in (symjac.grad, symjac.jacfwd, symjac.hessian, symjac.jit):
            b = a + 1.0
            transform(closed_over(b))(a)
            del b
        assert len(jax.live_arrays()) <= count + 1
    finally:
        gc.enable()
