"""Mechanics, chemistry, vision, loops and economics."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .case import Case, block_diagonal, integers, normal, positive, weight


def robertson(n: int) -> Case:
    """Robertson's three species; the size is the stiffness."""

    def apply(y: Array) -> Array:
        first, second, third = 0.04 * y[0], n * 1e3 * y[1] * y[2], 3e3 * y[1] ** 2
        return jnp.stack([-first + second, first - second - third, third])

    def jacobian(y: Array) -> Array:
        by_second, by_third, square = n * 1e3 * y[2], n * 1e3 * y[1], 6e3 * y[1]
        zero = jnp.zeros_like(square)
        rate = jnp.full_like(square, 0.04)
        rows = [-rate, by_second, by_third, rate, -by_second - square, -by_third, zero, square, zero]
        return jnp.stack(rows).reshape(3, 3)

    return Case(apply, (positive(0, 3),), jacobian)


def kinetics(n: int) -> Case:
    """Mass-action kinetics of 20 reactions between 12 species, in each of n cells by itself."""
    first, second = integers(60, 12, 2, 20)

    def apply(state: Array, rates: Array, stoichiometry: Array) -> Array:
        return (rates[None] * state[:, first] * state[:, second]) @ stoichiometry

    def jacobian(state: Array, rates: Array, stoichiometry: Array) -> Array:
        reaction = np.arange(20)
        by_reaction = jnp.zeros((n, 20, 12))
        by_reaction = by_reaction.at[:, reaction, first].add(rates[None] * state[:, second])
        by_reaction = by_reaction.at[:, reaction, second].add(rates[None] * state[:, first])
        return block_diagonal(jnp.einsum("crs,rt->cts", by_reaction, stoichiometry))

    return Case(apply, (positive(0, n, 12), positive(1, 20), normal(2, 20, 12)), jacobian)


def nbody(n: int) -> Case:
    """The gravity of n softened point masses on each other."""

    def apply(positions: Array, masses: Array) -> Array:
        offset = positions[None] - positions[:, None]
        distance = jnp.sum(offset**2, axis=-1) + 0.01
        return jnp.sum((masses[None] * distance**-1.5)[:, :, None] * offset, axis=1)

    def jacobian(positions: Array, masses: Array) -> Array:
        offset = positions[None] - positions[:, None]
        distance = jnp.sum(offset**2, axis=-1) + 0.01
        near, far = masses[None] * distance**-1.5, -3.0 * masses[None] * distance**-2.5
        pairs = far[:, None, :, None] * offset.transpose(0, 2, 1)[:, :, :, None] * offset[:, None, :, :]
        pairs = pairs + near[:, None, :, None] * jnp.eye(3)[None, :, None, :]
        index = np.arange(n)
        return pairs.at[index, :, index, :].add(-jnp.sum(pairs, axis=2))

    return Case(apply, (normal(0, n, 3), positive(1, n)), jacobian)


def _project(cameras: Array, points: Array, camera_index: Array, point_index: Array) -> Array:
    camera, point = cameras[camera_index], points[point_index]
    rotation, translation, focal, distortion = camera[:, :3], camera[:, 3:6], camera[:, 6], camera[:, 7]
    turned = jnp.cross(rotation, point)
    moved = point + turned + 0.5 * jnp.cross(rotation, turned) + translation
    x, y = moved[:, 0] / moved[:, 2], moved[:, 1] / moved[:, 2]
    factor = focal * (1.0 + distortion * (x**2 + y**2))
    return jnp.stack([factor * x, factor * y], axis=1)


def _skew(v: Array) -> Array:
    x, y, z = v.T
    zero = jnp.zeros_like(x)
    return jnp.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=1).reshape(-1, 3, 3)


def _by_moved(camera: Array, point: Array) -> tuple[Array, Array, Array]:
    rotation, focal, distortion = camera[:, :3], camera[:, 6], camera[:, 7]
    turned = jnp.cross(rotation, point)
    moved = point + turned + 0.5 * jnp.cross(rotation, turned) + camera[:, 3:6]
    flat = moved[:, :2] / moved[:, 2:]
    radius = jnp.sum(flat**2, axis=1)
    bent = (focal * (1.0 + distortion * radius))[:, None, None] * jnp.eye(2)[None]
    bent = bent + 2 * (focal * distortion)[:, None, None] * flat[:, :, None] * flat[:, None, :]
    last = -jnp.einsum("bij,bj->bi", bent, flat)[:, :, None]
    return flat, radius, jnp.concatenate([bent, last], axis=2) / moved[:, 2][:, None, None]


