// Merges runs of words, in cache.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "merge/front.hpp"
#include "merge/word_kernel.hpp"

namespace corank {

// The next `left` words, a multiple of the block, of a two-way merge.
struct WordJob {
  const Word* a;
  const Word* b;
  Word* out;
  std::uint64_t left;
};

// A tree of two-way merges of neighbouring runs, from one buffer to another and back.
class WordMerger {
 public:
  explicit WordMerger(const WordKernel& kernel) : kernel_(kernel) {}

  void reset(std::uint64_t words, std::uint64_t runs);

  // The place of `count` more words, to be filled in; `first` is the first of them. They prolong
  // the last run where they can: so runs that follow one another, or are all equal, are never
  // merged.
  Word* add(Word first, std::uint64_t count);

  // The merged words, in one of the buffers.
  std::span<Word> merge();
  // The same into `out`, each word ^ `flip`, past the caches if it `streams`.
  void merge_into(Word* out, Word flip, bool streams);
  // Merges a front of two runs that the caches like, from memory beyond them; none if it would come
  // near to the end of a run. Nothing if a run is out of order.
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
