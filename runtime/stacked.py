"""Arrays whose layers lie on several devices in pieces of any size: ``StackedArray``.

A stacked leaf (the parameters of all layers, along dimension 0) whose layers a plan puts on several
devices is an ordinary ``jax.Array`` over a mesh where each device holds equally many layers, in one
run. ``jax.Array`` has no form for the rest: runs of unequal length, several runs on one device. It
is a ``StackedArray`` then.

Assumptions: dimension 0 is the one that is cut; all devices belong to this process.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from baechi_jax.runtime.layers import Run, StackedSharding, is_weak, whole_aval

_IS_DELETED = operator.methodcaller("is_deleted")


class StackedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """A stack of layers in pieces: layers ``runs[i].start`` to ``runs[i].stop`` are ``pieces[i]``.

    A placed step takes and gives it as a leaf; trees see a leaf too, so ``jax.tree`` functions work
    as with arrays, and the structure of the state is that of ``jax.jit``. It has the shape, dtype
    and weak type of the whole. Elementwise operators and NumPy's elementwise functions work on
    each piece where it lies, also between two stacks. ``x[3]`` is layer 3, on its device.
    ``np.asarray(x)`` and ``baechi.gather`` make it whole, on the host.

    ``jax.jit`` and ``jax.numpy`` refuse it, as they refuse arrays on different devices: place the
    function (``baechi.place(fn, like=step)``), or gather first.
    """

    __slots__ = ("_sharding", "aval", "pieces")

    #: Operators of arrays come here, not to each of NumPy's scalars.
    __array_priority__ = 200
    __hash__ = None  # type: ignore[assignment]  # as other arrays

    def __init__(self, aval: Any, sharding: StackedSharding, pieces: Sequence[jax.Array]) -> None:
        #: Type of the whole, a ``jax.core.ShapedArray``.
        self.aval = aval
        self._sharding = sharding
        #: One array for each run, in order, on the run's device.
        self.pieces = tuple(pieces)

    @classmethod
    def of(cls, pieces: Sequence[jax.Array]) -> StackedArray:
        """The stack of ``pieces`` (each on one device), in this order; nothing is copied.

        Raises ValueError for pieces that do not fit together.
        """
        if not pieces:
            raise ValueError("a stacked array needs at least one piece")
        first = pieces[0]
        runs: list[Run] = []
        layer = 0
        for index, piece in enumerate(pieces):
            if piece.ndim == 0 or len(piece) == 0:
                raise ValueError(f"piece {index} has no layers: its shape is {piece.shape}")
            wrong = (piece.shape[1:], piece.dtype) != (first.shape[1:], first.dtype)
            if wrong or len(piece.devices()) != 1:
                raise ValueError(
                    f"pieces must lie on one device each and agree in dtype and in all dimensions "
                    f"but the first; piece 0 is {first.dtype}{list(first.shape)}, piece {index} "
                    f"{piece.dtype}{list(piece.shape)} on {len(piece.devices())} devices"
                )
            (device,) = piece.devices()
            runs.append(Run(layer, layer + len(piece), device))
            layer += len(piece)
        weak = all(map(is_weak, pieces))
        aval = whole_aval((layer, *first.shape[1:]), first.dtype, weak)
        return cls(aval, StackedSharding(tuple(runs)), pieces)

    # What it is -----------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole."""
        shape: tuple[int, ...] = self.aval.shape
        return shape

    @property
    def dtype(self) -> Any:
        """Of every piece."""
        return self.aval.dtype

    @property
    def weak_type(self) -> bool:
        """As of ``jax.Array``."""
        return is_weak(self.aval)

    @property
    def ndim(self) -> int:
        """Dimensions of the whole, the layers' included."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements of the whole."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all pieces."""
        return sum(int(piece.nbytes) for piece in self.pieces)

    @property
    def sharding(self) -> StackedSharding:
        """Where the layers lie."""
        return self._sharding

    @property
    def committed(self) -> bool:
        """Always: each piece stays on its device."""
        return True

    @property
    def is_fully_addressable(self) -> bool:
        """Always: stacked arrays are of one process."""
        return True

    def devices(self) -> set[jax.Device]:
        """The devices that hold a part."""
        return self._sharding.device_set

    def __len__(self) -> int:
        return self._sharding.length

    def __repr__(self) -> str:
        deleted = ", deleted" if self.is_deleted() else ""
        return f"StackedArray({self.dtype}{list(self.shape)}, {self._sharding}{deleted})"

    # Layers ---------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> jax.Array:
        """One layer, or a part of one (``x[3, :2]``), on its device."""
        layer, rest = (index[0], index[1:]) if isinstance(index, tuple) and index else (index, ())
        number = _whole_number(layer)
        if number is None:
            raise TypeError(
                f"a stacked array gives one layer at a time (x[3], x[3, :2]), found {index!r}; for "
                "more, make it whole with baechi.gather, or index it in a placed function"
            )
        length = len(self)
        if not -length <= number < length:
            raise IndexError(f"layer {number} of a stack of {length} layers")
        number %= length
        for run, piece in zip(self._sharding.runs, self.pieces):
            if number < run.stop:
                found: jax.Array = piece[(number - run.start, *rest)]
                return found
        raise AssertionError("the runs are the whole")

    def __iter__(self) -> Iterator[jax.Array]:
        for layer in range(len(self)):
            yield self[layer]

    # The whole ------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The whole on the host, filled piece by piece."""
        if copy is False:
            raise ValueError("the pieces of a stacked array become one array by copying them")
        self._check_live()
        if jnp.issubdtype(self.dtype, jax.dtypes.prng_key):
            raise TypeError(
                "random keys cannot become a NumPy array; use baechi.gather(keys, device=...) or "
                "keys[i]"
            )
        whole = np.empty(self.shape, self.dtype if dtype is None else dtype)
        for run, piece in zip(self._sharding.runs, self.pieces):
            whole[run.start : run.stop] = piece
        return whole

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"the truth value of an array of {self.size} elements is ambiguous; use np.all or "
                "np.any of np.asarray(x)"
            )
        return bool(np.asarray(self).reshape(()))

    def copy(self) -> StackedArray:
        """Another one with buffers of its own, on the same devices."""
        self._check_live()
        return StackedArray(self.aval, self._sharding, [jnp.copy(piece) for piece in self.pieces])

    def __copy__(self) -> StackedArray:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> StackedArray:
        return self.copy()

    def astype(self, dtype: Any) -> StackedArray:
        """With another dtype, on the same devices."""
        self._check_live()
        pieces = [piece.astype(dtype) for piece in self.pieces]
        return _like(self._sharding, pieces)

    def __reduce__(self) -> Any:
        # A pickle may be read where other devices are, or none: it holds the whole, for the host.
        return _whole, (np.asarray(self),)

    # Buffers --------------------------------------------------------------------------------------

    def block_until_ready(self) -> StackedArray:
        """Wait until all pieces are computed; itself."""
        jax.block_until_ready(self.pieces)
        return self

    def is_deleted(self) -> bool:
        """Whether a piece was deleted, or given away by donation."""
        return any(map(_IS_DELETED, self.pieces))

    def delete(self) -> None:
        """Free all pieces."""
        for piece in self.pieces:
            piece.delete()

    def _check_live(self) -> None:
        if self.is_deleted():
            raise RuntimeError(
                f"this stacked array of shape {self.shape} was deleted, or donated to a placed "
                "function; use what that returned in its place"
            )

    # Operators ------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Elementwise functions, piece by piece, each where it lies."""
        function = getattr(jnp, ufunc.__name__, None)
        if method != "__call__" or ufunc.signature is not None or ufunc.nout != 1 or not function:
            return NotImplemented
        if options:
            raise TypeError(
                f"{ufunc.__name__} of a stacked array takes no {', '.join(options)}: arrays cannot "
                "be written to (write x = x + y for x += y)"
            )
        self._check_live()
        columns = [_per_run(each, self, ufunc.__name__) for each in inputs]
        pieces = [function(*operands) for operands in zip(*columns, strict=True)]
        return _like(self._sharding, pieces)


