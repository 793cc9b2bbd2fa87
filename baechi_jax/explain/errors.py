"""What can be wrong with a question about a plan."""

from __future__ import annotations

from baechi_jax.ir.errors import BaechiError


class ExplainError(BaechiError):
    """The question names nothing in the plan, or things on several devices."""
