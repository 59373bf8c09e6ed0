"""Equinox: filtered transforms, modules as functions, layers, and Equinox's own primitives."""

import functools
import gc
import weakref

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import pytest
from helpers import array, assert_same, check_against_jax

import symjac

KEY = jax.random.key(0)
JACOBIANS = ("filter_jacfwd", "filter_jacrev", "filter_hessian")
VALUES_AND_JACOBIANS = ("filter_value_and_jacfwd", "filter_value_and_jacrev")


class Line(eqx.Module):
    """A module of an array, an integer array, a function and a number."""

    slope: jax.Array
    index: jax.Array
    activation: object
    name: str = eqx.field(static=True)
    factor: float = 2.0

    def __call__(self, x):
        return self.activation(self.slope * x)[self.index] * self.factor

    def method(self, x):
        return self(x)

    @symjac.filter_jacfwd
    def bare_decorator(self, x):
        """Docstring."""
        return self(x)

    @symjac.filter_jacfwd(has_aux=True)
    def called_decorator(self, x):
        return self(x), "aux"

    @symjac.filter_jit
    def compiled(self, x):
        return self(x)

    @symjac.filter_grad
    def gradient(self, x):
        return jnp.sum(self(x))


def line(seed=0):
    return Line(array(seed, 3), jnp.array([0, 2, 2]), jnp.tanh, "name")


def apply(module, x):
    return module(x)


def apply_total(module, x):
    return jnp.sum(module(x) ** 2)


def compiled(transform, function, *args, **options):
    """What Equinox's transform gives, compiled."""
    return eqx.filter_jit(getattr(eqx, transform)(function, **options))(*args)


# --- the filtered transforms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", JACOBIANS)
def test_jacobian_of_a_module(transform):
    got = getattr(symjac, transform)(apply)(line(), array(1, 3))
    assert isinstance(got, Line) and got.index is None and got.activation is None and got.factor is None
    assert_same(got, compiled(transform, apply, line(), array(1, 3)), transform)


@pytest.mark.parametrize("transform", JACOBIANS)
def test_inside_jit(transform):
    got = eqx.filter_jit(getattr(symjac, transform)(apply))(line(), array(1, 3))
    assert_same(got, compiled(transform, apply, line(), array(1, 3)), transform)


def test_jacobian_in_the_cheaper_mode():
    got = symjac.filter_jacobian(apply)(line(), array(1, 3))
    assert_same(got, compiled("filter_jacrev", apply, line(), array(1, 3)), "filter_jacobian")


@pytest.mark.parametrize("transform", JACOBIANS)
def test_aux(transform):
    def function(module, x):
        return module(x), {"text": "aux", "value": x}

    got, aux = getattr(symjac, transform)(function, has_aux=True)(line(), array(1, 3))
    assert_same(got, compiled(transform, apply, line(), array(1, 3)), transform)
    assert aux["text"] == "aux" and jnp.array_equal(aux["value"], array(1, 3))


@pytest.mark.parametrize("transform", VALUES_AND_JACOBIANS)
@pytest.mark.parametrize("has_aux", [False, True])
def test_value_and_jacobian(transform, has_aux):
    def function(module, x):
        output = module(x), "static"
        return (output, "aux") if has_aux else output

    value, got = getattr(symjac, transform)(function, has_aux=has_aux)(line(), array(1, 3))
    if has_aux:
        value, aux = value
        assert aux == "aux"
    assert_same(value[0], jax.jit(line().__call__)(array(1, 3)), transform)
    assert value[1] == "static" and got[1] is None
    assert_same(got[0], compiled("filter_jacfwd", apply, line(), array(1, 3)), transform)


def test_static_outputs():
    got = symjac.filter_jacfwd(lambda x: {"a": x * 2, "b": "text", "c": None, "d": True, "e": jnp.sin})(jnp.ones(2))
    assert got["b"] is got["c"] is got["d"] is got["e"] is None
    assert_same(got["a"], 2 * jnp.eye(2), "static outputs")


def test_numbers_and_integers_as_outputs():
    got = symjac.filter_jacfwd(lambda x: (x, 1.0, jnp.arange(2)))(jnp.ones(2))
    assert_same(got, jax.jit(jax.jacfwd(lambda x: (x, 1.0, jnp.arange(2))))(jnp.ones(2)), "numbers")


