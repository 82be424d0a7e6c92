"""Merges, sorts and checks files by the program corank; see the package."""

from __future__ import annotations

import io
import json
from typing import Iterable, Optional, Union

from . import _program
from ._program import PathLike, Progress, Result

Files = Union[PathLike, Iterable[PathLike]]

# Options with which a command writes no records, or that the functions give themselves.
_OTHERS = {"check": "call check()", "explain": "call explain()", "stats": "the result has them"}


def _write(command: str, files: Files, output: PathLike, program: str, on_progress: Optional[Progress], options) -> Result:
    for option, advice in _OTHERS.items():
        if option in options:
            raise TypeError(f"{option}: no option of a function that writes; {advice}")
    [name] = _program.names(output)
    arguments = [command, *_program.words(options), "--files0-from=-", "--stats=-", f"--output={name}"]
    if on_progress:
        arguments.append("--progress")
    stats = json.loads(_program.text_of(program, arguments, files=_program.names(files), on_progress=on_progress))
    return Result(stats["records_written"], stats.get("checksum"), stats)


def merge(runs: Files, output: PathLike, *, program: str = "corank", on_progress: Optional[Progress] = None,
          **options) -> Result:
    """Merges sorted files into one, or into the folder `output` with parts=N."""
    return _write("merge", runs, output, program, on_progress, options)


def sort(files: Files, output: PathLike, *, program: str = "corank", on_progress: Optional[Progress] = None,
         **options) -> Result:
    """Sorts files of any size into one, stably, or into the folder `output` with parts=N."""
    return _write("sort", files, output, program, on_progress, options)


def union(runs: Files, output: PathLike, *, program: str = "corank", on_progress: Optional[Progress] = None,
          **options) -> Result:
    """Writes the records that any of the sorted files has."""
    return _write("union", runs, output, program, on_progress, options)


def intersect(runs: Files, output: PathLike, *, program: str = "corank", on_progress: Optional[Progress] = None,
              **options) -> Result:
    """Writes the records that all of the sorted files have."""
    return _write("intersect", runs, output, program, on_progress, options)


def subtract(runs: Files, output: PathLike, *, program: str = "corank", on_progress: Optional[Progress] = None,
             **options) -> Result:
    """Writes the records of the first sorted file that no other has."""
    return _write("subtract", runs, output, program, on_progress, options)


def check(files: Files, *, program: str = "corank", **options) -> Result:
    """Checks that each file is in order, and raises OutOfOrderError if one is not. The checksum is that of all together."""
    arguments = ["check", *_program.words({**options, "checksum": True}), "--", *_program.names(files)]
    records, checksum = _program.text_of(program, arguments).splitlines()[-1].split(" ", 2)[:2]
    return Result(int(records), checksum)


def stream(command: str, files: Files, *, program: str = "corank", **options) -> io.BufferedReader:
    """Starts a merge, sort or set operation, and returns its output as a binary file, which is read as it is written.

    The file raises CorankError where it would end, if the program fails. Reading less and closing it ends the program.
    """
    arguments = [command, *_program.words(options), "--files0-from=-", "--output=-"]
    return _program.stream(program, arguments, files=_program.names(files))


def explain(command: str, files: Files, output: PathLike, *, program: str = "corank", **options) -> str:
    """Returns what a merge, sort or set operation would do: passes, memory, disk, backend."""
    [name] = _program.names(output)
    arguments = [command, *_program.words(options), "--files0-from=-", f"--output={name}", "--explain"]
    return _program.text_of(program, arguments, files=_program.names(files))
