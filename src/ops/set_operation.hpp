// Set operations on sorted runs: which records of a group of equal keys are emitted. The decision
// is made while records are merged, in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "corank/query.hpp"

namespace corank {

// Consecutive records of one run in a group.
struct SetPiece {
  std::uint32_t run;
  std::uint64_t count;
};

// A set operation, and the number of runs that it merges. The run whose records an intersection or
// difference keeps is merged last. So each record can be emitted or dropped as soon as it is
// merged.
struct SetOperation {
  OnEqual kind;
  std::uint32_t runs;  // number of runs in the merge
};

// State of a set operation within one group: what its merged records imply for those that follow.
class SetGroup {
 public:
  struct Range {
    std::uint64_t first, end;
  };

  // Returns which of the group's next records are emitted, counted from the first of them.
  Range take(const SetOperation& operation, const SetPiece& next);

 private:
  std::uint32_t runs_ = 0;  // runs seen so far, run_ included
  std::uint32_t run_ = 0;
  std::uint64_t taken_ = 0;  // records of run_ so far
  // Records of the runs before run_: of the longest, of all together, of the shortest.
  std::uint64_t longest_ = 0, all_ = 0;
  std::uint64_t shortest_ = std::numeric_limits<std::uint64_t>::max();
};

// Counts the records that each run contributes to a group, which merged records no longer tell.
// Groups must be queried in ascending order; `word` is the first word of a group's key.
// Variable-length records are passed as their prefix references.
class GroupRunCounter {
 public:
  explicit GroupRunCounter(const KeyLayout& layout);

  // Adds `count` > 0 records of a run, after all of earlier runs and of the run's own before them.
  // They must outlive the counter.
  void add(std::uint32_t run, const std::byte* records, std::uint64_t count);

  // Reads the first key word of each record.
  void read_words(const std::byte* records, std::uint64_t count, Key<1>* words) const {
    encode_keys(first_word_, records, count, words);
  }

  // Returns the runs that `count` merged records with the key of `record` come from, after the
  // group's first `skipped`. Throws Corrupted if the runs have fewer. With `again`, the group may
  // be queried once more.
  std::span<const SetPiece> count(const std::byte* record, std::uint64_t word,
                                  std::uint64_t skipped, std::uint64_t count, bool again);
  // Returns the number of the group's records in run `run`, the last one. The group must not be
  // queried again.
  std::uint64_t count_in_last(std::uint32_t run, const std::byte* record, std::uint64_t word);

 private:
  // Rows of a run that are not counted yet.
  struct Span {
    std::uint32_t run;
    const std::byte* next;
    const std::byte* end;
  };

  std::uint64_t word_of(const std::byte* record) const;
  // Returns the number of the group's rows in a span whose next word is at most `word`.
  std::uint64_t count_equal(std::size_t span, const std::byte* record, std::uint64_t word,
                            bool again);
  void move_to(std::size_t span, const std::byte* next);

  KeyLayout layout_;
  KeyLayout first_word_;
  bool is_piece_;  // the first key word is a single piece
  bool is_key_;    // the first key word is the whole key
  std::vector<Span> spans_;
  std::vector<std::uint64_t> words_;  // first key word of each span's next row
  std::vector<SetPiece> pieces_;
};

}  // namespace corank
