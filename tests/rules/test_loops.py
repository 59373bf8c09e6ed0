"""Loops and branches keep the structure of what they carry."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import array, assert_same, check_against_jax, positive
from jax import lax
from rule_cases import case, check, each

import symjac

N, B, H = 5, 6, 3
X, W, U = array(0, N), array(1, H, H), array(2, H, 2)
STATE, INPUTS = array(3, B, H), array(4, 7, H)


def logistic(x):
    return lax.scan(lambda c, _: (3.3 * c * (1 - c), None), x, None, length=1000)[0]


def rnn(h):
    return lax.scan(lambda h, x: (jnp.tanh(h @ W + x), None), h, INPUTS[:, None])[0]


def gru(h):
    def cell(h, x):
        z, q = jax.nn.sigmoid(h @ W + x), jax.nn.sigmoid(h @ W.T + x)
        return (1 - z) * jnp.tanh((q * h) @ W + x) + z * h, None

    return lax.scan(cell, h, INPUTS[:, None])[0]


def lstm(h, c):
    gates = jnp.concatenate([W, W.T, W + W.T, W - 1], 1)

    def cell(carry, x):
        h, c = carry
        i, f, o, g = jnp.split(h @ gates + jnp.tile(x, 4)[None], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    return lax.scan(cell, (h, c), INPUTS)[0]


def state_space(h, xs):
    return lax.scan(lambda h, x: (W @ h + x, 2 * h), h, xs)


def pendulums(y):
    def velocity(y):
        return jnp.stack([y[:, 1], -jnp.sin(y[:, 0])], 1)

    def step(y, _):
        a = velocity(y)
        b = velocity(y + 0.05 * a)
        c = velocity(y + 0.05 * b)
        d = velocity(y + 0.1 * c)
        return y + 0.1 / 6 * (a + 2 * b + 2 * c + d), y[:, 0]

    return lax.scan(step, y, None, length=10)


def heat(u):
    return lax.fori_loop(0, 6, lambda _, u: u + 0.1 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)), u)


def newton(a):
    def root(a):
        return lax.while_loop(lambda s: jnp.abs(s * s - a) > 1e-5 * a, lambda s: 0.5 * (s + a / s), a)

    return jax.vmap(root)(a)


def until(x):
    return lax.while_loop(lambda s: jnp.sum(s[1]) < 50, lambda s: (s[0] * 1.1, s[1] + s[0] ** 2), (x, 1 + 0 * x))


def euler(x):
    return lax.fori_loop(0, 20, lambda i, x: x + 0.1 * jnp.sin(x) * x, x)


def euler_to(x, n):
    return lax.fori_loop(0, n, lambda i, x: x + 0.1 * jnp.sin(x) * x, x)


def bounded(x):
    def step(s, _):
        return lax.cond(jnp.sum(s) < 3.0, lambda s: s * 1.3, lambda s: s, s), None

    return lax.scan(step, jnp.abs(x), None, length=12)[0]


def counted(x):
    (_, last), all_steps = lax.scan(lambda c, _: ((c[0] + 1, c[1] * 2 + c[0]), c[1]), (1, x), None, length=6)
    return last, all_steps


def table(x, y):
    """Each entry from those before it, in a table that one of the inputs fills and the other one does not."""

    def entry(k, t):
        i, j = 1 + k // 4, 1 + k % 4
        return t.at[i, j].set(jnp.sin(t[i - 1, j]) + t[i, j - 1] * t[i - 1, j - 1] + y[k % 2])

    return lax.fori_loop(0, 12, entry, jnp.zeros((4, N)).at[0].set(x).at[:, 0].set(x[:4]))


def substitution(x):
    lower = jnp.tril(array(15, 40, 40)) + 8 * jnp.eye(40)
    return lax.fori_loop(0, 40, lambda i, y: y.at[i].set((x[i] - lower[i] @ y) / lower[i, i]), jnp.zeros(40))


def trips(n, reverse=False):
    def run(w, h, xs):
        return lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h[0]), h, xs, reverse=reverse)

    return case(f"{n} steps{' backwards' if reverse else ''}", run, W, STATE, array(5, n, 1, H))


CASES = [
    *(trips(n, reverse) for n in (0, 1, 2, 9) for reverse in (False, True)),
    case("state space", state_space, array(6, H), INPUTS),
    case("nested", lambda x: lax.fori_loop(0, 6, lambda _, s: lax.fori_loop(0, 5, lambda _, t: t * x, s) + x, x), X),
    case("scan of scan", lambda X: lax.scan(lambda c, r: lax.scan(lambda d, e: (d * e, d), c, r), X[0, 0], X), INPUTS),
    case("map of reversed", lambda xs: lax.map(lambda x: jnp.tanh(W @ x), xs[::-1]), INPUTS),
    case("map in batches", lambda xs: lax.map(lambda x: jnp.tanh(W @ x), xs, batch_size=2), array(7, 6, H)),
    case("associative scan", lambda xs: lax.associative_scan(jnp.multiply, xs), INPUTS),
    case("products of inputs", lambda xs: lax.scan(lambda c, x: (c * x, c * x), jnp.ones(H), xs)[1], INPUTS),
    case("integers carried", counted, X),
    case("remat", lambda x: lax.scan(jax.checkpoint(lambda c, _: (jnp.sin(W @ c), None)), x, None, length=9), X[:3]),
    case("indices", lambda x: lax.fori_loop(0, 6, lambda i, b: b.at[i % N].set(b[(i + 1) % N] * 2), x), X),
    case("columns", lambda x: lax.fori_loop(1, 4, lambda i, M: M.at[:, i].set(M[:, i - 1] * x[i]), array(8, 3, N)), X),
    case("dropped", lambda x: lax.fori_loop(0, 9, lambda i, b: b.at[2 * i].set(b[i] * x[1], mode="drop"), x), X),
    case("window", lambda x: lax.fori_loop(0, 6, lambda i, b: lax.dynamic_update_slice(b, 2 * b[:2], (i,)), x), X),
    case("constants", lambda x: lax.fori_loop(0, 3, lambda i, b: (b * b.sum()).at[i].set(4.0), x), X),
    case("factors", lambda x: lax.fori_loop(0, 4, lambda i, b: (b * b.sum()).at[i].multiply(3), x), X),
    case("table", table, X, array(9, 2)),
    case("branch of zeros", lambda x: lax.cond(x[0] > 0, jnp.sin, lambda x: jnp.ones(N), x), X),
    case("switch", lambda x, i: lax.switch(i, [lambda x: x[:2] * x[2:4], lambda x: x[:2]], x), X, jnp.array(1)),
]


@each(CASES)
def test_loops(case):
    check(case)


def structures(f, *args):
    """The kinds of the Jacobians of each output, in strict mode."""
    with symjac.strict():
        _, jacobian = symjac.linearize(f, *args)
    return [[str(block) for block in row] for row in jacobian.structure.blocks]


def shared_axes(f, *args):
    """For each output and argument: the number of pairs of equal axes along which the Jacobian is block diagonal."""
    with symjac.strict():
        return [[len(deltas(block)) for block in out.blocks] for out in pushed(f, *args)]


def deltas(block):
    """The labels that are on out axes and on in axes of each term of a block."""
    found = None
    for term in block:
        on_out = {i for i, axis in enumerate(term.out_axes) for b in term.in_axes if set(axis.labels) & set(b.labels)}
        found = on_out if found is None else found & on_out
    return found or set()


def pushed(f, *args):
    """The structured tangents of the outputs."""
    from symjac._engine.interpreter import push_basis
    from symjac._engine.program import forward_program, trace

    def flat(*leaves):
        return jax.tree.leaves(f(*leaves)), []

    traced, closed = trace(flat, list(args), range(len(args)))
    program, consts = forward_program(traced, closed.consts, list(args), False).opened()
    found = []
    jax.eval_shape(lambda c, a: found.extend(push_basis(program, [], [*c, *a])[1]), consts, list(args))
    return found


DIAGONAL = {
    "logistic": (logistic, 0.6 * positive(16, N)),
    "euler": (euler, X),
    "euler with bounds": (lambda x: euler_to(x, jnp.sum(x > -9)), X),
    "newton": (newton, positive(8, N)),
    "while": (until, positive(9, N)),
    "cond": (lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x), X),
    "bounded while": (bounded, X),
}


@pytest.mark.parametrize("name", DIAGONAL)
def test_elementwise_loops_are_diagonal(name):
    f, x = DIAGONAL[name]
    for tangent in pushed(f, x):
        for term in tangent.blocks[0]:
            assert term.out_axes == term.in_axes
            assert all(axis.is_plain for axis in term.out_axes)
    with symjac.strict():
        assert_same(jax.jit(symjac.jacfwd(f))(x), jax.jit(jax.jacfwd(f))(x), name, rtol=1e-4)


@pytest.mark.parametrize("f", [rnn, gru])
def test_recurrent_networks_share_the_batch(f):
    assert shared_axes(f, STATE) == [[1]]
    check_against_jax(f, STATE, rtol=1e-4)


def test_lstm_shares_the_batch():
    assert shared_axes(lstm, STATE, STATE) == [[1, 1], [1, 1]]
    check_against_jax(lstm, STATE, 0.5 * STATE, argnums=(0, 1), rtol=1e-4, modes=("eager",))


def test_pendulums_share_the_batch():
    assert shared_axes(pendulums, array(10, B, 2)) == [[1], [1]]
    check_against_jax(pendulums, array(10, B, 2), rtol=1e-4, modes=("eager",))


def test_map_shares_the_step():
    assert shared_axes(lambda xs: lax.map(lambda x: jnp.tanh(W @ x), xs), INPUTS) == [[1]]


def test_heat_equation():
    check_against_jax(heat, array(11, 17), rtol=1e-4)


def test_what_does_not_change_stays_as_it_is():
    values = pushed(lambda p, x: lax.fori_loop(0, 9, lambda _, s: (s[0], jnp.sin(s[1]) * s[0]), (p, x)), X, X)
    assert values[0].blocks[0][0].factors == ()
    assert not values[0].blocks[1]


def test_memory_does_not_grow_with_the_number_of_steps():
    def run(x, n):
        return lax.scan(lambda c, _: (jnp.sin(c) * c, None), x, None, length=n)[0]

    def scratch(n):
        compiled = jax.jit(symjac.jacfwd(lambda x: run(x, n))).lower(jnp.ones(16)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert scratch(100_000) == scratch(100)


@pytest.mark.parametrize(
    "f",
    [
        substitution,
        lambda x: lax.fori_loop(0, 39, lambda i, c: c.at[i].set(c[i] * c[i + 1]), x),
        lambda x: lax.fori_loop(0, 39, lambda i, c: lax.dynamic_update_index_in_dim(c, c[i] * c[i + 1], i, 0), x),
        lambda x: lax.fori_loop(0, 39, lambda i, c: c.at[i].multiply(c[i + 1]), x),
    ],
    ids=["substitution", "set", "dynamic", "multiply"],
)
def test_an_entry_is_written_in_place(f):
    x = positive(16, 40)
    (loop,) = (e for e in jax.make_jaxpr(symjac.jacfwd(f))(x).eqns if e.primitive.name == "scan")
    whole = [e.primitive.name for e in loop.params["jaxpr"].eqns for v in e.outvars if v.aval.size == x.size**2]
    assert set(whole) <= {"scatter", "scatter_mul", "scatter-mul", "scatter-add", "dynamic_update_slice"}
    check_against_jax(f, x)


def runge_kutta(y):
    def slope(y):
        return mixed @ jnp.tanh(y)

    def step(y, _):
        a = slope(y)
        b = slope(y + 0.05 * a)
        c = slope(y + 0.05 * b)
        d = slope(y + 0.1 * c)
        return y + 0.1 / 6 * (a + 2 * b + 2 * c + d), None

    mixed = array(17, 40, 40) / 6
    return lax.scan(step, y, None, length=30)[0]


def waves(y):
    def step(_, state):
        old, now = state
        return now, 2 * now - old + 0.1 * (jnp.roll(now, 1) - 2 * now + jnp.roll(now, -1))

    return lax.fori_loop(0, 20, step, (y, y))[1]


@pytest.mark.parametrize("transform", ["jacfwd", "jacrev"])
@pytest.mark.parametrize(("f", "products"), [(runge_kutta, 4), (waves, 0)], ids=["runge-kutta", "waves"])
def test_a_step_multiplies_once_and_turns_nothing_around(f, products, transform):
    x = positive(18, 40)
    loops = [e for e in jax.make_jaxpr(getattr(symjac, transform)(f))(x).eqns if e.primitive.name == "scan"]
    names = [e.primitive.name for e in loops[-1].params["jaxpr"].eqns if e.outvars[0].aval.size == x.size**2]
    assert names.count("dot_general") == products
    assert "transpose" not in names
    check_against_jax(f, x, transform=transform, modes=("eager",), rtol=1e-4)


def test_batched_network_against_jax():
    def run(h):
        return lax.scan(lambda h, x: (jnp.tanh(h @ weights + x), None), h, inputs)[0]

    weights, inputs, h = 0.1 * array(12, 16, 16), array(13, 20, 16, 16), array(14, 16, 16)

    def structured(h):
        return symjac.linearize(run, h)[1].arrays

    ours, kept, theirs = (jax.jit(f).lower(h).compile() for f in (symjac.jacfwd(run), structured, jax.jacfwd(run)))
    assert ours.cost_analysis()["flops"] < 0.1 * theirs.cost_analysis()["flops"]
    assert kept.memory_analysis().temp_size_in_bytes < 0.2 * theirs.memory_analysis().temp_size_in_bytes
    assert_same(ours(h), theirs(h), "network", rtol=1e-4)


@pytest.mark.fallback
def test_a_solver_that_is_not_linear_step_by_step():
    matrix = array(15, 4, 4)
    matrix = matrix @ matrix.T + 4 * jnp.eye(4)

    @jax.custom_jvp
    def solve(b):
        return jnp.linalg.solve(matrix, b)

    def steps(b):
        """Conjugate gradients, which divide by norms of what they are given."""

        def step(s, _):
            x, r, p, rho = s
            q = matrix @ p
            alpha = rho / (p @ q + 1e-20)
            x, r = x + alpha * p, r - alpha * q
            new = r @ r
            return (x, r, r + new / (rho + 1e-20) * p, new), None

        return lax.scan(step, (jnp.zeros_like(b), b, b, b @ b), None, length=4)[0][0]

    solve.defjvp(lambda primals, tangents: (solve(*primals), steps(*tangents)))
    check_against_jax(lambda b: solve(jnp.sin(b)), X[:4], modes=("eager", "jit"), rtol=1e-3)


@pytest.mark.fallback
def test_custom_vjp_under_forward_mode_raises():
    @jax.custom_vjp
    def f(x):
        return x**2

    f.defvjp(lambda x: (x**2, x), lambda x, g: (2 * g * x,))
    for g in (f, lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=6)[0]):
        with pytest.raises(TypeError, match="custom_vjp"):
            symjac.jacfwd(g)(X)


def test_random_keys_are_carried():
    def run(x):
        def step(c, _):
            x, key = c
            return (x * jax.random.normal(key, x.shape), jax.random.split(key)[0]), x

        return lax.scan(step, (x, jax.random.key(0)), None, length=6)[1]

    check_against_jax(run, X, modes=("eager", "jit"))


def test_callbacks_run_once_for_each_step():
    seen = []

    def run(x):
        def step(c, i):
            jax.debug.callback(lambda i: seen.append(int(i)), i)
            return jnp.sin(c), None

        return lax.scan(step, x, jnp.arange(6))[0]

    jax.block_until_ready(symjac.jacfwd(run)(X))
    jax.effects_barrier()
    assert sorted(seen) == list(np.arange(6))
