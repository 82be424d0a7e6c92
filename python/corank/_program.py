"""Runs the program corank, and turns what it reports into results, warnings and exceptions."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Mapping, Optional, Union

from ._schema import schema_of

PathLike = Union[str, os.PathLike]
Progress = Callable[[int, int], None]

# Options whose values the program takes with commas between them.
_LISTS = frozenset(("by", "select", "device"))


class CorankError(RuntimeError):
    """Is raised if the program fails.

    `code` is `options`, `input`, `out_of_order`, `duplicate_key`, `exists`, `memory`, `system`, `device`, `corrupted` or
    `interrupted`, `exit_code` the program's exit code, and `options` names the options that the message is about.
    """

    def __init__(self, message: str, code: str = "system", exit_code: int = 2, options: Iterable[str] = ()):
        super().__init__(message)
        self.code = code
        self.exit_code = exit_code
        self.options = tuple(options)


class OutOfOrderError(CorankError):
    """Is raised if a file is out of order: at the record of `file`, from 0, which begins at the byte."""

    def __init__(self, message: str, *, file: str, record: int, byte: int, **others):
        super().__init__(message, **others)
        self.file = file
        self.record = record
        self.byte = byte


class CorankWarning(UserWarning):
    """Is the category of the program's warnings."""


@dataclass(frozen=True)
class Result:
    """Describes an output, or files that were checked."""
    records: int
    checksum: Optional[str] = None  # hexadecimal, independent of the order; of outputs, only if checksum=True
    stats: Mapping[str, Any] = field(default_factory=dict, repr=False)  # of outputs, all that --stats prints


def words(options: Mapping[str, Any]) -> list[str]:
    """Returns keyword arguments as options of the program."""
    found = []
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if name == "record" and not isinstance(value, str):
            value = schema_of(value)
        is_list = isinstance(value, (list, tuple))
        if is_list and name in _LISTS:
            value, is_list = ",".join(map(str, value)), False
        for one in value if is_list else [value]:
            if one is True:
                found.append(flag)
            elif one is not None and one is not False:
                found.append(f"{flag}={os.fspath(one) if isinstance(one, os.PathLike) else one}")
    return found


def names(files: Union[PathLike, Iterable[PathLike]]) -> list[str]:
    """Returns the names of files, none of which the program takes for standard input."""
    if isinstance(files, (str, bytes, os.PathLike)):
        files = [files]
    found = [os.fsdecode(file) for file in files]
    if not found:
        raise ValueError("there are no files; name one or more")
    return ["./-" if name == "-" else name for name in found]


def _depth_of_caller() -> int:
    """Returns the stack level, as warnings.warn() counts for the function that calls this, of what called the package."""
    frame = sys._getframe(1)
    depth = 1
    while frame.f_back and os.path.dirname(frame.f_code.co_filename) == os.path.dirname(__file__):
        frame = frame.f_back
        depth += 1
    return depth


class Messages:
    """Takes the lines that the program prints to standard error."""

    def __init__(self, on_progress: Optional[Progress] = None):
        self._on_progress = on_progress
        self._error: Optional[dict] = None
        self._others: list[str] = []

    def take(self, line: str) -> None:
        """Reports progress, warns, or keeps an error."""
        try:
            message = json.loads(line)
            level = message.pop("level")
        except (ValueError, AttributeError, KeyError, TypeError):  # of the dynamic linker, for example
            self._others.append(line)
            return
        if level == "error":
            self._error = message
        elif level == "warning":
            warnings.warn(message["message"], CorankWarning, stacklevel=_depth_of_caller())
        elif self._on_progress:
            self._on_progress(message["bytes_done"], message["bytes_total"])

    def check(self, exit_code: int) -> None:
        """Raises the error of a program that failed."""
        if exit_code == 0:
            return
        if self._error is None:
            text = "".join(self._others).strip()
            raise CorankError(text or f"the program ended with exit code {exit_code}", exit_code=exit_code)
        fields = {name: self._error[name] for name in ("code", "exit_code", "options") if name in self._error}
        if "record" not in self._error:
            raise CorankError(self._error["message"], **fields)
        raise OutOfOrderError(self._error["message"], file=self._error["file"], record=self._error["record"],
                              byte=self._error["byte"], **fields)


def start(program: str, arguments: Iterable[str], **streams) -> subprocess.Popen:
    """Starts the program, whose messages are JSON."""
    try:
        return subprocess.Popen([program, "--log-json", *arguments], **streams)
    except FileNotFoundError:
        raise FileNotFoundError(f"{program}: no such program; install corank, or name it by program=") from None


def _listed(files: Iterable[str]):
    """Returns a file with the names of files, as --files0-from takes them."""
    listed = tempfile.TemporaryFile()
    listed.write(b"\0".join(map(os.fsencode, files)))
    listed.seek(0)
    return listed


def run(program: str, arguments: Iterable[str], *, files: Iterable[str] = (), printed: int = subprocess.DEVNULL,
        on_progress: Optional[Progress] = None, pass_fds: Iterable[int] = ()) -> None:
    """Runs the program, with the names of files as its standard input, and the descriptor `printed` as its output."""
    messages = Messages(on_progress)
    with _listed(files) as listed:
        process = start(program, arguments, stdin=listed, stdout=printed, stderr=subprocess.PIPE, encoding="utf-8",
                        errors="backslashreplace", pass_fds=tuple(pass_fds))
    with process:
        try:
            for line in process.stderr:
                messages.take(line)
        except BaseException:  # an interrupt, for example
            process.terminate()
            raise
    messages.check(process.returncode)


def text_of(program: str, arguments: Iterable[str], **others) -> str:
    """Runs the program as run() does, and returns what it prints."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogateescape") as printed:
        run(program, arguments, printed=printed.fileno(), **others)
        printed.seek(0)
        return printed.read()


class Output(io.RawIOBase):
    """Reads what a program writes to standard output. At its end, raises CorankError if the program failed."""

    def __init__(self, process: subprocess.Popen, messages):
        super().__init__()
        self._process = process
        self._messages = messages  # a file that holds its standard error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        count = self._process.stdout.readinto(buffer)
        if count == 0:
            self._check()
        return count

    def close(self) -> None:
        """Ends the program, if it still runs."""
        if not self.closed:
            self._process.stdout.close()
            self._process.terminate()
            self._process.wait()
            self._messages.close()
        super().close()

    def _check(self) -> None:
        exit_code = self._process.wait()
        messages = Messages()
        self._messages.seek(0)
        for line in self._messages:
            messages.take(line.decode(errors="backslashreplace"))
        messages.check(exit_code)


def stream(program: str, arguments: Iterable[str], *, files: Iterable[str] = ()) -> io.BufferedReader:
    """Starts the program as run() does, and returns its standard output."""
    messages = tempfile.TemporaryFile()
    with _listed(files) as listed:
        process = start(program, arguments, stdin=listed, stdout=subprocess.PIPE, stderr=messages, bufsize=0)
    return io.BufferedReader(Output(process, messages), 1 << 20)
