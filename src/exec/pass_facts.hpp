// Properties derived from a Pass before it runs: sizes, and which special cases apply.
#pragma once

#include <cstdint>

#include "corank/key.hpp"
#include "exec/pass.hpp"

namespace corank {

struct PassFacts {
  explicit PassFacts(const Pass& pass);

  KeyLayout layout;
  std::uint32_t record_bytes;
  std::uint64_t bytes_in_runs = 0;
  std::uint64_t chunks_in_runs;
  std::uint64_t units;
  bool has_streams;  // some run is compressed or a pipe
  // Units need a buffer: merged units do, and copies where only whole pages can be written.
  bool needs_output;
  bool is_verified;
  // The backend verifies the input: runs that are mapped or in memory, or all if it is a device.
  bool backend_reads;
};

// True if the records of the run are in memory already, or mapped.
bool is_in_place(const Run& run);

}  // namespace corank
