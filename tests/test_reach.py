"""What counts as immutable, and how fast that is checked."""

from __future__ import annotations

import functools
import math
import os
import random
import time
import types
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import symjac
from symjac._memo.reach import find_reach

A = jnp.ones((3, 3))
B = jnp.zeros((3, 3))
SCALE = 2.0
MODULE = types.ModuleType("a_module_of_the_user")
MODULE.A = A


class Stateful:
    def __init__(self):
        self.a = A

    def __call__(self, x):
        return self.a @ x


class Frozen(eqx.Module):
    w: jax.Array
    layers: list
    act: object

    def __call__(self, x):
        return self.act(self.w @ x) * SCALE


def uses_global(x):
    return A @ x * SCALE


def uses_function(x):
    return uses_global(x) + recursive(x, 3)


def recursive(x, n):
    return x if n == 0 else recursive(x * SCALE, n - 1)


def with_default(x, a=A, *, options=("sum", 1.0, None)):
    return a @ x


def closed_over(value):
    return lambda x: (value, x)


STATEFUL = Stateful()
FROZEN = Frozen(A, [B], jax.nn.relu)

IMMUTABLE = {
    "global": uses_global,
    "function": uses_function,
    "recursive": recursive,
    "default": with_default,
    "module": lambda x: MODULE.A @ x,
    "array": closed_over(A),
    "key": closed_over(jax.random.key(0)),
    "tuple": closed_over((A, (1, "a", None))),
    "list": closed_over([A, [1]]),
    "dict": closed_over({"w": A, "b": {"c": 1.0}}),
    "numpy": closed_over(np.ones(3)),
    "numpy scalar": closed_over(np.float32(1)),
    "dtype": closed_over((jnp.float32, np.dtype("f4"), slice(1, 2))),
    "frozen module": FROZEN,
    "method of a frozen module": FROZEN.__call__,
    "partial": functools.partial(with_default, a=B),
    "jax.grad": jax.grad(uses_global),
    "jax.vmap": jax.vmap(uses_global),
    "jax.jit": jax.jit(uses_global),
    "jax.checkpoint": jax.checkpoint(uses_global),
    "jax.nn.relu": jax.nn.relu,
    "custom_jvp": jax.custom_jvp(uses_global),
    "ufunc": jnp.add,
    "builtin": abs,
    "math": lambda x: x * math.pi,
    "installed module": lambda x: jax.scipy.linalg.expm(jnp.linalg.inv(x)),
    "nested code": lambda x: (lambda y: A @ y)(x),
    "mlp": eqx.nn.MLP(2, 2, 3, 1, key=jax.random.key(0)),
}

MUTABLE = {
    "object": closed_over(STATEFUL),
    "global object": lambda x: STATEFUL.a @ x,
    "callable object": STATEFUL,
    "bound method": STATEFUL.__call__,
    "set": closed_over({1, 2}),
    "generator": closed_over(i for i in range(3)),
    "large numpy array": closed_over(np.ones(10_000)),
    "object in a list": closed_over([STATEFUL]),
    "object in a frozen module": Frozen(A, [], STATEFUL),
    "time": lambda x: x * time.time(),
    "random": lambda x: x * random.random(),
    "numpy.random": lambda x: x * np.random.rand(),
    "environment": lambda x: x * len(os.environ),
    "globals": lambda x: globals()["A"] @ x,
    "getattr": lambda x: getattr(MODULE, "A") @ x,  # noqa: B009
    "bound builtin": [1].append,
    "unbound name": lambda x: not_yet_defined(x),  # noqa: F821
}


@pytest.mark.parametrize("name", IMMUTABLE)
def test_immutable(name):
    reach = find_reach(IMMUTABLE[name])
    assert reach is not None
    assert reach.unchanged()


@pytest.mark.parametrize("name", MUTABLE)
def test_mutable(name):
    assert find_reach(MUTABLE[name]) is None


