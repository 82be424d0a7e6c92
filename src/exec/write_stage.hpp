// The third stage: joins groups that cross unit borders and emits units, one at a time in order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "exec/in_flight_unit.hpp"
#include "exec/part_filler.hpp"
#include "exec/pass.hpp"
#include "ops/boundary_merge.hpp"

namespace corank {

class WriteStage {
 public:
  // The arguments must outlive the stage.
  WriteStage(const Pass& pass, PassTotals& totals);

  // Joins the unit with the one before it, and emits its pieces. Throws the failure of an operator
  // or of a write.
  void write(InFlightUnit& token);
  // Emits the last group, which is still open after the last unit.
  void write_rest(InFlightUnit& token);
  // Fills the parts of an output whose size was unknown. `fingerprint` is that of the output.
  void finish_parts(std::uint64_t fingerprint) { parts_.finish(fingerprint); }
  bool has_operators() const { return pass_.operators != nullptr; }

  // True once the limit or an upper bound is reached: nothing more is emitted. Any thread may ask.
  bool is_done() const { return is_done_; }

  // Throws Corrupted unless the hash of the records that were read, less those that operators left
  // out, is that of the verified output, `written`.
  void check_conservation(std::uint64_t read, std::uint64_t written) const;
  void add_to_totals() const;

 private:
  void join(InFlightUnit& token);
  void emit(InFlightUnit& token);
  void write_piece(std::span<const std::byte> piece, std::size_t free_before,
                   const WriteBehind::Owner& owner, std::uint64_t sequence);

  const Pass& pass_;
  PassTotals& totals_;
  std::optional<BoundaryMerge> groups_;
  std::uint64_t written_bytes_ = 0;
  std::uint64_t num_emitting_units_ = 0;
  PartFiller parts_;  // if there are several
  std::atomic<bool> is_done_ = false;
  TraceClock::time_point written_until_ = TraceClock::now();
};

}  // namespace corank
