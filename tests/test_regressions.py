"""Failures that the fuzzer found, as plain tests."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import array, check_against_jax
from jax import lax
from jax.experimental.ode import odeint

import symjac

X = array(0, 3)
MATRIX = array(1, 3, 3) + 4 * np.eye(3, dtype=np.float32)


def test_the_hessian_of_a_solve_knows_its_matrix():
    """The factorisation is behind a `stop_gradient`: the derivative with respect to the matrix is the primitive's."""

    def f(x):
        return jnp.linalg.solve(MATRIX + jnp.tanh(x)[:, None], x)

    check_against_jax(f, X, transform="hessian")
    np.testing.assert_allclose(jax.jacfwd(symjac.jacfwd(f))(X), jax.hessian(f)(X), atol=1e-6)


def test_a_batch_of_solves_keeps_its_deltas():
    matrices = array(2, 4, 3, 3) + 4 * np.eye(3, dtype=np.float32)[None]
    _, jacobian = symjac.linearize(lambda x: jax.vmap(jnp.linalg.solve)(matrices, x), array(3, 4, 3))
    assert jacobian.nse == 36


@pytest.mark.parametrize("index", [np.array([0, 2, 2, 1]), np.array([3, 3, 0, 1])])
def test_a_batch_of_solves_of_gathered_rows(index):
    matrices = array(2, 4, 3, 3) + 4 * np.eye(3, dtype=np.float32)[None]
    check_against_jax(lambda x: jax.vmap(jnp.linalg.solve)(matrices, x[index]), array(3, 4, 3))


def test_the_hessian_of_a_maximum_of_windows():
    """JAX cannot differentiate the reduction of pairs that finds the positions."""

    def f(x):
        return lax.reduce_window(x, -np.inf, lax.max, (2,), (2,), "SAME") ** 2

    check_against_jax(f, array(4, 5), transform="hessian")


def test_interior_padding_in_reverse():
    """JAX's transposes pass NumPy's integers."""
    check_against_jax(lambda x: lax.pad(x, np.float32(0), ((2, 1, 2), (-1, 1, 2))), array(5, 2, 2), transform="jacrev")


def test_a_function_of_nothing():
    check_against_jax(lambda x: jax.jit(lambda y: lax.pad(y, y.sum(), ((1, 0, 1),)))(x), array(6, 0))


def test_cut_off_entries_stay_out():
    def f(x):
        rest = lax.pad(x, np.float32(0), ((0, -1, 0),))
        return rest / jnp.sqrt(1 + jnp.sum(rest**2, axis=0, keepdims=True))

    check_against_jax(f, array(7, 5))


@pytest.mark.parametrize("f", [jnp.cumprod, lambda x: jnp.delete(x, 1), jnp.ediff1d])
def test_flattened(f):
    check_against_jax(f, array(8, 4, 3))


def test_a_constant_block_of_a_symmetric_hessian():
    """The derivative with respect to an input that nothing uses is a constant of the program."""
    wide, row, tall = (array(9 + i, *shape, dtype="complex64") for i, shape in enumerate([(4, 1), (4,), (2, 7)]))

    def f(x, y):
        tiled = jnp.tile(x, (2, 1))
        v = jnp.concatenate([wide, 0.5 * tiled**3, jnp.cos(tiled)], 1)
        return (tall @ jnp.einsum("ij,i,kl->j", v, row, tiled))[-1]

    args = array(12, 2, 3, dtype="complex64"), array(13, dtype="complex64")
    check_against_jax(f, *args, argnums=(0, 1), transform="hessian", modes=["eager"], holomorphic=True)


@pytest.mark.parametrize("transform", ["jacfwd", "jacrev", "hessian"])
def test_a_rule_that_holds_on_to_an_argument(transform):
    """JAX's rule for the pseudoinverse closes over its second argument, which is a value of the trace."""

    def f(x, tolerance):
        inverse = jnp.linalg.pinv(x, tolerance)
        return jnp.sum(inverse**2) if transform == "hessian" else inverse

    check_against_jax(f, MATRIX, np.float32(1e-3), argnums=(0, 1), transform=transform, modes=["eager", "jit"])


