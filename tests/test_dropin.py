"""What a drop-in for jax.jacfwd, jax.jacrev and jax.hessian has to match."""

import inspect
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import array, assert_same

import symjac

X = array(1, 3)
TRANSFORMS = ("jacfwd", "jacrev", "hessian")
NEWEST = jax.__version_info__ >= (0, 10, 0)

every_transform = pytest.mark.parametrize("transform", TRANSFORMS)
first_order = pytest.mark.parametrize("transform", ("jacfwd", "jacrev"))
forward = pytest.mark.parametrize("transform", ("jacfwd", "hessian"))


def both(use, where="drop-in"):
    """Checks that something done with symjac and with JAX has the same result, and returns it."""
    got = use(symjac)
    assert_same(got, use(jax), where)
    return got


def both_raise(use, match=None):
    """Checks that something fails with symjac as it does with JAX."""
    with pytest.raises(Exception) as expected:
        use(jax)
    with pytest.raises(expected.type, match=match):
        use(symjac)


def scalar_of(x):
    return jnp.sum(x**3)


def two(a, b):
    return a * jnp.sum(b**2)


# Construction


@every_transform
def test_signature(transform):
    ours = inspect.signature(getattr(symjac, transform)).parameters
    theirs = inspect.signature(getattr(jax, transform)).parameters
    positional = [name for name, p in ours.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == list(theirs)
    assert [ours[name].default for name in positional] == [p.default for p in theirs.values()]
    assert all(ours[name].kind is inspect.Parameter.KEYWORD_ONLY for name in ours if name not in theirs)


@every_transform
@pytest.mark.parametrize("value", [3, None, "f", X])
def test_not_callable(transform, value):
    both_raise(lambda mod: getattr(mod, transform)(value), match="Expected a callable value, got")


@every_transform
def test_generator_function_is_refused(transform):
    def generator(x):
        yield x

    both_raise(lambda mod: getattr(mod, transform)(generator))


@every_transform
@pytest.mark.parametrize("argnums", [1, [1], [0, 1], (1,), (1, 0), -1, (-1, 0), True])
def test_argnums(transform, argnums):
    both(lambda mod: getattr(mod, transform)(two, argnums=argnums)(X, 2.0 * X))


@every_transform
@pytest.mark.parametrize("argnums", [np.int64(1), np.array(1)])
@pytest.mark.skipif(not NEWEST, reason="JAX 0.7 fails in reverse")
def test_argnums_of_numpy(transform, argnums):
    both(lambda mod: getattr(mod, transform)(two, argnums=argnums)(X, 2.0 * X))


def test_bad_argnums_raise_when_jax_raises():
    for transform in ("jacfwd", "hessian"):
        both_raise(lambda mod, transform=transform: getattr(mod, transform)(two, argnums=1.0))
    jacobian = symjac.jacrev(two, argnums=1.0)
    with pytest.raises(TypeError):
        jacobian(X, X)
    both_raise(lambda mod: mod.jacrev(two, argnums=1.0)(X, X))


@every_transform
def test_attributes(transform):
    def volume(x: Any) -> Any:
        """Some text."""
        return x

    volume.unit = "m3"
    ours, theirs = getattr(symjac, transform)(volume, (0,)), getattr(jax, transform)(volume, (0,))
    assert inspect.isfunction(ours)
    assert ours.__wrapped__ is volume
    for name in ("__name__", "__qualname__", "__module__", "__annotations__", "unit", "__doc__"):
        assert getattr(ours, name) == getattr(theirs, name), name


@every_transform
def test_attributes_of_a_callable_object(transform):
    both_attributes = [getattr(mod, transform)(Scale(2.0)) for mod in (symjac, jax)]
    assert both_attributes[0].__name__ == both_attributes[1].__name__
    assert both_attributes[0].__doc__ == both_attributes[1].__doc__


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return self.factor * x


@every_transform
def test_method(transform):
    def make(mod):
        class Model:
            def __init__(self):
                self.k = 3.0

            def value(self, x):
                return self.k * jnp.sum(x**2)

            def derivative(self, x):
                return getattr(mod, transform)(self.value)(x)

            as_decorator = getattr(mod, transform)(lambda self, x: self.k * jnp.sum(x**2), argnums=1)

        return Model().derivative(X), Model().as_decorator(X)

    both(make)


# Arguments


@every_transform
@pytest.mark.parametrize("argnums", [2, -3, (0, 5)])
def test_argnums_out_of_range(transform, argnums):
    both_raise(lambda mod: getattr(mod, transform)(two, argnums=argnums)(X, X))
    both_raise(lambda mod: getattr(mod, transform)(scalar_of)(x=X))


@every_transform
def test_other_arguments_are_untouched(transform):
    class Unhashable:
        __hash__ = None

    seen = []

    def f(x, name, nothing, thing, numbers, *, table, mode, offset):
        seen.append((name, nothing, thing, numbers, table, mode))
        return jnp.sum(x**2) * table["a"] + offset[0] + numbers[0]

    thing, numbers, table = Unhashable(), np.array([1.0, 2.0], np.float32), {"a": 3}
    offset = jnp.ones(2)

    def use(mod):
        derivative = getattr(mod, transform)(f)
        return derivative(X, "name", None, thing, numbers, table=table, mode=None, offset=offset)

    both(use)
    assert len(seen) >= 2
    for name, nothing, same_thing, same_numbers, same_table, mode in seen:
        assert (name, nothing, mode) == ("name", None, None)
        assert same_thing is thing
        assert same_numbers is numbers
        assert same_table is table
        assert type(same_table["a"]) is int


@every_transform
def test_numbers_that_are_not_differentiated_stay_numbers(transform):
    both(lambda mod: getattr(mod, transform)(lambda x, n, flag: jnp.sum(x[:n] ** n) if flag else x)(X, 2, True))


@every_transform
@pytest.mark.parametrize("value", [2.0, np.float32(2.0), np.array([1.0, 2.0], np.float32), np.arange(3.0)])
def test_numbers_and_numpy_are_accepted(transform, value):
    both(lambda mod: getattr(mod, transform)(scalar_of)(value))
    both(lambda mod: getattr(mod, transform)(lambda x: scalar_of(x["a"]))({"a": value, "b": None}))


@every_transform
@pytest.mark.parametrize("value", ["text", object(), b"bytes"])
def test_what_is_no_array_is_refused(transform, value):
    both_raise(lambda mod: getattr(mod, transform)(lambda x: x)(value))


@every_transform
@pytest.mark.parametrize("value", [1, np.arange(3), {"a": 1.0, "b": 2}, True])
def test_integers_are_refused(transform, value):
    match = "jacrev requires" if transform == "jacrev" else "jacfwd requires real-valued inputs"
    both_raise(lambda mod: getattr(mod, transform)(lambda x: jnp.sum(jax.tree.leaves(x)[0]))(value), match)


def test_text_of_the_integer_errors():
    with pytest.raises(TypeError, match=r"sub-dtype of np.floating\), but got int32"):
        symjac.jacfwd(lambda x: x)(3)
    with pytest.raises(TypeError, match=r"but got int32.*set allow_int to True"):
        symjac.jacrev(lambda x: x)(3)


@every_transform
def test_nothing_to_differentiate(transform):
    both_raise(lambda mod: getattr(mod, transform)(lambda x: 1.0)(None))
    both_raise(lambda mod: getattr(mod, transform)(lambda x: x, argnums=())(1.0))


# Complex


def test_complex():
    z = array(2, 3, dtype=np.complex64) * (1 + 2j)
    both(lambda mod: mod.jacfwd(lambda x: jax.lax.complex(jnp.sin(x), x))(X))
    both_raise(lambda mod: mod.jacfwd(jnp.abs)(z))
    both(lambda mod: mod.jacrev(jnp.abs)(z))
    match = "jacrev requires real-valued outputs"
    both_raise(lambda mod: mod.jacrev(lambda x: jax.lax.complex(jnp.sin(x), x))(X), match)


@first_order
def test_holomorphic(transform):
    z = array(2, 3, dtype=np.complex64) * (1 + 2j)
    both(lambda mod: getattr(mod, transform)(lambda z: jnp.exp(z) * z[::-1], holomorphic=True)(z))
    both_raise(lambda mod: getattr(mod, transform)(jnp.sin, holomorphic=True)(X), "inputs with complex dtype")
    both_raise(lambda mod: getattr(mod, transform)(jnp.real, holomorphic=True)(z), "outputs with complex dtype")


def test_holomorphic_hessian():
    z = array(2, 3, dtype=np.complex64) * (1 + 2j)
    both(lambda mod: mod.hessian(lambda z: jnp.sum(z**3), holomorphic=True)(z))


# Outputs that are not floats


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint8])
def test_integer_outputs(dtype):
    jacobian = both(lambda mod: mod.jacfwd(lambda x: (x, x.astype(dtype)))(X))
    assert jacobian[1].dtype == dtype
    assert jacobian[1].shape == (3, 3)
    both_raise(lambda mod: mod.jacrev(lambda x: x.astype(dtype))(X))
    both_raise(lambda mod: mod.hessian(lambda x: x.astype(dtype))(X))


