#!/usr/bin/env python3
"""Kills a random partition of merges at random moments and resumes it. Every result must be that of one merge, and a
resumed partition must keep what the killed attempt had written, but for one unit or 1 %.

Usage: kill_test.py CORANK [--runs N] [--seed S]

A kill that comes too late is fine: the partition is then written, and nothing is resumed.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

PARTITIONS = 4
RECORD = ["-r", "key:u64,value:u64"]
PLANS = {  # distribution of the runs, command and options, by name
    "records": ("uniform", ["merge", *RECORD]),
    "sums": ("zipf", ["merge", *RECORD, "--on-equal", "reduce:sum(value)", "--overflow", "wrap"]),
    "union": ("zipf", ["union", *RECORD]),
    "lines": ("lines", ["merge", "--lines"]),
}
# One thread and little memory make many small units.
RESOURCES = ["-T", "1", "-m", "4M", "--backend", "cpu"]


class Plan:
    """A plan, the parts that attempts without a kill write, and the output of one merge."""

    def __init__(self, program, folder, runs, command):
        self.program, self.folder = program, folder
        folder.mkdir()
        self.file = folder / "plan.json"
        self.run("plan", *command, "--partitions", str(PARTITIONS), "-o", self.file, *runs)
        self.run(*command, "-o", folder / "whole", *runs)
        self.whole = (folder / "whole").read_bytes()
        self.units = [self.merge(folder / "expected", i)["units"] for i in range(PARTITIONS)]

    def run(self, *words):
        return subprocess.run([self.program, *words], check=True, stdout=subprocess.PIPE).stdout

    def merge_command(self, parts, i):
        return [self.program, "merge", "--plan", self.file, "--partition", str(i), "--resume", *RESOURCES,
                "--output-folder", parts, "-q"]

    def merge(self, parts, i):
        """Returns the statistics; none if the part was written already."""
        output = subprocess.run([*self.merge_command(parts, i), "--stats", "-"], check=True,
                                stdout=subprocess.PIPE).stdout
        return json.loads(output or "{}")

    def expected_part(self, i):
        return self.folder / "expected" / f"part-{i:05}"

    def merge_until(self, parts, i, fraction):
        """Kills an attempt when it has written that fraction of the part. Returns the bytes that it left to resume."""
        def left():
            try:
                return max((size_of(file) for file in parts.glob(f".part-{i:05}.*/.part-{i:05}*.corank")), default=0)
            except FileNotFoundError:  # the attempt removed the folder between two steps of the search
                return 0

        enough = fraction * self.expected_part(i).stat().st_size
        process = subprocess.Popen(self.merge_command(parts, i))
        while process.poll() is None and left() < enough:
            pass
        process.kill()
        process.wait()
        return left()

    def finish(self, parts, output):
        self.run("finish", self.file, "--output-folder", parts, "--concatenate", output)
        return output.read_bytes()


def size_of(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def make_plans(program, folder):
    for kind in ("uniform", "zipf", "lines"):
        content = ["--lines", "16"] if kind == "lines" else [*RECORD, "--distribution", kind]
        subprocess.run([program, "gen", *content, "--records", "500000", "--runs", "8", "-o", folder / kind], check=True)
    return {name: Plan(program, folder / f"plan of {name}", sorted((folder / kind).iterdir()), command)
            for name, (kind, command) in PLANS.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program", type=lambda name: pathlib.Path(name).resolve())
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    resumed, max_redone = 0, 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        plans = make_plans(arguments.program, folder)
        for turn in range(arguments.runs):
            name, victim = random.choice(list(plans)), random.randrange(PARTITIONS)
            plan, fraction = plans[name], random.random()
            case = f"run {turn} of seed {arguments.seed}, {name}, partition {victim} killed at {fraction:.2f}"
            parts = folder / f"parts-{turn}"
            left = plan.merge_until(parts, victim, fraction)
            stats = [plan.merge(parts, i) for i in range(PARTITIONS)][victim]
            redone = left - stats.get("resumed_bytes", 0)
            part_bytes = plan.expected_part(victim).stat().st_size
            allowed = max(part_bytes / plan.units[victim], part_bytes / 100)
            if redone > allowed:
                sys.exit(f"{case}: {redone} bytes of {left} were written again, and {allowed:.0f} may be")
            if plan.finish(parts, folder / "all") != plan.whole:
                sys.exit(f"{case}: the result differs from that of one merge")
            if (left_over := [path.name for path in parts.rglob(".*")]):
                sys.exit(f"{case}: {left_over} were left behind")
            resumed += left > 0
            max_redone = max(max_redone, redone / part_bytes)
            (folder / "all").unlink()
            for path in parts.iterdir():
                path.unlink()
    if resumed == 0:
        sys.exit("every partition was killed before it wrote a byte, or after its last one: nothing was resumed")
    print(f"{arguments.runs} runs, a partition killed in each, {resumed} of them with some bytes written: every result "
          f"byte-identical; at most {100 * max_redone:.2f} % of a part was written again")


if __name__ == "__main__":
    main()
