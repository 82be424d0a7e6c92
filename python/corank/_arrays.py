"""Sorts and merges NumPy arrays by the program corank, which reads and writes them in memory."""

from __future__ import annotations

import mmap
import os
from typing import Iterable, Optional, Sequence, Union

from . import _program
from ._program import OutOfOrderError

# Options of the program that leave the records what they are.
_OPTIONS = frozenset(("backend", "compress_spill", "device", "from_", "having", "io", "limit", "memory", "no_verify", "on_equal",
                      "overflow", "strict_backend", "temp", "threads", "to", "tombstone", "where"))


def _memory_of(array) -> int:
    """Returns the descriptor of a file in memory that holds the records of an array."""
    import numpy
    descriptor = os.memfd_create("corank")
    with os.fdopen(os.dup(descriptor), "wb", buffering=0) as file:
        rest = memoryview(numpy.ascontiguousarray(array).view(numpy.uint8)) if array.size else memoryview(b"")
        while rest:
            rest = rest[file.write(rest):]
    return descriptor


def _apply(command: str, arrays: Sequence, by, program: str, options):
    import numpy
    if any(isinstance(array, numpy.ma.MaskedArray) for array in arrays):
        raise TypeError("a masked array: the program knows no masks; fill or compress it first")
    arrays = [numpy.asarray(array) for array in arrays]
    if not arrays:
        raise ValueError("there are no arrays; give one or more")
    dtype = arrays[0].dtype
    for array in arrays:
        if array.ndim != 1 or array.dtype != dtype:
            raise TypeError(f"an array of {array.ndim} dimensions and type {array.dtype}: arrays need one dimension and the same "
                            f"type, {dtype}")
    if options.keys() - _OPTIONS:
        raise TypeError(f"{min(options.keys() - _OPTIONS)}: no option of arrays, which are {', '.join(sorted(_OPTIONS))}")
    words = _program.words({"record": dtype, "by": by, **options})
    inputs: list[int] = []
    sorted_records = os.memfd_create("corank")
    try:
        inputs += map(_memory_of, arrays)
        files = [f"/dev/fd/{descriptor}" for descriptor in inputs]
        _program.run(program, [command, *words, "--output=-", "--", *files], printed=sorted_records, pass_fds=inputs)
        if os.fstat(sorted_records).st_size == 0:
            return numpy.empty(0, dtype)
        return numpy.frombuffer(mmap.mmap(sorted_records, 0), dtype)
    except OutOfOrderError as error:
        index = files.index(error.file)
        raise OutOfOrderError(str(error).replace(error.file, f"array {index}", 1), file=f"array {index}", record=error.record,
                              byte=error.byte, code=error.code, exit_code=error.exit_code, options=error.options) from None
    finally:
        for descriptor in (*inputs, sorted_records):
            os.close(descriptor)


def sort_array(array, *, by: Optional[Union[str, Sequence[str]]] = None, program: str = "corank", **options):
    """Returns the elements of a NumPy array in a new one, sorted stably, `by` fields of records or by the first one.

    The array has one dimension, and elements that are numbers, or records of numbers and bytes. NaN is greater than all
    numbers, and NaT less than all times. Options are those of the program that leave the records what they are, such as
    limit=N and on_equal="first". The copy that the program reads and the result take as much memory as the array each.
    """
    return _apply("sort", [array], by, program, options)


def merge_arrays(arrays: Iterable, *, by: Optional[Union[str, Sequence[str]]] = None, program: str = "corank", **options):
    """Returns the elements of sorted NumPy arrays of the same type in a new one, merged. See sort_array()."""
    return _apply("merge", list(arrays), by, program, options)
