// A part of a run, in memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace corank {

// Records that lie end to end and ascend: a run, or a part of one.
struct Stretch {
  const std::byte* records;
  std::uint64_t count;
  bool predecessor;  // the record before the first belongs to the same run
};

// Leaves out the first `count` records.
inline void drop(Stretch& stretch, std::uint64_t count, std::uint32_t record_bytes) {
  stretch.records += count * record_bytes;
  stretch.count -= count;
  stretch.predecessor |= count != 0;
}

}  // namespace corank
