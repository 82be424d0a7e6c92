// A query compiled for the records of a merge: bounds where the runs cannot be cut by them, filter,
// distinct, reduction, set operation, tombstone and projection. Immutable and thread-safe. The
// limit is applied by BoundaryMerge. Calls take a batch of up to max_batch_rows rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "corank/key.hpp"
#include "corank/query.hpp"
#include "format/record_format.hpp"
#include "format/rows.hpp"
#include "ops/group_reducer.hpp"
#include "ops/set_operation.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

// Thrown if two records have equal keys and the query rejects that; `record` is one of them.
struct EqualKeys : std::exception {
  explicit EqualKeys(std::span<const std::byte> which) : record(which.begin(), which.end()) {}
  const char* what() const noexcept override { return "two records have equal keys"; }
  std::vector<std::byte> record;
};

// Output of a tile. Records that do not fit its memory are spilled, and so are all after them.
struct TileMemory {
  std::byte* end = nullptr;          // where the next record goes
  const std::byte* limit = nullptr;  // where room for it ends; may be less than `end`
  bool holds_records = false;        // prefix references point to records in the memory
  std::uint64_t records = 0;         // number of records before `end`
  std::vector<std::byte> spilled;
  std::uint64_t spilled_records = 0;

  // Appends `count` contiguous records.
  void append(std::span<const std::byte> added, std::uint64_t count);
};

class OperatorChain {
 public:
  // `format` must outlive it. `schema` describes its fields, if it can reduce them. `runs` is the
  // number of runs that are merged; see SetOperation. If they hold only keys `within_bounds`, these
  // are not checked again. Throws Error if the query does not fit the format.
  OperatorChain(const RecordFormat& format, const Schema& schema, const Query& query,
                bool within_bounds, std::size_t runs);

  // Returns whether every record is emitted, changed or not.
  bool keeps_count() const { return !groups() && !chooses() && !dropped_; }
  // Returns whether every record is emitted unchanged.
  bool keeps_all() const { return keeps_count() && !projection_; }
  // Returns whether bounds or a filter leave records out independently of their neighbours.
  bool chooses() const { return has_bounds() || where_; }
  bool has_bounds() const { return from_ || to_; }
  OnEqual on_equal() const { return on_equal_; }
  bool groups() const { return on_equal_ != OnEqual::keep; }

  // Return the steps; null if there is none.
  const RowFilter* where() const { return where_ ? &*where_ : nullptr; }
  const SetOperation* set_operation() const { return set_operation_ ? &*set_operation_ : nullptr; }
  const RowFilter* dropped() const { return dropped_ ? &*dropped_ : nullptr; }
  const Projection* projection() const { return projection_.get(); }
  const GroupReducer* reducer() const { return reducer_.get(); }

  const RecordFormat& format() const { return format_; }
  const KeyLayout& layout() const { return layout_; }
  // Returns the layout of emitted records, and their size; 0 if sizes vary.
  const KeyLayout& output_layout() const { return output_layout_; }
  std::uint32_t output_bytes() const { return output_bytes_; }

  // Returns whether `a`, which does not sort after `b`, has its key.
  bool are_equal(const std::byte* a, const std::byte* b) const {
    return !record_less(layout_, a, b);
  }
  // Returns the begin and the end of the rows that are within the bounds.
  std::pair<std::uint64_t, std::uint64_t> in_bounds(const std::byte* rows,
                                                    std::uint64_t count) const;
  // Keeps the indices of the rows, in any order, that are within the bounds and pass the filter;
  // returns their number.
  std::size_t choose(const std::byte* rows, std::span<std::uint16_t> which) const;
  // Keeps the indices of the rows that pass the filter; returns their number.
  std::size_t filter(const std::byte* rows, std::span<std::uint16_t> which) const;
  // Keeps the indices of the resolved rows that are not dropped; returns their number.
  std::size_t drop(const std::byte* rows, std::span<std::uint16_t> which) const;
  // Appends the projected records of the rows. Returns their fingerprint, 0 without a `sum`.
  std::uint64_t project(const std::byte* rows, RowIndices which, TileMemory& to,
                        FingerprintSum sum) const;

 private:
  std::size_t keep(const RowFilter& filter, bool result, const std::byte* rows,
                   std::span<std::uint16_t> which) const;

  const RecordFormat& format_;
  std::optional<RowFilter> dropped_, where_;
  std::unique_ptr<const Projection> projection_;
  std::optional<RowBound> from_, to_;
  OnEqual on_equal_;
  std::optional<SetOperation> set_operation_;
  std::unique_ptr<const GroupReducer> reducer_;
  KeyLayout layout_, output_layout_;
  std::uint32_t output_bytes_;
};

}  // namespace corank
