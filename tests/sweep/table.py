# ruff: noqa: E501
"""Every function of JAX's NumPy, SciPy and neural-network interfaces, and every primitive with a derivative.

Each function is called with each of a few sets of arguments. Where `jax.jacfwd` works symjac has to give the same; where
JAX raises symjac has to raise too. What no such call reaches has a line of its own in `CALLS`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.custom_batching
import jax.experimental.ode
import jax.numpy as jnp
import jax.scipy.optimize
import jax.scipy.sparse.linalg
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import sparse

MODULES = (
    "jax.numpy", "jax.numpy.fft", "jax.numpy.linalg", "jax.nn", "jax.scipy.special", "jax.scipy.linalg",
    "jax.scipy.signal", "jax.scipy.fft", "jax.scipy.integrate", "jax.scipy.interpolate", "jax.scipy.ndimage",
)  # fmt: skip
# Printing, files, types, global settings, and what takes no arrays.
EXCLUDED = {
    "save", "savez", "load", "fromfile", "frombuffer", "fromstring", "fromiter", "from_dlpack", "printoptions",
    "set_printoptions", "get_printoptions", "array_repr", "array_str", "dtype", "finfo", "iinfo", "result_type",
    "promote_types", "can_cast", "issubdtype", "isdtype", "save_obj", "empty", "zeros", "ones", "full", "arange",
    "linspace", "logspace", "geomspace", "identity", "eye", "tri", "indices", "mask_indices", "tril_indices",
    "triu_indices", "diag_indices", "einsum_path", "vectorize", "frompyfunc", "ufunc",
    "load_library", "scaled_matmul", "get_scaled_dot_general_config", "scaled_dot_general", "dot_product_attention",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A call of a function, differentiated with respect to the arguments at `argnums`."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    argnums: tuple[int, ...]


def _values(seed: int, *shape: int, low: float = -0.9, high: float = 0.9) -> np.ndarray:
    return np.round(np.random.default_rng(seed).uniform(low, high, shape), 3)


_SQUARE = _values(3, 3, 3) + 2 * np.eye(3)
SIGNATURES: dict[str, tuple[tuple[Any, ...], tuple[int, ...]]] = {
    "vector": ((_values(0, 5),), (0,)),
    "scalar": ((np.float64(0.4),), (0,)),
    "square": ((_SQUARE,), (0,)),
    "positive": ((_values(1, 2, 3, low=0.2, high=0.8),), (0,)),
    "spd": ((_SQUARE @ _SQUARE.T,), (0,)),
    "two": ((_values(0, 2, 3, low=0.2, high=0.8), _values(1, 2, 3, low=0.3, high=0.9)), (0, 1)),
    "broadcast": ((_values(0, 2, 3), _values(1, 3)), (0, 1)),
    "squares": ((_SQUARE, _SQUARE + 0.1), (0, 1)),
    "vectors": ((_values(0, 3), _values(1, 3)), (0, 1)),
    "with_axis": ((_values(0, 4, 3), 1), (0,)),
    "order_first": ((2, _values(0, 4, low=0.2)), (1,)),
    "three": (tuple(_values(i, 4, low=0.2, high=0.9) for i in range(3)), (0, 1, 2)),
    "four": (tuple(_values(i, 4, low=0.2, high=0.9) for i in range(4)), (0, 1, 2, 3)),
    "list": (([_values(0, 2, 3), _values(1, 2, 3)],), (0,)),
    "mask": ((_values(0, 4) > 0, _values(1, 4), _values(2, 4)), (1, 2)),
    "index": ((_values(0, 4), np.array([2, 0, 2])), (0,)),
    "cube": ((_values(0, 2, 3, 2),), (0,)),
}


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The names of all public functions, and the functions."""
    names = [*MODULES, *(f"jax.scipy.stats.{name}" for name in _distributions())]
    seen: set[int] = set()
    for module_name in names:
        module = importlib.import_module(module_name)
        for name in sorted(vars(module)):
            function = getattr(module, name)
            plain = not name.startswith("_") and callable(function) and not inspect.isclass(function)
            if plain and not inspect.ismodule(function) and name not in EXCLUDED and id(function) not in seen:
                seen.add(id(function))
                yield f"{module_name}.{name}", function


