// Looks at merged records of variable length once more, finding them anew.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "format/work_unit.hpp"
#include "verify/fingerprint.hpp"
#include "verify/output_verifier.hpp"

namespace corank {

// Of one output, or of one part of it.
class TextVerifier {
 public:
  // What `order` points to must outlive it. Without `sum` there is no fingerprint.
  TextVerifier(const OutputOrder& order, FingerprintSum sum)
      : encoding_(*order.encoding),
        sum_(sum),
        ordered_(order.kind != OutputOrder::Kind::none),
        strict_(order.kind == OutputOrder::Kind::strict) {}

  // The output is looked at once, in stretches of whole records, in any order: this one, which may
  // be several pieces, begins at `offset` of the output, after the stretch `sequence` - 1. Throws
  // Corrupted where it is no whole records in order, or is not in order with its neighbours. By all
  // threads of the caller's arena unless `threads` is 1. Thread-safe.
  void look(std::span<const std::span<const std::byte>> pieces, std::uint64_t sequence,
            std::uint64_t offset, unsigned threads);

  // Instead of that, of a stretch in one piece: what the backend that merged it found.
  void take(const UnitProof& found, std::span<const std::byte> piece, std::uint64_t sequence,
            std::uint64_t offset);

  bool empty() const { return verified_.empty(); }  // unless it looked at something
  // Throws Corrupted if the part that `next` looked at, not empty either, begins before this one
  // ends.
  void check_edge(const TextVerifier& next) const;

  // Of all records: see prefix_refs_fingerprint().
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  // Stretches that follow one another: the first record and the last.
  struct Verified {
    std::uint64_t end;  // sequence
    std::vector<std::byte> first, last;
  };
  // A part of a stretch, of whole records.
  struct Part {
    std::span<const std::byte> bytes;
    std::uint64_t offset;  // of the output
    std::uint64_t sum = 0;
    PrefixRef first{}, last{};
  };
  void look(Part& part) const;
  // The same, faster, of lines that are their own keys. False: that failed or something is wrong.
  bool verify_lines(Part& part) const;
  bool descends(const PrefixRef& before, const PrefixRef& after) const;
  void join(std::uint64_t sequence, Verified looked);
  void check(const Verified& before, const Verified& after) const;

  const KeyEncoding& encoding_;
  FingerprintSum sum_;
  bool ordered_;
  bool strict_;
  std::atomic<std::uint64_t> fingerprint_ = 0;
  std::mutex mutex_;
  std::map<std::uint64_t, Verified> verified_;  // by the sequence of their first stretch
};

}  // namespace corank