@every_transform
@pytest.mark.parametrize("output", [True, "text", object()])
def test_outputs_without_derivative(transform, output):
    both_raise(lambda mod: getattr(mod, transform)(lambda x: output)(X))


def test_bool_outputs():
    with pytest.raises(TypeError, match="bool"):
        symjac.jacfwd(lambda x: x > 0)(X)


@every_transform
@pytest.mark.parametrize("output", [3.0, np.float32(3.0), np.ones(2, np.float32)])
def test_constant_outputs(transform, output):
    both(lambda mod: getattr(mod, transform)(lambda x: output)(X))


def test_integer_constant():
    both(lambda mod: mod.jacfwd(lambda x: 3)(X))


def test_allow_int():
    both(lambda mod: mod.jacrev(lambda x: 2.0 * x.astype(np.float32), allow_int=True)(jnp.arange(3)))
    both(lambda mod: mod.jacrev(lambda x: 2.0 * x["b"], allow_int=True)({"a": 2, "b": X}))


# Dtypes


@first_order
@pytest.mark.parametrize("output", [np.float16, jnp.bfloat16, np.float32])
def test_dtypes_of_the_output(transform, output):
    both(lambda mod: getattr(mod, transform)(lambda x: jnp.sin(x).astype(output))(X))


@first_order
def test_dtypes_of_the_inputs(transform):
    def f(x):
        return x["single"] * x["half"].astype(np.float32), x["half"]

    value = {"single": X, "half": array(4, 3, dtype=jnp.bfloat16)}
    with jax.numpy_dtype_promotion("standard"):
        want = getattr(jax, transform)(f)(value)
    assert_same(getattr(symjac, transform)(f)(value), want, "strict promotion")


