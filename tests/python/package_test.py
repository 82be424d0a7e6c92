#!/usr/bin/env python3
"""Tests the Python package corank, against sorted() and NumPy. Tests of arrays are skipped without NumPy, and
an example of docs/python.md without pyarrow.

    package_test.py PROGRAM
"""

import contextlib
import gzip
import io
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import unittest
import warnings

sys.dont_write_bytecode = True  # next to the package in the source tree
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import corank

try:
    import numpy
except ImportError:
    numpy = None
try:
    import pyarrow.csv
    import pyarrow.parquet
except ImportError:
    pyarrow = None

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"
PROGRAM = sys.argv.pop(1)


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.output = self.folder / "output"

    def file(self, name, *lines):
        path = self.folder / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def lines(self):
        return self.output.read_text().splitlines()

    def test_merges_and_sorts(self):
        words = [random.choice("abcdef") * random.randrange(1, 9) for _ in range(3000)]
        files = [self.file(f"{i}", *words[i::3]) for i in range(3)]
        result = corank.sort(files, self.output, lines=True, checksum=True, program=PROGRAM)
        self.assertEqual(self.lines(), sorted(words))
        self.assertEqual(result.records, 3000)
        self.assertTrue(result.stats["verified"])
        self.assertEqual(corank.check(self.output, lines=True, program=PROGRAM), corank.Result(3000, result.checksum))
        runs = [self.file(f"{i}", *sorted(words[i::3])) for i in range(3)]
        merged = corank.merge(runs, self.output, lines=True, force=True, on_equal="first", program=PROGRAM)
        self.assertEqual(self.lines(), sorted(set(words)))
        self.assertEqual(merged.records, len(set(words)))
        self.assertIsNone(merged.checksum)

    def test_combines_sets(self):
        files = [self.file("a", 1, 2, 3), self.file("b", 2, 4)]
        for function, expected in ((corank.union, "1234"), (corank.intersect, "2"), (corank.subtract, "13")):
            function(files, self.output, lines=True, force=True, program=PROGRAM)
            self.assertEqual("".join(self.lines()), expected)

    def test_passes_options(self):
        table = self.file("table", "city,n", "Rome,7", "Oslo,9", "Oslo,10", "Bonn,7")
        corank.sort(str(table), str(self.output), csv=True, header=True, by=["city", "n:u64:desc"], select=["n", "city"],
                    from_="Oslo,99", temp=[self.folder, self.folder], resume=False, limit=None, program=PROGRAM)
        self.assertEqual(self.lines(), ["n,city", "10,Oslo", "9,Oslo", "7,Rome"])

    def test_takes_any_name(self):
        folder = os.getcwd()
        self.addCleanup(os.chdir, folder)
        os.chdir(self.folder)
        for name in ("-", "--help", "a\nb", b"\xff"):
            pathlib.Path(os.fsdecode(name)).write_text("b\na\n")
            corank.sort([name], self.output, lines=True, force=True, program=PROGRAM)
            self.assertEqual(self.lines(), ["a", "b"])
            corank.sort(["-"], name, lines=True, force=True, program=PROGRAM)
            self.assertEqual(corank.check([name], lines=True, program=PROGRAM).records, 2)

    def test_takes_many_files(self):
        files = [self.file(f"{i:04}" + "x" * 200, i) for i in range(2000)]
        result = corank.sort(reversed(files), self.output, lines=True, by="1:u64", delimiter="\\t", program=PROGRAM)
        self.assertEqual(result.records, 2000)
        self.assertEqual(self.lines(), [str(i) for i in range(2000)])
        self.assertEqual(corank.check(files, lines=True, program=PROGRAM).records, 2000)

    def test_tells_disorder(self):
        run = self.file("run", "a", "c", "b")
        for call in (lambda: corank.check(run, lines=True, program=PROGRAM),
                     lambda: corank.merge(run, self.output, lines=True, program=PROGRAM)):
            with self.assertRaisesRegex(corank.OutOfOrderError, "line 3") as caught:
                call()
            error = caught.exception
            self.assertEqual((error.file, error.record, error.byte, error.code, error.exit_code), (str(run), 2, 4, "out_of_order", 1))
        self.assertFalse(self.output.exists())

    def test_tells_other_errors(self):
        run = self.file("run", "a")
        self.output.write_text("old\n")
        with self.assertRaises(corank.CorankError) as caught:
            corank.merge(run, self.output, lines=True, program=PROGRAM)
        self.assertEqual((caught.exception.code, caught.exception.options), ("exists", ("--force",)))
        with self.assertRaisesRegex(corank.CorankError, "--nonsense"):
            corank.merge(run, self.output, lines=True, nonsense=1, force=True, program=PROGRAM)
        with self.assertRaisesRegex(TypeError, r"explain\(\)"):
            corank.merge(run, self.output, lines=True, explain=True, program=PROGRAM)
        with self.assertRaisesRegex(ValueError, "no files"):
            corank.merge([], self.output, lines=True, program=PROGRAM)
        with self.assertRaisesRegex(FileNotFoundError, "no such program"):
            corank.merge(run, self.output, lines=True, program=str(self.folder / "none"))
        with self.assertRaisesRegex(corank.CorankError, "told|exit code 3"):
            corank.merge(run, self.output, lines=True, program=self.script("echo told >&2; exit 3"))
        self.assertEqual(self.lines(), ["old"])

    def script(self, text):
        path = self.folder / "script"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def test_warns(self):
        table = self.file("table", "x", "1")
        with self.assertWarnsRegex(corank.CorankWarning, "could not be read and was skipped") as caught:
            corank.sort(table, self.output, csv=True, by="1:u64", bad="skip", program=PROGRAM)
        self.assertEqual(caught.filename, __file__)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaises(corank.CorankWarning):
                corank.sort(table, self.output, csv=True, by="1:u64", bad="skip", force=True, program=PROGRAM)

    def test_reports_progress(self):
        runs = [self.file(f"{i}", *sorted(map(str, range(i, 20000, 2)))) for i in range(2)]
        seen = []
        corank.merge(runs, self.output, lines=True, on_progress=lambda *bytes: seen.append(bytes), program=PROGRAM)
        size = self.output.stat().st_size
        self.assertEqual(seen[-1], (size, size))
        self.assertEqual(seen, sorted(seen))

        class Stop(Exception):
            pass

        def stop(done, total):
            raise Stop

        with self.assertRaises(Stop):
            corank.merge(runs, self.folder / "other", lines=True, on_progress=stop, program=PROGRAM)

    def test_an_interrupt_ends_the_program(self):
        line = '{"level": "progress", "bytes_done": 1, "bytes_total": 0}'
        program = self.script(f"echo $$ > '{self.folder}/process'; echo '{line}' >&2; exec sleep 1000")
        with self.assertRaises(KeyboardInterrupt):
            corank.sort(self.file("a"), self.output, lines=True, program=program,
                        on_progress=lambda done, total: os.kill(os.getpid(), signal.SIGINT))
        with self.assertRaises(ProcessLookupError):
            os.kill(int((self.folder / "process").read_text()), 0)

    def test_streams(self):
        runs = [self.file("a", 1, 3), self.file("b", 2)]
        with corank.stream("merge", runs, lines=True, program=PROGRAM) as lines:
            self.assertEqual(list(lines), [b"1\n", b"2\n", b"3\n"])
        long = self.file("long", *range(100000, 400000))
        with corank.stream("merge", long, lines=True, program=PROGRAM) as lines:
            self.assertEqual(next(lines), b"100000\n")  # the rest is not read
        disordered = self.file("disordered", *range(100000, 200000), "1")
        with corank.stream("merge", disordered, lines=True, program=PROGRAM) as lines:
            with self.assertRaisesRegex(corank.OutOfOrderError, "disordered"):
                lines.read()

    def test_explains(self):
        text = corank.explain("sort", self.file("a", 1), self.output, lines=True, program=PROGRAM)
        self.assertIn("verify", text)
        self.assertFalse(self.output.exists())


