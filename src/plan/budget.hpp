// Memory budget of one merge: decides how many runs a pass may merge and how it spends its memory.
//
// All sizes are bytes. A budget is made once per merge, before any buffer is allocated. It only
// calculates; the passes allocate. Use it from one thread at a time. A budget that is too small for
// the merge throws Error, which names the smallest one that works.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "corank/options.hpp"
#include "format/record_format.hpp"
#include "plan/pass_planner.hpp"
#include "run/run.hpp"

namespace corank {

// Requirements of one pass, apart from its runs.
struct PassNeeds {
  std::size_t partitions;  // merged concurrently; each gets an equal share of the memory
  std::uint64_t held;      // number of runs that hold chunks at the same time
  // Number of runs in memory beside these, of variable-length records; see
  // PassPlan::in_memory_records.
  std::uint64_t in_memory = 0;
  bool direct;                 // runs are read with direct I/O: chunks hold whole pages of the file
  bool direct_output;          // output is written with direct I/O
  std::size_t devices;         // that merge the units of all partitions; 0: the CPU does
  std::uint64_t wanted_bytes;  // upper bound on the useful size of a unit, and on the input
};

class Budget {
 public:
  // Computes the budget for a merge of `runs` on `threads` threads. `options` must outlive it.
  Budget(const Options& options, const RecordFormat& format, std::span<const Run> runs,
         unsigned threads);

  // Bytes left for buffers.
  std::uint64_t bytes() const { return bytes_; }
  // Returns the smallest budget of which compressors leave at least `bytes` for buffers.
  std::uint64_t whole_for(std::uint64_t bytes) const;
  // Take bytes for other buffers than those of passes, and give them back.
  void take(std::uint64_t bytes);
  void give_back(std::uint64_t bytes) { bytes_ += bytes; }

  // Reserves memory for the compressors of all outputs. Returns the number of threads that each
  // compressor may use: fewer if the memory for all threads exceeds half of the budget.
  unsigned reserve(const Compression& compression);

  // Expects runs that are compressed, of which each takes up to `decoder_bytes`.
  void expect_streams(std::uint64_t decoder_bytes);

  // Returns the max fan-in: how many runs each of `partitions` concurrent merges can take in one
  // pass. Throws Error if it is below two.
  std::uint64_t widest(std::size_t partitions) const;

  // Returns the plan for one partition of a pass over `runs`, or nothing if the runs need more
  // memory than the budget has.
  std::optional<PassPlan> plan(std::span<const Run> runs, const PassNeeds& needs) const;

 private:
  struct Compressors {
    unsigned threads;  // of each
    std::uint64_t bytes;
  };
  Compressors compressors(const Compression& compression, std::uint64_t bytes) const;
  // Returns the smallest budget that can merge any number of runs, in one partition.
  std::uint64_t smallest() const;

  const Options& options_;
  std::uint32_t record_bytes_;  // 0 if records vary in length
  unsigned threads_;
  bool has_streams_;                   // some run is compressed or a pipe
  std::uint64_t decoder_bytes_ = 0;    // max memory of one run's decompressor
  const std::uint64_t memory_bytes_;   // whole budget, as given or by default
  std::uint64_t bytes_;                // budget that is not reserved
  std::vector<Compression> reserved_;  // memory for their compressors is taken
};

}  // namespace corank
