#!/usr/bin/env python3
"""Checks that the README, or another page, is true: runs its commands, compares what they print, and checks its tables, links and chart.

Usage: readme_test.py CORANK SOURCE_FOLDER [README]

A command is a line "$ COMMAND" of an indented block, or a table cell that holds nothing but `corank ...`. Commands run in
the order of the page, in one temporary folder that has the inputs of make_inputs(). A command must exit with 0, unless
its shown output begins with "corank: ", an error message. The lines shown after a command must be what it prints; the
mark "…" stands for any text.
"""

import gzip
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

MAX_LINES = 120
MAX_ROWS = 7
MAX_COLUMNS = 4


def make_inputs(folder):
    """Writes the sorted files that the README's commands name and no earlier command makes."""
    for name in ("logs", "cities", "parts", "events", "counts"):
        (folder / name).mkdir()
    (folder / "logs/a.txt").write_text("apple\nmelon\n")
    (folder / "logs/b.txt").write_text("banana\npear\n")
    (folder / "cities/de.csv").write_text("city,population,country\nEssen,580000,DE\nUlm,99000,DE\n")
    (folder / "cities/fr.csv").write_text("city,population,country\nLyon,520000,FR\nVichy,25000,FR\n")
    for number in (1, 2):
        (folder / f"parts/{number}.bin").write_bytes(struct.pack("<4Q", number, 10, number + 2, 20))
        (folder / f"counts/{number}.bin").write_bytes(struct.pack("<QIQI", 5, number, 6 + number, 1))
        with gzip.open(folder / f"events/{number}.jsonl.gz", "wb") as file:
            file.write(b'{"user": {"id": %d}, "at": "2020-01-01"}\n' % number)
    (folder / "old.kv").write_bytes(pair(b"gone", b"x") + pair(b"kept", b"y"))
    (folder / "new.kv").write_bytes(pair(b"gone", b""))
    make_inputs_of_recipes(folder)
    (folder / "yesterday.txt").write_text("ada\nbob\n")
    (folder / "today.txt").write_text("bob\n")


def make_inputs_of_recipes(folder):
    (folder / "pieces").mkdir()
    for name, text in {
            "web1.log": "2026-03-01T09:00:00+01:00 start\n",
            "web2.log": "2026-03-01 08:30:00 login\n",
            "pieces/xaa": "name,n\nada,1\ncyd,3\n",
            "pieces/xab": "bob,2\n",
            "sample1.vcf": "##fileformat=VCFv4.2\n#CHROM\tPOS\nchr2\t7\nchr10\t3\n",
            "sample2.vcf": "##fileformat=VCFv4.2\n#CHROM\tPOS\nchr2\t9\n",
            "unsorted.txt": "pear\napple\nmelon\n",
            "numbers.txt": "9\n10\n",
            "words.txt": "b\na\na\n",
            "january.csv": "city,sales\nEssen,12.50\nLyon,3\n",
            "february.csv": "city,sales\nEssen,0.25\n",
            "access1.log": '10.0.0.1 - - [25/Oct/2026:02:10:00 +0100] "GET /b HTTP/1.1" 200 7\n',
            "access2.log": '10.0.0.2 - - [25/Oct/2026:02:50:00 +0200] "GET /a HTTP/1.1" 200 12\n',
            "table.csv": "id,name,op\n1,ada,I\n2,bob,I\n",
            "versions.csv": "id,at,name\n2,2026-03-05,bo\n1,2026-03-02,ada\n2,2026-03-01,bob\n",
            "visits.csv": "city,user\nOslo,1\nRome,2\nRome,3\n",
            "changes.csv": "id,name,op\n2,bob,D\n3,cyd,I\n"}.items():
        (folder / name).write_text(text)


def pair(key, value):
    return struct.pack("<II", len(key), len(value)) + key + value


def commands_of(readme):
    """Yields (command, shown lines)."""
    lines = readme.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("|"):
            for cell in cells_of(line):
                if match := re.fullmatch(r"`(corank [^`]*)`", cell):
                    yield match.group(1), []
        if line.startswith("    $ "):
            shown = []
            for after in lines[number + 1:]:
                if not after.startswith("    ") or after.startswith("    $ "):
                    break
                shown.append(after[4:])
            yield line[6:], shown


def cells_of(row):
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def tables_of(readme):
    return re.findall(r"(?:^\|.*\n)+", readme + "\n", re.M)


def agrees(shown, printed):
    """Whether the printed lines are the shown ones, in which "…" stands for any text."""
    pattern = "\n".join(map(re.escape, shown)).replace(re.escape("…"), ".*")
    return re.fullmatch(pattern, "\n".join(printed)) is not None


def fault_of(command, shown, folder, environment):
    """Runs one command; returns what is wrong with it, or nothing."""
    shell = ["bash", "-c", "set -o pipefail; " + command]
    run = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True)
    is_error = bool(shown) and shown[0].startswith("corank: ")
    if is_error != (run.returncode != 0):
        return f"exits with {run.returncode}: {run.stderr.strip()}"
    printed = (run.stderr if is_error else run.stdout).rstrip("\n").split("\n")
    if shown and not agrees(shown, printed):
        return "prints\n" + "\n".join(printed) + "\ninstead of\n" + "\n".join(shown)
    return None


def command_faults(readme, corank):
    environment = {**os.environ, "PATH": f"{corank.parent}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryDirectory(prefix="corank-readme-") as name:
        folder = pathlib.Path(name)
        make_inputs(folder)
        commands = list(commands_of(readme))
        if sum(command.startswith("corank ") for command, _ in commands) < 10:
            yield "fewer than ten corank commands were found; does this test still read the page?"
        for command, shown in commands:
            if fault := fault_of(command, shown, folder, environment):
                yield f"{command}: {fault}"


def page_faults(readme, folder):
    if readme.count("\n") > MAX_LINES:
        yield f"has {readme.count(chr(10))} lines; {MAX_LINES} is the limit"
    for table in tables_of(readme):
        rows = table.strip().split("\n")
        if len(rows) - 2 > MAX_ROWS or len(cells_of(rows[0])) > MAX_COLUMNS:
            yield f"a table has more than {MAX_ROWS} rows or {MAX_COLUMNS} columns: {rows[0]}"
    for link in re.findall(r"\]\(([^)#:]+)\)", readme):
        if not (folder / link).exists():
            yield f"{link}: is linked to and does not exist"


def chart_faults(readme, source):
    for chart in re.findall(r"!\[[^\]]*\]\(([^)]+\.svg)\)", readme):
        results = (source / chart).with_suffix(".json")
        drawn = subprocess.run([sys.executable, source / "tools/scripts/plot-results", results],
                               capture_output=True, text=True, check=True).stdout
        if drawn != (source / chart).read_text():
            yield f"{chart}: is not what tools/scripts/plot-results makes of {results.name}"


def main():
    corank, source = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    path = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else source / "README.md"
    readme = path.read_text()
    faults = [*page_faults(readme, path.parent), *chart_faults(readme, source), *command_faults(readme, corank)]
    for fault in faults:
        print(f"{path}: {fault}")
    print(f"{len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
