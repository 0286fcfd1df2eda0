"""The documents of a history as arrays, and kernels that answer joins over them."""