class Document(unittest.TestCase):
    """Runs the examples of docs/python.md, in their order."""

    FILES = {"visits.csv": b"city,time\nRome,2026-01-02\nOslo,2026-01-01\nRome,2026-01-03\n", "a.txt.gz": gzip.compress(b"a\nc\n"),
             "b.txt.gz": gzip.compress(b"b\nc\n"), "monday.csv": b"id,n\n1,x\n3,y\n", "tuesday.csv": b"id,n\n2,z\n"}
    SORTED = b"city,time\nOslo,2026-01-01\nRome,2026-01-03\nRome,2026-01-02\n"

    def test_examples(self):
        text = DOCUMENT.read_text()
        examples = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        self.assertGreater(len(examples), 5)
        folder = os.getcwd()
        self.addCleanup(os.chdir, folder)
        names = {"numpy": numpy, "pyarrow": pyarrow}
        os.environ["PATH"] = f"{pathlib.Path(PROGRAM).resolve().parent}:{os.environ['PATH']}"
        with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()) as printed:
            os.chdir(scratch)
            for name, content in self.FILES.items():
                pathlib.Path(name).write_bytes(content)
            for example in examples:
                if all(names[name] or f"{name}." not in example for name in ("numpy", "pyarrow")):
                    exec(example, names)
                if "sorted.csv" in example and "on_progress" not in example:
                    self.assertEqual(pathlib.Path("sorted.csv").read_bytes(), self.SORTED)
            os.chdir(folder)
        self.assertIn("3 True\n", printed.getvalue())
        self.assertIn("visits.csv: line 2 (byte 10) is out of order", printed.getvalue())
        self.assertIn("96 of 96 bytes\n", printed.getvalue())


