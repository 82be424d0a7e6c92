// Merges runs of words in cache.
//
// Call reset(), fill the room that each add() returns, then call merge() or merge_into(). Counts
// are words. Not thread-safe; a merger owns and reuses its buffers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "merge/front.hpp"
#include "merge/word_kernel.hpp"

namespace corank {

// A lane's job: the next `left` words, a multiple of the block, of a two-way merge.
struct WordJob {
  const Word* a;
  const Word* b;
  Word* out;
  std::uint64_t left;
};

// Merges neighbouring runs pairwise, level by level, from one buffer to the other.
class WordMerger {
 public:
  explicit WordMerger(const WordKernel& kernel) : kernel_(kernel) {}

  // Discards all runs, and makes room for `words` words in up to `runs` runs.
  void reset(std::uint64_t words, std::uint64_t runs);

  // Returns room for `count` more ascending words, which the caller fills in; `first` is the first
  // of them. They extend the last run if they can, so runs that follow one another, or are all
  // equal, are never merged.
  Word* add(Word first, std::uint64_t count);

  // Returns the merged words, in one of the buffers.
  std::span<Word> merge();
  // Merges into `out`, each word XOR-ed with `flip`; by non-temporal stores if `streams`.
  void merge_into(Word* out, Word flip, bool streams);
  // Merges a cache-sized front of two runs straight from memory. Returns an empty front if one
  // would come close to the end of a run, and nothing if a run is out of order.
  std::optional<Front> merge_front(std::span<const Word> a, std::span<const Word> b,
                                   bool unsigned_order, Word* out);

 private:
  struct Run {
    std::uint64_t begin, count;
  };

  std::uint64_t take_max();
  void merge_level(const Word* from, Word* to);
  void add_job(const Word* a, std::uint64_t a_count, const Word* b, std::uint64_t b_count,
               Word* out, std::uint64_t count, std::uint64_t min_cut_words);
  template <class Advance>
  void run_jobs(bool unsigned_order, Advance advance);

  const WordKernel& kernel_;
  std::array<std::vector<Word>, 2> buffers_;
  std::uint64_t end_ = 0;  // of the words in the first buffer
  std::vector<Run> runs_;
  std::vector<WordJob> jobs_;
};

}  // namespace corank
