// Verifies fixed-size records of the output: checks that they are in order, and computes their
// fingerprint for comparison with the input's. Throws Corrupted.
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

// The order that the records of an output must have.
struct OutputOrder {
  enum class Kind {
    none,    // unordered
    rising,  // no record sorts before its predecessor
    strict,  // every record sorts after its predecessor
  };
  const KeyEncoding* encoding;
  Kind kind;
};

// Verifies one output, or one partition of it, span by span.
class OutputVerifier {
 public:
  // The encoding that `order` points to must outlive it. Without `sum` there is no fingerprint.
  OutputVerifier(const OutputOrder& order, FingerprintSum sum)
      : encoding_(*order.encoding), kind_(order.kind), sum_(sum) {}

  // Verifies a span of whole records, the first of which has rank `rank`, with up to `threads`
  // threads of the caller's arena. Every span is verified once, in any order. Throws Corrupted if a
  // record does not follow its predecessor in the span. Thread-safe.
  void look(std::span<const std::byte> bytes, std::uint64_t rank, unsigned threads);

  // Adds the fingerprint of a span that the backend has verified; replaces look().
  void take(const UnitProof& found) { fingerprint_ += found.written; }

  // Checks where spans meet. Takes all spans in output order, from one thread at a time. Throws
  // Corrupted if the first record of a span does not follow the last of the span before.
  void follow(std::span<const std::byte> bytes, std::uint64_t rank);

  bool empty() const { return last_.empty(); }  // true until follow() has a span
  // Throws Corrupted if `next`, the partition after this one, begins with a record that does not
  // follow the last one here. Neither may be empty.
  void check_edge(const OutputVerifier& next) const;

  // Returns the fingerprint of all records so far.
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  bool follows(const std::byte* record, const std::byte* predecessor) const;

  const KeyEncoding& encoding_;
  OutputOrder::Kind kind_;
  FingerprintSum sum_;
  std::atomic<std::uint64_t> fingerprint_ = 0;
  std::vector<std::byte> first_;  // first record that follow() was given, then the last
  std::vector<std::byte> last_;
};

}  // namespace corank
