"""Every test runs under strict promotion, and under symjac's strict mode unless it is marked `fallback`."""

import jax
import pytest

import symjac

# Commands of their own, with relative imports.
collect_ignore = ["sweep", "fuzz"]

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(autouse=True)
def strict_mode(request):
    """A dense fallback is an error."""
    if request.node.get_closest_marker("fallback") or not hasattr(symjac, "strict"):
        yield
    else:
        with symjac.strict():
            yield
