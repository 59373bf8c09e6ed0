"""Lineax, Optimistix and Diffrax: with symjac's Jacobians in JAX's place, and with a solver that finds structure."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import symjac

lx = pytest.importorskip("lineax", reason="the solvers of Lineax are not installed")
optx = pytest.importorskip("optimistix", reason="the solvers of Optimistix are not installed")
dfx = pytest.importorskip("diffrax", reason="the solvers of Diffrax are not installed")

from symjac._equinox.banded import BlockTridiagonal, Tridiagonal, best_order, factorise  # noqa: E402
from symjac._equinox.lineax_solver import _Blocks, _Dense, _Diagonal, _Ordered  # noqa: E402

pytestmark = [pytest.mark.fallback, pytest.mark.filterwarnings("ignore")]
N = 48
DENSE = lx.AutoLinearSolver(well_posed=None)


@pytest.fixture(autouse=True)
def double_precision():
    enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with enable_x64(True), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


# --- operators and the linear solver -------------------------------------------------------------------------------


def laplacian(x):
    padded = jnp.pad(x, 1)
    return padded[2:] - 2 * x + padded[:-2]


def elementwise(x, args):
    return jnp.sin(x) + args * x


def tridiagonal(x, args):
    return args * x + x**3 - laplacian(x)


def periodic(x, args):
    return 2 * args * x - jnp.roll(x, 1) - 2 * jnp.roll(x, -1)


def fourth_order(x, args):
    return 4 * args * x + laplacian(laplacian(x)) / 2


def two_species(x, args):
    u, v = x["u"], x["v"]
    return {"u": args * u + u * v / 9 - laplacian(u), "v": args * v - u**2 / 9 - laplacian(v)}


def batched(x, args):
    return jnp.tanh(x @ jnp.arange(9.0).reshape(3, 3)) / 9 + args * x


def dense(x, args):
    return x * jnp.sum(x) / N + args * x


def tall(x, args):
    return jnp.concatenate([args * x, jnp.sin(x)])


CASES = {
    "elementwise": (elementwise, numbers(1, N), _Diagonal, "is_diagonal"),
    "tridiagonal": (tridiagonal, numbers(1, N), Tridiagonal, "is_tridiagonal"),
    "periodic": (periodic, numbers(1, N), _Ordered, None),
    "fourth order": (fourth_order, numbers(1, N), _Ordered, None),
    "two species": (two_species, {"u": numbers(1, N), "v": numbers(2, N)}, _Ordered, None),
    "batched": (batched, numbers(1, 40, 3), _Blocks, None),
    "dense": (dense, numbers(1, N), _Dense, None),
    "tall": (tall, numbers(1, N), _Dense, None),
    "small": (tridiagonal, numbers(1, 2), _Dense, None),
}


def assert_close(got, want, tolerance=1e-9):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", ["operator", "jacobian", "function"])
def test_linear_solves(name, way):
    function, x, kind, _ = CASES[name]
    reference = lx.JacobianLinearOperator(function, x, 3.0)
    make = {
        "operator": lambda: symjac.lineax_operator(function, x, 3.0),
        "jacobian": lambda: reference,
        "function": lambda: lx.linearise(reference),
    }
    operator, solver = make[way](), symjac.lineax_solver()
    b = jax.tree.map(lambda leaf: leaf + 1, function(x, 3.0))
    assert isinstance(solver.init(operator, {}).matrix, kind)

    def total(operator, b, solver):
        solution = lx.linear_solve(operator, b, solver).value
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(solution)), solution

    got = eqx.filter_jit(eqx.filter_value_and_grad(lambda b: total(operator, b, solver), has_aux=True))(b)
    want = eqx.filter_jit(eqx.filter_value_and_grad(lambda b: total(reference, b, DENSE), has_aux=True))(b)
    assert_close(got, want)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("tall", "small")])
def test_transposed_solves(name):
    function, x, _, _ = CASES[name]
    reference = lx.JacobianLinearOperator(function, x, 3.0)
    b = jax.tree.map(lambda leaf: leaf + 1, x)
    solver = symjac.lineax_solver()
    state, options = solver.transpose(solver.init(reference, {}), {})
    got = solver.compute(state, b, options)[0]
    assert_close(got, lx.linear_solve(reference.transpose(), b, DENSE).value)


@pytest.mark.parametrize("name", CASES)
def test_tags_are_derived(name):
    function, x, _, tag = CASES[name]
    operator = symjac.lineax_operator(function, x, 3.0)
    assert_close(operator.as_matrix(), lx.JacobianLinearOperator(function, x, 3.0).as_matrix())
    for question in ("is_diagonal", "is_tridiagonal"):
        expected = question == tag or (tag == "is_diagonal" and question == "is_tridiagonal")
        if name not in ("small",):
            assert getattr(lx, question)(operator) is expected


def test_under_vmap():
    function, x, _, _ = CASES["tridiagonal"]
    batch = jnp.stack([x, 2 * x, 3 * x])

    def solve(x, solver):
        return lx.linear_solve(lx.JacobianLinearOperator(function, x, 3.0), x, solver).value

    got = jax.jit(jax.vmap(lambda x: solve(x, symjac.lineax_solver())))(batch)
    assert_close(got, jax.jit(jax.vmap(lambda x: solve(x, DENSE)))(batch))


@pytest.mark.parametrize(("n", "width"), [(7, 1), (10, 2), (11, 3), (64, 4), (5, 4), (9, 8)])
@pytest.mark.parametrize("is_complex", [False, True])
def test_banded_matrices(n, width, is_complex):
    matrix = np.asarray(numbers(0, n, n)) + (1j * np.asarray(numbers(1, n, n)) if is_complex else 0)
    if is_complex and width == 1:
        pytest.skip("the tridiagonal solver of JAX is tested with real numbers")
    matrix[np.abs(np.subtract.outer(np.arange(n), np.arange(n))) > width] = 0
    rows, columns = np.nonzero(matrix)
    assert best_order(rows, columns, n).bandwidth <= width
    factors = factorise(rows, columns, jnp.asarray(matrix[rows, columns]), n, width)
    assert isinstance(factors, Tridiagonal if width == 1 else BlockTridiagonal)
    b = np.asarray(numbers(2, n))
    padded = jnp.asarray(np.pad(b, (0, -n % width)))
    np.testing.assert_allclose(matrix @ factors.solve(padded)[:n], b, atol=1e-11)
    np.testing.assert_allclose(matrix.T @ factors.transposed().solve(padded)[:n], b, atol=1e-11)


def test_an_order_that_brings_entries_together():
    n = 60
    shuffled = np.random.default_rng(0).permutation(n)
    matrix = np.eye(n) + np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0)
    rows, columns = np.nonzero(matrix[shuffled][:, shuffled])
    assert best_order(rows, columns, n).bandwidth == 2


@pytest.mark.parametrize("transform", [symjac.lineax_operator, symjac.lineax_solver])
def test_a_missing_package(transform, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "lineax", None)
    with pytest.raises(ImportError, match="needs the package lineax"):
        transform() if transform is symjac.lineax_solver else transform(elementwise, jnp.ones(2), 1.0)


def test_nothing_to_differentiate():
    with pytest.raises(ValueError, match="no floating-point or complex array"):
        symjac.lineax_operator(elementwise, jnp.arange(3), 1.0)


# --- root finding and least squares --------------------------------------------------------------------------------


@pytest.mark.parametrize("finder", [optx.Newton, optx.Chord])
@pytest.mark.parametrize("name", ["tridiagonal", "periodic", "two species", "dense"])
def test_root_finders(finder, name):
    function, x, _, _ = CASES[name]

    def shifted(x, args):
        return jax.tree.map(lambda leaf: leaf - 1, function(x, args))

    start = jax.tree.map(lambda leaf: 0.1 * leaf, x)
    ours, theirs = (
        optx.root_find(shifted, finder(rtol=1e-9, atol=1e-9, linear_solver=solver), start, 5.0)
        for solver in (symjac.lineax_solver(), DENSE)
    )
    assert_close(ours.value, theirs.value, 1e-7)
    assert abs(int(ours.stats["num_steps"]) - int(theirs.stats["num_steps"])) <= 1


@pytest.mark.parametrize("method", [optx.GaussNewton, optx.LevenbergMarquardt])
def test_least_squares_with_the_structured_solver(method):
    def residuals(y, args):
        return jnp.concatenate([tridiagonal(y, 3.0) - 1, 0.1 * y])

    ours, theirs = (
        optx.least_squares(residuals, method(rtol=1e-9, atol=1e-9, **settings), jnp.zeros(12))
        for settings in ({"linear_solver": symjac.lineax_solver()}, {})
    )
    assert_close(ours.value, theirs.value, 1e-6)
    assert abs(int(ours.stats["num_steps"]) - int(theirs.stats["num_steps"])) <= 1


# --- JAX's transforms replaced -------------------------------------------------------------------------------------


@pytest.fixture
def replaced(monkeypatch):
    """Runs a program with JAX's transforms and then with symjac's in their place, and returns both results."""

    def run(program, expects_call=True):
        want = program()
        jax.clear_caches()
        calls = []
        for name in ("jacfwd", "jacrev"):

            def counted(fun, *args, name=name, **kwargs):
                calls.append(name)
                return getattr(symjac, name)(fun, *args, **kwargs)

            monkeypatch.setattr(jax, name, counted)
        got = program()
        monkeypatch.undo()
        jax.clear_caches()
        assert calls or not expects_call
        return got, want

    return run


def rosenbrock(y, args):
    return jnp.concatenate([10 * (y[1:] - y[:-1] ** 2), 1 - y[:-1]])


@pytest.mark.parametrize("jac", ["fwd", "bwd"])
@pytest.mark.parametrize("solver", [optx.GaussNewton, optx.LevenbergMarquardt])
def test_least_squares(replaced, solver, jac):
    def program():
        start = jnp.asarray([0.5, 0.6, 0.4, 0.8])
        method = solver(rtol=1e-9, atol=1e-9)
        return optx.least_squares(rosenbrock, method, start, options={"jac": jac}, max_steps=512)

    got, want = replaced(program, expects_call=False)
    assert_close(got.value, want.value, 1e-6)
    assert abs(int(got.stats["num_steps"]) - int(want.stats["num_steps"])) <= 1


@pytest.mark.parametrize("name", ["tridiagonal", "two species", "tall"])
@pytest.mark.parametrize("jac", ["fwd", "bwd"])
def test_lineax(replaced, name, jac):
    function, x, _, _ = CASES[name]

    def program():
        operator = lx.JacobianLinearOperator(function, x, 3.0, jac=jac)
        return lx.linear_solve(operator, function(x, 3.0), DENSE).value

    assert_close(*replaced(program))


@pytest.mark.parametrize("finder", [optx.Newton, optx.Chord])
def test_newton(replaced, finder):
    function, x, _, _ = CASES["tridiagonal"]
    method = finder(rtol=1e-9, atol=1e-9)
    program = lambda: optx.root_find(lambda x, a: function(x, a) - 1, method, 0.1 * x, 5.0)  # noqa: E731
    got, want = replaced(program, expects_call=False)
    assert_close(got.value, want.value, 1e-7)
    assert abs(int(got.stats["num_steps"]) - int(want.stats["num_steps"])) <= 1


@pytest.mark.parametrize("kind", ["matrix", "diagonal"])
@pytest.mark.parametrize("method", ["ItoMilstein", "StratonovichMilstein"])
def test_milstein(replaced, method, kind):
    table = numbers(0, 3, 2)

    def diffusion(t, y, args):
        return table * y[:, None] if kind == "matrix" else lx.DiagonalLinearOperator(jnp.sin(y))

    def program():
        shape = (2,) if kind == "matrix" else (3,)
        noise = dfx.VirtualBrownianTree(0.0, 1.0, 1e-3, shape, jax.random.key(0))
        terms = dfx.MultiTerm(dfx.ODETerm(lambda t, y, args: -y), dfx.ControlTerm(diffusion, noise))
        return dfx.diffeqsolve(terms, getattr(dfx, method)(), 0.0, 1.0, 0.1, jnp.ones(3)).ys

    got, want = replaced(program, expects_call=method == "ItoMilstein")
    assert_close(got, want, 1e-8)


def oscillator(t, y, args):
    return jnp.stack([y[1], args * (1 - y[0] ** 2) * y[1] - y[0]])


def test_backsolve_adjoint(replaced):
    def loss(args):
        terms = dfx.ODETerm(oscillator)
        controller = dfx.PIDController(rtol=1e-6, atol=1e-8)
        adjoint, start = dfx.BacksolveAdjoint(), jnp.asarray([2.0, 0.0])
        settings = {"args": args, "adjoint": adjoint, "stepsize_controller": controller}
        return jnp.sum(dfx.diffeqsolve(terms, dfx.Heun(), 0.0, 1.0, 0.1, start, **settings).ys ** 2)

    got, want = replaced(lambda: jax.value_and_grad(loss)(jnp.asarray(1.5)))
    assert_close(got, want, 1e-8)


def test_backsolve_adjoint_of_a_stochastic_equation(replaced):
    def loss(args):
        noise = dfx.VirtualBrownianTree(0.0, 1.0, 1e-2, (2,), jax.random.key(0))
        terms = dfx.MultiTerm(
            dfx.ODETerm(lambda t, y, args: -args * y),
            dfx.ControlTerm(lambda t, y, args: args * jnp.stack([y, jnp.sin(y)], -1) / 4, noise),
        )
        settings = {"args": args, "adjoint": dfx.BacksolveAdjoint()}
        return jnp.sum(dfx.diffeqsolve(terms, dfx.Heun(), 0.0, 1.0, 0.2, jnp.ones(2), **settings).ys)

    got, want = replaced(lambda: jax.value_and_grad(loss)(jnp.asarray(0.7)), expects_call=False)
    assert_close(got, want, 1e-8)


@pytest.mark.parametrize("method", ["Kvaerno5", "ImplicitEuler"])
def test_implicit_solvers(replaced, method):
    def program():
        controller = dfx.PIDController(rtol=1e-3, atol=1e-5)
        solver = getattr(dfx, method)()
        settings = {"args": 30.0, "stepsize_controller": controller}
        return dfx.diffeqsolve(dfx.ODETerm(oscillator), solver, 0.0, 5.0, 0.01, jnp.asarray([2.0, 0.0]), **settings)

    got, want = replaced(program, expects_call=False)
    assert_close(got.ys, want.ys, 1e-6)
    assert abs(int(got.stats["num_steps"]) - int(want.stats["num_steps"])) <= 1


# --- a stiff equation ----------------------------------------------------------------------------------------------


def reaction_diffusion(t, y, args):
    diffusivity, rate = args
    return diffusivity * (y.size + 1) ** 2 * laplacian(y) + rate * y * (1 - y) * (y - 0.3)


@eqx.filter_jit
def integrated(y, solver, end=0.1):
    controller = dfx.PIDController(rtol=1e-4, atol=1e-6)
    settings = {"args": (1e-2, 20.0), "stepsize_controller": controller}
    return dfx.diffeqsolve(dfx.ODETerm(reaction_diffusion), solver, 0.0, end, 1e-3, y, **settings)


def bump(n):
    return jnp.exp(-100 * (jnp.linspace(0, 1, n + 2)[1:-1] - 0.4) ** 2)


def structured_solver():
    finder = dfx.with_stepsize_controller_tols(dfx.VeryChord)
    return dfx.Kvaerno5(root_finder=finder(linear_solver=symjac.lineax_solver()))


def timed(y, solver):
    """A few steps, compiled before they are timed."""
    end = jnp.asarray(3e-3)
    compiled = integrated.lower(y, solver, end).compile()
    start = time.perf_counter()
    solution = compiled(y, solver, end)
    jax.block_until_ready(solution.ys)
    return solution, time.perf_counter() - start


def test_a_stiff_equation_is_solved_faster():
    ours, fast = timed(bump(500), structured_solver())
    theirs, slow = timed(bump(500), dfx.Kvaerno5())
    assert_close(ours.ys, theirs.ys, 1e-6)
    assert abs(int(ours.stats["num_steps"]) - int(theirs.stats["num_steps"])) <= 1
    assert 5 * fast < slow


def test_a_stiff_equation_with_many_unknowns():
    y = bump(10_000)
    solution = integrated(y, structured_solver())
    assert solution.result == dfx.RESULTS.successful
    coarse = integrated(bump(499), structured_solver())
    assert_close(solution.ys[0, 20:-1:20][:499], coarse.ys[0], 2e-2)


def test_memory_of_a_newton_step_is_linear():
    """No array of the compiled step has anything like n * n elements."""
    n = 10_000
    lowered = integrated.lower(bump(n), structured_solver())
    memory = lowered.compile().compiled.memory_analysis()
    assert memory.temp_size_in_bytes < 1000 * n * 8


def test_adjoint_of_the_stiff_equation():
    y, direction, step = bump(20), jnp.sin(jnp.arange(20.0)), 1e-4
    solver, end = structured_solver(), jnp.asarray(1e-2)

    def loss(y):
        return jnp.sum(integrated(y, solver, end).ys ** 2)

    got = jnp.vdot(jax.grad(loss)(y), direction)
    want = (loss(y + step * direction) - loss(y - step * direction)) / (2 * step)
    np.testing.assert_allclose(got, want, rtol=1e-3)


def test_positive_definite_operators_keep_their_tags():
    matrix = numbers(3, 6, 6)
    operator = lx.MatrixLinearOperator(matrix @ matrix.T + 6 * jnp.eye(6), lx.positive_semidefinite_tag)
    function = lx.FunctionLinearOperator(
        operator.mv, jax.ShapeDtypeStruct((6,), jnp.float64), lx.positive_semidefinite_tag
    )
    b = numbers(4, 6)
    assert_close(
        lx.linear_solve(function, b, symjac.lineax_solver(lx.Cholesky())).value, lx.linear_solve(operator, b).value
    )