@pytest.mark.parametrize("has_aux", [False, True])
def test_gradients(has_aux):
    def function(module, x):
        return (apply_total(module, x), "aux") if has_aux else apply_total(module, x)

    for name in ("filter_grad", "filter_value_and_grad"):
        got = getattr(symjac, name)(function, has_aux=has_aux)(line(), array(1, 3))
        want = getattr(eqx, name)(function, has_aux=has_aux)(line(), array(1, 3))
        is_array = functools.partial(eqx.filter, filter_spec=eqx.is_array)
        assert_same(is_array(got), is_array(want), name)


def test_linearize():
    output, jacobian = symjac.filter_linearize(lambda module, x: (module(x), "static"), line(), array(1, 3))
    assert output[1] == "static"
    tangents = eqx.filter((line(5), array(6, 3)), eqx.is_inexact_array)
    diff, static = eqx.partition((line(), array(1, 3)), eqx.is_inexact_array)
    want = jax.jvp(lambda diff: apply(*eqx.combine(diff, static)), (diff,), (tangents,))
    assert_same(output[0], want[0], "value")
    assert_same(jacobian(*tangents)[0], want[1], "tangent")


def test_options_reach_the_transform():
    got = symjac.filter_jacfwd(lambda z: z**2, holomorphic=True, memoize=False)(jnp.ones(2, jnp.complex64) * 1j)
    assert_same(got, 2j * jnp.eye(2, dtype=jnp.complex64), "holomorphic")
    assert_same(symjac.filter_jacfwd(lambda x: jnp.sin(x) * x, chunk_size=1)(jnp.zeros(3)), jnp.zeros((3, 3)), "chunk")


def test_values_are_looked_at():
    def function(x, flag):
        return x**2 if flag and x[0] > 0 else -x

    assert_same(symjac.filter_jacfwd(function)(jnp.ones(2), True), 2 * jnp.eye(2), "values")
    assert_same(symjac.filter_grad(lambda x: jnp.sum(function(x, True)))(jnp.ones(2)), 2 * jnp.ones(2), "values")


# --- as decorators -------------------------------------------------------------------------------------------------


def test_decorators_on_methods():
    want = compiled("filter_jacfwd", apply, line(), array(1, 3))
    assert_same(line().bare_decorator(array(1, 3)), want, "bare")
    jacobian, aux = line().called_decorator(array(1, 3))
    assert_same(jacobian, want, "called")
    assert aux == "aux"
    assert_same(line().compiled(array(1, 3)), jax.jit(line().__call__)(array(1, 3)), "compiled")
    assert_same(line().gradient(array(1, 3)).slope, jnp.sum(want.slope, 0), "gradient")


def test_a_bound_method_is_a_pytree():
    method = line().bare_decorator
    arrays = [leaf for leaf in jax.tree.leaves(method) if eqx.is_array(leaf)]
    assert len(arrays) == 2
    assert_same(eqx.filter_jit(lambda m, x: m(x))(method, array(1, 3)), method(array(1, 3)), "argument")


def test_methods_of_plain_classes():
    class Plain:
        @symjac.filter_jacfwd
        def __call__(self, x):
            return x

    with pytest.raises(ValueError, match="no floating-point"):
        Plain()(jnp.ones(2))


def test_what_a_transformed_function_shows():
    for transform in (symjac.filter_jacfwd, symjac.filter_grad, symjac.filter_jit):
        got = transform(apply)
        assert got.__name__ == "apply" and got.__wrapped__ is apply and got.__module__ == __name__
        assert {got: 1}[got] == 1
        assert "apply" in got.__doc__
    assert "Docstring." in Line.bare_decorator.__doc__


@pytest.mark.parametrize("name", ["filter_jacfwd", "filter_jacrev", "filter_hessian", "filter_grad", "filter_jit"])
def test_the_same_object(name):
    transform = getattr(symjac, name)
    assert transform(apply) is transform(apply)
    assert transform(apply) is not transform(apply_total)
    assert transform(apply, memoize=False) is not transform(apply, memoize=False)


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["filter_jacfwd", "filter_jacrev", "filter_hessian", "filter_grad"])
def test_errors(name):
    transform = getattr(symjac, name)
    with pytest.raises(TypeError, match="by position and not by keyword"):
        transform(apply)(module=line(), x=jnp.ones(3))
    with pytest.raises(TypeError, match="without arguments"):
        transform(apply)()
    with pytest.raises(TypeError, match="Expected a callable value"):
        transform(3)


