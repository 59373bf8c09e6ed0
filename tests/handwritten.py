"""Programs with the Jacobian that an expert writes by hand for each: the mark for the arithmetic that symjac needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from helpers import array, positive
from jax import Array


@dataclass(frozen=True)
class HandWritten:
    """A program of `args`, and its Jacobian with respect to the first of them, both functions of all of them."""

    name: str
    function: Callable[..., Array]
    jacobian: Callable[..., Array]
    args: tuple[Any, ...]


def where_equal(rows: Array, columns: Array, blocks: Array) -> Array:
    """Spreads blocks (b, o, i) to (b, o, c, i): block b stands where `columns[c]` is `rows[b]`, zeros elsewhere."""
    chosen = rows[:, None] == columns[None]
    return jnp.where(chosen[:, None, :, None], blocks[:, :, None, :], 0.0)


def block_diagonal(blocks: Array) -> Array:
    """Spreads blocks (b, o, i) to a block-diagonal (b, o, b, i)."""
    index = jnp.arange(blocks.shape[0])
    return where_equal(index, index, blocks)


def attention(x: Array, query: Array, key: Array, value: Array) -> Array:
    scores = (x @ query) @ (x @ key).T / x.shape[-1] ** 0.5
    return jax.nn.softmax(scores) @ (x @ value)


def attention_jacobian(x: Array, query: Array, key: Array, value: Array) -> Array:
    scale = x.shape[-1] ** -0.5
    queries, keys, values = x @ query, x @ key, x @ value
    weights = jax.nn.softmax(queries @ keys.T * scale)
    out = weights @ values
    by_score = scale * weights[:, :, None] * (values[None] - out[:, None])  # d out[i, a] / d scores[i, k]
    through_value = jnp.einsum("ij,ba->iajb", weights, value)
    through_key = jnp.einsum("ija,ib->iajb", by_score, queries @ key.T)
    through_query = jnp.einsum("ika,kb->iab", by_score, keys @ query.T)
    return through_value + through_key + block_diagonal(through_query)


def batched_mlp(x: Array, first: Array, second: Array) -> Array:
    return jnp.tanh(x @ first) @ second


def batched_mlp_jacobian(x: Array, first: Array, second: Array) -> Array:
    slope = 1.0 - jnp.tanh(x @ first) ** 2
    return block_diagonal(jnp.einsum("bh,ih,ho->boi", slope, first, second))


def reprojection(cameras: Array, points: Array, camera_index: Array, point_index: Array, observed: Array) -> Array:
    """The residual of bundle adjustment, for cameras (rotation 3, translation 3, focal length, distortion)."""
    camera, point = cameras[camera_index], points[point_index]
    rotation, translation, focal, distortion = camera[:, :3], camera[:, 3:6], camera[:, 6], camera[:, 7]
    turned = jnp.cross(rotation, point)
    moved = point + turned + 0.5 * jnp.cross(rotation, turned) + translation
    x, y = moved[:, 0] / moved[:, 2], moved[:, 1] / moved[:, 2]
    factor = focal * (1.0 + distortion * (x**2 + y**2))
    return jnp.stack([factor * x, factor * y], axis=1) - observed


def skew(vectors: Array) -> Array:
    """The matrices (b, 3, 3) whose product with a vector is the cross product with `vectors` (b, 3)."""
    x, y, z = vectors.T
    zero = jnp.zeros_like(x)
    return jnp.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=1).reshape(-1, 3, 3)


def projection_parts(camera: Array, point: Array) -> tuple[Array, Array, Array]:
    """The projected points, their squared radius, and d residual / d moved point (b, 2, 3)."""
    rotation, translation, focal, distortion = camera[:, :3], camera[:, 3:6], camera[:, 6], camera[:, 7]
    turned = jnp.cross(rotation, point)
    moved = point + turned + 0.5 * jnp.cross(rotation, turned) + translation
    flat = moved[:, :2] / moved[:, 2:]
    radius = jnp.sum(flat**2, axis=1)
    bent = (focal * (1.0 + distortion * radius))[:, None, None] * jnp.eye(2)[None]
    bent += 2 * (focal * distortion)[:, None, None] * flat[:, :, None] * flat[:, None, :]
    last = -jnp.einsum("bij,bj->bi", bent, flat)[:, :, None]
    return flat, radius, jnp.concatenate([bent, last], axis=2) / moved[:, 2][:, None, None]


def reprojection_jacobian(
    cameras: Array, points: Array, camera_index: Array, point_index: Array, observed: Array
) -> Array:
    camera, point = cameras[camera_index], points[point_index]
    rotation, focal, distortion = camera[:, :3], camera[:, 6], camera[:, 7]
    flat, radius, by_moved = projection_parts(camera, point)
    moved_by_rotation = -skew(point) - 0.5 * (skew(jnp.cross(rotation, point)) + skew(rotation) @ skew(point))
    blocks = jnp.concatenate(
        [
            by_moved @ moved_by_rotation,
            by_moved,
            ((1.0 + distortion * radius)[:, None] * flat)[:, :, None],
            ((focal * radius)[:, None] * flat)[:, :, None],
        ],
        axis=2,
    )
    return where_equal(camera_index, jnp.arange(cameras.shape[0]), blocks)


def reprojection_of_points(points: Array, cameras: Array, *rest: Array) -> Array:
    return reprojection(cameras, points, *rest)


def reprojection_jacobian_of_points(
    points: Array, cameras: Array, camera_index: Array, point_index: Array, observed: Array
) -> Array:
    camera, point = cameras[camera_index], points[point_index]
    turn = skew(camera[:, :3])
    _, _, by_moved = projection_parts(camera, point)
    blocks = by_moved @ (jnp.eye(3)[None] + turn + 0.5 * turn @ turn)
    return where_equal(point_index, jnp.arange(points.shape[0]), blocks)


def forces(positions: Array, masses: Array) -> Array:
    """The gravity of softened point masses on each other."""
    offset = positions[None] - positions[:, None]
    distance = jnp.sum(offset**2, axis=-1) + 0.01
    return jnp.sum((masses[None] * distance**-1.5)[:, :, None] * offset, axis=1)


def forces_jacobian(positions: Array, masses: Array) -> Array:
    offset = positions[None] - positions[:, None]
    distance = jnp.sum(offset**2, axis=-1) + 0.01
    near, far = masses[None] * distance**-1.5, -3.0 * masses[None] * distance**-2.5
    pairs = near[:, :, None, None] * jnp.eye(3)[None, None]
    pairs += far[:, :, None, None] * offset[:, :, :, None] * offset[:, :, None, :]
    return pairs.transpose(0, 2, 1, 3) - block_diagonal(jnp.sum(pairs, axis=1))


FIRST_REACTANT, SECOND_REACTANT = np.random.default_rng(60).integers(0, 12, (2, 20))


def kinetics(state: Array, rates: Array, stoichiometry: Array) -> Array:
    """Mass-action kinetics of 20 reactions between 12 species, in each cell by itself."""
    return (rates[None] * state[:, FIRST_REACTANT] * state[:, SECOND_REACTANT]) @ stoichiometry


def kinetics_jacobian(state: Array, rates: Array, stoichiometry: Array) -> Array:
    by_reaction = jnp.zeros((*state.shape[:1], rates.shape[0], state.shape[1]))
    reaction = np.arange(rates.shape[0])
    by_reaction = by_reaction.at[:, reaction, FIRST_REACTANT].add(rates[None] * state[:, SECOND_REACTANT])
    by_reaction = by_reaction.at[:, reaction, SECOND_REACTANT].add(rates[None] * state[:, FIRST_REACTANT])
    return block_diagonal(jnp.einsum("crs,rt->cts", by_reaction, stoichiometry))


def observations() -> tuple[Array, Array, Array]:
    """Two cameras' views of each of the 64 points: camera index, point index, observed position."""
    points = np.repeat(np.arange(64), 2)
    cameras = (points + np.tile([0, 3], 64)) % 8
    return jnp.asarray(cameras), jnp.asarray(points), array(61, 128, 2)


CAMERAS = jnp.concatenate([0.1 * array(62, 8, 6), positive(63, 8, 2)], axis=1)
POINTS = array(64, 64, 3) + jnp.array([[0.0, 0.0, 6.0]])

PROGRAMS = [
    HandWritten("attention", attention, attention_jacobian, (array(65, 32, 16), *array(66, 3, 16, 16) / 4)),
    HandWritten("batched_mlp", batched_mlp, batched_mlp_jacobian, (array(67, 64, 16), *array(68, 2, 16, 16) / 4)),
    HandWritten("bundle_cameras", reprojection, reprojection_jacobian, (CAMERAS, POINTS, *observations())),
    HandWritten(
        "bundle_points", reprojection_of_points, reprojection_jacobian_of_points, (POINTS, CAMERAS, *observations())
    ),
    HandWritten("nbody", forces, forces_jacobian, (array(69, 64, 3), positive(70, 64))),
    HandWritten("kinetics", kinetics, kinetics_jacobian, (positive(71, 64, 12), positive(72, 20), array(73, 20, 12))),
]