def _scene(n: int) -> tuple[Array, Array, Array, Array]:
    cameras = jnp.concatenate([0.1 * normal(62, 8, 6), positive(63, 8, 2)], axis=1)
    points = normal(64, n, 3) + jnp.array([[0.0, 0.0, 6.0]])
    point_index = np.repeat(np.arange(n), 2)
    camera_index = (point_index + np.tile([0, 3], n)) % 8
    return cameras, points, jnp.asarray(camera_index), jnp.asarray(point_index)


def bundle_cameras(n: int) -> Case:
    """The residuals of bundle adjustment, 8 cameras and n points, with respect to the cameras."""

    def jacobian(cameras: Array, points: Array, camera_index: Array, point_index: Array) -> Array:
        camera, point = cameras[camera_index], points[point_index]
        rotation, focal, distortion = camera[:, :3], camera[:, 6], camera[:, 7]
        flat, radius, by_moved = _by_moved(camera, point)
        turn = -_skew(point) - 0.5 * (_skew(jnp.cross(rotation, point)) + _skew(rotation) @ _skew(point))
        by_focal = ((1.0 + distortion * radius)[:, None] * flat)[:, :, None]
        by_distortion = ((focal * radius)[:, None] * flat)[:, :, None]
        blocks = jnp.concatenate([by_moved @ turn, by_moved, by_focal, by_distortion], axis=2)
        return jnp.zeros((2 * n, 2, 8, 8)).at[np.arange(2 * n), :, camera_index, :].set(blocks)

    return Case(_project, _scene(n), jacobian)


def bundle_points(n: int) -> Case:
    """The same with respect to the points."""
    cameras, points, camera_index, point_index = _scene(n)

    def apply(points: Array, cameras: Array, camera_index: Array, point_index: Array) -> Array:
        return _project(cameras, points, camera_index, point_index)

    def jacobian(points: Array, cameras: Array, camera_index: Array, point_index: Array) -> Array:
        camera, point = cameras[camera_index], points[point_index]
        turn = _skew(camera[:, :3])
        blocks = _by_moved(camera, point)[2] @ (jnp.eye(3)[None] + turn + 0.5 * turn @ turn)
        return jnp.zeros((2 * n, 2, n, 3)).at[np.arange(2 * n), :, point_index, :].set(blocks)

    return Case(apply, (points, cameras, camera_index, point_index), jacobian)


def robot_arm(n: int) -> Case:
    """The positions of the joints of a planar arm of n links."""

    def apply(angles: Array, lengths: Array) -> Array:
        total = jnp.cumsum(angles)
        return jnp.stack([jnp.cumsum(lengths * jnp.cos(total)), jnp.cumsum(lengths * jnp.sin(total))], axis=1)

    def jacobian(angles: Array, lengths: Array) -> Array:
        place = apply(angles, lengths)
        base = jnp.concatenate([jnp.zeros((1, 2)), place[:-1]])
        lever = place[:, None] - base[None]
        turned = jnp.stack([-lever[..., 1], lever[..., 0]], axis=1)
        return jnp.where(np.tril(np.ones((n, n), bool))[:, None], turned, 0.0)

    return Case(apply, (normal(0, n), positive(1, n)), jacobian)


def rnn(n: int) -> Case:
    """The last state of a recurrent network of 16 units after n steps, with respect to its inputs."""

    def states(inputs: Array, own: Array, other: Array) -> Array:
        def step(h: Array, x: Array) -> tuple[Array, Array]:
            h = jnp.tanh(own @ h + other @ x)
            return h, h

        return lax.scan(step, jnp.zeros(16), inputs)[1]

    def jacobian(inputs: Array, own: Array, other: Array) -> Array:
        slopes = 1 - states(inputs, own, other) ** 2

        def back(left: Array, slope: Array) -> tuple[Array, Array]:
            scaled = left * slope
            return scaled @ own, scaled @ other

        return lax.scan(back, jnp.eye(16), slopes, reverse=True)[1].transpose(1, 0, 2)

    args = (normal(0, n, 4), weight(1, 16, 16), weight(2, 16, 4))
    return Case(lambda inputs, own, other: states(inputs, own, other)[-1], args, jacobian)


