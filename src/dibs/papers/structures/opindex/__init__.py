"""OpIndex."""
