// Sorts records that need not fit in memory: files into a file, or memory in place.
//
// A call forms sorted runs in memory, and merges them as merge() does. It blocks until the sort is
// done. Sorts may run concurrently in one process. All sizes are bytes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "corank/error.hpp"
#include "corank/options.hpp"
#include "corank/stats.hpp"

namespace corank {

// Sorts the records of all `inputs` by `options.keys` into the file `output`.
//
// The sort is stable: records with equal keys keep the order of `inputs` and, within a file, their
// order. Inputs and output are those of merge(), except that inputs need not be sorted.
// Options::query applies to the sorted records. Options::copy_only and set operations are refused.
// Options::resume is refused with ranges, Query::where, Query::limit and temporary_compression.
//
// Records that do not fit in Options::memory_bytes are written to nameless files in
// Options::temporary_folders, or beside the output: as many bytes as the inputs have, less what
// fits. That they have room is checked before anything is read, if the size of the inputs is known.
//
// Throws what merge() throws, except OutOfOrder. After a throw, an existing output is untouched,
// and no temporary file is left, except with Options::resume.
Stats sort(std::span<const std::filesystem::path> inputs, const std::filesystem::path& output,
           const Options& options);

// Returns what sort() would do with the same arguments, as text for people, as explain_merge()
// does.
std::string explain_sort(std::span<const std::filesystem::path> inputs,
                         const std::filesystem::path& output, const Options& options);

// Sorts fixed-size records in memory, in place and stably. Takes as much memory as the records
// besides Options::memory_bytes, unless a device holds all of them, with their keys, at once.
// Throws what merge() of runs in memory throws; after a throw the order of the records is
// unspecified, and some may be lost. Options::query must emit every record unchanged.
Stats sort(std::span<std::byte> records, const Options& options);

}  // namespace corank
