#!/usr/bin/env python3
"""Merges random runs or sorts random files with random options, and compares each output with a model's.

    random_merges.py PROGRAM [--cases N] [--seed S] [--in FOLDER]

Case i of seed S is case 0 of seed S + i. FOLDER holds small files; by default it is a temporary folder.
"""

import argparse
import bz2
import gzip
import itertools
import json
import lzma
import math
import pathlib
import random
import re
import struct
import subprocess
import tempfile

NUMBERS = ("u64", "i64", "f64")
INTEGERS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i8": "b", "i16": "h", "i32": "i", "i64": "q"}
FLOATS = {"f32": "f", "f64": "d"}
COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
DECOMPRESS = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
COMPARISONS = {"==": lambda c: c == 0, "!=": lambda c: c != 0, "<": lambda c: c < 0,
               "<=": lambda c: c <= 0, ">": lambda c: c > 0, ">=": lambda c: c >= 0}


def order(value):
    """Returns a value whose order under < is corank's: NaNs are equal and sort after all numbers."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value


class Descending:
    def __init__(self, value):
        self.value = value

    def __lt__(self, other):
        return other.value < self.value

    def __eq__(self, other):
        return other.value == self.value


class Field:
    """A field of fixed records. With `few`, its values are often equal."""

    def __init__(self, rng):
        kind = rng.choice([*INTEGERS, *FLOATS, "bytes"])
        self.few = rng.random() < 0.6
        self.code = None
        self.type = kind
        if kind == "bytes":
            self.size = rng.choice([1, 2, 3, 7, 8, 9, 16, 20])
            self.type += str(self.size)
            return
        big = rng.random() < 0.3 and kind not in ("u8", "i8")
        self.code = (">" if big else "<") + {**INTEGERS, **FLOATS}[kind]
        self.type += "be" if big else ""
        self.floating = kind in FLOATS
        self.size = struct.calcsize(self.code)
        signed = kind.startswith("i")
        self.least = -(256**self.size) // 2 if signed else 0
        self.greatest = self.least + 256**self.size - 1

    def draw(self, rng):
        if self.code is None:
            alphabet = b"ab" if self.few else bytes(range(256))
            return bytes(rng.choice(alphabet) for _ in range(self.size))
        if not self.floating:
            if self.few:
                return rng.choice([*range(max(self.least, -2), 4), self.greatest])
            return rng.randint(self.least, self.greatest)
        value = rng.choice([0.0, -0.0, 1.5, math.inf, math.nan]) if self.few else rng.uniform(-9, 9)
        return struct.unpack(self.code, struct.pack(self.code, value))[0]

    def encode(self, value):
        return value if self.code is None else struct.pack(self.code, value)

    def literal(self, value):
        """Returns the value as the text of an option; None if it has no such text."""
        if isinstance(value, bytes):
            return value.decode() if all(byte in b"ab" for byte in value) else None
        return None if isinstance(value, float) and not math.isfinite(value) else repr(value)

    def combine(self, how, values, overflow):
        """Reduces the values of records with equal keys."""
        if how in ("min", "max"):
            return {"min": min, "max": max}[how](values, key=order)
        if how == "last":
            return values[-1]
        total = sum(values) if how == "sum" else len(values)
        if overflow == "saturate":
            return min(max(total, self.least), self.greatest)
        return (total - self.least) % 256**self.size + self.least


class Records:
    """Fixed records, as tuples of values."""

    def __init__(self, rng):
        self.columns = [Field(rng) for _ in range(rng.randint(1, 5))]
        self.names = [f"f{i}" for i in range(len(self.columns))]
        self.keys = [(i, rng.random() < 0.3)
                     for i in rng.sample(range(len(self.columns)), rng.randint(1, min(3, len(self.columns))))]
        self.header = b""
        self.selectable = True
        self.options = [
            "-r", ",".join(f"{name}:{field.type}" for name, field in zip(self.names, self.columns)),
            "-b", ",".join(self.names[i] + (":desc" if down else "") for i, down in self.keys)]

    def draw(self, rng):
        return tuple(field.draw(rng) for field in self.columns)

    def key(self, record):
        return tuple(Descending(order(record[i])) if down else order(record[i]) for i, down in self.keys)

    def encode(self, record, chosen):
        chosen = range(len(self.columns)) if chosen is None else chosen
        return b"".join(self.columns[i].encode(record[i]) for i in chosen)

    def cut(self, content):
        return content

    def bound(self, record, count):
        texts = [self.columns[i].literal(record[i]) for i, _ in self.keys[:count]]
        return None if None in texts else ",".join(texts)

    def comparison(self, rng):
        i = rng.randrange(len(self.columns))
        field = self.columns[i]
        value = field.draw(rng)
        if field.literal(value) is None:
            value = b"a" * field.size if field.code is None else 1.5
        text = field.literal(value)
        symbol = rng.choice(list(COMPARISONS))

        def holds(record):
            mine, other = order(record[i]), order(value)
            return COMPARISONS[symbol]((mine > other) - (mine < other))
        quoted = f"'{text}'" if isinstance(value, bytes) else text
        return f"{self.names[i]} {symbol} {quoted}", holds

    def tombstone(self, rng):
        i = rng.randrange(len(self.columns))
        field = self.columns[i]
        if field.code is None or field.floating:
            return None
        value = field.draw(rng)
        return f"{self.names[i]}={value}", lambda record: record[i] == value

    def reduction(self, rng):
        """Returns options and the function that reduces equal records; None if no field can be reduced."""
        keys = [i for i, _ in self.keys]
        how = {i: rng.choice(["min", "max", "last"] + ([] if field.floating else ["sum", "count"]))
               for i, field in enumerate(self.columns)
               if field.code is not None and i not in keys and rng.random() < 0.7}
        if not how:
            return None
        overflow = rng.choice(["wrap", "saturate"])

        def reduce(group):
            return tuple(self.columns[i].combine(how[i], [record[i] for record in group], overflow)
                         if i in how else value for i, value in enumerate(group[0]))
        items = ",".join(f"{kind}({self.names[i]})" for i, kind in how.items())
        return ["--on-equal", f"reduce:{items}", "--overflow", overflow], reduce


class Lines:
    """Lines with columns, as tuples of strings; CSV columns may be quoted."""

    def __init__(self, rng):
        self.csv = rng.random() < 0.5
        self.delimiter = rng.choice(",;\t|")
        self.end = rng.choice(["\n", "\n", "\r\n"] if self.csv else ["\n", "\n", "\0"])
        self.bad = rng.choice([None, None, "skip", "last", "first"])
        count = rng.randint(1, 5)
        self.kinds = [rng.choice(["text", "few", "u64", "i64", "f64"]) for _ in range(count)]
        self.missing = rng.random() < 0.2
        self.selectable = True
        self.names = [f"c{i + 1}" for i in range(count)]
        self.names[0] = rng.choice(["c1", "key", "value"])
        self.columns = self.kinds
        has_header = self.missing or rng.random() < 0.4  # or the first record may lack columns
        self.keys = []
        for i in rng.sample(range(count), rng.randint(0, min(3, count))):
            numeric = self.kinds[i] in NUMBERS and rng.random() < 0.8 and (not self.missing or self.bad)
            self.keys.append((i, numeric, rng.random() < 0.3, not numeric and rng.random() < 0.2))
            if self.keys[-1][3] and rng.random() < 0.5:
                self.keys.append((i, False, rng.random() < 0.3, False))
        self.named = has_header and rng.random() < 0.5
        self.titles = list(self.names)
        if self.csv and not self.named and rng.random() < 0.3:
            self.titles[0] = '"c\n1"'
        self.mark = "\ufeff".encode() if self.csv and rng.random() < 0.3 else b""
        self.header = self.header_of(range(count)) if has_header else b""
        self.first_only = has_header and rng.random() < 0.3  # has the header
        self.options = ["--csv" if self.csv else "--lines",
                        "-t", "\\t" if self.delimiter == "\t" else self.delimiter]
        self.options += ["-z"] if self.end == "\0" else []
        self.options += ["--header=first" if self.first_only else "--header"] if has_header else []
        self.options += ["--bad", self.bad] if self.bad else []
        if self.keys:
            self.options += ["-b", ",".join(
                self.name(i) + (f":{self.kinds[i]}" if numeric else "") + (":desc" if down else "") +
                (":nocase" if fold else "") for i, numeric, down, fold in self.keys)]

    def header_of(self, chosen):
        return self.mark + self.encode(self.titles, chosen)

    def heads(self, count, rng):
        """Returns what the files begin with."""
        if not self.first_only:
            return [self.header] * count
        return [self.header, *(rng.choice([b"", self.mark]) for _ in range(count - 1))]

    def name(self, i):
        return self.names[i] if self.named else str(i + 1)

    def word(self, rng, kind):
        if kind == "few":
            return rng.choice(["", "a", "b", "A", "B", "ab", "aB"])
        if kind in NUMBERS and self.bad and rng.random() < 0.1:
            return rng.choice(["", "x", "1x", "--2", "9" * 400])
        if kind == "f64":
            return rng.choice(["%d", "%.3f", "%e"]) % rng.uniform(-3, 3)
        if kind == "u64":
            return str(rng.choice([rng.randrange(10), rng.randrange(2**64)]))
        if kind == "i64":
            return str(rng.choice([rng.randint(-5, 5), rng.randint(-2**63, 2**63 - 1)]))
        return rng.choice(["", "a prefix that many have "]) + "".join(
            rng.choice('ab Z"\n' if self.csv else "ab Z") for _ in range(rng.choice([0, 1, 3, 9, 20])))

    def draw(self, rng):
        count = rng.randint(1, len(self.kinds)) if self.missing else len(self.kinds)
        words = [self.word(rng, kind) for kind in self.kinds[:count]]
        if not self.csv:
            return tuple(words)
        return tuple(f'"{word.replace(chr(34), chr(34) * 2)}"'
                     if any(c in word for c in ('"', "\n", self.delimiter)) or rng.random() < 0.2 else word
                     for word in words)

    def text(self, record, i):
        if i >= len(record):
            return ""
        if self.csv and record[i].startswith('"'):
            return record[i][1:-1].replace('""', '"')
        return record[i]

    def key(self, record):
        if not self.keys:
            return self.delimiter.join(record) + self.end[:-1]
        values = []
        for i, numeric, down, fold in self.keys:
            value = self.text(record, i)
            value = self.number(value, self.kinds[i]) if numeric else value.upper() if fold else value
            if value is None:
                if self.bad == "skip":
                    return None
                values.append((1,) if self.bad == "last" else (-1,))
            else:
                values.append((0, Descending(value) if down else value))
        return tuple(values)

    @staticmethod
    def number(text, kind):
        """Returns the number; None if the text is not a number."""
        try:
            value = float(text) if kind == "f64" else int(text)
        except ValueError:
            return None
        if kind == "f64":
            return None if math.isinf(value) else value
        return value if (0 if kind == "u64" else -2**63) <= value < (2**64 if kind == "u64" else 2**63) else None

    def cut(self, content):
        return content[:-1] if content[-2:-1] not in (b"", b"\0", b"\n") else content

    def encode(self, record, chosen):
        """The columns that are chosen, empty where the record has none; all that it has if `chosen` is None."""
        columns = record if chosen is None else [record[i] if i < len(record) else "" for i in chosen]
        line = self.delimiter.join(columns)
        return (line + self.end).encode()

    def bound(self, record, count):
        texts = []
        for i, numeric, *_ in self.keys[:count]:
            text = self.text(record, i)
            if numeric and self.number(text, self.kinds[i]) is None:
                return None
            if not numeric and len(self.keys) > 1:
                text = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
            texts.append(text)
        return ",".join(texts)

    def comparison(self, rng):
        i = rng.randrange(len(self.kinds))
        symbol = rng.choice(list(COMPARISONS))
        numeric = self.kinds[i] in NUMBERS
        value = rng.randint(0, 5) if numeric else rng.choice(["", "a", "ab", "B"])

        def holds(record):
            mine = self.text(record, i)
            if numeric:
                mine = self.number(mine, self.kinds[i])
                if mine is None:
                    return symbol == "!="
            return COMPARISONS[symbol]((mine > value) - (mine < value))
        column = self.name(i) + (f":{self.kinds[i]}" if numeric else "")
        return f"{column} {symbol} " + (str(value) if numeric else f"'{value}'"), holds

    def tombstone(self, rng):
        i, value = rng.randrange(len(self.kinds)), rng.choice(["", "a", "1"])
        return f"{self.name(i)}={value}", lambda record: self.text(record, i) == value

    def combine(self, how, group, i, typed):
        """Reduces the column of records with equal keys; empty columns have no value."""
        def field(record):
            return record[i] if i < len(record) else ""
        if how == "last":
            return field(group[-1])
        if how == "count":
            return str(len(group))
        valued = [record for record in group if self.text(record, i)]
        if len(group) == 1 or not valued:
            return field(group[0])
        if how == "sum":
            return str(sum(int(self.text(record, i)) for record in valued))
        best = {"min": min, "max": max}[how]
        return field(best(valued, key=lambda record: int(self.text(record, i)) if typed else self.text(record, i)))

    def reduction(self, rng):
        """Returns options and the function that reduces equal records; None if no column can be reduced."""
        keys = {i for i, *_ in self.keys}
        if not keys:
            return None
        how = {}
        for i, kind in enumerate(self.kinds):
            if i in keys or rng.random() < 0.3:
                continue
            typed = kind in ("u64", "i64") and not self.bad
            how[i] = rng.choice(["last", "count", "min", "max"] + ["sum"] * 3 * typed), typed
        if not how:
            return None

        def reduce(group):
            reduced = {i: self.combine(kind, group, i, typed) for i, (kind, typed) in how.items()}
            count = max([len(group[0]), *(i + 1 for i, text in reduced.items() if text)])
            first = [*group[0], *[""] * (count - len(group[0]))]
            return tuple(reduced.get(i, column) for i, column in enumerate(first))
        items = ",".join(f"{kind}({self.name(i)}" + (f":{self.kinds[i]}" if typed else "") + ")"
                         for i, (kind, typed) in how.items())
        return ["--on-equal", f"reduce:{items}"], reduce


class JsonLines(Lines):
    """JSON objects, as tuples of their line and the texts of their fields."""

    def reduction(self, rng):
        """Returns None: fields of JSON cannot be reduced."""

    def __init__(self, rng):
        self.end = "\n"
        self.bad = rng.choice([None, None, "skip", "last", "first"])
        self.kinds = self.columns = [rng.choice(["text", "few", "u64", "i64", "f64"])
                                     for _ in range(rng.randint(1, 4))]
        self.paths = [rng.choice([(f"c{i}",), ("deep", f"c{i}"), (f"list{i}", 1), (f"a/b~{i}", "")])
                      for i in range(len(self.kinds))]
        self.missing = rng.random() < 0.3
        self.selectable, self.header, self.first_only = False, b"", False
        self.keys = []
        self.has_line = rng.random() < 0.2  # as the last key
        for i in rng.sample(range(len(self.kinds)), rng.randint(0, min(3, len(self.kinds)))):
            numeric = self.kinds[i] in NUMBERS and rng.random() < 0.8 and (not self.missing or self.bad)
            self.keys.append((i, numeric, rng.random() < 0.3, not numeric and rng.random() < 0.2))
        self.options = ["--jsonl", *(["--bad", self.bad] if self.bad else [])]
        if self.keys:
            self.options += ["-b", ",".join(
                self.name(i) + (f":{self.kinds[i]}" if numeric else "") + (":desc" if down else "") +
                (":nocase" if fold else "") for i, numeric, down, fold in self.keys)]
        if self.has_line:
            self.options += ["-b", "line"] if not self.keys else []
            self.options[-1] += ",line" if self.keys else ""

    def name(self, i):
        path = [str(step).replace("~", "~0").replace("/", "~1") for step in self.paths[i]]
        return path[0] if self.paths[i][1:] == () else "/" + "/".join(path)

    def word(self, rng, kind):
        if kind != "text":
            return super().word(rng, kind)
        return rng.choice(["", "a prefix that many have "]) + "".join(
            rng.choice('ab Z"\\\n\t\x01€𝄞') for _ in range(rng.choice([0, 1, 3, 9, 20])))

    def draw(self, rng):
        if self.bad == "skip" and rng.random() < 0.05:
            return rng.choice(["", "{", "[1]", '{"a":1}}', '{"a":01}', "{'a':1}", '{"a":"\\ud800"}']), None
        words = [None if self.missing and rng.random() < 0.3 else self.word(rng, kind) for kind in self.kinds]
        members = {"x": '"}]\\"{"', "y": "[[{}],{\"c0\":1e999}]"}
        for path, kind, word in zip(self.paths, self.kinds, words):
            ascii_only = rng.random() < 0.5
            if word is None:
                if rng.random() < 0.5:
                    continue
                text = "null"
            else:
                number = kind in NUMBERS and self.number(word, "f64") is not None and word.strip() == word
                text = word if number and rng.random() < 0.8 else json.dumps(word, ensure_ascii=ascii_only)
            if isinstance(path[-1], int):
                members[path[0]] = f'["first", {text} , 3]'
            elif len(path) == 2:
                members.setdefault(path[0], {})[path[1]] = text
            else:
                members[path[0]] = text
        return self.object_of(members, rng), tuple("" if word is None else word for word in words)

    def object_of(self, members, rng):
        names = rng.sample(list(members), len(members))
        blank = rng.choice(["", "", " ", " \t"])
        return "{" + blank + f"{blank},".join(
            (json.dumps(name) if rng.random() < 0.8 else '"' + "".join(f"\\u{ord(c):04x}" for c in name) + '"') +
            f"{blank}:{blank}" + (self.object_of(text, rng) if isinstance(text, dict) else text)
            for name, text in zip(names, (members[name] for name in names))) + blank + "}" + blank

    def key(self, record):
        if record[1] is None:
            return None
        if not self.keys:
            return record[0]
        key = super().key(record)
        return (*key, record[0]) if key is not None and self.has_line else key

    def text(self, record, i):
        return record[1][i]

    def encode(self, record, _):
        return (record[0] + "\n").encode()


class Pairs:
    """Key-value pairs with length prefixes, as tuples of a key and a value."""

    def __init__(self, rng):
        self.columns = ["key", "value"]
        self.keys = [0]
        self.descending, self.fold = rng.random() < 0.3, rng.random() < 0.2
        self.header = b""
        self.selectable = False
        self.options = ["--kv"]
        if self.descending or self.fold:
            self.options += ["-b", "key" + ":desc" * self.descending + ":nocase" * self.fold]

    def draw(self, rng):
        def word(lengths):
            return "".join(rng.choice("abB") for _ in range(rng.choice(lengths)))
        return rng.choice(["", "a key that many have "]) + word([0, 1, 3, 9, 20]), word([0, 0, 1, 2, 300])

    def key(self, record):
        key = record[0].upper() if self.fold else record[0]
        return (Descending(key) if self.descending else key,)

    def encode(self, record, _):
        return struct.pack("<II", *map(len, record)) + "".join(record).encode()

    def cut(self, content):
        return content

    def bound(self, record, _):
        return record[0]

    def comparison(self, rng):
        i, symbol, value = rng.randrange(2), rng.choice(list(COMPARISONS)), rng.choice(["", "a", "B", "bb"])
        return (f"{self.columns[i]} {symbol} '{value}'",
                lambda record: COMPARISONS[symbol]((record[i] > value) - (record[i] < value)))

    def tombstone(self, rng):
        i, value = rng.randrange(2), rng.choice(["", "a", "B"])
        return f"{self.columns[i]}={value}", lambda record: record[i] == value

    def reduction(self, rng):
        return None


def condition(form, rng, depth):
    if depth == 0 or rng.random() < 0.5:
        return form.comparison(rng)
    left, holds_left = condition(form, rng, depth - 1)
    joint = rng.choice(["and", "or", "not"])
    if joint == "not":
        return f"not ({left})", lambda record: not holds_left(record)
    right, holds_right = condition(form, rng, depth - 1)
    join = all if joint == "and" else any
    return (f"({left}) {joint} ({right})",
            lambda record: join([holds_left(record), holds_right(record)]))


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
    """A command and its expected output."""

    def __init__(self, seed, folder, forms):
        rng = random.Random(seed)
        self.folder = folder
        form = rng.choice(forms)(rng)
        count = rng.choice([1, 2, 2, 3, 5, 17, 40])
        longest = 3000 if count <= 5 else 300
        runs = [[form.draw(rng) for _ in range(rng.choice([0, 1, 5, 50, longest]))] for _ in range(count)]
        skipped = [[record for record in run if form.key(record) is None] for run in runs]
        runs = [[record for record in run if form.key(record) is not None] for run in runs]
        command = rng.choice(["merge", "merge", "sort", "sort", "union", "intersect", "subtract"])
        if command != "sort":
            runs = [sorted(run, key=form.key) for run in runs]
        elif rng.random() < 0.2:
            runs = [sorted(run, key=form.key) for run in runs]
        elif rng.random() < 0.1:  # more than a small memory holds
            runs = [rng.choices(run, k=rng.choice([20_000, 100_000])) if run else run for run in runs[:2]]
            skipped = skipped[:2]
        everything = range(len(form.columns))
        heads = form.heads(len(runs), rng) if isinstance(form, Lines) else [b""] * len(runs)
        contents = [head + b"".join(form.encode(record, None) for record in among(run, bad, rng))
                    for head, run, bad in zip(heads, runs, skipped)]
        contents = [form.cut(content) if run and rng.random() < 0.2 else content
                    for run, content in zip(runs, contents)]
        self.options = [command, *form.options]
        if command in ("merge", "sort"):
            out = self.shape(form, rng, sorted(itertools.chain(*runs), key=form.key))
        else:
            out = set_operation(command, runs, form.key)
        if rng.random() < 0.25:
            text, holds = condition(form, rng, 2)
            self.options += ["--having", text]
            out = [record for record in out if holds(record)]
        if rng.random() < 0.25:
            limit = rng.choice([1, 7, len(out) // 2 + 1])
            self.options += ["--limit", str(limit)]
            out = out[:limit]
        chosen = None
        header = form.header
        if form.selectable and rng.random() < 0.3:
            chosen = rng.sample(list(everything), rng.randint(1, len(everything)))
            self.options += ["--select", ",".join(
                form.names[i] if isinstance(form, Records) else form.name(i) for i in chosen)]
            header = form.header_of(chosen) if header else b""
        self.parts = rng.randint(1, 5) if rng.random() < 0.2 else 0
        by_key = self.parts and rng.random() < 0.5
        if self.parts:
            self.options += ["--parts", str(self.parts)] + by_key * ["--parts-by-key"]
        self.put(form, contents, rng)
        self.options += ["--io", rng.choice(["auto", "buffered", "direct", "mapped"]),
                         "-T", str(rng.randint(1, 3))]
        if rng.random() < 0.5:  # the minimum budget needs several passes
            is_sort = command == "sort"
            small = 1 << 20 if is_sort else 300 << 10 if isinstance(form, Records) else 8 << 20
            streams = 128 << 20 if is_sort else 64 << 20
            least = streams if self.streams else small
            budget = rng.choice([least, max(least, 8 << 20), max(least, 64 << 20)])
            self.options += ["-m", str(max(self.parts, 1) * budget)]
        if rng.random() < 0.2:
            self.options.append("--no-verify")
        excluded = {"--limit", "--where", "--from", "--to"}
        if (command == "sort" and isinstance(form, Records) and not self.streams and rng.random() < 0.3
                and not excluded & {option.split("=")[0] for option in self.options}):
            self.options.append("--resume")
        encoded = [form.encode(record, chosen) for record in out]
        self.expected = header + b"".join(encoded)
        # Bytes at which no part may begin, since they are between records with equal keys.
        ends = itertools.accumulate(map(len, encoded), initial=len(header))
        self.uncut = {end for end, before, after in zip(itertools.islice(ends, 1, None), out, out[1:])
                      if by_key and chosen is None and form.key(before) == form.key(after)}

    def put(self, form, contents, rng):
        """Writes the runs to files, compressed files or standard input, and chooses the output."""
        searched = {"--from", "--to"} & {option.split("=")[0] for option in self.options}
        self.streams = rng.random() < 0.3 and (not searched or not isinstance(form, Records))
        self.input = None
        self.paths = []
        for i, content in enumerate(contents):
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
        self.output = "-" if self.streams and not self.parts and rng.random() < 0.3 else self.folder / "out"
        self.codec = None
        if self.streams and self.output != "-" and not self.parts and rng.random() < 0.4:
            self.codec = rng.choice(list(COMPRESS))
            self.output = self.folder / f"out{self.codec}"

    def shape(self, form, rng, out):
        """Adds random operator options, and returns the records after these operators."""
        for option, keeps in (("--from", lambda key, bound: not key < bound),
                              ("--to", lambda key, bound: key < bound)):
            if not out or not form.keys or rng.random() > 0.2:
                continue
            bound, count = rng.choice(out), rng.randint(1, len(form.keys))
            text = form.bound(bound, count)
            if text is not None:
                self.options.append(f"{option}={text}")
                out = [record for record in out if keeps(form.key(record)[:count], form.key(bound)[:count])]
        if rng.random() < 0.3:
            text, holds = condition(form, rng, 2)
            self.options += ["--where", text]
            out = [record for record in out if holds(record)]
        policy = rng.choice(["keep", "keep", "first", "last", "reduce"])
        combine = {"first": lambda group: group[0], "last": lambda group: group[-1]}.get(policy)
        options = ["--on-equal", policy]
        if policy == "reduce":
            options, combine = form.reduction(rng) or ([], None)
        if combine is None:
            return out
        self.options += options
        out = [combine(list(group)) for _, group in itertools.groupby(out, form.key)]
        tombstone = form.tombstone(rng) if rng.random() < 0.3 else None
        if tombstone is not None:
            self.options += ["--tombstone", tombstone[0]]
            out = [record for record in out if not tombstone[1](record)]
        return out

    def run(self, program):
        """Runs the command; returns a description of the failure, or None."""
        command = [program, *self.options, "--backend", "cpu", "-q", "-o", self.output, *self.paths]
        done = subprocess.run(command, capture_output=True, input=self.input, check=False)
        # Decoders and encoders may need more than a small memory. What the program asks for is enough.
        enough = re.search(rb"--memory (\d+) is enough", done.stderr)
        if enough and "-m" in command:
            command[command.index("-m") + 1] = enough[1].decode()
            done = subprocess.run(command, capture_output=True, input=self.input, check=False)
        if done.returncode != 0:
            return f"exit code {done.returncode}: {done.stderr.decode()}"
        written = done.stdout
        if self.output != "-":
            files = sorted(self.output.iterdir()) if self.parts else [self.output]
            written = b"".join(file.read_bytes() for file in files)
            if self.uncut.intersection(itertools.accumulate(file.stat().st_size for file in files)):
                return "equal keys are in two parts"
        if self.codec:
            written = DECOMPRESS[self.codec](written)
        return None if written == self.expected else "the output differs from the model's"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--in", dest="folder")
    arguments = parser.parse_args()
    forms = [Records, Lines, Pairs]
    probe = [arguments.program, "merge", "--jsonl", "-q", "-o", "-", "/dev/null"]
    if subprocess.run(probe, capture_output=True, check=False).returncode == 0:  # built with simdjson
        forms.append(JsonLines)
    wrong = 0
    for seed in range(arguments.seed, arguments.seed + arguments.cases):
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            case = Case(seed, pathlib.Path(folder), forms)
            problem = case.run(arguments.program)
        if problem:
            wrong += 1
            print(f"seed {seed}: {problem.strip()}\n  corank {' '.join(case.options)}", flush=True)
    print(f"{arguments.cases} cases, {wrong} of them wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
