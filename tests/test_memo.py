"""The memo: nothing is compiled twice, nothing is stale, nothing is kept alive."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import types
import weakref
from contextlib import contextmanager

import equinox as eqx
import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest

import symjac
from symjac._memo import calls
from symjac._memo.calls import memoised_call
from symjac._memo.holders import holder_of

enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
COMPILED = "/jax/core/compile/backend_compile_duration"
_compilations = 0


def _count(name, _, **__):
    global _compilations
    _compilations += name == COMPILED


jax.monitoring.register_event_duration_secs_listener(_count)


@contextmanager
def compilations():
    """Gives a list that holds, at the end, the number of compilations within."""
    counts = []
    before = _compilations
    yield counts
    counts.append(_compilations - before)


@pytest.fixture(autouse=True)
def empty_caches():
    symjac.clear_caches()


TRANSFORMS = [symjac.jacfwd, symjac.jacrev, symjac.hessian, symjac.grad, symjac.value_and_grad]
IDS = [transform.__name__ for transform in TRANSFORMS]


def last(result):
    return result[-1] if isinstance(result, tuple) else result


def closed_over(a):
    return lambda x: jnp.sum(a * x**3)


def assert_fresh(transform, f, change, x=None):
    """The transform of `f` sees what `change` does, each time, as the one of JAX does."""
    x = jnp.arange(1.0, 4.0) if x is None else x
    ours, theirs = transform(f), getattr(jax, transform.__name__)(f)
    for _ in range(3):
        for _ in range(2):
            np.testing.assert_allclose(last(ours(x)), last(theirs(x)), rtol=1e-5)
        change()


class TestIdentity:
    def test_a_second_call_does_not_trace(self, capsys):
        a = jnp.arange(3.0)
        f = lambda x: a * helper(x)  # noqa: E731
        helper = lambda x: print("traced") or jnp.sin(x)  # noqa: E731
        symjac.jacfwd(f)(a)
        assert capsys.readouterr().out == "traced\n"
        symjac.jacfwd(f)(a)
        assert capsys.readouterr().out == ""
        assert symjac.cache_info().hits == 1

    def test_the_result_is_the_captured_array(self):
        a = jnp.ones((4, 3))
        f = lambda x: a @ x  # noqa: E731
        assert symjac.jacfwd(f)(jnp.ones(3)) is a
        assert symjac.jacfwd(f)(jnp.ones(3)) is a
        assert symjac.cache_info()[:3] == (1, 0, 1)

    def test_the_array_of_an_inner_jit_is_the_result(self):
        a = jnp.ones((4, 3))
        inner = jax.jit(lambda x: a @ x)
        assert symjac.jacfwd(lambda x: inner(x))(jnp.ones(3)) is a

    def test_other_types_are_other_calls(self):
        f = jnp.sin
        for x in (jnp.ones(2), jnp.ones(3), jnp.ones(2, jnp.float16), 1.0, jnp.float32(1)):
            got, want = symjac.jacfwd(f)(x), jax.jacfwd(f)(x)
            assert (got.shape, got.dtype, got.weak_type) == (want.shape, want.dtype, want.weak_type)

    def test_static_arguments_of_other_types_are_other_calls(self):
        def f(x, k):
            return x * (2.0 if isinstance(k, bool) else 3.0 if isinstance(k, int) else 4.0)

        for k in (True, 1, 1.0, True):
            assert float(symjac.grad(f)(1.0, k)) == float(jax.grad(f)(1.0, k))


@pytest.mark.parametrize("transform", TRANSFORMS, ids=IDS)
class TestFresh:
    def test_closure_cell(self, transform):
        a = jnp.arange(3.0)

        def change():
            nonlocal a
            a = a + 1

        assert_fresh(transform, lambda x: jnp.sum(a * x**3), change)

    def test_global(self, transform):
        module = types.ModuleType("a_module_of_the_user")
        exec("def f(x): return g(x)\ndef g(x): return (A * x**3).sum()", vars(module))
        module.A = jnp.arange(3.0)
        assert_fresh(transform, module.f, lambda: setattr(module, "A", module.A + 1))

    def test_redefined_global_function(self, transform):
        module = types.ModuleType("a_module_of_the_user")
        exec("def f(x): return g(x)\ndef g(x): return (x**3).sum()", vars(module))
        assert_fresh(transform, module.f, lambda: exec("def g(x): return (x**4).sum()", vars(module)))

    def test_attribute_of_a_module(self, transform):
        module = types.ModuleType("a_module_of_the_user")
        module.A = jnp.arange(3.0)
        assert_fresh(transform, lambda x: jnp.sum(module.A * x**3), lambda: setattr(module, "A", module.A + 1))

    def test_attribute_of_an_object(self, transform):
        model = types.SimpleNamespace(a=jnp.arange(3.0))
        assert_fresh(transform, lambda x: jnp.sum(model.a * x**3), lambda: setattr(model, "a", model.a + 1))

    def test_self_behind_a_bound_method(self, transform):
        class Model:
            def f(self, x):
                return jnp.sum(self.a * x**3)

        model = Model()
        model.a = jnp.arange(3.0)
        assert_fresh(transform, model.f, lambda: setattr(model, "a", model.a + 1))

    def test_element_of_a_list(self, transform):
        values = [jnp.arange(3.0)]
        assert_fresh(transform, lambda x: jnp.sum(values[0] * x**3), lambda: values.insert(0, values[0] + 1))

    def test_element_of_a_nested_dict(self, transform):
        values = {"layer": {"w": jnp.arange(3.0)}}

        def change():
            values["layer"]["w"] = values["layer"]["w"] + 1

        assert_fresh(transform, lambda x: jnp.sum(values["layer"]["w"] * x**3), change)

    def test_element_of_a_numpy_array(self, transform):
        values = np.arange(3.0, dtype=np.float32)

        def change():
            values[0] += 1

        assert_fresh(transform, lambda x: jnp.sum(values * x**3), change)

    def test_element_of_a_large_numpy_array(self, transform):
        values = np.arange(3000.0, dtype=np.float32)

        def change():
            values[0] += 1

        assert_fresh(transform, lambda x: jnp.sum(values[:3] * x**3), change)

    def test_default_argument(self, transform):
        def f(x, values=[1.0]):  # noqa: B006
            return jnp.sum(values[0] * x**3)

        assert_fresh(transform, f, lambda: f.__defaults__[0].insert(0, f.__defaults__[0][0] + 1))

    def test_attribute_of_a_function(self, transform):
        def f(x):
            return jnp.sum(f.a * x**3)

        f.a = 1.0
        assert_fresh(transform, f, lambda: setattr(f, "a", f.a + 1))

    def test_attribute_of_a_class(self, transform):
        class Settings:
            a = 1.0

        assert_fresh(transform, lambda x: jnp.sum(Settings.a * x**3), lambda: setattr(Settings, "a", Settings.a + 1))

    def test_module_replaced_by_tree_at(self, transform):
        model = eqx.nn.Linear(3, 1, key=jax.random.key(0))

        def change():
            nonlocal model
            model = eqx.tree_at(lambda m: m.weight, model, model.weight + 1)

        assert_fresh(transform, lambda x: model(x**3)[0], change)

    def test_global_behind_other_transforms(self, transform):
        module = types.ModuleType("a_module_of_the_user")
        module.A = jnp.arange(3.0)
        inner = jax.checkpoint(jax.vmap(lambda x: jnp.sum(module.A * x**3)))
        f = lambda x: inner(jnp.stack([x, x])).sum()  # noqa: E731
        assert_fresh(transform, f, lambda: setattr(module, "A", module.A + 1))

    def test_nested_transform_of_symjac(self, transform):
        a = jnp.arange(3.0)

        def change():
            nonlocal a
            a = a + 1

        inner = symjac.grad(lambda x: jnp.sum(a * x**4))
        assert_fresh(transform, lambda x: inner(x).sum(), change)


def test_what_a_function_changes_while_it_is_traced_is_seen():
    counts = [0]

    def f(x):
        counts[0] += 1
        return counts[0] * x

    for expected in (1.0, 2.0, 3.0):
        assert float(symjac.jacfwd(f)(1.0)) == expected


def test_jit_does_not_look_again():
    a = 1.0
    f = lambda x: a * x  # noqa: E731
    ours, theirs = symjac.jit(f), jax.jit(f)
    assert ours(1.0) == theirs(1.0) == 1.0
    a = 2.0
    assert ours(1.0) == theirs(1.0) == 1.0


class TestStructure:
    @pytest.mark.parametrize("transform", TRANSFORMS, ids=IDS)
    def test_fresh_lambdas_compile_once(self, transform):
        x = jnp.arange(1.0, 4.0)
        arrays = [x + k for k in range(4)]
        want = [getattr(jax, transform.__name__)(lambda x, a=a: jnp.sum(a * x**3))(x) for a in arrays]
        jax.block_until_ready(want)
        with compilations() as counts:
            got = [transform(closed_over(a))(x) for a in arrays]
        assert counts == [1]
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(last(a), last(b), rtol=1e-5)

    def test_bound_methods_and_partials_compile_once(self):
        class Model:
            def __init__(self, a):
                self.a = a

            def f(self, x):
                return jnp.tanh(self.a * x)

        x = jnp.arange(3.0)
        models = [Model(x + k) for k in range(3)]
        with compilations() as counts:
            for model in models:
                symjac.jacfwd(model.f)(x)
        assert counts == [1]
        with compilations() as counts:
            for k in range(3):
                symjac.jacfwd(jax.tree_util.Partial(lambda a, x: jnp.tanh(a * x), models[k].a))(x)
        assert counts == [0]

    def test_a_module_hits_on_its_structure(self):
        model = eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0))
        models = [jax.tree.map(lambda p, k=k: p + k if eqx.is_array(p) else p, model) for k in range(3)]
        want = [jax.jacfwd(m)(jnp.ones(2)) for m in models]
        with compilations() as counts:
            got = [symjac.jacfwd(m)(jnp.ones(2)) for m in models]
        assert counts == [1]
        np.testing.assert_allclose(got, want, rtol=1e-5)

    def test_values_in_the_program_are_compared(self):
        for k in (0.0, -0.0, 1, 1.0, True, float("nan")):
            got = symjac.jacfwd(lambda x, k=k: jnp.copysign(x, float(k)))(jnp.float32(1.0))
            want = jax.jacfwd(lambda x, k=k: jnp.copysign(x, float(k)))(jnp.float32(1.0))
            np.testing.assert_array_equal(got, want)

    def test_numbers_that_change_in_each_call_are_not_compiled_for_ever(self):
        x = jnp.arange(1.0, 4.0)
        symjac.grad(lambda x: jnp.sum(x**2 * 0.5))(x)
        with compilations() as counts:
            for k in range(40):
                got = symjac.grad(lambda x, k=k: jnp.sum(x**2 * float(k)))(x)
                np.testing.assert_allclose(got, 2.0 * k * x, rtol=1e-6)
        assert counts[0] < 30

    def test_custom_rules_are_compared(self):
        def with_slope(slope):
            f = jax.custom_jvp(lambda x: jnp.sin(x))
            f.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), slope * tangents[0]))
            return f

        for slope in (1.0, 2.0, 1.0):
            assert float(symjac.jacfwd(with_slope(slope))(1.0)) == slope
            assert float(symjac.grad(with_slope(slope))(1.0)) == slope

    def test_callbacks_are_not_shared(self):
        def called(k):
            return lambda x: x * jax.pure_callback(lambda: np.float32(k), jax.ShapeDtypeStruct((), np.float32))

        for k in (1.0, 2.0):
            assert float(symjac.grad(called(k))(1.0)) == k


class TestFreed:
    @pytest.mark.parametrize("transform", [*TRANSFORMS, symjac.jit, symjac.vmap], ids=[*IDS, "jit", "vmap"])
    def test_function_and_arrays_are_freed(self, transform):
        def make(recursive):
            a = jnp.ones(3)

            def f(x):
                return jnp.sum(a * x) if x is not None else f(x)

            g = f if recursive else lambda x: jnp.sum(a * x)
            result = transform(g)(jnp.ones((3, 3) if transform is symjac.vmap else 3))
            jax.block_until_ready(transform(g)(jnp.ones((3, 3) if transform is symjac.vmap else 3)))
            del result
            return weakref.ref(g), weakref.ref(a)

        for recursive in (False, True):
            refs = make(recursive)
            gc.collect()
            assert [ref() for ref in refs] == [None, None]

    def test_replaced_array_is_freed_at_once(self):
        a = jnp.ones((4, 3))
        f = lambda x: a @ x  # noqa: E731
        symjac.jacfwd(f)(jnp.ones(3))
        ref = weakref.ref(a)
        a = None
        gc.collect()
        assert ref() is None

    def test_a_module_is_freed(self):
        model = eqx.nn.Linear(3, 2, key=jax.random.key(0))
        symjac.jacfwd(model)(jnp.ones(3))
        ref = weakref.ref(model)
        del model
        gc.collect()
        assert ref() is None

    def test_many_lambdas_do_not_leak(self):
        resource = pytest.importorskip("resource")
        x = jnp.ones(1)

        def step(k):
            a = jnp.full((250_000,), float(k))
            symjac.jacfwd(lambda x: a[:1] * x)(x)

        for k in range(20):
            step(k)
        gc.collect()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for k in range(300):
            step(k)
        unit = 1 if sys.platform == "darwin" else 1024
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit < 100e6

    def test_entries_are_bounded(self, monkeypatch):
        monkeypatch.setattr(calls, "_MAX_PROGRAMS", 5)
        for n in range(1, 12):
            symjac.jacfwd(lambda x: jnp.sin(x))(jnp.ones(n))
        assert symjac.cache_info().entries == 5


class TestTracers:
    def test_nothing_that_holds_a_tracer_is_kept(self):
        class Model:
            def f(self, x):
                return self.w * x**2

        model = Model()

        @jax.jit
        def loss(w, x):
            model.w = w
            return symjac.jacfwd(model.f)(x).sum()

        assert float(loss(2.0, jnp.ones(2))) == 8.0
        assert float(loss(3.0, jnp.ones(3))) == 18.0
        model.w = jnp.asarray(7.0)
        assert float(symjac.jacfwd(model.f)(jnp.ones(2)).sum()) == 28.0

    def test_calls_under_transforms_leave_no_entry(self):
        f = jnp.tanh
        for outer in (jax.jit, jax.vmap, lambda g: jax.grad(lambda x: g(x).sum())):
            outer(symjac.jacfwd(lambda x: f(x)))(jnp.ones(3))
        assert symjac.cache_info().entries == 0

    def test_no_leaks(self):
        with jax.checking_leaks():
            jax.jit(symjac.jacfwd(lambda x: jnp.tanh(x)))(jnp.ones(3))


def test_a_failed_trace_leaves_no_entry():
    def f(x):
        raise RuntimeError("no")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="no"):
            symjac.jacfwd(f)(jnp.ones(3))
    assert symjac.cache_info().entries == 0
    assert not holder_of(f).plans


def test_functions_that_look_at_values():
    def f(x):
        return x**2 if x[0] > 0 else x**3

    for transform in TRANSFORMS:
        g = f if transform in (symjac.jacfwd, symjac.jacrev) else lambda x: f(x).sum()
        for x in (jnp.ones(2), -jnp.ones(2)):
            got, want = transform(g)(x), getattr(jax, transform.__name__)(g)(x)
            np.testing.assert_allclose(last(got), last(want))


class TestSettings:
    def test_x64(self):
        f = lambda x: jnp.sin(x)  # noqa: E731
        assert symjac.jacfwd(f)(1.0).dtype == jnp.float32
        with enable_x64(True):
            assert symjac.jacfwd(f)(1.0).dtype == jnp.float64
        assert symjac.jacfwd(f)(1.0).dtype == jnp.float32

    def test_matmul_precision(self):
        f = lambda x: jnp.tanh(x @ x)  # noqa: E731
        x = jnp.ones((3, 3))
        with compilations() as counts:
            symjac.jacfwd(f)(x)
            with jax.default_matmul_precision("highest"):
                symjac.jacfwd(f)(x)
        assert counts[0] >= 2

    def test_debug_nans(self):
        f = lambda x: jnp.log(x)  # noqa: E731
        symjac.grad(f)(-1.0)
        with jax.debug_nans(True), pytest.raises(FloatingPointError):
            symjac.grad(lambda x: jnp.sqrt(x) * 0.0 / (x - x))(1.0)

    def test_disable_jit(self):
        seen = []

        def f(x):
            seen.append(x)
            return x * 2.0

        with jax.disable_jit():
            symjac.grad(f)(1.0)
            symjac.grad(f)(1.0)
        assert len(seen) == 2
        assert symjac.cache_info().entries == 0

    def test_clear_caches_of_jax(self):
        # In a process of its own: JAX 0.7 can crash where it drops the many programs of a long run.
        program = """
