"""PB+tree."""
