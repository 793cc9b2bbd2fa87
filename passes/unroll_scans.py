"""``unroll-scans``: a scan over layers becomes layers, which can lie on different devices.

JAX programs with many equal layers scan over stacked parameters (flax ``nn.scan``, haiku
``layer_stack``, equinox, by hand): one operation, and one array for all layers of each parameter.
Nothing of it could be placed apart. Here each iteration becomes operations of its own, and the
stacks are kept in pieces through everything that follows: the backward scan, gradients, clipping by
a global norm (a sum per layer, then one sum), optimizer, updated parameters. The stacked arguments
and results of ``@main`` become one per layer (``ir/pieces.py``). No stack is ever put together, but
where an operation mixes the layers; that is logged, with its source line.

Which scans: ``passes/unroll/choose.py``. What becomes of every value: the axis analysis
(``passes/axis``, ``docs/axis-analysis.md``). The rewriting: ``passes/unroll/rewrite.py``.

Assumes calls inlined. Scans in the body of ``@main`` are looked at, and those one loop deeper,
where gradients are summed over microbatches; a scan inside a layer stays one operation there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import (
    argument_attributes,
    result_attributes,
    set_argument_attributes,
    set_result_attributes,
)
from baechi_jax.ir.pieces import PIECE, Piece, piece_of
from baechi_jax.ir.topology import Topology
from baechi_jax.passes.analyze_axis import chosen_arguments
from baechi_jax.passes.axis.analysis import argument_names
from baechi_jax.passes.registry import Pass, register_pass
from baechi_jax.passes.unroll.choose import Rule, choose, choose_around
from baechi_jax.passes.unroll.rewrite import rewrite

_WHEN = ("auto", "always", "never")


@register_pass
@dataclass(frozen=True, slots=True)
class UnrollScans(Pass):
    """``iterations`` of them make one piece: a shorter scan over arguments of as many rows; with
    ``inline`` as many layers. ``pieces``: a scan whose length it divides makes so many equal ones.

    ``when``: ``auto`` takes the scans over parameters that are neither long (more than ``longest``
    iterations) nor cheap (stacks of less than ``share`` of all arguments' bytes), and none where
    the topology has a single device; ``always`` those over any argument; ``never`` none.
    Loops of at most ``around`` iterations around such scans are unrolled with them. ``arguments``
    name stacks whose scans are taken anyway, ``keep`` arguments that stay whole.
    """

    name: ClassVar[str] = "unroll-scans"
    summary: ClassVar[str] = "turn scans over layers into layers, and their stacks into pieces"

    iterations: int = 1
    pieces: int = 0
    inline: bool = False
    when: str = "auto"
    longest: int = 128
    share: float = 0.01
    around: int = 16
    arguments: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.when not in _WHEN:
            raise ValueError(f"when={self.when} is not known; there are: {', '.join(_WHEN)}")
        if self.iterations < 1:
            raise ValueError(f"iterations must be at least 1, found {self.iterations}")
        if self.pieces < 0:
            raise ValueError(f"pieces must not be negative, found {self.pieces}")
        if self.longest < 1:
            raise ValueError(f"longest must be at least 1, found {self.longest}")
        if self.around < 0:
            raise ValueError(f"around must not be negative, found {self.around}")
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"share must be between 0 and 1, found {self.share}")

    def run(self, module: Module) -> None:
        """Rewrite ``@main``; raises PassError where it has pieces already, or no such argument."""
        function = module.main
        names = argument_names(function)
        named = chosen_arguments(self.arguments, names)
        chosen_arguments(self.keep, names)
        if self.when == "never" or not (self.when == "always" or named or _can_part(module)):
            return
        if any(PIECE in entry for entry in argument_attributes(function)):
            raise PassError("unroll-scans: the arguments of @main are in pieces already")
        done: set[int] = set()
        changed = False
        while (chosen := choose_around(function, self._rule(function))) is not None:
            rewrite(function, chosen, 1)
        while (chosen := choose(function, self._rule(function), done)) is not None:
            rewrite(function, chosen, self._rows(chosen.length), inline=self.inline)
            changed = True
        if changed:
            _number_leaves(function)

    def _rows(self, length: int) -> int:
        """The iterations that make one piece of a scan of ``length``."""
        even = self.pieces > 0 and length % self.pieces == 0
        return length // self.pieces if even else self.iterations

    def _rule(self, function: Operation) -> Rule:
        """The options for the arguments that ``function`` has by now."""
        names = argument_names(function)
        return Rule(
            always=self.when == "always",
            longest=self.longest,
            share=self.share,
            around=self.around,
            arguments=frozenset(chosen_arguments(self.arguments, names)),
            keep=frozenset(chosen_arguments(self.keep, names)),
        )


def _can_part(module: Module) -> bool:
    topology = module.attributes.get("baechi.topology")
    return not isinstance(topology, Topology) or topology.size > 1


def _number_leaves(function: Operation) -> None:
    """Say of each piece which of the original arguments, or results, it is of."""
    arguments, results = argument_attributes(function), result_attributes(function)
    for entries in (arguments, results):
        leaf = -1
        for entry in entries:
            piece = piece_of(entry)
            if piece is None or piece.start == 0:
                leaf += 1
            if piece is not None:
                entry[PIECE] = Piece(leaf, piece.start, piece.size, piece.length).attribute()
    set_argument_attributes(function, arguments)
    set_result_attributes(function, results)
