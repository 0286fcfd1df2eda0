"""Propagation."""
