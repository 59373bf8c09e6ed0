"""The transforms, with the signatures of JAX."""