@pytest.mark.parametrize("name", ["filter_jacfwd", "filter_jacrev", "filter_hessian"])
@pytest.mark.parametrize("argument", [1.0, None, "text", jnp.arange(3)])
def test_nothing_to_differentiate(name, argument):
    with pytest.raises(ValueError, match="no floating-point or complex array"):
        getattr(symjac, name)(lambda x: jnp.ones(2))(argument)


def test_no_pair_with_aux():
    with pytest.raises(TypeError, match="two-element tuple"):
        symjac.filter_jacfwd(lambda x: x, has_aux=True)(jnp.ones(3))


# --- the memo ------------------------------------------------------------------------------------------------------


def trained(step):
    """Runs a loop in which the weights change in each step."""
    symjac.clear_caches()
    model = eqx.nn.MLP(2, 2, 4, 1, key=KEY)
    for k in range(50):
        step(model, jnp.ones(2))
        model = eqx.tree_at(lambda m: m.layers[0].bias, model, jnp.full(4, k, jnp.float32))
    return symjac.cache_info()


@pytest.mark.parametrize("name", ["filter_jacfwd", "filter_jacrev", "filter_grad", "filter_value_and_grad"])
def test_weights_that_change_are_not_traced_again(name):
    transform = getattr(symjac, name)
    info = trained(lambda model, x: transform(apply_total)(model, x))
    assert (info.misses, info.structural_hits, info.hits) == (1, 0, 49)


def test_a_module_as_the_function_is_not_traced_again():
    info = trained(lambda model, x: symjac.filter_jacfwd(model)(x))
    assert (info.misses, info.structural_hits, info.hits) == (1, 0, 49)


def test_jacfwd_of_an_updated_module_compiles_once():
    info = trained(lambda model, x: symjac.jacfwd(model)(x))
    assert info.misses == 1


def test_methods_of_changing_modules_are_not_traced_again():
    symjac.clear_caches()
    for k in range(5):
        line(k).bare_decorator(jnp.ones(3))
        symjac.filter_jacfwd(line(k).method)(jnp.ones(3))
        symjac.filter_jacfwd(line(k).__call__)(jnp.ones(3))
    info = symjac.cache_info()
    assert info.misses <= 3 and info.structural_hits <= 2 and info.hits >= 10


def test_filter_jit_traces_once():
    traces = []

    @symjac.filter_jit
    def step(model, x, flag):
        traces.append(flag)
        return model(x), "static", flag

    info = trained(lambda model, x: step(model, x, True))
    assert traces == [True] and info.misses == 1
    assert step(line(), jnp.ones(3), False)[1:] == ("static", False)
    assert traces == [True, False]


def test_filter_jit_compiles_a_fresh_function_once():
    symjac.clear_caches()
    for _ in range(5):
        symjac.filter_jit(lambda x: jnp.sin(x) * 3)(jnp.ones(4))
    assert symjac.cache_info().misses == 1


def test_filter_jit_as_equinox_has_it():
    assert_same(symjac.filter_jit(line())(array(1, 3)), eqx.filter_jit(line())(array(1, 3)), "module")
    assert_same(symjac.filter_jit(donate="all")(lambda x: x + 1)(jnp.ones(2)), 2 * jnp.ones(2), "donate")
    assert hasattr(symjac.filter_jit(apply).lower(line(), array(1, 3)), "compile")
    with pytest.raises(RuntimeError, match="must be positive"):
        symjac.filter_jit(lambda x: eqx.error_if(x, x < 0, "must be positive"))(jnp.asarray(-1.0))


def test_other_functions_as_leaves_are_told_apart():
    def with_activation(function):
        return eqx.tree_at(lambda m: m.activation, line(), function)

    transform = symjac.filter_jacfwd(apply)
    for function in (jnp.sin, jnp.cos, jnp.sin, lambda x: x, lambda x: 2 * x):
        module = with_activation(function)
        assert_same(transform(module, array(1, 3)), compiled("filter_jacfwd", apply, module, array(1, 3)), "activation")


def test_a_function_is_freed_with_what_it_captures():
    def make():
        captured = array(3, 3)
        function = lambda x: captured * x  # noqa: E731
        symjac.filter_jacfwd(function)(jnp.ones(3))
        return weakref.ref(captured)

    reference = make()
    gc.collect()
    assert reference() is None


# --- modules as functions, and layers ------------------------------------------------------------------------------


def test_the_jacobian_of_a_linear_layer_is_its_weight():
    layer = eqx.nn.Linear(4, 3, key=KEY)
    for transform in (symjac.jacfwd, symjac.filter_jacfwd):
        assert transform(layer)(jnp.ones(4)) is layer.weight


