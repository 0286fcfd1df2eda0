"""A workload to try and show Dibs with: an online shop, its products, the saved searches of its customers (shop.py)."""
