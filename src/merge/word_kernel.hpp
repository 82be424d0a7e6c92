// The inner loops on words, compiled once for each instruction set that pays.
#pragma once

#include <cstddef>
#include <cstdint>

namespace corank {

// A key, or what stands for it, as a number in signed order: vector units have no unsigned compare.
using Word = std::int64_t;

// Two-way merges in lockstep, each of runs that `p` and `q` point into. Behind every run stand
// `word_margin` words that do not sort before it.
struct WordLanes {
  static constexpr int count = 4;
  static constexpr int block = 4;  // words that a vector kernel takes of a run at a time

  const Word* p[count];
  const Word* q[count];
  Word* out[count];
  Word carry[block][count];  // of a vector kernel: the greatest words of what it has taken
};

constexpr std::uint64_t word_margin = 2 * WordLanes::block;

// What is known of the order of words that follow one another.
struct Order {
  std::uint64_t last;
  bool descends = false;
  bool equals = false;
};

// How a block's words are made from a word of the key: a few bits of its own, then the run's
// number.
struct Packing {
  std::uint64_t least = 0;
  unsigned shift = 0;
  unsigned run_bits = 0;
};

// Copies whole lines of 64 bytes past the caches; `to` begins one.
using StreamLines = void(std::byte* to, const std::byte* from, std::uint64_t bytes);

// What a lane puts out past the caches at a time: the words of a step.
constexpr std::uint64_t streamed_bytes = WordLanes::block * sizeof(Word);

struct WordKernel {
  // `steps`, a multiple of the block, outputs of each lane, all words ^ `flip` as they go out.
  using Advance = void(WordLanes& lanes, std::uint64_t steps, Word flip);

  bool carries;
  Advance* advance;
  // The same past the caches, if the instruction set can; where a lane's go is aligned to
  // `streamed_bytes`.
  Advance* advance_streaming;
  // The same of unsigned words, if `unsigned_order`; they go out as they are.
  void (*advance_raw)(WordLanes& lanes, std::uint64_t steps, bool unsigned_order);
  // Whether words that are `stride` bytes apart do, each ^ `flip`, its bytes swapped before if
  // `swap`.
  bool (*ascend)(const std::byte* words, std::uint64_t stride, std::uint64_t count, bool swap,
                 std::uint64_t flip);
  // The same of words that lie end to end, and they go to `to`.
  bool (*read_ascending)(const std::byte* records, std::uint64_t count, bool swap,
                         std::uint64_t flip, Word* to);
  // Looks at unsigned words of the key.
  void (*find_order)(const std::uint64_t* words, std::uint64_t count, Order& order);
  // They become packed ones, where they are.
  void (*pack)(std::uint64_t* words, std::uint64_t count, const Packing& packing,
               std::uint64_t run);
  // Both, of keys that are one word, each ^ `flip`, its bytes swapped before if `swap`: `stride`
  // bytes apart, from `keys` on, and they go to `to`.
  void (*read_packed)(const std::byte* keys, std::uint64_t stride, std::uint64_t count, bool swap,
                      std::uint64_t flip, const Packing& packing, std::uint64_t run, Order& order,
                      std::uint64_t* to);
  // Whether any two neighbours differ in their run's number alone or, `within_runs`, at most.
  bool (*tied)(const Word* words, std::uint64_t count, const Packing& packing, bool within_runs);
  // Of further words, where words >> `shift` equal their predecessors: whether any descends, and
  // whether any is equal, too.
  Order (*order_ties)(const std::uint64_t* words, unsigned shift, const std::uint64_t* further,
                      std::uint64_t count);
  StreamLines* stream_lines;
};

enum class Simd { none, neon, avx2, avx512 };

// Null if this machine, or this build, lacks it.
const WordKernel* word_kernel(Simd simd);
const WordKernel& best_word_kernel();

}  // namespace corank
