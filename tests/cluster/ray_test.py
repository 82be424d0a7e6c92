#!/usr/bin/env python3
"""Merges and sorts by corank.ray on a local Ray with two workers, of which some are killed while they merge or sort.

Usage: ray_test.py CORANK

The results must be those of one merge and of one sort. Ray keeps its files in a temporary folder. Since its daemons listen
on all addresses of a machine, the test runs in a network namespace that has the loopback address alone. Exits with 77
without the package ray or the right to make a namespace.
"""

import gzip
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

from stopping_program import wait_until_stopped, write_stopping_program

SKIPPED = 77


def enter_namespace():
    """Starts this program again in a network namespace, unless it is in one already."""
    if [name for _, name in socket.if_nameindex()] == ["lo"]:
        return
    unshare = ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*unshare, "ip", "link", "set", "lo", "up"], check=False).returncode != 0:
        print("skipped: needs the right to make a network namespace")
        sys.exit(SKIPPED)
    os.execvp(unshare[0], [*unshare, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv])


enter_namespace()
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))
try:
    import ray
except ImportError:
    print("skipped: needs the package ray")
    sys.exit(SKIPPED)
import corank.ray

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
RECORD = "key:u64,value:u64"


def command_of(process):
    return pathlib.Path(f"/proc/{process}/cmdline").read_bytes().decode().split("\0")


