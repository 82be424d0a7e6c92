// Set operations on runs: which records of a group go out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "corank/query.hpp"

namespace corank {

// Records of one run that follow one another in a group.
struct SetPiece {
  std::uint32_t run;
  std::uint64_t count;
};

// A set operation, as what the runs' positions in a merge make of it: the run whose records an
// intersection or a difference keeps stands last there, so that of each record it is known whether
// it goes out as soon as it is merged.
struct SetOperation {
  OnEqual kind;
  std::uint32_t runs;  // of the merge
};

// What the records of a group that were merged so far say about those that follow.
class SetGroup {
 public:
  struct Range {
    std::uint64_t first, end;
  };

  // Which of its next records go out, counted from the first of them.
  Range take(const SetOperation& operation, const SetPiece& next);

 private:
  std::uint32_t runs_ = 0;  // begun, the last of them is run_
  std::uint32_t run_ = 0;
  std::uint64_t taken_ = 0;  // of run_
  // Of the runs before run_: the records of the longest, of all together, of the shortest.
  std::uint64_t longest_ = 0, all_ = 0;
  std::uint64_t shortest_ = std::numeric_limits<std::uint64_t>::max();
};

// Counts what runs have of a group, which merged records do not tell any more. Groups must be asked
// for in their order. A group's word is the first of its key. Of records of variable length, it is
// their entries that are meant.
class GroupRunCounter {
 public:
  explicit GroupRunCounter(const KeyLayout& layout);

  // `count` records of the run, more than 0; after all of earlier runs, and of the run those before
  // them. They must outlive the counter.
  void add(std::uint32_t run, const std::byte* records, std::uint64_t count);

  void read_words(const std::byte* records, std::uint64_t count, Key<1>* words) const {
    encode_keys(first_word_, records, count, words);
  }

  // Which runs the `count` merged records with the key of `record` are from that follow the first
  // `skipped` ones. Throws Corrupted if the runs have fewer. With `again` the group may be asked
  // for once more.
  std::span<const SetPiece> count(const std::byte* record, std::uint64_t word,
                                  std::uint64_t skipped, std::uint64_t count, bool again);
  // How many records of the group run `run`, the last one, has. The group is not asked for again.
  std::uint64_t count_in_last(std::uint32_t run, const std::byte* record, std::uint64_t word);

 private:
  struct Stretch {
    std::uint32_t run;
    const std::byte* next;
    const std::byte* end;
  };

  std::uint64_t word_of(const std::byte* record) const;
  // For a stretch whose word is not greater.
  std::uint64_t count_equal(std::size_t stretch, const std::byte* record, std::uint64_t word,
                            bool again);
  void move_to(std::size_t stretch, const std::byte* next);

  KeyLayout layout_;
  KeyLayout first_word_;
  bool is_piece_;  // the word, of one piece
  bool is_key_;    // the word, of which nothing follows
  std::vector<Stretch> stretches_;
  std::vector<std::uint64_t> words_;  // of each stretch's next record
  std::vector<SetPiece> pieces_;
};

// A group that a set operation decides about, as far as it was merged; empty where none was.
struct OpenSet {
  std::vector<std::byte> record;  // one of its records, as far as its key goes
  SetGroup group;

  bool empty() const { return record.empty(); }
};

}  // namespace corank
