"""What becomes of one axis of chosen inputs in every value: ``docs/axis-analysis.md``."""
