// Opens the runs and chooses how to read them: buffered, direct or mapped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "corank/options.hpp"
#include "corank/streams.hpp"
#include "format/record_format.hpp"
#include "run/run.hpp"

namespace corank {

// Opens the runs, which count bytes if one of them is a stream. Throws Interrupted, and Error if a
// file cannot be opened or a pipe is named twice.
std::vector<Run> open_runs(std::span<const std::filesystem::path> paths, const RecordFormat& format,
                           const Options& options);

// Makes runs of streams.
std::vector<Run> open_runs(std::span<const NamedSource> sources, const RecordFormat& format,
                           const Options& options);

// Warns about the pipes among these runs that have ended as BGZF without its last block.
void warn_of_cut_off_pipes(std::span<const Run> runs, const Options& options);

// Prepares the runs to be read as `io` says; returns the value of Stats::io. Io::automatic maps
// them only if `may_map`. `resident_bytes` of mapped runs may be in memory at a time; 0 drops each
// page after its last record. `direct_chunk_bytes` is the chunk size for direct I/O; 0 if there are
// no such chunks.
const char* choose_io(std::span<Run> runs, Io io, bool may_map, std::uint64_t resident_bytes,
                      std::uint64_t direct_chunk_bytes);

}  // namespace corank
