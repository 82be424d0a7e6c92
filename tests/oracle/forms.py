"""Models of corank's formats: each draws records, encodes them, and knows their keys, conditions and reductions."""

import json
import math
import struct

NUMBERS = ("u64", "i64", "f64")
INTEGERS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i8": "b", "i16": "h", "i32": "i", "i64": "q"}
FLOATS = {"f32": "f", "f64": "d"}
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
        self.header = rng.randbytes(rng.choice([1, 7, 16, 4097])) if rng.random() < 0.2 else b""
        self.selectable = True
        self.options = ["--skip-bytes", str(len(self.header))] if self.header else []
        self.options += [
            "-r", ",".join(f"{name}:{field.type}" for name, field in zip(self.names, self.columns)),
            "-b", ",".join(self.names[i] + (":desc" if down else "") for i, down in self.keys)]

    def heads(self, count, _):
        return [self.header] * count

    def header_of(self, _):
        return self.header

    def name(self, i):
        return self.names[i]

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
        self.has_titles = has_header
        self.comments = rng.random() < 0.15
        self.before = rng.choice([0, 0, 0, 0, 0, 1, 3])  # lines before the header
        self.lead = "".join("## comment %d%s" % (i, self.end) for i in range(rng.choice([0, 1, 5]) * self.comments))
        self.fixed = "".join("line %d%s" % (i, self.end) for i in range(self.before))
        self.header = self.header_of(range(count))
        self.first_only = has_header and rng.random() < 0.3  # has the header
        self.options = ["--csv" if self.csv else "--lines",
                        "-t", "\\t" if self.delimiter == "\t" else self.delimiter]
        self.options += ["-z"] if self.end == "\0" else []
        self.options += ["--header=first" if self.first_only else "--header"] if has_header else []
        self.options += ["--comment", "##"] if self.comments else []
        self.options += ["--header-lines", str(self.before)] if self.before else []
        self.options += ["--bad", self.bad] if self.bad else []
        if self.keys:
            self.options += ["-b", ",".join(
                self.name(i) + (f":{self.kinds[i]}" if numeric else "") + (":desc" if down else "") +
                (":nocase" if fold else "") for i, numeric, down, fold in self.keys)]

    def header_of(self, chosen):
        titles = self.encode(self.titles, chosen) if self.has_titles else b""
        return self.mark + (self.lead + self.fixed).encode() + titles

    def heads(self, count, rng):
        """Returns what each file begins with."""
        def comments():
            return "".join("## other %d%s" % (i, self.end) for i in range(rng.choice([0, 1, 5]))).encode()
        fixed = self.fixed.encode()
        titles = self.encode(self.titles, range(len(self.kinds))) if self.has_titles else b""
        rest = [self.mark + (comments() if self.comments else b"") + fixed + titles * (not self.first_only)
                for _ in range(count - 1)]
        return [head if head != self.mark else rng.choice([b"", self.mark]) for head in [self.header, *rest]]

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
            if not numeric and (len(self.keys) > 1 or text.startswith(("'", "\""))):
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

    def combine(self, how, group, i, typed, overflow):
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
            least, size = (-2**63 if self.kinds[i] == "i64" else 0), 2**64
            total = sum(int(self.text(record, i)) for record in valued)
            if overflow == "saturate":
                return str(min(max(total, least), least + size - 1))
            return str((total - least) % size + least)
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

        overflow = rng.choice(["wrap", "saturate"])

        def reduce(group):
            reduced = {i: self.combine(kind, group, i, typed, overflow) for i, (kind, typed) in how.items()}
            count = max([len(group[0]), *(i + 1 for i, text in reduced.items() if text)])
            first = [*group[0], *[""] * (count - len(group[0]))]
            return tuple(reduced.get(i, column) for i, column in enumerate(first))
        items = ",".join(f"{kind}({self.name(i)}" + (f":{self.kinds[i]}" if typed else "") + ")"
                         for i, (kind, typed) in how.items())
        return ["--on-equal", f"reduce:{items}", "--overflow", overflow], reduce


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
        self.selectable, self.header = False, b""
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

    def heads(self, count, _):
        return [b""] * count

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

    def heads(self, count, _):
        return [b""] * count

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
