// The memory that a merge may take, and what its passes get of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "corank/options.hpp"
#include "plan/pass_planner.hpp"
#include "run/run.hpp"

namespace corank {

// What a plan for one pass depends on beside its runs.
struct PassNeeds {
  std::size_t partitions;
  std::uint64_t held;  // runs that chunks are held of at once
  bool direct;         // whether chunks begin and end within pages
  bool direct_output;
  bool cuda;
  std::uint64_t wanted_bytes;  // units and chunks need not be larger
};

class Budget {
 public:
  // Of a merge of `runs` on `threads` threads. `options` must outlive it.
  Budget(const Options& options, std::span<const Run> runs, unsigned threads);

  std::uint64_t bytes() const { return bytes_; }  // that are left for buffers

  // Sets aside what compressing all outputs takes; returns how many threads compress each.
  unsigned reserve(const Compression& compression);

  // The most runs that each of `slices` can merge at once. Throws Error if they are not even two.
  std::uint64_t widest(std::size_t partitions) const;

  // None where so many runs can't be merged at once.
  std::optional<PassPlan> plan(std::span<const Run> runs, const PassNeeds& needs) const;

 private:
  std::uint64_t smallest() const;  // that any number of runs can be merged with

  const Options& options_;
  unsigned threads_;
  bool has_streams_;
  std::uint64_t decoder_bytes_ = 0;   // the most that decompressing a run takes
  const std::uint64_t memory_bytes_;  // all of it
  std::uint64_t bytes_;               // what is left of it
  std::uint64_t reserved_bytes_ = 0;
};

}  // namespace corank
