"""Scans over layers become layers: which ones, and the rewriting; ``passes/unroll_scans.py``."""