@every_transform
@pytest.mark.parametrize("f", [jnp.sin, lambda x: x * jnp.float32(2), lambda x: 2.0 * x, lambda x: 3.0])
def test_weak_types(transform, f):
    with jax.numpy_dtype_promotion("standard"):
        both(lambda mod: getattr(mod, transform)(f)(1.0))
        both(lambda mod: getattr(mod, transform)(f)(jnp.float32(1.0)))


# Shapes and trees


class Pair(NamedTuple):
    left: Any
    right: Any


@jax.tree_util.register_pytree_node_class
class Box:
    def __init__(self, value, unit):
        self.value, self.unit = value, unit

    def tree_flatten(self):
        return (self.value,), self.unit

    @classmethod
    def tree_unflatten(cls, unit, children):
        return cls(*children, unit)


TREES = {
    "dict": lambda x: {"a": x["b"] ** 2, "c": None, "d": [x["a"] * jnp.sum(x["b"])]},
    "empty list inside": lambda x: {"a": x["b"], "c": []},
    "named tuple": lambda x: Pair(jnp.sum(x["b"]), x["a"]),
    "class": lambda x: Box((x["a"] ** 2, x["b"]), "m"),
}


@every_transform
@pytest.mark.parametrize("f", [pytest.param(f, id=name) for name, f in TREES.items()])
def test_trees(transform, f):
    both(lambda mod: getattr(mod, transform)(f)({"a": jnp.float32(2.0), "b": X, "n": None}))


