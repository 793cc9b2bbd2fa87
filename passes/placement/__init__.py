"""Placement problems, and the placers."""
