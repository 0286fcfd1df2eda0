"""Matching before the kernels are there: see dibs.front."""