def _distributions() -> list[str]:
    stats = importlib.import_module("jax.scipy.stats")
    return sorted(name for name, value in vars(stats).items() if inspect.ismodule(value) and not name.startswith("_"))


def calls() -> Iterator[Call]:
    """Every function with every set of arguments, and the calls written by hand."""
    for name, function in functions():
        for signature, (args, argnums) in SIGNATURES.items():
            yield Call(f"{name}[{signature}]", function, args, argnums)
    for name, (function, *args) in CALLS.items():
        yield Call(name, function, tuple(args), (0,))


_X, _M, _C = _values(0, 5), _values(1, 3, 4), _values(2, 2, 3, 4)
_IMAGE, _KERNEL = _values(4, 1, 2, 5, 4), _values(5, 3, 2, 2, 2)


_BCOO, _BCSR, _CSR, _COO = (kind.fromdense(_SQUARE) for kind in (sparse.BCOO, sparse.BCSR, sparse.CSR, sparse.COO))


def _pooled(x: Any) -> Any:
    return lax.reduce_window(x, -np.inf, lax.max, (2, 2), (1, 1), "VALID")


def _here() -> Any:
    return jax.sharding.SingleDeviceSharding(jax.devices()[0])


def _mapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """A `shard_map` over a mesh of one device, in which the collective primitives stay."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    return jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)


def _spread(x: Any) -> Any:
    return sparse.BCOO((x, jnp.array([[0, 1], [2, 0], [1, 1], [0, 2], [2, 2]])), shape=(3, 3))


def _through_reference(x: Any) -> Any:
    """Through a mutable array."""
    reference = jax.new_ref(jnp.zeros_like(x))
    reference[...] = jnp.sin(x)
    reference[1] = x[0] * 2
    return jax.freeze(reference)


@jax.custom_batching.custom_vmap
def _doubled(x: Any) -> Any:
    return 2 * jnp.sin(x)


@_doubled.def_vmap
def _doubled_rows(axis_size: int, in_batched: Any, x: Any) -> Any:
    return 2 * jnp.sin(x), in_batched[0]


# What needs arguments of its own: jax.numpy first, then primitives that nothing above reaches.
CALLS: dict[str, tuple[Any, ...]] = {
    "einsum": (lambda x: jnp.einsum("ij,kj->ik", x, x), _M),
    "apply_along_axis": (lambda x: jnp.apply_along_axis(jnp.cumsum, 0, x), _M),
    "apply_over_axes": (lambda x: jnp.apply_over_axes(jnp.sum, x, [0, 1]), _C),
    "array_split": (lambda x: jnp.array_split(x, 2), _X),
    "block": (lambda x: jnp.block([[x, x], [x, 2 * x]]), _M),
    "broadcast_to": (lambda x: jnp.broadcast_to(x, (2, 3, 4)), _M),
    "choose": (lambda x: jnp.choose(jnp.array([0, 1, 1, 0]), [x[0], x[1]], mode="clip"), _M),
    "clip": (lambda x: jnp.clip(x, -0.1, 0.3), _M),
    "compress": (lambda x: jnp.compress(np.array([True, False, True]), x, axis=0), _M),
    "cross": (lambda x: jnp.cross(x[:, :3], x[:, 1:]), _M),
    "delete": (lambda x: jnp.delete(x, 1, axis=1), _M),
    "digitize": (lambda x: jnp.digitize(x, jnp.array([0.0, 0.5])) * x, _X),
    "dsplit": (lambda x: jnp.dsplit(x, 2), _C),
    "hsplit": (lambda x: jnp.hsplit(x, 2), _M),
    "vsplit": (lambda x: jnp.vsplit(x, 3), _M),
    "fill_diagonal": (lambda x: jnp.fill_diagonal(x, x[0, 1], inplace=False), _SQUARE),
    "full": (lambda x: jnp.full((2, 3), x[0]), _X),
    "linspace": (lambda x: jnp.linspace(x[0], x[1], 4), _X),
    "logspace": (lambda x: jnp.logspace(x[0], x[1], 4), _X),
    "geomspace": (lambda x: jnp.geomspace(1 + x[0] ** 2, 2 + x[1] ** 2, 4), _X),
    "gradient": (lambda x: jnp.gradient(x, 0.5, axis=1), _M),
    "histogram": (lambda x: jnp.histogram(jnp.arange(5.0), bins=3, weights=x)[0], _X),
    "insert": (lambda x: jnp.insert(x, 1, x[:, 0], axis=1), _M),
    "interp": (lambda x: jnp.interp(jnp.array([0.2, 1.7]), jnp.arange(5.0), x), _X),
    "interp_points": (lambda x: jnp.interp(x, jnp.linspace(-1, 1, 4), jnp.sin(jnp.arange(4.0))), _X),
    "ix": (lambda x: x[jnp.ix_(np.array([0, 2]), np.array([1, 3]))], _M),
    "kaiser": (lambda x: jnp.kaiser(5, 2.0) * x, _X),
    "lexsort": (lambda x: x[jnp.lexsort((x, jnp.abs(x)))], _X),
    "moveaxis": (lambda x: jnp.moveaxis(x, 0, 2), _C),
    "nan_to_num": (lambda x: jnp.nan_to_num(x / jnp.maximum(x, 0)), _X),
    "pad": (lambda x: jnp.pad(x, ((1, 0), (0, 2)), constant_values=2.0), _M),
    **{f"pad_{mode}": (lambda x, m=mode: jnp.pad(x, 2, mode=m), _M)
       for mode in ("edge", "linear_ramp", "maximum", "mean", "median", "minimum", "reflect", "symmetric", "wrap")},
    "partition": (lambda x: jnp.partition(x, 2, axis=1), _M),
    "percentile": (lambda x: jnp.percentile(x, jnp.array([20.0, 70.0]), axis=1), _M),
    "nanquantile": (lambda x: jnp.nanquantile(x, 0.3, axis=0, method="lower"), _M),
    "piecewise": (lambda x: jnp.piecewise(x, [x < 0, x >= 0], [jnp.sin, lambda t: t**2]), _X),
    "place": (lambda x: jnp.place(x, x > 0, jnp.array([1.0, 2.0]), inplace=False), _X),
    "polyint": (lambda x: jnp.polyint(x, 2), _X),
    "polyfit": (lambda x: jnp.polyfit(jnp.arange(5.0), x, 2), _X),
    "put": (lambda x: jnp.put(x, jnp.array([0, 2]), x[1], inplace=False), _X),
    "put_along_axis": (lambda x: jnp.put_along_axis(x, jnp.array([[1], [0], [2]]), x[:, :1], 1, inplace=False), _M),
    "repeat": (lambda x: jnp.repeat(x, jnp.array([1, 2, 0]), axis=0, total_repeat_length=3), _M),
    "reshape": (lambda x: jnp.reshape(x, (2, 6), order="F"), _M),
    "roll": (lambda x: jnp.roll(x, (1, 2), (0, 1)), _M),
    "roll_traced": (lambda x: jnp.roll(x, jnp.sum(x > 0), 1), _M),
    "select": (lambda x: jnp.select([x < -0.3, x < 0.3], [x, x**2], 1.0), _X),
    "take": (lambda x: jnp.take(x, jnp.array([[0, 9], [2, -1]]), axis=1), _M),
    "take_along_axis": (lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1), _M),
    "tensordot": (lambda x: jnp.tensordot(x, x, ((0, 2), (0, 2))), _C),
    "trapezoid": (lambda x: jnp.trapezoid(x, dx=0.5, axis=0), _M),
    "tri_multiplied": (lambda x: jnp.tri(3, 4) * x, _M),
    "where": (lambda x: jnp.where(x > 0, jnp.log(x), 0.0), _M),
    "vectorize": (jnp.vectorize(lambda a: jnp.sum(a) * a, signature="(n)->(n)"), _M),
    "dot_product_attention": (lambda x: jax.nn.dot_product_attention(x, x, x), _values(7, 3, 2, 4)),
    "one_hot": (lambda x: jax.nn.one_hot(jnp.array([0, 2]), 3) @ x, _M),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, 1, b=2.0, return_sign=True)[0], _M),
    "conv": (lambda x: lax.conv(x, _KERNEL, (1, 1), "SAME"), _IMAGE),
    "conv_kernel": (lambda k: lax.conv_general_dilated(_IMAGE, k, (2, 1), [(1, 1), (0, 1)], rhs_dilation=(1, 2)), _KERNEL),
    "conv_transpose": (lambda x: lax.conv_transpose(x, _KERNEL, (2, 2), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")), _IMAGE),
    "convolve2d": (lambda x: jax.scipy.signal.convolve2d(x, x[:2, :2], mode="same"), _M),
    "map_coordinates": (lambda x: jax.scipy.ndimage.map_coordinates(x, [jnp.array([0.5, 1.2]), jnp.array([1.0, 2.3])], 1), _M),
    "solve_triangular": (lambda x: jax.scipy.linalg.solve_triangular(x, x[:, 0], trans=1, lower=True), _SQUARE),
    "cho_solve": (lambda x: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(x @ x.T), True), x[0]), _SQUARE),
    "eigh_tridiagonal": (lambda x: jax.scipy.linalg.eigh_tridiagonal(x, x[1:], eigvals_only=True), _X),
    "interpolator": (lambda x: jax.scipy.interpolate.RegularGridInterpolator((np.arange(3.0), np.arange(4.0)), x)(np.array([[0.5, 1.5]])), _M),
    "multivariate_normal": (lambda x: jax.scipy.stats.multivariate_normal.logpdf(x[0], x[1], _SQUARE @ _SQUARE.T), _SQUARE),
    "dirichlet": (lambda x: jax.scipy.stats.dirichlet.logpdf(jax.nn.softmax(x), 1 + x**2), _X),
    "gaussian_kde": (lambda x: jax.scipy.stats.gaussian_kde(x).evaluate(jnp.array([0.1, 0.2])), _X),
    "betainc": (lambda x: jax.scipy.special.betainc(2.0, 3.0, x), _values(6, 4, low=0.1)),
    "regularized_incomplete_gamma": (lambda x: jax.scipy.special.gammainc(1 + x**2, 2.0 + x), _X),
    "clamp": (lambda x: lax.clamp(-0.2, x, 0.4), _X),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, 1, reverse=True), _M),
    "cummax": (lambda x: lax.cummax(x, 0), _M),
    "cummin": (lambda x: lax.cummin(x, 1), _M),
    "cumprod": (lambda x: lax.cumprod(x, 1), _M),
    "dynamic_slice": (lambda x: lax.dynamic_slice(x, (1, 2), (2, 2)), _M),
    "dynamic_update_slice": (lambda x: lax.dynamic_update_slice(x, x[:1, :2], (1, 1)), _M),
    "reduce_window": (lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (1, 2), "SAME"), _M),
    "reduce_window_sum": (lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 2), "VALID"), _M),
    "reduce_prod": (lambda x: lax.reduce(x, 1.0, lax.mul, (1,)), _M),
    "reduce": (lambda x: lax.reduce(x, 0.0, lambda a, b: jnp.sin(a) + b, (1,)), _M),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 8, 10), _X),
    "scatter": (lambda x: x.at[jnp.array([0, 2])].set(x[1]), _M),
    "scatter_add": (lambda x: x.at[jnp.array([0, 2, 0])].add(x), _M),
    "scatter_mul": (lambda x: x.at[0].multiply(x[1], unique_indices=True), _M),
    "scatter_max": (lambda x: x.at[jnp.array([0, 2])].max(x[1]), _M),
    "scatter_min": (lambda x: x.at[jnp.array([0, 2])].min(x[1]), _M),
    "scatter_apply": (lambda x: x.at[jnp.array([0, 2])].apply(jnp.sin), _M),
    "sort_two": (lambda x: lax.sort((jnp.sin(x), x), num_keys=1)[1], _X),
    "top_k": (lambda x: lax.top_k(x, 2)[0], _M),
    "approx_max_k": (lambda x: lax.approx_max_k(x, 2)[0], _M),
    "erf_inv": (lambda x: lax.erf_inv(0.5 * x), _X),
    "igamma": (lambda x: lax.igamma(2.0, 1 + x), _X),
    "igammac": (lambda x: lax.igammac(2.0, 1 + x), _X),
    "bessel": (lambda x: lax.bessel_i0e(x) + lax.bessel_i1e(x), _X),
    "polygamma": (lambda x: lax.polygamma(2.0, 2 + x), _X),
    "zeta": (lambda x: jax.scipy.special.zeta(3.0, 2 + x), _X),
    "lu": (lambda x: lax.linalg.lu(x)[0], _SQUARE),
    "qr": (lambda x: jnp.linalg.qr(x)[1], _SQUARE),
    "eigh": (lambda x: jnp.linalg.eigh(x + x.T)[0], _SQUARE),
    "eigh_vectors": (lambda x: jnp.linalg.eigh(x + x.T)[1] ** 2, _SQUARE),
    "svd": (lambda x: jnp.linalg.svd(x, full_matrices=False)[1], _M),
    "schur_free_expm": (lambda x: jax.scipy.linalg.expm(0.1 * x), _SQUARE),
    "triangular_solve": (lambda x: lax.linalg.triangular_solve(x, x, left_side=False, lower=True), _SQUARE),
    "tridiagonal_solve": (lambda x: lax.linalg.tridiagonal_solve(x, x + 3, x, x[:, None]), _X),
    "custom_linear_solve": (lambda x: lax.custom_linear_solve(lambda u: _SQUARE @ u, x, lambda mv, b: jnp.linalg.solve(_SQUARE, b), lambda vm, b: jnp.linalg.solve(_SQUARE.T, b)), _SQUARE[0]),
    "custom_root": (lambda x: lax.custom_root(lambda y: y**3 + y - x, x, lambda f, y: y * 0.5, lambda g, y: y / g(jnp.ones_like(y))), _X),
    "cond": (lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x), _X),
    "switch": (lambda x: lax.switch(1, [jnp.sin, jnp.cos, jnp.exp], x), _X),
    "scan": (lambda x: lax.scan(lambda c, y: (c * y, c + y), x[0], x), _X),
    "while_loop": (lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, x))[1], _X),
    "fori_loop": (lambda x: lax.fori_loop(0, 3, lambda i, s: s * jnp.sin(s), x), _X),
    "map": (lambda x: lax.map(jnp.sin, x), _X),
    "associative_scan": (lambda x: lax.associative_scan(jnp.multiply, x), _X),
    "checkpoint": (jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), _X),
    "custom_jvp": (jax.nn.relu6, _X),
    "pure_real": (lambda x: jnp.real(lax.complex(x, x) ** 2), _X),
    "conj": (lambda x: jnp.imag(jnp.conj(lax.complex(x, x**2))), _X),
    "optimization_barrier": (lambda x: lax.optimization_barrier(x), _X),
    "stop_gradient": (lambda x: lax.stop_gradient(x) * x, _X),
    "ragged_dot": (lambda x: lax.ragged_dot(x, jnp.ones((2, 4, 3), x.dtype), jnp.array([1, 2])), _M),
    "split": (lambda x: lax.split(x, (1, 3), axis=1), _M),
    "logistic": (lambda x: lax.logistic(x), _X),
    "reduce_window_min": (lambda x: lax.reduce_window(x, np.inf, lax.min, (2, 2), (1, 1), "SAME"), _M),
    "reduce_window_product": (lambda x: lax.reduce_window(x, 1.0, lax.mul, (2, 1), (1, 1), "VALID"), _M),
    "select_and_gather_add": (lambda x: jax.jvp(_pooled, (x,), (x**2,))[1], _M),
    "select_and_scatter_add": (lambda x: jax.vjp(_pooled, x)[1](_pooled(x) ** 2)[0], _M),
    "scatter_sub": (lambda x: x.at[jnp.array([0, 2, 0])].subtract(jnp.sin(x)), _M),
    "gamma_sample": (lambda x: jax.random.gamma(jax.random.key(0), 1 + x**2), _X),
    "beta_sample": (lambda x: jax.random.beta(jax.random.key(0), 1 + x**2, 2 + x), _X),
    "normal_sample": (lambda x: x[0] + x[1] * jax.random.normal(jax.random.key(0), (3,)), _X),
    "categorical_sample": (lambda x: x * jax.random.categorical(jax.random.key(0), x), _X),
    "device_put": (lambda x: jnp.sin(jax.device_put(jnp.sin(x))), _X),
    "sharding_constraint": (lambda x: lax.with_sharding_constraint(jnp.sin(x), _here()), _X),
    "checkpoint_name": (lambda x: jnp.sin(checkpoint_name(jnp.sin(x), "sine")), _X),
    "checkpoint_policy": (jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), policy=jax.checkpoint_policies.dots_saveable), _X),
    "linear_call": (lambda x: jax.custom_derivatives.linear_call(lambda r, u: r * u, lambda r, u: r * u, 2.0, jnp.sin(x)), _X),
    "custom_vmap": (_doubled, _X),
    "custom_gradient": (lambda x: jax.custom_gradient(lambda u: (u**2, lambda g: (3 * g * u,)))(x), _X),
    "composite": (lambda x: lax.composite(lambda u: jnp.sin(u) * u, "house.sine")(x), _X),
    "debug_callback": (lambda x: (jax.debug.callback(lambda _: None, x), jnp.sin(x))[1], _X),
    "pure_callback": (lambda x: jax.pure_callback(np.sin, x, jnp.sin(x)), _X),
    "reference": (_through_reference, _X),
    "psum": (lambda x: _mapped(lambda u: lax.psum(jnp.sin(u), "i") * u)(x), _X),
    "pmean": (lambda x: _mapped(lambda u: lax.pmean(u**2, "i"))(x), _X),
    "pmax": (lambda x: _mapped(lambda u: u * lax.pmax(lax.stop_gradient(u), "i"))(x), _X),
    "all_gather": (lambda x: _mapped(lambda u: lax.all_gather(jnp.sin(u), "i", tiled=True) * u)(x), _X),
    "all_to_all": (lambda x: _mapped(lambda u: lax.all_to_all(u**2, "i", 0, 0, tiled=True))(x), _X),
    "ppermute": (lambda x: _mapped(lambda u: lax.ppermute(jnp.sin(u), "i", [(0, 0)]))(x), _X),
    "psum_scatter": (lambda x: _mapped(lambda u: lax.psum_scatter(jnp.sin(u), "i", tiled=True))(x), _X),
    "vmapped_psum": (lambda x: jax.vmap(lambda u: u * lax.psum(jnp.sin(u), "i"), axis_name="i")(x), _X),
    "bcoo_matvec": (lambda x: _BCOO @ jnp.sin(x), _SQUARE[0]),
    "bcoo_values": (lambda x: _spread(jnp.sin(x)) @ jnp.ones(3), _X),
    "bcoo_todense": (lambda x: _spread(x**2).todense(), _X),
    "bcoo_fromdense": (lambda x: sparse.BCOO.fromdense(x * x, nse=9).todense(), _SQUARE),
    "bcoo_sum": (lambda x: sparse.BCOO((x**2, jnp.array([[0], [2], [1], [0], [2]])), shape=(3,)).sum_duplicates(nse=3).todense(), _X),
    "bcoo_transpose": (lambda x: _spread(x**2).T.todense(), _X),
    "bcoo_product": (lambda x: (_spread(x) @ _spread(x**2)).todense(), _X),
    "bcsr_matvec": (lambda x: _BCSR @ jnp.sin(x), _SQUARE[0]),
    "csr_matvec": (lambda x: _CSR @ jnp.sin(x), _SQUARE[0]),
    "coo_matvec": (lambda x: _COO @ jnp.sin(x), _SQUARE[0]),
    "cg": (lambda x: jax.scipy.sparse.linalg.cg(lambda u: _SQUARE @ _SQUARE.T @ u, jnp.sin(x))[0], _SQUARE[0]),
    "gmres": (lambda x: jax.scipy.sparse.linalg.gmres(lambda u: _SQUARE @ u, jnp.sin(x))[0], _SQUARE[0]),
    "minimize": (lambda x: jax.scipy.optimize.minimize(lambda u: jnp.sum((u - 2.0) ** 2), x, method="BFGS").x * x, _X),
    "odeint": (lambda x: jax.experimental.ode.odeint(lambda y, t: -y * x[0], x, jnp.array([0.0, 0.5])), _X),
    "batch_norm_like": (lambda x: (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-3), _M),
}  # fmt: skip
