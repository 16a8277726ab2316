"""A forward pass on a CPU as a tape: what it called, in C++ and in torch, to be done again without Python's code.

What CUDA graphs are to a GPU. A tape reads and writes the same addresses each time, so what varies must lie where it
lay; tensors that are made while it is recorded come from an `Arena`, which all tapes share, since no two run at once.
What torch does besides calls of C++ is noted by its dispatcher: views and new memory need not be done again, and what
depends on values ("dynamic" shapes, random numbers) or is no operation of torch's own makes a forward pass one that has
no tape. What goes past both is not noticed, as what ranks send each other: who computes so must not record it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock, get_ident
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from minisgl.kernel.cpu_library import Function, functions

_LEAST_BYTES = 4096
_CALLS_AT_ONCE = 6  # a decoder layer's: the interpreter stays locked so long, and other threads wait
_VALUES_DECIDE = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.nondeterministic_seeded}
_UNTAGGED = {torch.ops.aten.where.default, torch.ops.aten.nonzero_numpy.default}  # though values decide there too
_NAMESPACES = {"aten", "mkldnn"}
_NEW_MEMORY = {
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
}


class Arena:
    """Memory for the tensors of one tape after the other. A tensor's place is free again when nothing refers to it."""

    def __init__(self) -> None:
        self._slabs: list[npt.NDArray[np.uint8]] = []
        self._users: list[weakref.ref[npt.NDArray[np.uint8]] | None] = []

    def begin(self) -> None:
        """Nothing of what was given out so far is needed while the next tape runs."""
        self._users = [None] * len(self._slabs)

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """A dense tensor of that shape and dtype, its elements in the same order in memory, their values undefined."""
        index = self._find(max(tensor.nbytes, 1))
        array = self._slabs[index][: tensor.nbytes]  # torch holds this very object as long as any tensor lies in it
        self._users[index] = weakref.ref(array)
        flat = torch.from_numpy(array).view(tensor.dtype)
        return flat.as_strided(tensor.shape, tensor.stride()) if _is_dense(tensor) else flat.view(tensor.shape)

    def alias(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that can be kept: one of this arena as a second one in its memory, which does not hold its place."""
        slab = self.slab_of(tensor)
        if slab is None:
            return tensor
        whole = torch.from_numpy(slab).view(tensor.dtype)
        return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def slab_of(self, tensor: torch.Tensor) -> npt.NDArray[np.uint8] | None:
        """The memory of this arena in which a tensor lies; None if it lies elsewhere."""
        if tensor.layout is not torch.strided:  # oneDNN's own
            return None
        address = tensor.untyped_storage().data_ptr()
        return next((slab for slab in self._slabs if slab.ctypes.data == address), None)

    def _find(self, num_bytes: int) -> int:
        """The smallest slab that is free and large enough, made if there is none."""
        free = [i for i, user in enumerate(self._users) if user is None or user() is None]
        fitting = [i for i in free if len(self._slabs[i]) >= num_bytes]
        if fitting:
            return min(fitting, key=lambda i: len(self._slabs[i]))
        size = max(_LEAST_BYTES, 1 << (num_bytes - 1).bit_length())
        self._slabs.append(torch.empty(size, dtype=torch.uint8).numpy())  # torch aligns it for the widest vectors
        self._users.append(None)
        return len(self._slabs) - 1


class Tape:
    """What `record` has noted. refused: why it cannot be played, or None. result: of the function that was recorded."""

    def __init__(self, arena: Arena) -> None:
        self.refused: str | None = None
        self.result: Any = None
        self._arena = arena
        self._steps: list[Callable[[], None]] = []
        self._calls: list[tuple[int, list[int]]] = []  # of C++ since the last step
        self._kept: list[torch.Tensor] = []  # that lie in nobody's memory but their own

    def play(self) -> Any:
        """Do it all again; what `result` is made of is written anew. MemoryError if a kernel has no room to work."""
        for step in self._steps:
            step()
        return self.result

    def refuse(self, reason: str) -> None:
        self.refused = self.refused or reason

    def add_call(self, function: Function, args: tuple[Any, ...]) -> None:
        """Of a C function that was called just now."""
        if function.again is None:
            self.refuse(f"{function.name} is not part of a forward pass")
        else:
            self._calls.append((function.again, function.words(args)))

    def add_operation(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do it, and note it unless doing it once is enough; its result, in the arena if it is in memory of its own."""
        out = function(*args, **kwargs)
        if function in _NEW_MEMORY:
            return self._arena.like(out)
        made, addresses = _addresses(out), _addresses((args, kwargs))
        if not made or function in _UNTAGGED or _VALUES_DECIDE & set(function.tags):
            self.refuse(f"{function} depends on values")
        if function.namespace not in _NAMESPACES:
            self.refuse(f"{function} is not torch's own")
        if made <= addresses and not function._schema.is_mutable:
            self._keep_foreign(out)  # a view
            return out
        again = partial(function, *self._keep(args), **self._keep(kwargs))
        if made <= addresses:
            self._add_step(again)  # in place
            return out
        out = tree_map_only(torch.Tensor, self._move, out)
        kept = self._keep(out)
        self._add_step(partial(_compute_into, [kept] if isinstance(kept, torch.Tensor) else kept, again))
        return out

    def finish(self, result: Any) -> None:
        """result: what `play` gives. Nothing can be added any more."""
        self.result = self._keep(result)
        self._end_calls()

    def _add_step(self, step: Callable[[], Any]) -> None:
        self._end_calls()
        self._steps.append(step)

    def _end_calls(self) -> None:
        for begin in range(0, len(self._calls), _CALLS_AT_ONCE):
            self._steps.append(_CallsInARow(self._calls[begin : begin + _CALLS_AT_ONCE]))
        self._calls = []

    def _move(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._arena.like(tensor).copy_(tensor)

    def _keep(self, values: Any) -> Any:
        return tree_map_only(torch.Tensor, self._arena.alias, values)

    def _keep_foreign(self, views: Any) -> None:
        """The arena's memory stays by itself; a tape has a hundred views of it."""
        leaves = [leaf for leaf in tree_leaves(views) if isinstance(leaf, torch.Tensor)]
        self._kept += [view for view in leaves if self._arena.slab_of(view) is None]


class _CallsInARow:
    """Calls of C++ with nothing between them, made by one. A table of what to call with which words, then the words."""

    __slots__ = ("_address", "_call", "_length", "_table")

    def __init__(self, calls: list[tuple[int, list[int]]]) -> None:
        words = [word for _, args in calls for word in args]
        self._table = np.empty(2 * len(calls) + len(words), np.int64)
        self._table[2 * len(calls) :] = words
        self._address, self._length = self._table.ctypes.data, len(calls)
        begin = self._address + 16 * len(calls)
        for i, (again, args) in enumerate(calls):
            self._table[2 * i : 2 * i + 2] = again, begin
            begin += 8 * len(args)
        self._call = functions()["call_recorded", torch.uint8]

    def __call__(self) -> None:
        done = self._call(self._address, self._length)
        if done < self._length:
            raise MemoryError(f"no memory for call {done} of the {self._length} that a tape makes")


class _Dispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hands everything that torch does on this thread to a tape."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nobody compiles this; to tell torch's compiler so would import it: seconds, and 120 MB."""
        return False

    def __init__(self, tape: Tape) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tape = tape

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._tape.add_operation(func, args, kwargs or {})


def record(compute: Callable[[], Any], arena: Arena) -> Tape:
    """Run `compute` and note what it does. Tensors of its result may be overwritten by the next tape of the arena."""
    arena.begin()
    tape = Tape(arena)
    with _listening(tape), _Dispatch(tape):
        result = compute()
    tape.finish(result)
    return tape


_one_at_a_time = Lock()


@contextmanager
def _listening(tape: Tape) -> Iterator[None]:
    """While the tape is told of this thread's calls of C++."""
    me = get_ident()

    def note(function: Function, args: tuple[Any, ...]) -> None:
        if get_ident() == me:
            tape.add_call(function, args)

    with _one_at_a_time:
        Function.listener = note
        try:
            yield
        finally:
            Function.listener = None


def _compute_into(outs: Sequence[torch.Tensor], compute: Callable[[], torch.Tensor | Sequence[torch.Tensor]]) -> None:
    made = compute()
    for out, new in zip(outs, (made,) if isinstance(made, torch.Tensor) else made, strict=True):
        out.copy_(new)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements lie side by side, in whatever order."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.numel() == 1 + sum((size - 1) * stride for size, stride in steps)


def _addresses(values: Any) -> set[int]:
    """Of the memory in which the tensors among them lie."""
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    return {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.layout is torch.strided}
