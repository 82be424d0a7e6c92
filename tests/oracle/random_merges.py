#!/usr/bin/env python3
"""Merges random runs or sorts random files with random options in random ways, and compares each output with a model's.

    random_merges.py PROGRAM [--cases N] [--seed S] [--in FOLDER] [--way at_once|killed|planned]

Case i of seed S is case 0 of seed S + i. FOLDER holds small files; by default it is a temporary folder.
"""

import argparse
import bz2
import collections
import gzip
import itertools
import lzma
import pathlib
import random
import shutil
import subprocess
import tempfile

import forms
import ways

COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
DECOMPRESS = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}


def piped(*command):
    return lambda content: subprocess.run(command, input=content, capture_output=True, check=True).stdout


for end, tool in ((".zst", "zstd"), (".lz4", "lz4")):
    if shutil.which(tool):
        COMPRESS[end], DECOMPRESS[end] = piped(tool, "-c"), piped(tool, "-dc")


def among(records, others, rng):
    """Returns `records` in order, with the others inserted at random positions."""
    mixed = list(records)
    for other in others:
        mixed.insert(rng.randint(0, len(mixed)), other)
    return mixed


def set_operation(command, runs, key):
    """Folds the operation over the runs; equal elements are counted as by the C++ set algorithms."""
    if command == "subtract":
        runs = [runs[0], [record for run in runs[1:] for record in run]]
    result = runs[0]
    for run in runs[1:]:
        sides = sorted([(0, record) for record in result] + [(1, record) for record in run],
                       key=lambda side: key(side[1]))
        result = []
        for _, group in itertools.groupby(sides, lambda side: key(side[1])):
            ours, others = [], []
            for side, record in group:
                (others if side else ours).append(record)
            if command == "union":
                result += ours + others[len(ours):]
            elif command == "intersect":
                result += ours[:len(others)]
            else:
                result += ours[len(others):]
    return result


