// Verifies variable-length records of the output: parses them anew, checks that they are in order,
// and computes their fingerprint for comparison with the input's. Throws Corrupted.
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

// Verifies one output, or one partition of it, unit by unit.
class TextVerifier {
 public:
  // The encoding that `order` points to must outlive it. Without `sum` there is no fingerprint.
  TextVerifier(const OutputOrder& order, FingerprintSum sum)
      : encoding_(*order.encoding),
        sum_(sum),
        ordered_(order.kind != OutputOrder::Kind::none),
        strict_(order.kind == OutputOrder::Kind::strict) {}

  // Verifies a unit's records, which begin at byte `offset` of the output and follow those of unit
  // `sequence` - 1. Each of the `pieces` holds whole records. Every unit is verified once, in any
  // order. Uses all threads of the caller's arena unless `threads` is 1. Throws Corrupted if the
  // records are not whole, or not in order among themselves and with verified neighbours.
  // Thread-safe.
  void look(std::span<const std::span<const std::byte>> pieces, std::uint64_t sequence,
            std::uint64_t offset, unsigned threads);

  // Adds what the backend found when it verified a unit, which is one piece; replaces look().
  // Checks the order where the unit meets verified neighbours. Thread-safe.
  void take(const UnitProof& found, std::span<const std::byte> piece, std::uint64_t sequence,
            std::uint64_t offset);

  bool empty() const { return verified_.empty(); }  // true until a unit is verified
  // Throws Corrupted if `next`, the partition after this one, begins with a record that does not
  // follow the last one here. Neither may be empty.
  void check_edge(const TextVerifier& next) const;

  // Returns the fingerprint of all records so far; see prefix_refs_fingerprint().
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  // Verified units without a gap between them: their first record and their last.
  struct Verified {
    std::uint64_t end;  // sequence number after the last unit
    std::vector<std::byte> first, last;
  };
  // A part of a unit, whole records, that one task verifies.
  struct Part {
    std::span<const std::byte> bytes;
    std::uint64_t offset;  // bytes before it in the output
    std::uint64_t sum = 0;
    PrefixRef first{}, last{};
  };
  void look(Part& part) const;
  // Verifies lines that are their own keys, faster than look(). Returns false if it cannot, or if
  // something is wrong; look() then finds what.
  bool verify_lines(Part& part) const;
  bool descends(const PrefixRef& before, const PrefixRef& after) const;
  void join(std::uint64_t sequence, Verified unit);
  void check(const Verified& before, const Verified& after) const;

  const KeyEncoding& encoding_;
  FingerprintSum sum_;
  bool ordered_;
  bool strict_;
  std::atomic<std::uint64_t> fingerprint_ = 0;
  std::mutex mutex_;
  std::map<std::uint64_t, Verified> verified_;  // by the sequence number of their first unit
};

}  // namespace corank
