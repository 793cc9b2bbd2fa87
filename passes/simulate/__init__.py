"""The one simulator, and timelines as data."""
