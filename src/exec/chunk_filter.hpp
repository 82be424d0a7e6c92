// Leaves out records of a sort that its output cannot have, before they are sorted.
//
// A filter copies the others to chunks of its own, unless all records of a chunk pass. One thread
// uses it; threads of its arena help. What it refers to must outlive it, and the chunks that it
// returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exec/pass.hpp"
#include "run/work_unit.hpp"
#include "sort/cutoff.hpp"

namespace corank {

class ChunkFilter {
 public:
  // Applies the bounds and the condition of the pass's operators, if it has any, and then `cutoff`,
  // unless null.
  ChunkFilter(const Pass& pass, const Cutoff* cutoff);

  // Returns the next records that pass, in the order in which read() returns chunks; null once
  // read() does.
  template <class Read>
  ChunkRef next(Read read) {
    if (held_) return std::move(held_);
    while (ChunkRef chunk = read()) {
      const Chosen chosen = choose(*chunk);
      ChunkRef full;
      if (chosen.records == chunk->count) {
        if (!open_) return chunk;
        full = std::move(open_);
        held_ = std::move(chunk);
      } else {
        full = make_room(chosen, chunk->run);
        copy(*chunk);
      }
      if (full) return full;
    }
    return std::move(open_);
  }

  // Return the number of records that were left out, and their fingerprint.
  std::uint64_t records_left_out() const { return records_left_out_; }
  std::uint64_t fingerprint_left_out() const { return fingerprint_left_out_; }

 private:
  // Copied records, and the rows of those that vary in length. Its run is that of the first.
  struct Copies : Chunk {
    std::unique_ptr<std::byte[]> records;
    std::uint64_t bytes = 0, room_bytes = 0;
    std::vector<PrefixRef> refs;
  };
  // The number and the bytes of records that pass.
  struct Chosen {
    std::uint64_t records = 0, bytes = 0;
  };

  Chosen choose(const Chunk& chunk);
  Chosen choose(const std::byte* rows, std::span<std::uint16_t> which) const;
  std::span<std::uint16_t> rows_of(std::size_t batch);
  ChunkRef make_room(const Chosen& chosen, std::uint32_t run);
  void copy(const Chunk& chunk);
  void copy(const std::byte* rows, RowIndices which);

  const Pass& pass_;
  const KeyLayout layout_;
  const Cutoff* cutoff_;
  std::shared_ptr<Copies> open_;
  ChunkRef held_;  // comes next
  // The rows of a chunk that pass, those of each batch from its first row on, and how many there
  // are.
  std::vector<std::uint16_t> chosen_;
  std::vector<Chosen> batches_;
  std::uint64_t records_left_out_ = 0;
  std::uint64_t fingerprint_left_out_ = 0;
};

}  // namespace corank
