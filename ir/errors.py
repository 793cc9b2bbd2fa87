"""The error hierarchy that every layer shares.

An error names the op or argument, its source line, what was expected, what was found, and what to
do next. ``assert`` is for our own bugs.
"""


class BaechiError(Exception):
    """Base of every error that this package raises on purpose."""


class IRError(BaechiError):
    """The IR is malformed, or an operation was built or changed in a way it does not allow."""


class ParseError(IRError):
    """Text is not valid IR; the message gives line, column, the line itself and a caret."""


class VerificationError(IRError):
    """An operation breaks a rule of the IR or of its own definition."""


class TopologyError(BaechiError):
    """A topology is malformed or does not match the devices that are there."""


class PassError(BaechiError):
    """A pass failed; the message names the pass and the op."""


class PipelineError(BaechiError):
    """The text of a pipeline is wrong: its syntax, a pass's name, or an option."""