def _like(sharding: StackedSharding, pieces: Sequence[jax.Array]) -> StackedArray:
    """A stack of what was computed from the pieces of another one."""
    first = pieces[0]
    aval = whole_aval((sharding.length, *first.shape[1:]), first.dtype, is_weak(first))
    return StackedArray(aval, sharding, pieces)


def _per_run(operand: Any, stack: StackedArray, what: str) -> Sequence[Any]:
    """What ``operand`` of an elementwise function is for each piece of ``stack``."""
    from baechi_jax.runtime.restack import restack

    runs = stack.sharding.runs
    if isinstance(operand, StackedArray) and operand.sharding == stack.sharding:
        fits = operand.ndim == stack.ndim
        operand._check_live()
        if fits:
            return operand.pieces
    elif np.ndim(operand) == 0 and not isinstance(operand, jax.Array):
        return [operand] * len(runs)
    elif np.ndim(operand) == stack.ndim and np.shape(operand)[0] == len(stack):
        return restack(operand, runs).arrays
    elif not isinstance(operand, StackedArray) and (
        np.ndim(operand) < stack.ndim or np.shape(operand)[0] == 1
    ):
        # The same for every layer.
        return [jax.device_put(operand, run.device) for run in runs]
    raise TypeError(
        f"{what} of a stacked array of shape {stack.shape} and one of shape {np.shape(operand)}: "
        "the layers are dimension 0 of both, or the other has fewer dimensions"
    )


def _whole_number(index: Any) -> int | None:
    if isinstance(index, bool):
        return None
    try:
        return operator.index(index)
    except TypeError:
        return None


def _whole(whole: np.ndarray) -> np.ndarray:
    return whole
