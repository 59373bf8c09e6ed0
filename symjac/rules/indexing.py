"""Gather, scatter and their dynamic kin."""
