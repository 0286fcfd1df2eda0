"""Gryphon."""