def test_a_nan_that_leads_nowhere():
    """An index out of bounds reads NaN; in reverse mode what it led to is dropped, and not multiplied by zero."""

    index = np.array([[[0, -3], [1, 1]], [[-1, 5], [0, 0]]])

    def f(x):
        read = jnp.take_along_axis(jnp.stack([x, x[::-1]], 2), index, 2)
        return read / (read**2 + 1.5)

    check_against_jax(f, array(14, 2, 2), transform="jacrev", modes=["eager"])


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_branch_whose_windows_lie_in_the_padding(shape, stride):
    """An axis of one entry, along which the map of one branch leads outside."""

    def f(x):
        def windows(y):
            sums = lax.reduce_window(jnp.pad(y, ((1, 0), (0, 0))), np.float32(0), lax.add, (1, 2), (1, stride), "SAME")
            return jnp.broadcast_to(jnp.sum(sums), y.shape)

        return lax.cond(jnp.sum(x) > 0, lambda y: y, windows, x)

    check_against_jax(f, array(15, *shape))


def _joined(x, ct):
    return jnp.concatenate([x, ct])


def _written(x, ct):
    return lax.dynamic_update_slice(jnp.concatenate([x, x]), ct, (3,))


def _carried(x, ct):
    def step(carry, i):
        return jnp.where(i == 1, carry.at[3:].add(ct), carry), None

    return lax.scan(step, jnp.concatenate([x, 0 * x]), jnp.arange(3))[0]


def _chosen(x, ct):
    both = lax.cond(x[0] > 100, lambda: jnp.sin(x), lambda: jnp.cos(x))
    return lax.select(np.arange(6) < 3, jnp.tile(both, 2), jnp.tile(ct, 2))


@pytest.mark.fallback
@pytest.mark.parametrize("put_together", [_joined, _written, _carried, _chosen])
@pytest.mark.parametrize(
    "within", [lambda f: f, jax.jit, lambda f: lambda *a: lax.map(lambda _: f(*a), jnp.ones(2))[0]]
)
def test_a_rule_that_keeps_values_and_cotangents_in_one_array(put_together, within):
    @jax.custom_vjp
    def f(x):
        return jnp.sin(x)

    def backward(x, ct):
        both = within(put_together)(x, ct)
        return (both[:3] * jnp.tanh(jnp.roll(x, 1)) * 0 + both[3:] * jnp.cos(x) + jnp.sum(both[3:] * both[:3]),)

    f.defvjp(lambda x: (jnp.sin(x), x), backward)
    check_against_jax(lambda x: f(x) ** 2, X, transform="jacrev")


@pytest.mark.fallback
def test_an_ode_whose_parameters_are_differentiated_in_reverse():
    """The backward pass integrates the state and its cotangent as one vector."""

    def f(k, y):
        return odeint(lambda y, t: -jnp.sin(y) * k, y, jnp.array([0.0, 0.5]))

    check_against_jax(f, np.float32(0.7), X, argnums=(0, 1), transform="jacrev", rtol=1e-4)


@pytest.mark.fallback
@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="this version of JAX has no mutable arrays")
def test_mutable_arrays():
    def f(x):
        state = jax.new_ref(jnp.zeros_like(x))
        state[...] = jnp.sin(x)
        state[1] = 2 * x[0]
        return jax.freeze(state)

    for transform in ("jacrev", "jacobian"):
        np.testing.assert_allclose(getattr(symjac, transform)(f)(X), jax.jacrev(f)(X))
    value, jacobian = symjac.linearize(f, X)
    np.testing.assert_allclose(value, f(X))
    np.testing.assert_allclose(jacobian.as_matrix(), jax.jacrev(f)(X))


def test_a_batch_of_one_solve():
    def f(x):
        column = lax.dot_general(array(17, 5, 3), x, (((), ()), ((0,), (0,)))).reshape(-1, 3)[:1]
        return jnp.linalg.slogdet(MATRIX + jnp.tanh(column))[1]

    check_against_jax(jax.vmap(f), array(18, 1, 5), transform="jacrev")


@pytest.mark.parametrize("transform", ["jacfwd", "jacrev"])
def test_a_divisor_that_is_read_outside_of_its_axis(transform):
    """There is nothing to divide by in the padding, and nothing divided by nothing is not NaN."""
    places = jnp.array([0, -1, 3, 1])

    def f(x):
        y = jnp.where(x > 0, jnp.log(x), x)
        return lax.pad(y, y.sum(), ((2, 0, 0),))[places + jnp.sum(y > 0)]

    check_against_jax(lambda x: f(jnp.eye(6)[:5, :5] @ (x * x - 2)), array(19, 5), transform=transform)
    check_against_jax(lambda x: f(jnp.concatenate([x, x]) / x[0]) / x[1], array(20, 3), transform=transform)


