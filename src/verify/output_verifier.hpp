// Looks at the merged records once more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "format/work_unit.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

// How the records of an output follow one another.
struct OutputOrder {
  enum class Kind {
    none,    // as they like
    rising,  // none sorts before its predecessor
    strict,  // each sorts after its predecessor
  };
  const KeyEncoding* encoding;
  Kind kind;
};

// Of one output, or of one part of it.
class OutputVerifier {
 public:
  // What `order` points to must outlive it. Without `sum` there is no fingerprint.
  OutputVerifier(const OutputOrder& order, FingerprintSum sum)
      : encoding_(*order.encoding), kind_(order.kind), sum_(sum) {}

  // A stretch of the output, whole records, the first of which has this rank. Every stretch is
  // looked at once, in any order, by `threads` of the caller's arena. Throws Corrupted if a record
  // does not follow its predecessor in the stretch. Thread-safe.
  void look(std::span<const std::byte> bytes, std::uint64_t rank, unsigned threads);

  // Instead of that, what the backend that merged the stretch found.
  void take(const UnitProof& found) { fingerprint_ += found.written; }

  // The same stretches in their order, one at a time. Throws Corrupted if the first record of one
  // does not follow the last of the one before.
  void follow(std::span<const std::byte> bytes, std::uint64_t rank);

  bool empty() const { return last_.empty(); }  // unless something followed
  // Throws Corrupted if the part that `next` looked at, not empty either, begins before this one
  // ends.
  void check_edge(const OutputVerifier& next) const;

  // Of all records.
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  bool follows(const std::byte* record, const std::byte* predecessor) const;

  const KeyEncoding& encoding_;
  OutputOrder::Kind kind_;
  FingerprintSum sum_;
  std::atomic<std::uint64_t> fingerprint_ = 0;
  std::vector<std::byte> first_;  // record
  std::vector<std::byte> last_;
};

}  // namespace corank
