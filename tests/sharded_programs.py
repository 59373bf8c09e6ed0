"""Jacobians of sharded arrays on eight virtual devices, in a process of its own: prints what became of each check.

The first argument, where there is one, is the rank of this process of two that share the devices.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import traceback
from collections.abc import Callable

N_PROCESSES = int(os.environ.get("SHARDED_PROCESSES", "1"))
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={8 // N_PROCESSES}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import symjac  # noqa: E402

CHECKS: dict[str, Callable[[Mesh], None]] = {}


def check(function: Callable[[Mesh], None]) -> Callable[[Mesh], None]:
    CHECKS[function.__name__] = function
    return function


def sharded(mesh: Mesh, spec: P, seed: int, *shape: int) -> jax.Array:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return jax.make_array_from_callback(shape, NamedSharding(mesh, spec), lambda index: values[index])


def assert_local(transform: Callable[..., jax.Array], *args: jax.Array) -> None:
    """The compiled program gathers nothing of the Jacobian's size, and the result is spread over the devices."""
    program = jax.jit(transform).lower(*args).compile()
    result = program(*args)
    for dimensions in re.findall(r"\[([\d,]*)\]\S* all-gather\(", program.as_text()):
        size = math.prod(int(n) for n in dimensions.split(",") if n)
        assert size < result.size // 8, f"an array of {dimensions} is gathered"
    largest = max(shard.data.size for shard in result.addressable_shards)
    assert largest <= result.size // 8, f"{result.sharding} holds {largest} of {result.size} on one device"


def assert_equal(ours: jax.Array, theirs: jax.Array) -> None:
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    error = jax.jit(lambda a, b: jnp.max(jnp.abs(a - b)))(ours, theirs)
    assert float(error) < 1e-4, float(error)


@check
def a_committed_device_is_kept(mesh: Mesh) -> None:
    device = jax.local_devices()[-1]
    x = jax.device_put(np.arange(3, dtype=np.float32), device)
    for transform in (symjac.jacfwd, symjac.jacrev):
        assert transform(lambda x: jnp.sin(x) * x)(x).devices() == {device}


@check
def the_matrix_itself_comes_back(mesh: Mesh) -> None:
    a = sharded(mesh, P("d", None), 0, 64, 32)
    x = sharded(mesh, P(), 1, 32)
    result = symjac.jacfwd(lambda x: a @ x)(x)
    assert result is a
    assert result.sharding == NamedSharding(mesh, P("d", None))
    assert symjac.jacfwd(lambda x, b: b @ x)(x, a) is a
    assert symjac.jacrev(lambda x, b: b @ x)(x, a) is a


@check
def a_batched_mlp_keeps_its_shards(mesh: Mesh) -> None:
    x, first, second = sharded(mesh, P("d", None), 0, 32, 4), sharded(mesh, P(), 1, 4, 8), sharded(mesh, P(), 2, 8, 4)

    def f(x: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
        return jnp.tanh(x @ first) @ second

    assert_local(symjac.jacfwd(f), x, first, second)
    assert_equal(symjac.jacfwd(f)(x, first, second), jax.jit(jax.jacfwd(f))(x, first, second))


@check
def a_stencil_keeps_its_shards(mesh: Mesh) -> None:
    u = sharded(mesh, P("d"), 0, 64)

    def f(u: jax.Array) -> jax.Array:
        return jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1) - u**2

    assert_local(symjac.jacfwd(f), u)
    assert_equal(symjac.jacfwd(f)(u), jax.jit(jax.jacfwd(f))(u))