@every_transform
def test_class_as_argument(transform):
    result = both(lambda mod: getattr(mod, transform)(lambda box: Box(scalar_of(box.value), "out"))(Box(X, "in")))
    assert result.unit == "out"
    assert result.value.unit == "in"


@every_transform
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 0), (1,), (1, 3)])
def test_shapes(transform, shape):
    x = array(5, *shape)
    both(lambda mod: getattr(mod, transform)(lambda x: x**2)(x))
    both(lambda mod: getattr(mod, transform)(lambda x: jnp.zeros((0, 2)))(x))
    both(lambda mod: getattr(mod, transform)(lambda x: jnp.sum(x))(x))


def test_empty_output():
    assert symjac.jacfwd(lambda x: ())(X) == jax.jacfwd(lambda x: ())(X) == ()
    both_raise(lambda mod: mod.jacrev(lambda x: ())(X))


def test_hessian_of_vectors_and_tuples():
    both(lambda mod: mod.hessian(lambda x: x**3 * jnp.sum(x))(X))
    result = both(lambda mod: mod.hessian(two, argnums=(0, 1))(X, 2.0 * X))
    assert len(result) == len(result[0]) == 2
    both(lambda mod: mod.hessian(lambda x, y: jnp.sum(x["a"] * y) ** 2, argnums=(1, 0))({"a": X}, X))
    both(lambda mod: mod.hessian(lambda x: {"s": jnp.sum(x**3), "v": x[:2] ** 2})(X))


def test_hessian_errors_speak_of_jacfwd():
    with pytest.raises(TypeError, match="jacfwd requires real-valued inputs"):
        symjac.hessian(lambda x: x)(1)


# Auxiliary data


@every_transform
def test_aux(transform):
    jacobian, aux = both(lambda mod: getattr(mod, transform)(with_arrays, has_aux=True)(X))
    assert aux["x"].shape == (3,)
    assert not isinstance(jacobian, jax.core.Tracer)


def with_arrays(x):
    return jnp.sum(x**2), {"x": x, "total": jnp.sum(x), "constant": jnp.ones(2, np.float16), "none": None}


@every_transform
def test_aux_of_numbers(transform):
    def use(mod):
        result = getattr(mod, transform)(lambda x: (x**2, (3, 2.0, True, np.float32(1.0))), has_aux=True)(1.5)
        return result[0], [(type(leaf), leaf) for leaf in result[1]]

    assert use(symjac) == use(jax)


@every_transform
def test_aux_of_any_object(transform):
    thing = object()
    _, aux = getattr(symjac, transform)(lambda x: (jnp.sum(x), {"thing": thing, "text": "a", "x": x}), has_aux=True)(X)
    assert aux["thing"] is thing
    assert aux["text"] == "a"
    np.testing.assert_array_equal(aux["x"], X)


@every_transform
@pytest.mark.parametrize("result", [lambda x: x, lambda x: (x, x, x), lambda x: jnp.stack([x, x])])
def test_aux_without_a_pair(transform, result):
    with pytest.raises(TypeError):
        getattr(symjac, transform)(result, has_aux=True)(X)


@every_transform
def test_the_function_runs_once(transform):
    runs = []

    def f(x):
        runs.append(None)
        return scalar_of(x)

    getattr(symjac, transform)(f)(X)
    assert len(runs) == 1


@every_transform
def test_debug_callbacks_fire_once_a_call(transform):
    seen = []

    def f(x):
        jax.debug.callback(lambda v: seen.append(float(v)), x[0])
        return scalar_of(x)

    derivative = getattr(symjac, transform)(f)
    for count in (1, 2):
        jax.block_until_ready(derivative(X))
        jax.effects_barrier()
        assert len(seen) == count


# Rules of the user's


@jax.custom_vjp
def clipped(x):
    return x**2


clipped.defvjp(lambda x: (x**2, x), lambda x, g: (jnp.clip(2.0 * g * x, -1.0, 1.0),))


