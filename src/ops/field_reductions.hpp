// Reductions of groups of fixed-size records: each combines one field over the records of a group.
// Immutable and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "corank/query.hpp"
#include "format/record_format.hpp"
#include "ops/exact_sum.hpp"

namespace corank {

// Sums of one group, as far as it is merged.
struct GroupSums {
  std::vector<__int128> integers;
  std::vector<ExactSum> floats;
};

class FieldReductions {
 public:
  // A field in which the records of a group are reduced to one value.
  struct Column {
    Reduction::Operation operation;
    Field field;
    std::size_t sum;      // index in the sums' integers or floats, for sum
    KeyEncoding ordered;  // orders records by the field, for min and max
  };

  FieldReductions() = default;  // without reductions
  FieldReductions(const Schema& schema, const Query& query);

  bool empty() const { return columns_.empty(); }
  bool has_counts() const { return has_counts_; }  // then count_one() changes records
  std::span<const Column> columns() const { return columns_; }
  Overflow overflow() const { return overflow_; }

  // Begins a group with a record.
  void start(const std::byte* record, GroupSums& sums) const;
  // Adds contiguous records to the group, whose other values are in `result`.
  void add(const std::byte* records, std::uint64_t count, std::byte* result, GroupSums& sums) const;
  // Adds the next part of the same group.
  void add(const std::byte* next_result, const GroupSums& next, std::byte* result,
           GroupSums& sums) const;
  // Writes the sums and counts of a group of `count` records to its resulting record. `format`
  // words its keys. Throws Error if a field cannot hold its value.
  void finish(std::uint64_t count, const GroupSums& sums, const RecordFormat& format,
              std::byte* result) const;
  // Sets the count fields of records that are groups of one.
  void count_one(std::byte* records, std::uint64_t count) const;

 private:
  void finish(const Column& column, std::uint64_t count, const GroupSums& sums,
              const RecordFormat& format, std::byte* result) const;

  std::uint32_t record_bytes_ = 0;
  Overflow overflow_ = Overflow::error;
  std::vector<Column> columns_;
  std::size_t integers_ = 0, floats_ = 0;  // number of sums in a group
  bool has_counts_ = false;
};

}  // namespace corank
