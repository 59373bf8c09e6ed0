"""Equinox's semantics, and structure handed over to the solvers."""
