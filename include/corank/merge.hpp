// Merges k sorted runs into one sorted output: the entry point of the library.
//
// A call blocks until the merge is done, and uses the threads and the memory that Options grants.
// Merges may run concurrently in one process. All sizes are bytes. While files are mapped, the
// process has a handler of SIGBUS that forwards every fault elsewhere; the last merge restores the
// handler before. Merges never lower the number of threads that oneTBB allows the process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "corank/error.hpp"
#include "corank/options.hpp"
#include "corank/stats.hpp"

namespace corank {

// Merges the files `runs`, each sorted by `options.keys`, into the file `output`.
//
// The merge is stable: records with equal keys keep the order of `runs` and, within a run, their
// order in the file. At most one run may be "-", standard input; the output "-" is standard output.
// Pipes and devices are written in place. Any other output appears under its name only when it is
// complete and durable, so it may also be one of the runs. It keeps the mode of the file that it
// replaces, and its owner if the process may set that. If `output` is a symbolic link, its target
// is replaced.
//
// Throws OutOfOrder if a run is not sorted, Interrupted if `options.stop` requests it, and
// Corrupted if verification fails. Throws std::bad_alloc or std::system_error if the system refuses
// memory or a thread, and Error for everything else, such as a run that changes during the merge.
//
// After a throw, an existing output is untouched, and no temporary file is left except for
// Options::resume. One exception: the last step renames the output files one after another and
// makes the names durable. If it fails, some of them may be new; these are complete.
Stats merge(std::span<const std::filesystem::path> runs, const std::filesystem::path& output,
            const Options& options);

// Returns what merge() would do with the same arguments, as text for people: passes, partitions,
// operators, buffers and backend. Opens and probes the runs, but writes nothing. Throws what
// merge() throws of options and runs before it merges; an output that exists is not refused.
std::string explain_merge(std::span<const std::filesystem::path> runs,
                          const std::filesystem::path& output, const Options& options);

// Merges runs in memory into `output`, which must be exactly as large as all runs together and must
// not overlap any. The caller owns all memory and must not change it during the merge. Only
// fixed-size records can be merged in memory.
//
// If Options::query emits fewer bytes, they are at the start of `output`, and the rest of it is
// unspecified. Memory that a CUDA device cannot access is registered with it during the merge. To
// avoid that cost, register it beforehand or allocate it with cudaMallocHost.
//
// Throws what the merge of files throws, and Error if the options request parts, resume or
// compression. After a throw the contents of `output` are unspecified. Errors call the runs
// "run 0", "run 1" and so on.
Stats merge(std::span<const std::span<const std::byte>> runs, std::span<std::byte> output,
            const Options& options);

}  // namespace corank
