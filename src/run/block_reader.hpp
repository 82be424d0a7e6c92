// Reads a run in blocks for a search, and keeps the last block, so that the last steps of a search
// read nothing. Positions are those of the run, which must outlive the reader. Not thread-safe.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "run/run.hpp"
#include "util/math.hpp"

namespace corank {

// Bytes of the blocks of all runs of a search together.
constexpr std::uint64_t max_blocks_bytes = 32 * MiB;

class BlockReader {
 public:
  static constexpr std::uint64_t default_block_bytes = std::uint64_t{64} << 10;

  explicit BlockReader(const Run& run, std::uint64_t block_bytes = default_block_bytes)
      : run_(run), block_records_(block_bytes / run.record_bytes()) {
    assert(!run.is_stream());
  }

  std::uint64_t records() const { return run_.records(); }
  std::uint32_t record_bytes() const { return run_.record_bytes(); }
  std::uint64_t start_before(std::uint64_t position) const { return run_.start_before(position); }
  // Returns the number of reads that search(*this) makes.
  template <class Search>
  std::uint64_t reads_of(const Search& search) {
    const std::uint64_t before = num_reads_;
    search(*this);
    return num_reads_ - before;
  }

  // Tells that the search goes on in [begin, end): all of it is read at once if it fits a block.
  void expect(std::uint64_t begin, std::uint64_t end) {
    expected_begin_ = begin;
    expected_end_ = end;
  }

  // Returns the records from `first` on that are in memory, at least one; reads `count` records, or
  // those that the run has, if there are none. Valid until the next call.
  std::span<const std::byte> from(std::uint64_t first, std::uint64_t count) {
    assert(first < records());
    if (first < begin_ || first >= end_) fill(first, std::min(count, records() - first));
    return std::span(block_).subspan((first - begin_) * record_bytes());
  }
  // Returns `count` records from `first` on, valid until the next call.
  std::span<const std::byte> read(std::uint64_t first, std::uint64_t count) {
    assert(first <= records() && count <= records() - first);
    if (first < begin_ || first + count > end_) fill(first, count);
    return std::span(block_).subspan((first - begin_) * record_bytes(), count * record_bytes());
  }

 private:
  // Bytes of a read: no more than a page, unless the search ends in the block.
  static constexpr std::uint64_t probe_bytes = 4096;

  void fill(std::uint64_t first, std::uint64_t count) {
    begin_ = first;
    end_ =
        std::min(first + std::max<std::uint64_t>(count, probe_bytes / record_bytes()), records());
    if (expected_begin_ <= first && first + count <= expected_end_ &&
        expected_end_ - expected_begin_ <= block_records_) {
      begin_ = expected_begin_;
      end_ = expected_end_;
    }
    block_.resize((end_ - begin_) * record_bytes());
    run_.read(begin_, end_ - begin_, block_);
    ++num_reads_;
  }

  const Run& run_;
  std::uint64_t block_records_;
  std::uint64_t expected_begin_ = 0, expected_end_ = 0;
  std::uint64_t begin_ = 0, end_ = 0;  // of the block
  std::vector<std::byte> block_;
  std::uint64_t num_reads_ = 0;
};

}  // namespace corank