def state_space(n: int) -> Case:
    """The outputs of a linear state-space model with 8 states after each of n steps, by the first state."""

    def apply(first: Array, a: Array, c: Array) -> Array:
        return lax.scan(lambda h, _: (a @ h, c @ h), first, None, length=n)[1]

    def jacobian(first: Array, a: Array, c: Array) -> Array:
        return lax.scan(lambda row, _: (row @ a, row), c, None, length=n)[1]

    return Case(apply, (normal(0, 8), weight(1, 8, 8), weight(2, 2, 8)), jacobian)


def trajectory(n: int) -> Case:
    """The states of a nonlinear recursion, each written into its row of a buffer, by the first state."""

    def apply(first: Array, mix: Array) -> Array:
        def step(i: Array, states: Array) -> Array:
            return states.at[i].set(jnp.tanh(mix @ states[i - 1]))

        return lax.fori_loop(1, n, step, jnp.zeros((n, first.size)).at[0].set(first))

    def jacobian(first: Array, mix: Array) -> Array:
        def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
            state, by_first = carry
            state = jnp.tanh(mix @ state)
            by_first = (1 - state**2)[:, None] * (mix @ by_first)
            return (state, by_first), by_first

        start = jnp.eye(first.size, dtype=first.dtype)
        return jnp.concatenate([start[None], lax.scan(step, (first, start), None, length=n - 1)[1]])

    return Case(apply, (normal(0, 16), weight(1, 16, 16)), jacobian)


def growth_path(n: int) -> Case:
    """The Euler equations of the growth model along a path of n periods, with respect to the capital path."""
    alpha, beta, delta = 0.33, 0.96, 0.1

    def consumption(k: Array) -> Array:
        return k[:-1] ** alpha + (1 - delta) * k[:-1] - k[1:]

    def apply(k: Array) -> Array:
        full = jnp.concatenate([jnp.full(1, 3.0), k, jnp.full(1, 3.0)])
        c = consumption(full)
        return 1 / c[:-1] - beta * (alpha * k ** (alpha - 1) + 1 - delta) / c[1:]

    def jacobian(k: Array) -> Array:
        full = jnp.concatenate([jnp.full(1, 3.0), k, jnp.full(1, 3.0)])
        c = consumption(full)
        gross = alpha * full[:-1] ** (alpha - 1) + 1 - delta
        now, later = 1 / c[:-1] ** 2, beta * gross[1:] / c[1:] ** 2
        main = now + later * gross[1:] - beta * alpha * (alpha - 1) * k ** (alpha - 2) / c[1:]
        index = np.arange(n)
        matrix = jnp.zeros((n, n)).at[index, index].set(main)
        matrix = matrix.at[index[1:], index[:-1]].set(-(now * gross[:-1])[1:])
        return matrix.at[index[:-1], index[1:]].set(-later[:-1])

    return Case(apply, (2.5 + positive(0, n),), jacobian)


def milstein(n: int) -> Case:
    """The bilinear map of Milstein's method: diffusion (n, 4) along itself, with respect to the state."""

    def diffusion(y: Array, mix: Array) -> Array:
        return jnp.sin(y)[:, None] * mix

    def apply(y: Array, mix: Array, area: Array) -> Array:
        g = diffusion(y, mix)
        return jnp.einsum("ij,ik,jk->i", jnp.cos(y)[:, None] * mix, g, area)

    def jacobian(y: Array, mix: Array, area: Array) -> Array:
        strength = jnp.einsum("ij,ik,jk->i", mix, mix, area)
        index = np.arange(n)
        return jnp.zeros((n, n)).at[index, index].set(strength * jnp.cos(2 * y))

    return Case(apply, (normal(0, n), normal(1, n, 4), normal(2, 4, 4)), jacobian)
