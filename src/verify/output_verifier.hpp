// Verifies an output: finds its records anew, checks that they are in order, and computes their
// fingerprint for comparison with the input's, and their checksum. Throws Corrupted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "format/rows.hpp"
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

// Fingerprints that a verifying backend computed while it checked that a unit is in order.
struct UnitProof {
  std::uint64_t read;     // portable_fingerprint() of the input records; 0 if their chunks have it
  std::uint64_t written;  // portable_fingerprint() of the merged records as they left the backend
  std::uint64_t last_offset;  // of the last merged record in the unit
};

// Verifies one output, or one partition of it, unit by unit. Thread-safe.
class OutputVerifier {
 public:
  // The encoding that `order` points to must outlive it. Without `sum` there is no fingerprint, and
  // the order is not checked; there may be a checksum.
  OutputVerifier(const OutputOrder& order, FingerprintSum sum, bool has_checksum = false)
      : layout_(order.encoding->layout()),
        sum_(sum),
        has_checksum_(has_checksum),
        is_ordered_(sum && order.kind != OutputOrder::Kind::none),
        is_strict_(order.kind == OutputOrder::Kind::strict) {}

  // Verifies a unit's records, which begin at byte `offset` of the output and follow those of unit
  // `sequence` - 1. Each of the `pieces` holds whole records. Every unit is verified once, in any
  // order. Uses all threads of the caller's arena unless `threads` is 1. Throws Corrupted if the
  // records are not whole, or not in order among themselves and with verified neighbours.
  void verify(std::span<const std::span<const std::byte>> pieces, std::uint64_t sequence,
              std::uint64_t offset, unsigned threads);

  // Takes the proof of a unit, which is one piece, from the backend that verified it. Checks only
  // the order where the unit meets verified neighbours, and sums up the checksum.
  void take(const UnitProof& proof, std::span<const std::byte> piece, std::uint64_t sequence,
            std::uint64_t offset, unsigned threads);

  bool empty() const { return verified_.empty(); }  // true until a unit is verified
  // Throws Corrupted if `next`, the partition after this one, begins with a record that does not
  // follow the last one here. Neither may be empty.
  void check_edge(const OutputVerifier& next) const;

  // Return the fingerprint and the checksum of all records so far.
  std::uint64_t fingerprint() const { return fingerprint_; }
  std::uint64_t checksum() const { return checksum_; }

 private:
  // Verified units without a gap between them: their first record and their last.
  struct Verified {
    std::uint64_t end;     // sequence number after the last unit
    std::uint64_t offset;  // of the first record in the output
    RowCopy first, last;
  };
  // A part of a unit, whole records, that one task verifies.
  struct Part {
    std::span<const std::byte> bytes;
    std::uint64_t offset;  // in the output
    std::uint64_t sum = 0, checksum = 0;
    RowCopy first{}, last{};
  };
  // Returns the parts of the pieces, which begin at `offset`, after work(part) on each of them.
  template <class Work>
  std::vector<Part> work_on_parts(std::span<const std::span<const std::byte>> pieces,
                                  std::uint64_t offset, unsigned threads, Work work);
  void sum_up(Part& part) const;
  void verify(Part& part) const;
  void verify_batch(const RowReader& batch, Part& part) const;
  // Verifies lines that are their own keys, faster than verify(). Returns false if it cannot, or if
  // something is wrong; verify() then finds what.
  bool verify_lines(Part& part) const;
  // Returns whether the order allows row `after` to follow row `before`.
  bool may_follow(const std::byte* before, const std::byte* after) const;
  void check_order(const RowCopy& before, const RowCopy& after, std::uint64_t offset) const;
  void join(std::uint64_t sequence, Verified unit);

  KeyLayout layout_;
  FingerprintSum sum_;
  bool has_checksum_;
  bool is_ordered_;
  bool is_strict_;
  std::atomic<std::uint64_t> fingerprint_ = 0, checksum_ = 0;
  std::mutex mutex_;
  std::map<std::uint64_t, Verified> verified_;  // by the sequence number of their first unit
};

}  // namespace corank
