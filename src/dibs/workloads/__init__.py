"""Workloads to try, test and measure with: deterministic by seed, made as Arrow tables.

boolean   integer workloads of chosen size, skew and match rate, in the manner of BEGen
shop      an online shop: products with skewed attributes, and the saved searches of its customers
"""