def test_static_arguments_count():
    assert find_reach(uses_global, ("a", 1, jax.tree.structure(FROZEN))) is not None
    assert find_reach(uses_global, (STATEFUL,)) is None


def test_tracers_count_as_mutable():
    seen = []
    jax.make_jaxpr(lambda t: seen.append(find_reach(closed_over(t))) or t)(1.0)
    assert seen == [None]


def test_changes_are_seen():
    value = A
    items = [A]
    table = {"w": A}
    numbers = np.ones(3)

    def changed(change, f):
        reach = find_reach(f)
        assert reach is not None and reach.unchanged()
        change()
        return not reach.unchanged()

    def replace():
        nonlocal value
        value = B

    assert changed(replace, lambda x: value @ x)
    assert changed(lambda: items.append(A), lambda x: items[0] @ x)
    assert changed(lambda: items.__setitem__(0, B), lambda x: items[0] @ x)
    assert changed(lambda: table.update(w=B), lambda x: table["w"] @ x)
    assert changed(lambda: numbers.__setitem__(0, 2.0), lambda x: numbers * x)
    f = with_a_default()
    assert changed(lambda: setattr(f, "__defaults__", (B,)), f)
    g = with_a_default()
    assert changed(lambda: setattr(g, "__code__", f.__code__.replace(co_name="g")), g)


def with_a_default():
    return lambda x, a=A: a @ x


def test_a_builtin_that_is_hidden_later():
    module = types.ModuleType("a_module_of_the_user")
    exec("def f(x): return sum(x)", vars(module))
    reach = find_reach(module.f)
    assert reach.unchanged()
    module.sum = max
    assert not reach.unchanged()


class Scale(NamedTuple):
    by: float

    def __call__(self, x):
        return self.by * FACTOR * x


class Named(tuple):
    pass


FACTOR = 2.0


@pytest.mark.parametrize("transform", [symjac.jacfwd, symjac.jacrev, symjac.hessian, symjac.filter_jacfwd])
def test_a_method_of_a_named_tuple_reads_a_global(transform, monkeypatch):
    scale = Scale(3.0)
    f = lambda x: scale(x) ** 2  # noqa: E731
    expected = {symjac.hessian: lambda factor: 18.0 * factor**2}.get(transform, lambda factor: 36.0 * factor**2)
    assert transform(f)(jnp.asarray(2.0)) == expected(2.0)
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    assert transform(f)(jnp.asarray(2.0)) == expected(5.0)


def test_an_attribute_of_a_tuple():
    value = Named((1.0,))
    value.factor = 2.0
    f = lambda x: value.factor * x  # noqa: E731
    assert symjac.jacfwd(f)(1.0) == 2.0
    value.factor = 5.0
    assert symjac.jacfwd(f)(1.0) == 5.0


def test_a_record_that_is_written_to():
    record = np.zeros((), dtype=[("factor", "f4")])[()]
    record["factor"] = 2.0
    f = lambda x: x * record["factor"]  # noqa: E731
    assert symjac.jacfwd(f)(1.0) == 2.0
    record["factor"] = 5.0
    assert symjac.jacfwd(f)(1.0) == 5.0


def test_a_weak_reference_does_not_match_none():
    value = [jnp.ones(3)]
    f = closed_over(value)
    reach = find_reach(f)
    value[0] = None
    assert not reach.unchanged()


def test_the_check_of_ten_objects_is_fast():
    a, b, c, d, e, g, h, i, j, k = (jnp.ones(n) for n in range(10))
    f = lambda x: (a, b, c, d, e, g, h, i, j, k, x)  # noqa: E731
    reach = find_reach(f)
    best = min(_timed(reach.unchanged) for _ in range(20))
    assert best < 20e-6


def _timed(check, n=200):
    start = time.perf_counter()
    for _ in range(n):
        check()
    return (time.perf_counter() - start) / n
