"""Sorts and merges files larger than memory by the program corank, which must be installed.

    import corank
    corank.sort("visits.csv", "sorted.csv", csv=True, header=True, by=["city", "time:time:desc"])
    corank.merge(["a.bin", "b.bin"], "all.bin", record="key:u64,value:u64", on_equal="last")
    with corank.stream("merge", ["a.txt.gz", "b.txt.gz"], lines=True) as lines:
        for line in lines: ...

Options of the program are keyword arguments, with _ for -: `memory="2G"` is --memory=2G, `lines=True` is --lines, and
`from_="5"` is --from=5, since `from` is a word of Python. docs/REFERENCE.md in the repository has all of them. `by`, `select` and
`device` may be lists, and `record` a NumPy dtype, such as that of a numpy.memmap of the file. Files are named by strings or
paths: one, or several. An output that exists is an error without force=True, and is unchanged after an error.

All functions take `program`, the name or path of the program. Those that write files take `on_progress`, a function that is called
with the number of bytes that are done and that of all, which is 0 if it is not known. An exception that it raises, or an
interrupt, ends the program.

Functions raise CorankError if the program fails, and warn with CorankWarning. They may be called by several threads at a time.
sort_array() and merge_arrays() work on NumPy arrays. corank.ray merges and sorts on a Ray cluster.
"""

from ._arrays import merge_arrays, sort_array
from ._files import check, explain, intersect, merge, sort, stream, subtract, union
from ._program import CorankError, CorankWarning, OutOfOrderError, Result

__all__ = ["CorankError", "CorankWarning", "OutOfOrderError", "Result", "check", "explain", "intersect", "merge",
           "merge_arrays", "sort", "sort_array", "stream", "subtract", "union"]
