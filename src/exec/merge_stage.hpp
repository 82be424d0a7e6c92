// The second stage: merges units, or copies them, several at a time and in any order.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "exec/in_flight_unit.hpp"
#include "exec/pass.hpp"
#include "exec/pass_facts.hpp"
#include "util/buffer_pool.hpp"

namespace corank {

// Measures how long a stage that handles several units at a time has none.
class IdleClock {
 public:
  explicit IdleClock(StageClock& clock) : clock_(clock) {}
  void enter();
  void leave();

 private:
  StageClock& clock_;
  std::mutex mutex_;
  unsigned inside_ = 0;
  TraceClock::time_point empty_since_ = TraceClock::now();
};

class MergeStage {
 public:
  // The arguments must outlive the stage.
  MergeStage(const Pass& pass, const PassFacts& facts, PassTotals& totals);

  // Fills in `buffer`, `merged` and `merged_at`. Waits for a buffer while all are being written.
  // Throws what Backend::merge throws. Thread-safe.
  void merge(InFlightUnit& token);

  // Hash of the input that the backend was the first to read.
  std::uint64_t fingerprint_read() const { return fingerprint_read_; }

 private:
  // True if the unit's pieces are written from where they were read.
  bool stays(const WorkUnit& unit) const;
  std::span<std::byte> output_of(const InFlightUnit& token) const;
  void take_buffer(InFlightUnit& token);
  void merge_in_place(InFlightUnit& token) const;
  void merge_by_backend(InFlightUnit& token);
  void copy(InFlightUnit& token) const;
  std::span<const std::byte> bytes_of_segment(const Segment& segment) const;

  const Pass& pass_;
  const PassFacts& facts_;
  PassTotals& totals_;
  // Variable-length records do not fill whole pages. For direct output a unit's place in its buffer
  // has the page alignment that it has in the output; 0: alignment does not matter.
  std::uint64_t skew_bytes_;
  std::uint64_t written_before_;
  BufferPool output_pool_;
  IdleClock idle_;
  std::atomic<std::uint64_t> fingerprint_read_ = 0;
};

}  // namespace corank
