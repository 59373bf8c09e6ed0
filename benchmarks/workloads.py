"""The table of the workloads."""

from __future__ import annotations

from . import grids, networks, statistics, systems
from .case import Workload

WORKLOADS: tuple[Workload, ...] = (
    Workload("linear", networks.linear, (250, 500, 1000)),
    Workload("chain", networks.chain, (128, 256, 512)),
    Workload("elementwise", networks.elementwise, (500, 1000, 2000)),
    Workload("mlp_square", networks.mlp_square, (64, 128, 256)),
    Workload("mlp_narrow", networks.mlp_narrow, (128, 256, 512), mode="jacrev"),
    Workload("mlp_hourglass", networks.mlp_hourglass, (128, 256, 512)),
    Workload("residual_mlp", networks.residual_mlp, (64, 128, 256)),
    Workload("batched_mlp", networks.batched_mlp, (16, 32, 64)),
    Workload("softmax_batch", networks.softmax_batch, (8, 16, 32)),
    Workload("layer_norm", networks.layer_norm, (8, 16, 32)),
    Workload("attention", networks.attention, (16, 32, 64)),
    Workload("conv", networks.conv, (64, 128, 256)),
    Workload("conv_kernel", networks.conv_kernel, (64, 256, 1024)),
    Workload("mlp_parameters", networks.mlp_parameters, (16, 64, 256), mode="jacrev"),
    Workload("pinn_hessian", networks.pinn_hessian, (16, 64, 256), kind="hessian", mode="hessian"),
    Workload("heat", grids.heat, (500, 1000, 2000)),
    Workload("heat_square", grids.heat_square, (16, 24, 40)),
    Workload("heat_cube", grids.heat_cube, (6, 8, 12)),
    Workload("burgers", grids.burgers, (500, 1000, 2000)),
    Workload("implicit_step", grids.implicit_step, (500, 1000, 2000)),
    Workload("brusselator", grids.brusselator, (12, 16, 28)),
    Workload("lotka_volterra", grids.lotka_volterra, (12, 16, 28)),
    Workload("spectral", grids.spectral, (128, 256, 512)),
    Workload("finite_elements", grids.finite_elements, (500, 1000, 2000)),
    Workload("robertson", systems.robertson, (1, 10, 100)),
    Workload("kinetics", systems.kinetics, (16, 64, 128)),
    Workload("nbody", systems.nbody, (32, 64, 128)),
    Workload("bundle_cameras", systems.bundle_cameras, (64, 256, 1024)),
    Workload("bundle_points", systems.bundle_points, (32, 64, 256)),
    Workload("robot_arm", systems.robot_arm, (32, 128, 512)),
    Workload("rnn", systems.rnn, (16, 64, 256), mode="jacrev"),
    Workload("state_space", systems.state_space, (64, 256, 1024)),
    Workload("trajectory", systems.trajectory, (16, 48, 128)),
    Workload("growth_path", systems.growth_path, (250, 500, 1000)),
    Workload("milstein", systems.milstein, (250, 500, 1000)),
    Workload("mixture", statistics.mixture, (64, 256, 1024), mode="jacrev"),
    Workload("kernel", statistics.kernel, (32, 64, 128)),
    Workload("logistic_hessian", statistics.logistic_hessian, (64, 128, 256), kind="hessian", mode="hessian"),
    Workload("poisson_hessian", statistics.poisson_hessian, (64, 128, 256), kind="hessian", mode="hessian"),
    Workload("rosenbrock_hessian", statistics.rosenbrock_hessian, (250, 500, 1000), kind="hessian", mode="hessian"),
    Workload("quadratic_hessian", statistics.quadratic_hessian, (250, 500, 1000), kind="hessian", mode="hessian"),
)


def named(names: list[str]) -> list[Workload]:
    """The workloads of these names, or all.

    Raises:
        ValueError: where there is no workload of a name.
    """
    known = {workload.name: workload for workload in WORKLOADS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no workload {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(WORKLOADS)
