"""Every function of JAX's numerical interfaces, symjac against JAX; see `python -m tests.sweep`."""