@check
def a_dense_mlp_keeps_its_shards(mesh: Mesh) -> None:
    first, second = sharded(mesh, P(), 1, 16, 32), sharded(mesh, P("d", None), 2, 64, 16)
    x = sharded(mesh, P(), 0, 32)

    def f(x: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
        return second @ jnp.tanh(first @ x)

    assert_local(symjac.jacfwd(f), x, first, second)
    assert_equal(symjac.jacfwd(f)(x, first, second), jax.jit(jax.jacfwd(f))(x, first, second))


@check
def an_elementwise_function_keeps_its_shards(mesh: Mesh) -> None:
    x = sharded(mesh, P("d"), 0, 64)
    assert_local(symjac.jacfwd(jnp.sin), x)
    assert_equal(symjac.jacfwd(jnp.sin)(x), jax.jit(jax.jacfwd(jnp.sin))(x))


@check
def explicit_sharding_works(mesh: Mesh) -> None:
    explicit = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Explicit,))
    with (jax.set_mesh if hasattr(jax, "set_mesh") else jax.sharding.use_mesh)(explicit):
        a = jax.device_put(jnp.arange(64.0 * 8).reshape(64, 8), NamedSharding(explicit, P("d", None)))
        x = jax.device_put(jnp.arange(8.0), NamedSharding(explicit, P()))
        assert symjac.jacfwd(lambda x: a @ x)(x) is a

        def f(x: jax.Array) -> jax.Array:
            return jnp.sin(a @ x)

        ours, theirs = symjac.jacfwd(f)(x), jax.jacfwd(f)(x)
        assert_equal(ours, theirs)
        assert jax.typeof(ours).sharding.spec == jax.typeof(theirs).sharding.spec

        batch = jax.device_put(jnp.arange(16.0 * 3).reshape(16, 3) / 48, NamedSharding(explicit, P("d", None)))
        weights = jnp.arange(9.0).reshape(3, 3) / 9
        for g in (lambda b: jnp.tanh(b) * 2, lambda b: b * 2, lambda b: jnp.tanh(b @ weights), lambda b: b - b**2):
            for transform in ("jacfwd", "jacrev", "jacobian"):
                ours, theirs = (jax.jit(getattr(module, transform)(g))(batch) for module in (symjac, jax))
                assert_equal(ours, jax.sharding.reshard(theirs, jax.typeof(ours).sharding))
                assert "d" in jax.typeof(ours).sharding.spec, f"{transform} is spread over no devices"


@check
def collectives_inside_of_shard_map(mesh: Mesh) -> None:
    x = sharded(mesh, P("d"), 0, 32)
    shift = [(i, (i + 1) % 8) for i in range(8)]
    for f in (
        lambda x: x * jax.lax.psum(jnp.sum(x), "d") + jnp.sin(x),
        lambda x: jnp.sin(x) * jax.lax.pmean(x, "d"),
        lambda x: jnp.sin(jax.lax.ppermute(x, "d", shift)) * x,
        lambda x: jnp.sum(jnp.sin(jax.lax.all_gather(x, "d")), axis=0) * x,
    ):
        for transform in ("jacfwd", "jacrev"):
            ours, theirs = (
                jax.jit(jax.shard_map(getattr(module, transform)(f), mesh=mesh, in_specs=P("d"), out_specs=P("d")))(x)
                for module in (symjac, jax)
            )
            assert_equal(ours, theirs)


@check
def shard_map_works(mesh: Mesh) -> None:
    x = sharded(mesh, P("d", None), 0, 16, 4)

    def local(x: jax.Array) -> jax.Array:
        return symjac.jacfwd(lambda y: jnp.tanh(y) * jnp.sum(y))(x[0])[None]

    def expected(x: jax.Array) -> jax.Array:
        return jax.jacfwd(lambda y: jnp.tanh(y) * jnp.sum(y))(x[0])[None]

    ours, theirs = (
        jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("d", None), out_specs=P("d", None, None)))(x)
        for f in (local, expected)
    )
    assert_equal(ours, theirs)


def main() -> None:
    if N_PROCESSES > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(os.environ["SHARDED_ADDRESS"], N_PROCESSES, int(sys.argv[1]))
    mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
    results = {}
    for name, function in CHECKS.items():
        try:
            function(mesh)
            results[name] = ""
        except Exception:
            results[name] = traceback.format_exc()[-1500:]
    print("RESULTS" + json.dumps(results))


if __name__ == "__main__":
    main()
