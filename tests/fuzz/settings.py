"""The settings under which random programs run, whatever those of the other tests are."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def settings() -> Iterator[None]:
    """Double precision, JAX's usual promotion, no warnings."""
    before = jax.config.jax_enable_x64
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jax.config.update("jax_enable_x64", True)
        try:
            with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
                yield
        finally:
            jax.config.update("jax_enable_x64", before)