@jax.custom_jvp
def straight_through(x):
    return jnp.round(x)


straight_through.defjvps(lambda tangent, out, x: 3.0 * tangent)


def test_custom_vjp():
    with pytest.raises(TypeError, match=r"can't apply forward-mode autodiff \(jvp\) to a custom_vjp function"):
        symjac.jacfwd(clipped)(X)
    both_raise(lambda mod: mod.jacfwd(clipped)(X))


@pytest.mark.fallback
def test_custom_vjp_in_reverse():
    both(lambda mod: mod.jacrev(clipped)(X))  # The rule is not even linear.
    both(lambda mod: mod.hessian(lambda x: jnp.sum(clipped(x)))(X))
    both(lambda mod: mod.jacrev(mod.jacrev(lambda x: jnp.sum(clipped(x))))(X))


@every_transform
def test_custom_jvp(transform):
    both(lambda mod: getattr(mod, transform)(straight_through)(X))
    both(lambda mod: getattr(mod, transform)(lambda x: jnp.sum(jax.nn.relu(x) ** 2))(X))


@pytest.mark.fallback
def test_custom_vmap():
    @jax.custom_batching.custom_vmap
    def sine(x):
        return jnp.sin(x)

    @sine.def_vmap
    def _(size, batched, x):
        return jnp.sin(x), batched[0]

    both(lambda mod: mod.jacfwd(sine)(X))
    both_raise(lambda mod: mod.jacrev(sine)(X))


# Loops


@pytest.mark.fallback
def test_dynamic_loops():
    def until(x):
        return jax.lax.while_loop(lambda y: jnp.sum(y**2) < 50.0, lambda y: 1.5 * y, x)

    def count(x, n):
        return jax.lax.fori_loop(0, n, lambda i, y: jnp.sin(y) + x, x)

    both(lambda mod: mod.jacfwd(until)(X))
    both(lambda mod: mod.jacfwd(count)(X, jnp.int32(3)))
    both_raise(lambda mod: mod.jacrev(until)(X))
    both_raise(lambda mod: jax.jit(mod.jacrev(count))(X, jnp.int32(3)))
    both(lambda mod: mod.jacrev(count)(X, jnp.int32(3)))  # Where it sees the number of steps, JAX takes a scan.


# Functions that look at values


@every_transform
def test_functions_that_look_at_values(transform):
    def f(x):
        while x[0] < 3.0:
            x = 2.0 * x
        return scalar_of(x) if x[1] > 0 else jnp.sum(x) * float(x[2])

    both(lambda mod: getattr(mod, transform)(f)(jnp.abs(X)))
    both(lambda mod: getattr(mod, transform)(lambda x: (f(x), x), has_aux=True)(jnp.abs(X)))


@every_transform
def test_arguments_whose_values_matter(transform):
    both(lambda mod: getattr(mod, transform)(lambda x, n: jnp.sum(x[:n] ** 2))(X, jnp.int32(2)))
    both(lambda mod: getattr(mod, transform)(lambda x, n: jnp.sum(x) * jnp.ones(n))(X, jnp.int32(2)))
    both(lambda mod: getattr(mod, transform)(lambda x, m: jnp.sum(x[m] ** 2))(X, jnp.array([True, False, True])))


# Under other transforms


@every_transform
def test_under_transforms(transform):
    def f(x):
        return jnp.stack([jnp.sum(x**3), jnp.prod(jnp.sin(x))])

    def norm(mod):
        return lambda x: jnp.sum(getattr(mod, transform)(f)(x) ** 2)

    both(lambda mod: jax.jit(getattr(mod, transform)(f))(X))
    both(lambda mod: jax.vmap(getattr(mod, transform)(f))(jnp.stack([X, 2.0 * X])))
    both(lambda mod: jax.grad(norm(mod))(X))
    both(lambda mod: jax.jvp(getattr(mod, transform)(f), (X,), (jnp.cos(X),)))
    both(lambda mod: jax.linearize(getattr(mod, transform)(f), X)[1](jnp.cos(X)))
    both(lambda mod: jax.grad(jax.checkpoint(norm(mod)))(X))
    both(lambda mod: jax.lax.map(getattr(mod, transform)(f), jnp.stack([X, 2.0 * X])))
    ours, theirs = (jax.eval_shape(getattr(mod, transform)(f), X) for mod in (symjac, jax))
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)


