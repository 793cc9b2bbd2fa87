"""``explain``: why something sits where a plan has it, and what other devices would cost."""

from __future__ import annotations

from baechi_jax.explain.errors import ExplainError as ExplainError
from baechi_jax.explain.explanation import Explanation as Explanation
from baechi_jax.explain.explanation import explain as explain
from baechi_jax.explain.moves import Move as Move
from baechi_jax.explain.moves import Overflow as Overflow
