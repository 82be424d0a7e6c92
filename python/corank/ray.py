"""Merges and sorts files by tasks on a Ray cluster, each of which runs the program corank.

    import corank.ray
    corank.ray.merge(["a.bin", "b.bin"], "all.bin", record="key:u64,value:u64", partitions=64, num_cpus=8)
    corank.ray.sort(["x.txt", "y.txt"], "sorted.txt", lines=True, num_cpus=8, memory=8 << 30)

The calling machine and all nodes need the program, and must see the files and the folder of the output under the same
paths, on a shared file system. The nodes need no Python package but Ray. Partitions are cut by rank and exchange nothing,
and the parts are proven to be the whole; docs/cluster.md tells more.

Options of `corank merge` and `corank sort` are keyword arguments, as of the functions of corank. An output whose name ends in
.gz, .zst, .bz2, .xz or .lz4 is compressed so. The arguments that both functions share:

    num_cpus      cores that Ray reserves for a task, and its threads
    num_gpus      GPUs that Ray reserves for a task; without any, the CPU merges
    memory        bytes that Ray reserves for a task, which are also its budget for buffers (--memory)
    max_retries   how often a task is tried again, after an error or the loss of its worker or node
    resume        whether the next attempt at a task goes on with what a stopped one wrote; needs file locks that hold for
                  all nodes; tasks that `corank merge --resume` or `corank sort --resume` refuse start again
    as_parts      whether the output is a folder with a file part-N for each partition, and not one file
    force         whether an output, or parts, that exist are replaced
    on_progress   function that is called with a phase, "sort" or "merge", and its numbers of finished and of all tasks
    program       name or path of the program on all machines

While a call runs, the folder .OUTPUT.corank-ray beside the output holds the plan and unfinished parts. A failed call leaves
it, and the same call of merge() then repeats only the parts that are missing. Only one call at a time may write an output.

Raise CorankError if the program fails, FileExistsError if the output exists, ValueError for arguments that make no sense,
and Ray's own errors if a task is lost more often than it may be retried.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
from dataclasses import dataclass
from typing import Callable, Iterable, Optional

import ray

from ._program import CorankError, PathLike, Result
from ._program import words as words_of

Progress = Callable[[str, int, int], None]

# Options that sort() leaves to the merge of the sorted runs.
_OPTIONS_OF_MERGE = frozenset(("compress", "drop_header", "having", "limit", "on_equal", "overflow", "parts_by_key",
                               "select", "tombstone", "where"))
# Options of all tasks that no plan holds, and of the tasks that sort.
_OPTIONS_OF_TASKS = frozenset(("io", "no_verify", "temp"))
_OPTIONS_OF_SORT_TASKS = frozenset(("compress_spill",))

_CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz", ".lz4": "lz4"}


@dataclass(frozen=True)
class _Tasks:
    """Runs commands as tasks with the same resources."""
    num_cpus: float
    num_gpus: float
    memory: int
    max_retries: int
    on_progress: Optional[Progress]

    def run(self, phase, commands):
        """Returns what the commands print, in their order."""

        # Ray sends a local function as it is, so that the nodes need not have this module.
        def call(words):
            import ctypes
            import signal
            import subprocess

            # A worker that is killed must not leave a program that still writes the part of the next attempt.
            def end_with_worker():
                pr_set_pdeathsig = 1
                ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)

            result = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    encoding="utf-8", errors="backslashreplace", preexec_fn=end_with_worker)
            if result.returncode != 0:
                raise subprocess.CalledProcessError(result.returncode, words, result.stdout, result.stderr)
            return result.stdout

        task = ray.remote(num_cpus=self.num_cpus, num_gpus=self.num_gpus, memory=self.memory,
                          max_retries=self.max_retries, retry_exceptions=True)(call)
        tasks = [task.remote(words) for words in commands]
        pending = tasks
        try:
            while pending:
                done, pending = ray.wait(pending)
                ray.get(done)
                if self.on_progress:
                    self.on_progress(phase, len(tasks) - len(pending), len(tasks))
            return ray.get(tasks)
        except subprocess.CalledProcessError as error:
            raise CorankError(error.stderr.strip() or str(error)) from None
        finally:
            for lost in pending:
                ray.cancel(lost, force=True)

    def options(self):
        return [f"--threads={max(1, int(self.num_cpus))}", f"--memory={self.memory}",
                f"--backend={'cuda' if self.num_gpus else 'cpu'}", "--quiet"]


def _call(*words):
    result = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            encoding="utf-8", errors="backslashreplace")
    if result.returncode != 0:
        raise CorankError(result.stderr.strip())


def _digest(plan):
    return json.loads(plan.read_text())["digest"] if plan.exists() else None


def _paths(files):
    paths = [str(pathlib.Path(file).absolute()) for file in files]
    if not paths:
        raise ValueError("there are no files; name one or more")
    return paths


@contextlib.contextmanager
def _folder_for(output, may_exist):
    """Makes the folder of unfinished files, and removes it if it is empty at the end."""
    if output.exists() and not may_exist:
        raise FileExistsError(f"{output}: exists already; use force=True to replace it")
    folder = output.with_name(f".{output.name}.corank-ray")
    folder.mkdir(exist_ok=True)
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _resume(resume, *words):
    """Returns the option of tasks that can be resumed. `words` is the program's command for all of them together."""
    if not resume:
        return []
    try:
        _call(*words, "--resume", "--explain", "--force")
    except CorankError:  # if it is for another reason, the tasks will tell
        return []
    return ["--resume"]


