"""The checks of ``verify-plan``. They share nothing with the passes that make plans."""
