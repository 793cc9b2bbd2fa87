"""Showing plans: an HTML page, a Perfetto trace, tables for the terminal."""