class Case:
    """A command and its expected output: `words` say what it writes, `means` how."""

    def __init__(self, seed, folder, kinds):
        rng = random.Random(seed)
        self.folder = folder
        self.form = form = rng.choice(kinds)(rng)
        self.command = command = rng.choice(["merge", "merge", "sort", "sort", "union", "intersect", "subtract"])
        runs = self.draw_runs(rng)
        self.words = [command, *form.options]
        if command in ("merge", "sort"):
            out = self.shape(rng, sorted(itertools.chain(*runs), key=form.key))
        else:
            out = set_operation(command, runs, form.key)
        if rng.random() < 0.25:
            text, holds = forms.condition(form, rng, 2)
            self.words += ["--having", text]
            out = [record for record in out if holds(record)]
        if rng.random() < 0.25:
            limit = rng.choice([1, 7, len(out) // 2 + 1])
            self.words += ["--limit", str(limit)]
            out = out[:limit]
        chosen, header = None, form.header
        if form.selectable and rng.random() < 0.3:
            chosen = rng.sample(range(len(form.columns)), rng.randint(1, len(form.columns)))
            self.words += ["--select", ",".join(form.name(i) for i in chosen)]
            header = form.header_of(chosen)
        drops = len(header) > len(getattr(form, "mark", b"")) and rng.random() < 0.2
        self.words += ["--drop-header"] * drops
        self.put(rng)
        if drops:
            header = b""
        elif header and header == getattr(form, "mark", b""):  # the first file keeps its mark, if it is no pipe
            header = next((head for head, content, path in zip(self.heads, self.contents, self.paths)
                           if content and path != "-"), b"")
        by_key = self.choose_output(rng)
        self.choose_means(rng)
        encoded = [form.encode(record, chosen) for record in out]
        self.records = len(out)
        # Of several parts, the first has the header.
        self.is_ordered = chosen is None and not drops and not (self.parts and header)
        self.expected = header + b"".join(encoded)
        # Bytes at which no part may begin, since they are between records with equal keys.
        ends = itertools.accumulate(map(len, encoded), initial=len(header))
        self.uncut = {end for end, before, after in zip(itertools.islice(ends, 1, None), out, out[1:])
                      if by_key and chosen is None and form.key(before) == form.key(after)}

    def draw_runs(self, rng):
        """Draws the contents of the files; returns the records of each that have a key."""
        form = self.form
        count = rng.choice([1, 2, 2, 3, 5, 17, 40])
        longest = 3000 if count <= 5 else 300
        runs = [[form.draw(rng) for _ in range(rng.choice([0, 1, 5, 50, longest]))] for _ in range(count)]
        skipped = [[record for record in run if form.key(record) is None] for run in runs]
        runs = [[record for record in run if form.key(record) is not None] for run in runs]
        if self.command != "sort":
            runs = [sorted(run, key=form.key) for run in runs]
        elif rng.random() < 0.2:
            runs = [sorted(run, key=form.key) for run in runs]
        elif rng.random() < 0.1:  # more than a small memory holds
            runs = [rng.choices(run, k=rng.choice([20_000, 100_000])) if run else run for run in runs[:2]]
            skipped = skipped[:2]
        self.heads = form.heads(len(runs), rng)
        self.runs = [among(run, bad, rng) for run, bad in zip(runs, skipped)]
        self.contents = [head + b"".join(form.encode(record, None) for record in run)
                         for head, run in zip(self.heads, self.runs)]
        self.contents = [form.cut(content) if run and rng.random() < 0.2 else content
                         for run, content in zip(self.runs, self.contents)]
        return runs

    def put(self, rng):
        """Writes the runs to files, compressed files or standard input."""
        searched = {"--from", "--to"} & {word.split("=")[0] for word in self.words}
        self.streams = rng.random() < 0.3 and (not searched or not isinstance(self.form, forms.Records))
        self.input = None
        self.paths = []
        for i, content in enumerate(self.contents):
            self.paths.append(self.folder / f"run{i}")
            if self.streams and self.input is None and rng.random() < 0.3:
                self.input = content
                self.paths[-1] = "-"
                continue
            if self.streams and rng.random() < 0.4:
                compress = rng.choice(list(COMPRESS.values()))
                half = rng.randint(0, len(content))
                content = compress(content[:half]) + compress(content[half:])
            self.paths[-1].write_bytes(content)

    def choose_output(self, rng):
        """Chooses the output; returns whether records with equal keys must be in one part."""
        self.parts = rng.randint(1, 5) if rng.random() < 0.2 else 0
        by_key = self.parts and rng.random() < 0.5
        self.output = "-" if self.streams and not self.parts and rng.random() < 0.3 else self.folder / "out"
        self.codec = None
        if self.streams and self.output != "-" and not self.parts and rng.random() < 0.4:
            self.codec = rng.choice(list(COMPRESS))
            self.output = self.folder / f"out{self.codec}"
        self.means = ["--parts", self.parts, *(["--parts-by-key"] if by_key else [])] if self.parts else []
        return by_key

    def choose_means(self, rng):
        is_sort = self.command == "sort"
        self.means += ["--io", rng.choice(["auto", "buffered", "direct", "mapped"]), "-T", str(rng.randint(1, 3))]
        if rng.random() < 0.5:  # the minimum budget needs several passes
            small = 1 << 20 if is_sort else 300 << 10 if isinstance(self.form, forms.Records) else 8 << 20
            streams = 128 << 20 if is_sort else 64 << 20
            least = streams if self.streams else small
            budget = rng.choice([least, max(least, 8 << 20), max(least, 64 << 20)])
            self.means += ["-m", str(max(self.parts, 1) * budget)]
        if rng.random() < 0.2:
            self.means.append("--no-verify")
        self.spill = ["--compress-spill", rng.choice(["lz4", "zstd"])] if is_sort and rng.random() < 0.2 else []
        self.means += self.spill

    def shape(self, rng, out):
        """Adds random operator options, and returns the records after these operators."""
        form = self.form
        for option, keeps in (("--from", lambda key, bound: not key < bound),
                              ("--to", lambda key, bound: key < bound)):
            if not out or not form.keys or rng.random() > 0.2:
                continue
            bound, count = rng.choice(out), rng.randint(1, len(form.keys))
            text = form.bound(bound, count)
            if text is not None:
                self.words.append(f"{option}={text}")
                out = [record for record in out if keeps(form.key(record)[:count], form.key(bound)[:count])]
        if rng.random() < 0.3:
            text, holds = forms.condition(form, rng, 2)
            self.words += ["--where", text]
            out = [record for record in out if holds(record)]
        policy = rng.choice(["keep", "keep", "first", "last", "reduce"])
        combine = {"first": lambda group: group[0], "last": lambda group: group[-1]}.get(policy)
        options = ["--on-equal", policy]
        if policy == "reduce":
            options, combine = form.reduction(rng) or ([], None)
        if combine is None:
            return out
        self.words += options
        out = [combine(list(group)) for _, group in itertools.groupby(out, form.key)]
        tombstone = form.tombstone(rng) if rng.random() < 0.3 else None
        if tombstone is not None:
            self.words += ["--tombstone", tombstone[0]]
            out = [record for record in out if not tombstone[1](record)]
        return out

    def written(self):
        """Returns the bytes of the output's files."""
        files = sorted(self.output.iterdir()) if self.parts else [self.output]
        if self.uncut.intersection(itertools.accumulate(file.stat().st_size for file in files)):
            raise ways.Wrong("equal keys are in two parts")
        content = b"".join(file.read_bytes() for file in files)
        return DECOMPRESS[self.codec](content) if self.codec else content

    def damage(self, rng):
        """Damages a file so that a merge must fail; returns whether there was one to damage."""
        names = {str(word).split("=")[0] for word in [*self.words, *self.means]}
        if self.streams or names & {"--from", "--to", "--limit", "--no-verify"}:
            return False
        i, form = rng.randrange(len(self.runs)), self.form
        run = self.runs[i]
        keyed = [j for j, record in enumerate(run) if form.key(record) is not None]
        falls = [(a, b) for a, b in zip(keyed, keyed[1:]) if form.key(run[a]) < form.key(run[b])]
        if self.command == "sort" or not falls:
            if not isinstance(form, forms.Records) or len(form.encode(run[0], None) if run else b"") < 2:
                return False
            self.paths[i].write_bytes(self.contents[i] + b"x")
            return True
        a, b = rng.choice(falls)
        run[a], run[b] = run[b], run[a]
        self.paths[i].write_bytes(self.heads[i] + b"".join(form.encode(record, None) for record in run))
        return True


def run(program, case, way, rng):
    """Runs the case, and compares its output with the model's."""
    before = set(case.folder.iterdir())
    out = way(program, case, rng)
    if case.output == "-":
        if out != case.expected:
            raise ways.Wrong("the output differs from the model's")
        return
    written = case.written()
    if written != case.expected:
        raise ways.Wrong("the output differs from the model's")
    left = set(case.folder.iterdir()) - before - {case.output}
    if left:
        raise ways.Wrong(f"files are left: {left}")
    if case.is_ordered:
        ways.must_check(program, case)
    if case.damage(rng):
        ways.must_refuse(program, case, written)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--in", dest="folder")
    parser.add_argument("--way", choices=["at_once", "killed", "planned"])
    arguments = parser.parse_args()
    kinds = [forms.Records, forms.Lines, forms.Pairs]
    probe = [arguments.program, "merge", "--jsonl", "-q", "-o", "-", "/dev/null"]
    if subprocess.run(probe, capture_output=True, check=False).returncode == 0:  # built with simdjson
        kinds.append(forms.JsonLines)
    tried = collections.Counter()
    wrong = 0
    for seed in range(arguments.seed, arguments.seed + arguments.cases):
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            case = Case(seed, pathlib.Path(folder), kinds)
            rng = random.Random(f"{seed} way")
            way = rng.choice([way for way in ways.ways_of(case)
                              if arguments.way in (None, way.__name__)] or [ways.at_once])
            tried[way.__name__] += 1
            try:
                run(arguments.program, case, way, rng)
            except ways.Wrong as problem:
                wrong += 1
                print(f"seed {seed}, {way.__name__}: {str(problem).strip()}\n"
                      f"  corank {' '.join(map(str, case.words + case.means))}", flush=True)
    print(f"{arguments.cases} cases ({', '.join(f'{n} {way}' for way, n in tried.items())}), {wrong} of them wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
