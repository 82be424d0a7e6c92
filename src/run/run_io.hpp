// How runs are opened, and how they are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "corank/options.hpp"
#include "run/run.hpp"

namespace corank {

// Throws Error where a file can't be opened or a pipe is named twice, and Interrupted.
std::vector<Run> open_runs(std::span<const std::filesystem::path> paths, std::uint32_t record_bytes,
                           const Options& options);

// Makes the runs ready to be read as `io` says, and returns Stats::io. Only where it `may_map` does
// Io::automatic map them, for a merge that may take `memory_bytes`. In a chunk of direct runs there
// is room for `direct_chunk_bytes`, 0 where there is no such chunk.
const char* choose_io(std::span<Run> runs, Io io, bool may_map, std::uint64_t memory_bytes,
                      std::uint64_t direct_chunk_bytes);

}  // namespace corank
