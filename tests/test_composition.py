"""jacfwd under and over JAX's other transforms, and over every kind of input and output."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import array, assert_close, assert_same, check_against_jax, positive
from jax import lax

import symjac

A = array(40, 4, 5)
X = array(41, 5)
Y = array(42, 4)
SOFTMAX_LAYER = "softmax of a layer"

PROGRAMS = {
    "linear": lambda x: A @ x,
    "elementwise": lambda x: jnp.sin(x) * x,
    SOFTMAX_LAYER: lambda x: jax.nn.softmax(jnp.tanh(A @ x)),
    "stencil": lambda x: jnp.roll(x, 1) - x**2,
    "scalar": lambda x: jnp.sum(jnp.tanh(A @ x) ** 2),
}
every_program = pytest.mark.parametrize("f", [pytest.param(f, id=name) for name, f in PROGRAMS.items()])


def norm_of_jacobian(jacfwd, f):
    return lambda x: jnp.sum(jacfwd(f)(x) ** 2)


# Over other transforms: the function that is differentiated uses them.


@pytest.mark.parametrize(
    "wrap",
    [
        jax.jit,
        jax.checkpoint,
        lambda f: jax.jit(jax.checkpoint(jax.jit(f))),
        lambda f: lambda x: jax.jvp(f, (x,), (jnp.cos(x),))[1],
        lambda f: lambda x: jax.vjp(f, x)[1](jnp.ones_like(f(x)))[0],
        lambda f: jax.grad(lambda x: jnp.sum(f(x) ** 2)),
        lambda f: lambda x: jax.vmap(f)(jnp.stack([x, 2.0 * x])),
        lambda f: lambda x: jax.linearize(f, x)[1](jnp.sin(x)),
    ],
    ids=["jit", "checkpoint", "jit of checkpoint", "jvp", "vjp", "grad", "vmap", "linearize"],
)
@every_program
def test_over_transforms(f, wrap):
    check_against_jax(wrap(f), X)


@every_program
@pytest.mark.fallback
def test_over_scan(f):
    def scanned(x):
        return lax.scan(lambda carry, step: (carry * step + jnp.sum(f(carry)), f(carry)), x, positive(43, 3))

    check_against_jax(scanned, X)


@pytest.mark.fallback
@pytest.mark.parametrize("steps", [0, 3])
def test_over_loops(steps):
    def looped(x):
        return lax.fori_loop(0, steps, lambda i, y: jnp.sin(y) + x, x)

    def until(x):
        return lax.while_loop(lambda y: jnp.sum(y**2) < 50.0, lambda y: 1.5 * y, x)

    check_against_jax(looped, X)
    check_against_jax(until, X)


@pytest.mark.fallback
def test_over_cond_and_switch():
    check_against_jax(lambda x: lax.cond(x[0] > 0, jnp.sin, lambda y: y**2, x), X)
    check_against_jax(lambda x: lax.switch(2, [jnp.sin, jnp.cos, jnp.tanh], x), X)


def test_over_custom_jvp():
    @jax.custom_jvp
    def straight_through(x):
        return jnp.round(x)

    straight_through.defjvps(lambda tangent, primal_out, x: tangent)
    check_against_jax(straight_through, X)
    assert_same(symjac.jacfwd(straight_through)(X), jnp.eye(5), "straight through")


# Under other transforms: they are applied to the Jacobian.


@every_program
def test_under_jit_of_a_function_of_the_jacobian(f):
    got = jax.jit(norm_of_jacobian(symjac.jacfwd, f))(X)
    assert_same(got, jax.jit(norm_of_jacobian(jax.jacfwd, f))(X), "jit")


@every_program
def test_under_grad(f):
    got = jax.grad(norm_of_jacobian(symjac.jacfwd, f))(X)
    assert_same(got, jax.grad(norm_of_jacobian(jax.jacfwd, f))(X), "grad")


@every_program
def test_under_jvp_and_linearize(f):
    tangent = array(44, 5)
    want = jax.jvp(jax.jacfwd(f), (X,), (tangent,))
    assert_same(jax.jvp(symjac.jacfwd(f), (X,), (tangent,)), want, "jvp")
    value, pushforward = jax.linearize(symjac.jacfwd(f), X)
    assert_same((value, pushforward(tangent)), want, "linearize")


@every_program
def test_under_checkpoint(f):
    got = jax.grad(jax.checkpoint(norm_of_jacobian(symjac.jacfwd, f)))(X)
    assert_same(got, jax.grad(norm_of_jacobian(jax.jacfwd, f))(X), "checkpoint")


@every_program
def test_under_scan(f):
    def accumulate(jacfwd):
        return lax.scan(lambda total, x: (total + jacfwd(f)(x), jacfwd(f)(2.0 * x)), jacfwd(f)(X), array(45, 3, 5))

    assert_same(accumulate(symjac.jacfwd), accumulate(jax.jacfwd), "scan")


@every_program
def test_under_vmap_over_one_of_two_arguments(f):
    xs, scale = array(46, 3, 5), jnp.float32(0.5)

    def batched(jacfwd):
        return jax.vmap(jacfwd(lambda x, s: s * f(x), argnums=(0, 1)), in_axes=(0, None))(xs, scale)

    assert_same(batched(symjac.jacfwd), batched(jax.jacfwd), "vmap")


@every_program
def test_jacfwd_of_jacfwd(f):
    want = jax.jit(jax.jacfwd(jax.jacfwd(f)))(X)
    assert_same(symjac.jacfwd(symjac.jacfwd(f))(X), want, "symjac of symjac")
    assert_same(symjac.jacfwd(jax.jacfwd(f))(X), want, "symjac of jax")
    assert_same(jax.jacfwd(symjac.jacfwd(f))(X), want, "jax of symjac")


def test_third_derivative_of_a_separable_function():
    def nested(jacfwd):
        return jacfwd(jacfwd(jacfwd(lambda x: jnp.sin(x) * x)))

    assert_same(nested(symjac.jacfwd)(X), jax.jit(nested(jax.jacfwd))(X), "third derivative")


def test_no_perturbation_confusion():
    def nested(jacfwd):
        return jacfwd(lambda x: x * jacfwd(lambda y: x * y)(jnp.float32(2.0)))

    got = nested(symjac.jacfwd)(jnp.float32(3.0))
    assert_same(got, jax.jit(nested(jax.jacfwd))(jnp.float32(3.0)), "nested")


@every_program
def test_closure_over_a_tracer(f):
    def outer(jacfwd):
        return jax.grad(lambda scale: jnp.sum(jacfwd(lambda x: scale * f(scale * x))(X)))

    assert_same(outer(symjac.jacfwd)(jnp.float32(0.7)), outer(jax.jacfwd)(jnp.float32(0.7)), "closure")


@every_program
def test_nothing_leaks(f):
    with jax.checking_leaks():
        symjac.jacfwd(f)(X)
        jax.jit(symjac.jacfwd(f))(X)
        jax.vmap(symjac.jacfwd(f))(jnp.stack([X, X]))
        jax.grad(norm_of_jacobian(symjac.jacfwd, f))(X)


# Dtypes.


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("name", ["linear", "elementwise", SOFTMAX_LAYER, "stencil"])
def test_dtypes(name, dtype):
    weight = A.astype(dtype)
    programs = {"linear": lambda x: weight @ x, SOFTMAX_LAYER: lambda x: jax.nn.softmax(jnp.tanh(weight @ x))}
    check_against_jax(programs.get(name, PROGRAMS[name]), X.astype(dtype))


@pytest.mark.parametrize("name", ["linear", "elementwise", SOFTMAX_LAYER, "stencil"])
def test_float64(name):
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        weight, x = array(40, 4, 5, dtype=np.float64), array(41, 5, dtype=np.float64)
        programs = {"linear": lambda x: weight @ x, SOFTMAX_LAYER: lambda x: jax.nn.softmax(jnp.tanh(weight @ x))}
        result = check_against_jax(programs.get(name, PROGRAMS[name]), x)
        assert result.dtype == jnp.float64


@pytest.mark.parametrize(
    "f",
    [
        lambda z: z**2 * jnp.exp(z),
        lambda z: lax.complex(A, 2 * A) @ z,
        lambda z: jnp.roll(z, 1) * (1 + 2j) - z,
        lambda z: jnp.stack([jnp.sum(z), jnp.prod(z)]),
    ],
)
def test_complex_holomorphic(f):
    check_against_jax(f, lax.complex(X, array(47, 5)), holomorphic=True)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: lax.complex(jnp.sin(x), x**2),
        lambda x: jnp.exp(lax.complex(jnp.zeros_like(x), x)),
        lambda x: jnp.abs(lax.complex(x, 2 * x)) + jnp.real(jnp.conj(lax.complex(x, x)) * 1j),
    ],
)
def test_complex_inside_of_a_real_function(f):
    check_against_jax(f, X)


def test_a_conversion_of_dtype_inside():
    check_against_jax(lambda x: jnp.sin(x.astype(jnp.float16)), X, rtol=1e-2)
    check_against_jax(lambda x: jnp.tanh(x).astype(jnp.float32) ** 2, X.astype(jnp.bfloat16), rtol=5e-2)


def test_weak_types():
    check_against_jax(jnp.sin, 1.0)
    check_against_jax(lambda x: 2 * x, 3.0)
    check_against_jax(lambda x, s: x * s, X, 2.0, argnums=(0, 1))


# Shapes and trees.


@pytest.mark.parametrize("shape", [(), (0,), (0, 0), (0, 3), (1,), (1, 3), (2, 1, 3)], ids=str)
@pytest.mark.parametrize(
    "f",
    [
        jnp.sin,
        jnp.sum,
        lambda x: x * x,
        jnp.ravel,
        lambda x: jnp.stack([x, x**2]),
        lambda x: x[..., None] * jnp.arange(2.0),
        lambda x: jnp.sum(x) * jnp.ones(3),
        lambda x: jnp.ones((2, 0)),
    ],
    ids=["sin", "sum", "square", "ravel", "stack", "outer", "broadcast of a sum", "constant"],
)
def test_shapes(f, shape):
    with jax.numpy_rank_promotion("allow"):
        check_against_jax(f, positive(48, *shape))


@pytest.mark.parametrize("size", [(0, 3), (3, 0), (0, 0), (1, 1)], ids=str)
def test_matrices_without_entries(size):
    weight = array(49, *size)
    check_against_jax(lambda x: jnp.tanh(weight @ x), array(50, size[1]))


def test_trees_of_inputs_and_outputs():
    point = {"a": X, "b": [Y, (jnp.float32(2.0), None)], "c": {}}

    def f(tree):
        scale = tree["b"][1][0]
        return [A @ tree["a"], {"y": scale * tree["b"][0]}, None, (scale,)]

    check_against_jax(f, point)


class Box:
    def __init__(self, value):
        self.value = value


jax.tree_util.register_pytree_node(Box, lambda box: ((box.value,), None), lambda _, children: Box(*children))


def test_custom_nodes():
    check_against_jax(lambda box: Box(jnp.sin(box.value)), Box(X))


@pytest.mark.parametrize("argnums", [0, 1, -1, 2, (0,), (1, 0), (0, 2), [0, 1, 2]], ids=str)
def test_argnums(argnums):
    check_against_jax(lambda x, y, s: s * jnp.outer(jnp.sin(x), y), X, Y, jnp.float32(0.5), argnums=argnums)


def test_arguments_that_are_not_differentiated_pass_through():
    marker = object()

    def f(x, options, mode, other):
        assert options["scale"] == 2.0 and mode == "sin" and other is marker
        return options["scale"] * jnp.sin(x)

    got = symjac.jacfwd(f)(X, {"scale": 2.0}, mode="sin", other=marker)
    assert_close(got, jnp.diag(2 * jnp.cos(X)), "keywords")


@pytest.mark.parametrize("argnums", [0, (1, 0)], ids=str)
def test_has_aux(argnums):
    def f(x, y):
        hidden = A @ x
        return jnp.tanh(hidden) * y, {"hidden": hidden, "count": jnp.int32(3), "sum": jnp.sum(x)}

    _, aux = check_against_jax(f, X, Y, argnums=argnums, has_aux=True)
    assert aux["hidden"].shape == (4,)
    assert not isinstance(aux["sum"], jax.core.Tracer)


def test_an_integer_output_has_a_zero_jacobian():
    check_against_jax(lambda x: (jnp.sum(x), jnp.argmax(x)), X)


def test_an_output_that_does_not_depend_on_the_input():
    check_against_jax(lambda x: (jnp.ones((2, 3)), x), X)


def test_python_control_flow_on_values():
    def f(x):
        return jnp.sin(x) if x[0] > 0 else x**2

    check_against_jax(f, X, modes=("eager",))
    check_against_jax(f, -X, modes=("eager",))