@every_transform
def test_export(transform):
    exported = jax.export.export(jax.jit(getattr(symjac, transform)(scalar_of)))(jax.ShapeDtypeStruct((3,), X.dtype))
    assert_same(exported.call(X), getattr(jax, transform)(scalar_of)(X), "export")


@every_transform
def test_shard_map(transform):
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")

    def use(mod):
        derivative = getattr(mod, transform)(lambda x: jnp.sum(jnp.sin(x) * x[::-1]))
        return jax.jit(jax.shard_map(derivative, mesh=mesh, in_specs=spec, out_specs=spec))(array(6, 4))

    both(use)


@pytest.mark.parametrize("outer", TRANSFORMS)
@pytest.mark.parametrize("inner", TRANSFORMS)
def test_nested(outer, inner):
    both(lambda mod: getattr(mod, outer)(getattr(mod, inner)(lambda x: jnp.sum(jnp.sin(x) * x[::-1]) ** 2))(X))


@every_transform
def test_closure_over_tracers(transform):
    def outer(mod):
        def loss(w):
            return jnp.sum(getattr(mod, transform)(lambda x: jnp.sum(jnp.sin(w * x) * w))(X) ** 2)

        return loss

    both(lambda mod: jax.grad(outer(mod))(2.0 * X))
    both(lambda mod: jax.jit(outer(mod))(2.0 * X))
    both(lambda mod: jax.vmap(outer(mod))(jnp.stack([X, 2.0 * X])))


@every_transform
def test_no_perturbation_confusion(transform):
    def use(mod):
        derivative = getattr(mod, transform)
        return derivative(lambda x: x * derivative(lambda y: x * y**2)(x))(2.0)

    both(use)


@every_transform
def test_nothing_leaks(transform):
    with jax.checking_leaks():
        derivative = getattr(symjac, transform)(lambda x: jnp.sum(jnp.sin(x) * x))
        derivative(X)
        jax.jit(derivative)(X)
        jax.grad(lambda x: jnp.sum(derivative(x)))(X)


@first_order
@pytest.mark.parametrize(
    "f",
    [jnp.abs, jnp.max, jnp.min, jnp.sort, jax.nn.relu, lambda x: jnp.maximum(x, 0.0), lambda x: jnp.clip(x, 0.0, 1.0)],
    ids=["abs", "max", "min", "sort", "relu", "maximum", "clip"],
)
def test_ties(transform, f):
    both(lambda mod: getattr(mod, transform)(f)(jnp.array([0.0, 1.0, 1.0, 0.0, -0.0])))


# Settings and devices


@every_transform
@pytest.mark.fallback
def test_debug_nans(transform):
    with jax.debug_nans(True):
        both_raise(lambda mod: getattr(mod, transform)(lambda x: jnp.sum(jnp.sqrt(x)))(-jnp.abs(X)))


@every_transform
def test_disable_jit(transform):
    with jax.disable_jit():
        both(lambda mod: getattr(mod, transform)(lambda x: jnp.sum(jax.jit(jnp.sin)(x) ** 2))(X))


@every_transform
def test_double_precision(transform):
    with jax.enable_x64(True) if NEWEST else jax.experimental.enable_x64():
        x = jnp.linspace(0.1, 1.0, 4)
        assert x.dtype == np.float64
        both(lambda mod: getattr(mod, transform)(lambda x: jnp.sum(jnp.sin(x) * x))(x))
        both(lambda mod: getattr(mod, transform)(lambda x: x**2)(0.5))


def test_rank_promotion_is_the_users():
    with pytest.raises(ValueError, match="rank"):
        symjac.jacfwd(lambda x: x + jnp.ones((3, 3)))(X)


def test_strict_promotion_is_the_users():
    with pytest.raises(ValueError, match="promotion"):
        symjac.jacfwd(lambda x: x + jnp.ones(3, np.float16))(X)
