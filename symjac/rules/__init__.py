"""The structural rules, one file for each kind of primitive; importing this package registers them all."""

from symjac.rules import (
    contraction,
    control_flow,
    convolution,
    elementwise,
    equinox,
    fourier,
    indexing,
    layout,
    linalg,
    loops,
    pooling,
)

__all__ = [
    "contraction",
    "control_flow",
    "convolution",
    "elementwise",
    "equinox",
    "fourier",
    "indexing",
    "layout",
    "linalg",
    "loops",
    "pooling",
]