def test_a_module_is_a_function():
    check_against_jax(eqx.nn.MLP(3, 2, 4, 1, key=KEY), array(1, 3))
    check_against_jax(eqx.nn.MLP(3, 2, 4, 1, key=KEY), array(1, 3), transform="jacrev")
    check_against_jax(lambda x: eqx.nn.MLP(3, "scalar", 4, 1, key=KEY)(x), array(1, 3), transform="hessian")


def attention(module, x):
    return module(x, x, x)


def gru(module, x):
    return module(x, array(9, 4))


def lstm(module, x):
    return module(x, (array(8, 4), array(9, 4)))


nn = eqx.nn
LAYERS = {
    "Linear": (nn.Linear(5, 3, key=KEY), array(1, 5), apply),
    "Identity": (nn.Identity(), array(1, 5), apply),
    "MLP relu": (nn.MLP(5, 3, 8, 2, key=KEY), array(1, 5), apply),
    "MLP gelu": (nn.MLP(5, 3, 8, 2, activation=jax.nn.gelu, key=KEY), array(1, 5), apply),
    "Conv1d": (nn.Conv1d(2, 3, 3, key=KEY), array(1, 2, 9), apply),
    "Conv2d": (nn.Conv2d(2, 3, 3, stride=2, padding=1, key=KEY), array(1, 2, 7, 8), apply),
    "Conv2d grouped": (nn.Conv2d(4, 4, 3, groups=4, key=KEY), array(1, 4, 5, 6), apply),
    "Conv1d circular": (nn.Conv1d(2, 3, 3, padding=1, padding_mode="CIRCULAR", key=KEY), array(1, 2, 9), apply),
    "ConvTranspose1d": (nn.ConvTranspose1d(2, 3, 3, stride=2, key=KEY), array(1, 2, 6), apply),
    "LayerNorm": (nn.LayerNorm((2, 6)), array(1, 2, 6), apply),
    "GroupNorm": (nn.GroupNorm(2, 4), array(1, 4, 5), apply),
    "RMSNorm": (nn.RMSNorm((6,)), array(1, 6), apply),
    "MultiheadAttention": (nn.MultiheadAttention(2, 8, key=KEY), array(1, 5, 8), attention),
    "GRUCell": (nn.GRUCell(3, 4, key=KEY), array(1, 3), gru),
    "LSTMCell": (nn.LSTMCell(3, 4, key=KEY), array(1, 3), lstm),
    "Embedding": (nn.Embedding(6, 4, key=KEY), jnp.array(2), apply),
    "Dropout": (nn.Dropout(0.5, inference=True), array(1, 6), apply),
    "AvgPool2d": (nn.AvgPool2d(2, 1), array(1, 3, 6, 5), apply),
    "MaxPool1d": (nn.MaxPool1d(2, 2), array(1, 3, 8), apply),
    "MaxPool2d": (nn.MaxPool2d(3, 2, padding=1), array(1, 3, 6, 5), apply),
    "AdaptiveAvgPool2d": (nn.AdaptiveAvgPool2d(3), array(1, 2, 6, 9), apply),
    "AdaptiveMaxPool1d": (nn.AdaptiveMaxPool1d(3), array(1, 2, 8), apply),
    "PReLU": (nn.PReLU(), array(1, 6), apply),
    "RotaryPositionalEmbedding": (nn.RotaryPositionalEmbedding(8), array(1, 5, 8), apply),
    "WeightNorm": (nn.WeightNorm(nn.Linear(5, 3, key=KEY)), array(1, 5), apply),
    "Sequential": (
        nn.Sequential([nn.Linear(5, 8, key=KEY), nn.Lambda(jnp.tanh), nn.Linear(8, 3, key=KEY)]),
        array(1, 5),
        apply,
    ),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("transform", ["filter_jacfwd", "filter_jacrev"])
def test_layers(name, transform):
    module, x, function = LAYERS[name]
    ours, theirs = getattr(symjac, transform), functools.partial(compiled, transform)
    if eqx.is_inexact_array(x):
        assert_same(ours(lambda x: function(module, x))(x), theirs(lambda x: function(module, x), x), "input")
    if jax.tree.leaves(eqx.filter(module, eqx.is_inexact_array)):
        assert_same(ours(function)(module, x), theirs(function, module, x), "module")


@pytest.mark.parametrize("name", LAYERS)
def test_batched_layers(name):
    module, x, function = LAYERS[name]
    if eqx.is_inexact_array(x):
        batch = jnp.stack([x, 2 * x])
        mapped = jax.vmap(lambda x: function(module, x))
        assert_same(symjac.filter_jacfwd(mapped)(batch), compiled("filter_jacfwd", mapped, batch), "batch")


# --- Equinox's own primitives --------------------------------------------------------------------------------------


def looped(kind, x):
    def step(carry):
        i, y, buffer = carry
        y = jnp.sin(y) * 2
        return i + 1, y, buffer.at[i].set(y)

    options = {"checkpoints": 3} if kind == "checkpointed" else {}
    start = (jnp.array(0), x, jnp.zeros((3, x.size)))
    buffers = {"buffers": lambda carry: carry[2]}
    _, y, buffer = eqxi.while_loop(lambda c: c[0] < 3, step, start, max_steps=5, kind=kind, **buffers, **options)
    return y, buffer


def scanned(kind, x):
    options = {"checkpoints": 3} if kind == "checkpointed" else {}
    factors = jnp.arange(1.0, 4.0)
    return eqxi.scan(lambda c, a: (jnp.tanh(c) * a, c**2), x, factors, kind=kind, **options)


PRIMITIVES = {
    "nondifferentiable_backward": ("jacfwd", lambda x: eqxi.nondifferentiable_backward(x) * x),
    "nonbatchable": ("jacfwd", lambda x: x**2 * eqxi.nonbatchable(jnp.array(3.0))),
    "unvmap_any": ("jacfwd", lambda x: jnp.where(eqxi.unvmap_any(x > 0), x**2, x)),
    "unvmap_all": ("jacrev", lambda x: jnp.where(eqxi.unvmap_all(x > 0), x**2, x)),
    "error_if forward": ("jacfwd", lambda x: eqx.error_if(x, x < -9, "too small") ** 2),
    "error_if reverse": ("jacrev", lambda x: eqx.error_if(x, x < -9, "too small") ** 2),
    "while_loop lax": ("jacfwd", functools.partial(looped, "lax")),
    "while_loop bounded forward": ("jacfwd", functools.partial(looped, "bounded")),
    "while_loop bounded reverse": ("jacrev", functools.partial(looped, "bounded")),
    "while_loop checkpointed": ("jacrev", functools.partial(looped, "checkpointed")),
    "scan lax forward": ("jacfwd", functools.partial(scanned, "lax")),
    "scan lax reverse": ("jacrev", functools.partial(scanned, "lax")),
    "scan checkpointed": ("jacrev", functools.partial(scanned, "checkpointed")),
    "checkpoint": ("jacrev", eqx.filter_checkpoint(lambda x: jnp.sin(x) * x)),
}


@pytest.mark.parametrize("name", PRIMITIVES)
def test_primitives(name):
    transform, function = PRIMITIVES[name]
    modes = ("jit",) if "nonbatchable" in name else ("eager", "jit", "vmap")
    check_against_jax(function, array(1, 4), transform=transform, modes=modes)


@pytest.mark.fallback
def test_noinline():
    check_against_jax(eqxi.noinline(lambda x: jnp.sin(x) * 2), array(1, 4), modes=("eager", "jit"))


def test_a_batched_predicate_selects():
    def function(x):
        return eqxi.while_loop(
            lambda c: c[0] < c[1], lambda c: (c[0] * 2, c[1]), (x, x * 4), max_steps=4, kind="bounded"
        )

    check_against_jax(lambda x: jax.vmap(function)(x), array(1, 3))
    assert_same(
        jax.jit(jax.vmap(symjac.jacfwd(function)))(array(1, 3)),
        jax.jit(jax.vmap(jax.jacfwd(function)))(array(1, 3)),
        "vmap outside",
    )


def test_custom_rules_and_converted_closures():
    @eqx.filter_custom_jvp
    def leaky(x, *, slope):
        return jnp.maximum(x, 0) * slope

    @leaky.def_jvp
    def _(primals, tangents, *, slope):
        (x,), (t,) = primals, tangents
        return leaky(x, slope=slope), t * jnp.where(x > 0, slope, 0.1)

    function = lambda x: leaky(x, slope=2.0) * x[::-1]  # noqa: E731
    check_against_jax(function, array(1, 4))
    check_against_jax(eqx.filter_closure_convert(function, array(1, 4)), array(1, 4), modes=("eager", "jit"))
