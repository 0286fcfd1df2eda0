"""Tatbul's five structures."""
