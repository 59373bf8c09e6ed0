"""Jacobians for JAX that keep their structure."""
