"""Many functions of `jax.numpy`, `jax.scipy`, `jax.nn` and `jax.lax` keep their structure in both directions.

Only their programs are traced here, in strict mode, so that a fallback is an error; values are compared elsewhere.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
import pytest
from helpers import array
from jax import lax
from rule_cases import backwards, case

import symjac

X, M, S, IMAGE = array(0, 7), array(1, 4, 6), array(2, 4, 4), array(3, 1, 2, 5, 6)
REGULAR = S + 3 * jnp.eye(4)
INDEX, SEGMENTS = jnp.array([2, 0, 1]), jnp.array([0, 1, 1, 0, 2, 2, 0])
PLACES = jnp.array([0.5, 1.2])


def steps(x):
    return lax.fori_loop(0, 3, lambda k, c: c.at[k].set(jnp.sin(c[k + 1]) * x[k]), x)


def response(image):
    squares = lax.reduce_window(image**2, 0.0, lax.add, (1, 2, 1, 1), (1, 1, 1, 1), "SAME")
    return image / (1 + squares)


def forces(points):
    apart = points[:, None] - points[None]
    squares = jnp.sum(apart**2, -1, keepdims=True) + 1e-9
    return jnp.sum(jnp.where(jnp.eye(4, dtype=bool)[..., None], 0.0, apart / squares), 1)


ORDER = {
    "median": (jnp.median, X),
    "quantile": (lambda x: jnp.quantile(x, 0.4, axis=1), M),
    "partition": (lambda x: jnp.partition(x, 3), X),
    "lexsort": (lambda x: x[jnp.lexsort((x,))], X),
    "approximate top k": (lambda x: lax.approx_max_k(x, 3)[0], X),
    "range": (jnp.ptp, X),
    "largest of each row": (lambda x: jnp.take_along_axis(x, jnp.argmax(x, 1)[:, None], 1), M),
}
INDEXING = {
    "interp": (lambda x: jnp.interp(jnp.linspace(-1, 1, 5), jnp.arange(7.0) / 3 - 1, x), X),
    "interp at": (lambda x: jnp.interp(x, jnp.arange(7.0) - 3, jnp.sin(jnp.arange(7.0))), X),
    "map coordinates": (lambda x: jsp.ndimage.map_coordinates(x, [PLACES, PLACES], order=1), M),
    "map coordinates at": (lambda c: jsp.ndimage.map_coordinates(S, [c, c + 1], order=1, mode="nearest"), PLACES),
    "resize": (lambda x: jax.image.resize(x, (8, 9), "bilinear"), M),
    "resize to nearest": (lambda x: jax.image.resize(x, (8, 9), "nearest"), M),
    "insert": (lambda x: jnp.insert(x, 2, x[0] * 2), X),
    "delete": (lambda x: jnp.delete(x, np.array([1, 3])), X),
    "segment max": (lambda x: jax.ops.segment_max(x, SEGMENTS, 3), X),
    "bincount": (lambda x: jnp.bincount(SEGMENTS, weights=x, length=3), X),
    "one hot": (lambda x: jax.nn.one_hot(INDEX, 7) @ x, X),
    "rolled range": (lambda x: x[(jnp.arange(7) + 2) % 7], X),
    "roll by a traced number": (lambda x: jnp.roll(x, jnp.argmax(x)), X),
    "upper triangle": (lambda x: x[jnp.triu_indices(4)], S),
    "into a triangle": (lambda x: jnp.zeros((4, 4)).at[jnp.tril_indices(4, -1)].set(x[:6]), X),
    "into a diagonal": (lambda x: jnp.zeros((7, 7)).at[jnp.diag_indices(7)].set(x), X),
    "fill a diagonal": (lambda x: jnp.fill_diagonal(x, 2.0, inplace=False), S),
    **{f"pad {mode}": (lambda x, mode=mode: jnp.pad(x, 2, mode=mode), X) for mode in ("reflect", "wrap", "edge")},
}
SCANS = {
    "associative scan": (lambda x: lax.associative_scan(jnp.multiply, x), X),
    "linear recurrence": (
        lambda x: lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x * 2)),
        M,
    ),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, 1), M),
    "loop over entries": (steps, X),
    "map over rows": (lambda x: lax.map(lambda row: row * row[::-1], x), M),
}
NUMERICS = {
    "gradient": (jnp.gradient, M),
    "trapezoid": (jnp.trapezoid, M),
    "covariance": (jnp.cov, M),
    "correlation": (jnp.corrcoef, M),
    "select": (lambda x: jnp.select([x > 1, x > 0], [x**2, jnp.sin(x)], jnp.zeros_like(x)), X),
    "piecewise": (lambda x: jnp.piecewise(x, [x < 0, x >= 0], [lambda v: -v, lambda v: v**2]), X),
    "polynomial": (lambda x: jnp.polyval(jnp.array([1.0, 2.0, 3.0]), x), X),
    "vandermonde": (lambda x: jnp.vander(x, 3), X),
    "nanmean": (jnp.nanmean, M),
    "weighted average": (lambda x: jnp.average(x, weights=x**2), X),
    "arctan2": (lambda x: jnp.arctan2(x, x[::-1] + 3), X),
    "product": (lambda x: lax.reduce(x, np.float32(1), lax.mul, (1,)), M),
    "forces": (forces, array(6, 4, 3)),
}
LINALG = {
    "exponential": (lambda x: jsp.linalg.expm(x * 0.1), S),
    "inverse": (jnp.linalg.inv, REGULAR),
    "determinant": (jnp.linalg.det, REGULAR),
    "logarithm of the determinant": (lambda x: jnp.linalg.slogdet(x)[1], REGULAR),
    "cholesky": (lambda x: jnp.linalg.cholesky(x @ x.T + 3 * jnp.eye(4)), S),
    "eigenvalues": (lambda x: jnp.linalg.eigh(x + x.T)[0], S),
    "singular values": (lambda x: jnp.linalg.svd(x, compute_uv=False), S),
    "qr": (lambda x: jnp.linalg.qr(x)[1], S),
    "triangular solve": (lambda x: jsp.linalg.solve_triangular(jnp.tril(x) + 3 * jnp.eye(4), x[0], lower=True), S),
    "power": (lambda x: jnp.linalg.matrix_power(x, 3), S),
}
SIGNALS = {
    "fftconvolve": (lambda x: jsp.signal.fftconvolve(x, x[:3]), X),
    "convolve2d": (lambda x: jsp.signal.convolve2d(x, x[:2, :2]), M),
    "moving average": (lambda x: jnp.convolve(x, jnp.ones(3) / 3, mode="same"), X),
    "real fft of a plane": (lambda x: jnp.abs(jnp.fft.rfft2(x)), M),
    "cosine transform": (jsp.fft.dct, X),
    "response normalisation": (response, IMAGE),
    "upsampling": (lambda x: jnp.repeat(jnp.repeat(x, 2, 2), 2, 3), IMAGE),
    "attention": (lambda x: jax.nn.dot_product_attention(x, x, x), array(4, 1, 3, 2, 4)),
    "gated linear unit": (jax.nn.glu, M),
    "standardize": (jax.nn.standardize, M),
}
FUNCTIONS = ORDER | INDEXING | SCANS | NUMERICS | LINALG | SIGNALS
FORWARD_ONLY = ("loop over entries",)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_fallback(name):
    function, x = FUNCTIONS[name]
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        jax.make_jaxpr(symjac.jacfwd(function))(x)
        if name not in FORWARD_ONLY:
            jax.make_jaxpr(lambda x: backwards(case(name, function, x), x))(x)
