"""From text to expressions: the only stage that knows SQL."""
