"""Subscriptions on the disk."""