def test_masks_alone_in_a_narrow_dtype():
    x = array(21, 3, 3, 1).astype(jnp.bfloat16)

    def f(x):
        length = jnp.linalg.norm(jnp.ravel(x))
        some = jnp.zeros_like(x).at[np.array([-1, 0, 0])].set(length)
        return some.at[1, 0:, np.array([-1, 0, 0])].min(length) @ jnp.ones(1, x.dtype)

    check_against_jax(f, x, transform="jacrev", rtol=0.05)


def test_a_loop_with_an_array_of_no_tangents():
    def f(x):
        def body(state):
            jax.vmap(lambda row: jnp.frexp(row)[0])(x)
            return state[0] + 1, jnp.roll(state[1], -1, 0)

        return lax.while_loop(lambda state: state[0] < 2, body, (0, x))[1]

    check_against_jax(f, array(22, 4, 3))


@pytest.mark.parametrize(
    "f",
    [
        *(lambda x, f=f: f(jnp.broadcast_to(jnp.exp(-x), (3,))) for f in (lax.cummax, lax.cumprod, lax.cumlogsumexp)),
        lambda x: jnp.power(x**2 + 0.5, jnp.tanh(x)),
        lambda x: (jnp.cumprod(jnp.stack([x, x])), jnp.power(x * x, x), 2),
    ],
)
def test_outputs_whose_rules_give_them_another_weak_type(f):
    x = jnp.asarray(0.3)
    assert jax.typeof(x).weak_type
    ours, theirs = jax.tree.leaves(symjac.jacfwd(f)(x)), jax.tree.leaves(jax.jacfwd(f)(x))
    assert list(map(jax.typeof, ours)) == list(map(jax.typeof, theirs))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("transform", ["jacfwd", "jacrev"])
def test_a_convolution_of_nothing_but_padding(transform):
    empty = jnp.zeros((1, 1, 0))

    def f(kernel):
        return lax.conv_general_dilated(empty, kernel, (1,), [(-1, 2)], lhs_dilation=(2,)) + jnp.sum(kernel)

    check_against_jax(f, array(23, 1, 1, 1), transform=transform)
    check_against_jax(lambda kernel: f(kernel)[..., :0], array(23, 1, 1, 1), transform=transform)


def test_a_complex_number_of_parts_that_vmap_stretches():
    """`vmap` gives a part that it does not map an axis of size 1, and the primitive stretches it."""

    def f(x):
        return jax.vmap(lambda row: jnp.real(lax.complex(*jnp.broadcast_arrays(row, jnp.sin(x))) ** 2))(x)

    check_against_jax(f, array(70, 2, 2, 1))
    check_against_jax(lambda x: jax.vmap(lambda r: jnp.abs(lax.complex(jnp.cos(x[0]), r)))(x), array(71, 3, 2, 2))


def test_a_row_of_an_axis_of_several_digits_leaves_the_nans_of_other_rows():
    """The row was told by a mask, which does not cover the factor that holds them, and was summed over."""
    index = np.array([-3, 2, 0, 2, -1, -1, -2, 0, 1, 2, 1, 0]).reshape(2, 3, 2)

    def f(x):
        return jnp.repeat(x * jnp.take_along_axis(x, index, 1), 2, 1)[:, 5, -1]

    assert np.isfinite(check_against_jax(f, array(72, 2, 1, 2))).all()


COLUMNS = {
    "sliced": lambda x: jnp.concatenate([x[:, 1:], x[:, :1]], 1),
    "set": lambda x: jnp.zeros((2, 3)).at[:, np.array([2])].set(x[:, :1]),
    "updated": lambda x: lax.dynamic_update_slice(jnp.zeros((2, 3)), x[:, :1], (0, 2)),
}


@pytest.mark.parametrize("transform", ["jacfwd", "jacrev"])
@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
def test_a_column_of_indices_that_are_all_the_same_is_counted(columns, transform):
    """Its map became a constant, and the three reads of one entry were one."""
    index = np.array([[0, 1, 1], [1, 0, 1], [0, 0, 1]])
    check_against_jax(
        lambda x: jnp.sum(jnp.take_along_axis(columns(x), index, 0)), array(73, 2, 3), transform=transform
    )


def test_the_diagonal_beside_an_output_without_entries():
    """The rows of an empty output were to be placed in the matrix too (found by the fuzzer)."""
    kernel = array(74, 2, 1, 2, 1)

    def f(x):
        return lax.conv_general_dilated(x[None, None], kernel, (1, 1), "VALID"), x, x[:, :0]

    jacobian = symjac.linearize(f, array(75, 1, 5))[1]
    assert jacobian.shape == (5, 5)
    np.testing.assert_array_equal(jacobian.diagonal(), np.ones(5))
    np.testing.assert_array_equal(jacobian.as_matrix(), np.eye(5))