@unittest.skipIf(numpy is None, "needs NumPy")
class Arrays(unittest.TestCase):
    def setUp(self):
        self.random = numpy.random.default_rng(1)

    def array(self, dtype, count=2000):
        dtype = numpy.dtype(dtype)
        if dtype.kind == "b":
            return self.random.random(count) < 0.5
        return numpy.frombuffer(self.random.bytes(count * dtype.itemsize), dtype)

    def test_sorts_elements_of_every_type(self):
        for dtype in ("u1", "i1", "<u2", ">i2", "<i4", ">u4", "<i8", ">u8", "<f4", ">f4", "<f8", ">f8", "?", "S5"):
            array = self.array(dtype)
            with self.subTest(dtype):
                expected = numpy.sort(array, kind="stable")
                found = corank.sort_array(array, program=PROGRAM)
                self.assertEqual(found.dtype, array.dtype)
                if array.dtype.kind == "f":
                    numpy.testing.assert_array_equal(found, expected)  # takes all NaNs for equal
                else:
                    self.assertEqual(found.tobytes(), expected.tobytes())

    def test_sorts_records_stably(self):
        dtype = numpy.dtype({"names": ["value", "key", "name"], "formats": ["<f8", "<i4", "S3"], "offsets": [8, 0, 16],
                             "itemsize": 24})
        array = numpy.zeros(5000, dtype)
        array["key"] = self.random.integers(0, 9, len(array))
        array["value"] = self.random.random(len(array))
        found = corank.sort_array(array, by=["key:desc"], program=PROGRAM)
        self.assertTrue((found == array[numpy.argsort(-array["key"], kind="stable")]).all())
        some = corank.sort_array(array[::7], by="value", limit=9, program=PROGRAM)
        self.assertTrue((some == numpy.sort(array[::7], order="value")[:9]).all())
        found["key"] = 0  # a result may be written to

    def test_merges(self):
        arrays = [numpy.sort(self.array("<i8", count)) for count in (0, 1000, 1, 500)]
        found = corank.merge_arrays(arrays, program=PROGRAM)
        self.assertTrue((found == numpy.sort(numpy.concatenate(arrays), kind="stable")).all())
        self.assertEqual(len(corank.merge_arrays([arrays[0]], program=PROGRAM)), 0)

    def test_refuses_what_does_not_fit(self):
        for dtype in ("f2", "U4", "c16", "O", [("a", "f2")], [("a", "u4", 3)]):
            with self.subTest(dtype), self.assertRaisesRegex(TypeError, "no type of fixed-size records"):
                corank.sort_array(numpy.zeros(3, dtype), program=PROGRAM)
        with self.assertRaisesRegex(ValueError, "'a:b'"):
            corank.sort_array(numpy.zeros(3, [("a:b", "u4")]), program=PROGRAM)
        with self.assertRaisesRegex(TypeError, "2 dimensions"):
            corank.sort_array(numpy.zeros((3, 3)), program=PROGRAM)
        with self.assertRaisesRegex(TypeError, "masked"):
            corank.sort_array(numpy.ma.array([2, 1], mask=[True, False]), program=PROGRAM)
        with self.assertRaisesRegex(TypeError, "float64"):
            corank.merge_arrays([numpy.zeros(3, "u4"), numpy.zeros(3)], program=PROGRAM)
        with self.assertRaisesRegex(TypeError, "select: no option of arrays"):
            corank.sort_array(numpy.zeros(3), select="value", program=PROGRAM)
        with self.assertRaisesRegex(corank.OutOfOrderError, "^array 1: record 1") as caught:
            corank.merge_arrays([numpy.arange(3), numpy.array([2, 1, 3])], program=PROGRAM)
        self.assertEqual((caught.exception.file, caught.exception.record), ("array 1", 1))

    def test_a_dtype_describes_files(self):
        dtype = numpy.dtype([("key", "<u4"), ("value", "<f4")])
        with tempfile.TemporaryDirectory() as folder:
            path, output = os.path.join(folder, "a"), os.path.join(folder, "b")
            array = numpy.zeros(1000, dtype)
            array["key"] = self.random.integers(0, 99, len(array))
            array["value"] = numpy.arange(len(array))
            array.tofile(path)
            corank.sort(path, output, record=dtype, by="key", program=PROGRAM)
            found = numpy.memmap(output, dtype, "r")
            self.assertTrue((found == array[numpy.argsort(array["key"], kind="stable")]).all())
            corank.sort(path, output, record=array["key"].dtype, force=True, program=PROGRAM)
            self.assertEqual(os.path.getsize(output), 8000)


if __name__ == "__main__":
    unittest.main()
