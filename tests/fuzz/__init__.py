"""Random JAX programs, on which symjac's transforms are compared with JAX's; see `python -m tests.fuzz --help`."""