def _remove_other_parts(folder, digest, runs):
    """Removes the parts of other plans, and their records, but no runs."""
    for record in folder.glob("part-*.json"):
        with contextlib.suppress(ValueError):
            other = json.loads(record.read_text())
            if not isinstance(other, dict) or not {"plan", "partition", "checksum"} <= other.keys() or other["plan"] == digest:
                continue
            for file in folder.glob(record.stem + "*"):
                if str(file) not in runs:
                    file.unlink()


def _merge(tasks, runs, output, folder, command, partitions, resume, as_parts, force, program, options):
    plan, parts = folder / "plan.json", folder / "plan.parts"
    count = partitions or max(1, int(ray.cluster_resources().get("CPU", 1) // max(tasks.num_cpus, 1)))
    if not as_parts and output.suffix in _CODECS:
        options = {"compress": _CODECS[output.suffix], **options}
    planned = {name: value for name, value in options.items() if name not in _OPTIONS_OF_TASKS}
    whole = {name: value for name, value in planned.items() if name != "parts_by_key"}
    old = _digest(plan)
    _call(program, "plan", command, *words_of(planned), f"--partitions={count}", "--force", "-o", str(plan), *runs)
    if old != _digest(plan):
        shutil.rmtree(parts, ignore_errors=True)
    words = [program, "merge", "--plan", str(plan), *tasks.options(),
             *words_of({name: value for name, value in options.items() if name not in planned}),
             *_resume(resume, program, command, *words_of(whole), "-o", str(folder / "trial"), *runs)]
    finish = [program, "finish", str(plan), tasks.options()[0]]
    if as_parts:
        words += ["--output-folder", str(output), *(["--force"] if force else [])]
        finish += ["--output-folder", str(output)]
        if force:
            _remove_other_parts(output, _digest(plan), runs)
    else:
        finish += ["--concatenate", str(output), "--force"]
    tasks.run("merge", [[*words, "--partition", str(i)] for i in range(count)])
    [printed] = _Tasks(tasks.num_cpus, 0, tasks.memory, tasks.max_retries, None).run("finish", [finish])
    records, checksum = printed.splitlines()[-1].split()[:2]
    shutil.rmtree(folder)
    return Result(int(records), checksum)


def merge(runs: Iterable[PathLike], output: PathLike, *, partitions: Optional[int] = None, command: str = "merge",
          num_cpus: float = 1, num_gpus: float = 0, memory: int = 2 << 30, max_retries: int = 3, resume: bool = True,
          as_parts: bool = False, force: bool = False, on_progress: Optional[Progress] = None, program: str = "corank", **options) -> Result:
    """Merges sorted runs into one file, in one task a partition.

    `partitions` is by default the number of tasks that the cluster can run at once. `command` may also be a set operation:
    union, intersect or subtract. The runs must be plain files.
    """
    output, paths = pathlib.Path(output).absolute(), _paths(runs)
    tasks = _Tasks(num_cpus, num_gpus, memory, max_retries, on_progress)
    with _folder_for(output, force or as_parts) as folder:
        return _merge(tasks, paths, output, folder, command, partitions, resume, as_parts, force, program, options)


def sort(files: Iterable[PathLike], output: PathLike, *, files_per_task: int = 1, partitions: Optional[int] = None,
         num_cpus: float = 1, num_gpus: float = 0, memory: int = 2 << 30, max_retries: int = 3, resume: bool = True,
         as_parts: bool = False, force: bool = False, on_progress: Optional[Progress] = None, program: str = "corank", **options) -> Result:
    """Sorts files into one, stably: first `files_per_task` files a task into sorted runs, then merges these as merge() does.

    The sorted runs are in the folder .OUTPUT.corank-ray until the end, so its file system must hold the files twice. The
    option `temp` names a folder for the temporary files of the first step, which may be a disk of the node. The files may be
    compressed.
    """
    if options.get("header") == "first":
        raise ValueError("the files are sorted apart, so each needs the header; give it to all, and use header=True")
    if files_per_task < 1:
        raise ValueError(f"files_per_task is {files_per_task}; use 1 or more")
    output, paths = pathlib.Path(output).absolute(), _paths(files)
    groups = [paths[i:i + files_per_task] for i in range(0, len(paths), files_per_task)]
    tasks = _Tasks(num_cpus, num_gpus, memory, max_retries, on_progress)
    options_of_sort = {name: value for name, value in options.items() if name not in _OPTIONS_OF_MERGE}
    options_of_merge = {name: value for name, value in options.items() if name not in _OPTIONS_OF_SORT_TASKS}
    with _folder_for(output, force or as_parts) as folder:
        runs = [str(folder / f"run-{i:05}") for i in range(len(groups))]
        words = [program, "sort", *words_of(options_of_sort)]
        resumed = _resume(resume, *words, "-o", str(folder / "trial"), *paths)
        tasks.run("sort", [[*words, *tasks.options(), "--force", *resumed, "-o", run, *group]
                           for run, group in zip(runs, groups)])
        return _merge(tasks, runs, output, folder, "merge", partitions, resume, as_parts, force, program,
                      {**options_of_merge, "compressed": "none"})