def kill_worker_of(words):
    """Kills the worker that called the program with these words."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = re.search(r"^PPid:\s*(\d+)", (process / "status").read_text(), re.M)[1]
            if set(words) <= set(command_of(process.name)) and command_of(parent)[0].startswith("ray::"):
                os.kill(int(parent), signal.SIGKILL)
        except OSError:
            continue


class RayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # runs the clean-ups
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.addClassCleanup(ray.shutdown)
        cls.folder = pathlib.Path(cls.temporary.name)
        token = cls.folder / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        os.environ.update(RAY_AUTH_TOKEN_PATH=str(token), RAY_USAGE_STATS_ENABLED="0")
        ray.init(num_cpus=2, include_dashboard=False, _temp_dir=str(cls.folder / "ray"), object_store_memory=80 << 20,
                 log_to_driver=False)
        cls.run_program("gen", "-r", RECORD, "--records", "4000000", "--runs", "8", "-o", "runs")
        cls.runs = sorted((cls.folder / "runs").iterdir())
        cls.run_program("gen", "--lines", "16", "--records", "600000", "--runs", "4", "-o", "texts")
        cls.texts = sorted((cls.folder / "texts").iterdir())
        for text in cls.texts:
            lines = text.read_bytes().splitlines(keepends=True)
            text.write_bytes(b"".join(lines[1::2] + lines[::2]))

    @classmethod
    def run_program(cls, *words):
        subprocess.run([PROGRAM, *words], check=True, cwd=cls.folder)

    def call_and_kill(self, function, files, output, tasks, **options):
        """Calls the function with a program that stops `tasks`, and kills their workers. Maps stopped tasks to words."""
        marks = self.folder / f"marks of {output.name}"
        marks.mkdir()
        program = self.folder / f"program of {output.name}"
        write_stopping_program(program, PROGRAM, marks, tasks)

        def kill_workers():
            for task, words in tasks.items():
                wait_until_stopped(marks, task)
                kill_worker_of(words)

        killer = threading.Thread(target=kill_workers, daemon=True)
        killer.start()
        result = function(files, output, memory=4 << 20, program=str(program), **options)
        killer.join()
        self.assertFalse(pathlib.Path(f"{self.folder}/.{output.name}.corank-ray").exists())
        return result

    def test_merge_whose_worker_is_killed_is_that_of_one_process(self):
        self.run_program("merge", "-r", RECORD, "-o", "merged whole", *self.runs)
        output, progress = self.folder / "merged", []
        result = self.call_and_kill(corank.ray.merge, self.runs, output, {2: ["--partition", "2"]}, partitions=4,
                                    record=RECORD, on_progress=lambda *state: progress.append(state))
        self.assertEqual(output.read_bytes(), (self.folder / "merged whole").read_bytes())
        self.assertEqual(result.records, 4000000)
        self.assertEqual(progress[-1], ("merge", 4, 4))

    def test_sort_whose_workers_are_killed_is_that_of_one_process(self):
        self.run_program("sort", "--lines", "--on-equal", "first", "-o", "sorted whole", *self.texts)
        output = self.folder / "sorted"
        tasks = {"run-00001": [str(self.texts[1])], 0: ["--partition", "0"]}
        self.call_and_kill(corank.ray.sort, self.texts, output, tasks, partitions=2, lines=True, on_equal="first")
        self.assertEqual(output.read_bytes(), (self.folder / "sorted whole").read_bytes())

    def test_parts_are_the_merge_and_a_second_call_replaces_them(self):
        self.run_program("union", "-r", RECORD, "-o", "united whole", *self.runs[:2])
        output = self.folder / "united"
        for force in (False, True):
            corank.ray.merge(self.runs[:2], output, command="union", record=RECORD, partitions=3, as_parts=True, force=force,
                             program=str(PROGRAM))
            parts = [output / f"part-{i:05}" for i in range(3)]
            self.assertEqual(b"".join(part.read_bytes() for part in parts), (self.folder / "united whole").read_bytes())
        # With fewer parts, the old ones do not stay among them.
        corank.ray.merge(self.runs[:2], output, command="union", record=RECORD, partitions=2, as_parts=True, force=True,
                         program=str(PROGRAM))
        self.assertEqual(b"".join(part.read_bytes() for part in sorted(output.glob("part-?????"))),
                         (self.folder / "united whole").read_bytes())

    def test_compressed_files_are_sorted_into_one(self):
        files = [self.folder / f"{i}.txt.gz" for i in range(2)]
        for i, file in enumerate(files):
            file.write_bytes(gzip.compress("".join(f"{j * 7919 % 1000} {i}\n" for j in range(1000)).encode()))
        self.run_program("sort", "--lines", "-o", "whole.txt", *files)
        output = self.folder / "sorted.txt.gz"
        corank.ray.sort(files, output, lines=True, partitions=3, io="buffered", compress_spill="zstd", program=str(PROGRAM))
        self.assertEqual(gzip.decompress(output.read_bytes()), (self.folder / "whole.txt").read_bytes())

    def test_csv_is_sorted_and_merged(self):
        files = [self.folder / f"{i}.csv" for i in range(2)]
        for i, file in enumerate(files):
            file.write_text("".join(f'{j * 7919 % 1000},"{i}\n0,"\n' for j in range(1000)))
        self.run_program("sort", "--csv", "-b", "1:u64", "-o", "whole.csv", *files)
        output = self.folder / "sorted.csv"
        corank.ray.sort(files, output, csv=True, by="1:u64", partitions=3, program=str(PROGRAM))
        self.assertEqual(output.read_bytes(), (self.folder / "whole.csv").read_bytes())

    def test_errors_are_those_of_the_program(self):
        output, program = self.folder / "refused", str(PROGRAM)
        with self.assertRaisesRegex(corank.ray.CorankError, "--recordings"):
            corank.ray.merge(self.runs, output, recordings=RECORD, program=program)
        with self.assertRaisesRegex(corank.ray.CorankError, "missing.txt"):
            corank.ray.sort([self.folder / "missing.txt"], output, lines=True, max_retries=1, program=program)
        disordered = self.folder / "disordered.txt"
        disordered.write_bytes(b"\xff\n\xfe\n")
        with self.assertRaisesRegex(corank.ray.CorankError, "out of order"):
            corank.ray.merge([disordered], self.folder / "merged disorder", lines=True, partitions=2, max_retries=0,
                             program=program)
        for options in ({"lines": True, "header": "first"}, {"lines": True, "files_per_task": 0}):
            with self.assertRaises(ValueError):
                corank.ray.sort(self.texts, output, program=program, **options)
        with self.assertRaises(ValueError):
            corank.ray.merge([], output, lines=True, program=program)
        self.assertFalse(output.exists())
        self.assertFalse(pathlib.Path(f"{self.folder}/.refused.corank-ray").exists())
        output.write_text("old")
        with self.assertRaises(FileExistsError):
            corank.ray.merge(self.runs, output, record=RECORD, program=program)
        self.assertEqual(output.read_text(), "old")


if __name__ == "__main__":
    unittest.main(verbosity=2)
