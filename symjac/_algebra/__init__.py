"""The algebra: terms, without any tracing."""
