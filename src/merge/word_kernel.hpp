// Inner loops on 64-bit words, compiled once per instruction set.
//
// A `WordKernel` is a table of stateless, thread-safe functions; best_word_kernel() returns the
// best one for this processor. Counts and steps are words, strides are bytes. If `swap`, the bytes
// of an input word are reversed before it is XOR-ed with `flip`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace corank {

// A key word, or a packed one, as a signed number: vector units lack unsigned comparisons.
using Word = std::int64_t;

// Two-way merges in lockstep; lane l merges the runs at p[l] and q[l] to out[l]. After each run
// there must be `word_margin` words that do not sort before its last.
struct WordLanes {
  static constexpr int count = 4;
  static constexpr int block = 4;  // words that a vector kernel takes from a run at a time

  const Word* p[count];
  const Word* q[count];
  Word* out[count];
  Word carry[block][count];  // vector kernels only: the largest words taken and not yet emitted
};

constexpr std::uint64_t word_margin = 2 * WordLanes::block;

// The last of a sequence of words, and whether any word is less than or equals its predecessor.
struct Order {
  std::uint64_t last;
  bool descends = false;
  bool equals = false;
};

// How a key word is packed: (word - least) >> shift, followed by `run_bits` bits of the run id.
struct Packing {
  std::uint64_t least = 0;
  unsigned shift = 0;
  unsigned run_bits = 0;
};

// Copies whole cache lines of 64 bytes by non-temporal stores; `to` must begin a line.
using StreamLines = void(std::byte* to, const std::byte* from, std::uint64_t bytes);

// Bytes that a lane emits by one non-temporal store: the words of a step.
constexpr std::uint64_t streamed_bytes = WordLanes::block * sizeof(Word);

struct WordKernel {
  // Emits `steps` words per lane, a multiple of the block, each XOR-ed with `flip`.
  using Advance = void(WordLanes& lanes, std::uint64_t steps, Word flip);

  // Whether the functions below use WordLanes::carry.
  bool carries;
  Advance* advance;
  // Emits by non-temporal stores, if the instruction set has them; each lane's `out` must be
  // aligned to `streamed_bytes`.
  Advance* advance_streaming;
  // Merges in unsigned order if `unsigned_order`, in signed order otherwise, and emits words
  // unchanged.
  void (*advance_raw)(WordLanes& lanes, std::uint64_t steps, bool unsigned_order);
  // Returns whether the words, `stride` bytes apart, ascend.
  bool (*ascend)(const std::byte* words, std::uint64_t stride, std::uint64_t count, bool swap,
                 std::uint64_t flip);
  // Copies contiguous words to `to`, and returns whether they ascend.
  bool (*read_ascending)(const std::byte* records, std::uint64_t count, bool swap,
                         std::uint64_t flip, Word* to);
  // Extends `order` by unsigned key words.
  void (*find_order)(const std::uint64_t* words, std::uint64_t count, Order& order);
  // Packs key words of run `run` in place.
  void (*pack)(std::uint64_t* words, std::uint64_t count, const Packing& packing,
               std::uint64_t run);
  // Reads single-word keys `stride` bytes apart, extends `order` by them, and writes them packed to
  // `to`.
  void (*read_packed)(const std::byte* keys, std::uint64_t stride, std::uint64_t count, bool swap,
                      std::uint64_t flip, const Packing& packing, std::uint64_t run, Order& order,
                      std::uint64_t* to);
  // Returns whether two neighbours have equal prefixes. Neighbours of the same run count only if
  // `within_runs`.
  bool (*tied)(const Word* words, std::uint64_t count, const Packing& packing, bool within_runs);
  StreamLines* stream_lines;
};

// Returns the kernels that this processor supports, the fastest first.
std::span<const WordKernel* const> word_kernels();
inline const WordKernel& best_word_kernel() {
  return *word_kernels().front();
}

}  // namespace corank