import jax, jax.numpy as jnp, symjac
f = lambda x: jnp.sin(x)
symjac.jacfwd(f)(1.0)
jax.clear_caches()
before = symjac.cache_info()
symjac.jacfwd(f)(1.0)
after = symjac.cache_info()
assert (after.hits, after.misses) == (before.hits, before.misses + 1), (before, after)
"""
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_memoize_false(self):
        seen = []

        def f(x):
            seen.append(x)
            return x * 2.0

        for transform in (symjac.jacfwd, symjac.grad, symjac.hessian):
            seen.clear()
            transform(f, memoize=False)(1.0)
            n = len(seen)
            transform(f, memoize=False)(1.0)
            assert len(seen) == 2 * n > 0


class TestThreads:
    def test_each_program_is_compiled_once(self):
        a = jnp.arange(1.0, 5.0)
        x = jnp.arange(1.0, 5.0)
        makes = [
            (lambda f, t=t: t(f))
            for t in (symjac.jacfwd, symjac.vmap, symjac.grad, lambda f: symjac.jit(symjac.grad(f)))
        ]
        results = [[] for _ in makes]
        barrier = threading.Barrier(8)

        def work():
            barrier.wait()
            for i, make in enumerate(makes):
                for _ in range(3):
                    f = lambda x: jnp.sum(jnp.tanh(jnp.sum(a) * x) ** 2)  # noqa: E731
                    results[i].append(make(f)(x))

        threads = [threading.Thread(target=work) for _ in range(8)]
        with compilations() as counts:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert counts[0] == 3  # jit(grad(f)) is grad(f)
        for values in results:
            assert len(values) == 24
            for value in values:
                np.testing.assert_array_equal(value, values[0])

    def test_a_failing_thread_does_not_block_the_others(self):
        fail = [True]

        def engine(consts, leaves):
            if fail:
                fail.clear()
                raise RuntimeError
            return [leaves[0] * 2.0]

        def trace():
            return calls.Traced(jax.make_jaxpr(lambda x: x)(1.0), engine, list, "test")

        f = lambda x: x  # noqa: E731
        x = jnp.float32(1.0)
        with pytest.raises(RuntimeError):
            memoised_call(f, ("key", None), [x], trace)
        assert float(memoised_call(f, ("key", None), [x], trace)[0]) == 2.0


def test_cache_info_and_clear_caches():
    f = lambda x: jnp.sin(x)  # noqa: E731
    for _ in range(3):
        symjac.jacfwd(f)(jnp.ones(3))
    info = symjac.cache_info()
    assert (info.hits, info.structural_hits, info.misses, info.entries) == (2, 0, 1, 1)
    symjac.clear_caches()
    assert symjac.cache_info() == (0, 0, 0, 0, 0)
    symjac.jacfwd(f)(jnp.ones(3))
    assert symjac.cache_info().misses == 1


def test_a_jacobian_that_depends_on_nothing_is_kept():
    def f(x):
        return 2 * x - jnp.roll(x, 1)

    jacobian, x = symjac.jacfwd(f), jnp.arange(4.0)
    kept = jacobian(x)
    assert jacobian(x + 1) is kept
    np.testing.assert_array_equal(kept, jax.jacfwd(f)(x))
    kept.delete()
    np.testing.assert_array_equal(jacobian(x), jax.jacfwd(f)(x))


def test_what_a_function_prints_is_printed_each_time(capfd):
    """Its Jacobian depends on nothing, and is computed all the same."""

    def f(x):
        jax.debug.print("called")
        return 2 * x - jnp.roll(x, 1)

    jacobian = symjac.jacfwd(f)
    for _ in range(3):
        jacobian(jnp.arange(4.0))
    jax.effects_barrier()
    assert capfd.readouterr().out.count("called") == 3


def _aligned(n):
    """A matrix of ones in memory that JAX may take as it is, without a copy."""
    memory = np.zeros(4 * n * n + 128, np.uint8)
    start = -memory.ctypes.data % 64
    matrix = memory[start : start + 4 * n * n].view(np.float32).reshape(n, n)
    matrix[:] = 1
    return matrix


WITH_MATRIX = {
    "closure": lambda transform: lambda m, x: transform(lambda x: m @ x)(x),
    "argument": lambda transform: lambda m, x: transform(lambda x, m: m @ x)(x, m),
    "active argument": lambda transform: lambda m, x: transform(lambda x, m: m @ x, argnums=(0, 1))(x, m)[0],
    "made inside": lambda transform: lambda m, x: transform(lambda x: jnp.asarray(m) @ x)(x),
    "not memoised": lambda transform: lambda m, x: transform(lambda x: jnp.asarray(m) @ x, memoize=False)(x),
    "jit": lambda transform: lambda m, x: symjac.jit(transform(lambda x: jnp.asarray(m) @ x))(x),
}


class TestMemoryOfNumpyArrays:
    @pytest.mark.parametrize("way", WITH_MATRIX)
    @pytest.mark.parametrize("transform", [symjac.jacfwd, symjac.jacobian])
    def test_a_result_does_not_share_it(self, transform, way):
        matrix, x = _aligned(16), jnp.ones(16)
        results = []
        for value in (1, 2, 3):
            matrix[0, 0] = value
            results.append(jax.block_until_ready(WITH_MATRIX[way](transform)(matrix, x)))
        matrix[0, 0] = 4
        assert [float(result[0, 0]) for result in results] == [1, 2, 3]
        assert all(isinstance(result, jax.Array) for result in results)

    def test_nor_does_a_linearisation(self):
        matrix, x = _aligned(16), jnp.ones(16)
        _, jacobian = symjac.linearize(lambda x: jnp.asarray(matrix) @ x, x)
        matrix[0, 0] = 4
        assert float(jacobian.as_matrix()[0, 0]) == 1

    def test_an_array_of_the_users_is_given_back_wherever_it_is(self):
        class Model:
            def __init__(self, a):
                self.a = a

            def apply(self, x):
                return self.a @ x

        a, x, large = jnp.ones((16, 16)), jnp.ones(16), np.ones((100, 100))
        model = Model(a)
        assert symjac.jacfwd(lambda x: model.a @ x)(x) is a
        assert symjac.jacfwd(model.apply)(x) is a
        assert symjac.jacfwd(lambda x: a @ x + large[0, 0])(x) is a
        assert symjac.jacfwd(lambda x: a @ x, memoize=False)(x) is a


def test_a_deleted_array_is_not_given_back():
    a, x = jnp.ones((3, 3)), jnp.ones(3)
    transformed = symjac.jacfwd(lambda x: a @ x)
    assert transformed(x) is a
    a.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        transformed(x)


def test_another_generator_of_random_bits_is_noticed():
    def f(x):
        return x * jax.random.normal(jax.random.PRNGKey(0), x.shape)

    x, transformed, before = jnp.ones(3), symjac.jacfwd(f), jax.config.jax_default_prng_impl
    transformed(x)
    try:
        jax.config.update("jax_default_prng_impl", "rbg")
        np.testing.assert_array_equal(transformed(x), jax.jacfwd(f)(x))
    finally:
        jax.config.update("jax_default_prng_impl", before)
