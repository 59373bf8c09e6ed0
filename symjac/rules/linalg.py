"""Solves, factorisations and transforms: primitives that act on a few axes."""
