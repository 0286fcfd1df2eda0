"""BE-Tree."""
