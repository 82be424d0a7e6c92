// Operators on fixed-size records: filter, distinct, reduction, set operation, tombstone and
// projection. An `OperatorChain` is immutable and thread-safe. A `Group` is the state of one group
// of equal keys, for one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "corank/key.hpp"
#include "corank/query.hpp"
#include "format/resolution.hpp"
#include "ops/exact_sum.hpp"
#include "ops/filter.hpp"
#include "ops/set_operation.hpp"

namespace corank {

// Thrown if two records have equal keys and the query rejects that; `record` is one of them.
struct EqualKeys : std::exception {
  explicit EqualKeys(const std::byte* which, std::uint64_t bytes) : record(which, which + bytes) {}
  const char* what() const noexcept override { return "two records have equal keys"; }
  std::vector<std::byte> record;
};

// A query compiled for records of a schema. Limits and key ranges are applied elsewhere.
class OperatorChain {
 public:
  // A field in which the records of a group are reduced to one value.
  struct Column {
    Reduction::Operation operation;
    Field field;
    std::size_t sum;      // index in a group's integers or floats, for sum
    KeyEncoding ordered;  // orders records by the field, for min and max
  };
  // A range of bytes in a record.
  struct Stretch {
    std::uint32_t from;  // offset in the record, bytes
    std::uint32_t bytes;
  };

  // `encoding` must outlive it. `runs` is the number of runs that are merged; see SetOperation.
  OperatorChain(const Schema& schema, const std::vector<KeyField>& keys,
                const KeyEncoding& encoding, const Query& query, std::size_t runs);

  // Returns whether every record is emitted, changed or not.
  bool keeps_count() const { return !filters_ && !drops_ && on_equal_ == OnEqual::keep; }
  // Returns whether every record is emitted unchanged.
  bool keeps_all() const { return keeps_count() && selected_.empty(); }

  OnEqual on_equal() const { return on_equal_; }
  bool groups() const { return on_equal_ != OnEqual::keep; }
  // Returns the set operation that decides on groups; null if there is none.
  const SetOperation* set_operation() const { return set_operation_ ? &*set_operation_ : nullptr; }
  const KeyEncoding& encoding() const { return encoding_; }
  std::uint32_t record_bytes() const { return encoding_.record_bytes(); }
  std::uint32_t output_bytes() const { return output_.record_bytes; }  // size of an emitted record
  const Schema& output() const { return output_; }

  bool equal(const std::byte* a, const std::byte* b) const;
  // Returns a record's keys as human-readable text.
  std::string key_text(const std::byte* record) const;
  // Drops and projects contiguous resolved records in place, and adds the dropped ones to `counts`.
  // Returns the emitted records, which begin where `records` did.
  std::span<const std::byte> emit(std::span<std::byte> records, ResolvedCounts& counts) const;

  // Parts of the chain.
  const Filter& filter() const { return filter_; }
  bool filters() const { return filters_; }
  // Returns the filter that tells which resolved records are dropped.
  const Filter& dropped() const { return dropped_; }
  bool drops() const { return drops_; }
  std::span<const Column> columns() const { return columns_; }
  Overflow overflow() const { return overflow_; }
  // Byte ranges of a record that are emitted; empty: all of it.
  std::span<const Stretch> stretches() const { return selected_; }

 private:
  friend class Group;
  friend class TileOperators;

  void select(const std::byte* record, std::byte* to) const;
  void count_one(std::byte* records, std::uint64_t count) const;

  Schema schema_;
  std::vector<KeyField> keys_;
  const KeyEncoding& encoding_;
  Filter filter_;
  bool filters_;
  OnEqual on_equal_;
  std::optional<SetOperation> set_operation_;
  Overflow overflow_;
  std::vector<Column> columns_;
  std::size_t integers_ = 0, floats_ = 0;  // number of sums in a group
  bool counts_ = false;
  Filter dropped_;
  bool drops_;
  Schema output_;
  std::vector<Stretch> selected_;
};

// State of one group of equal keys: its records so far, reduced to one.
class Group {
 public:
  bool empty() const { return count_ == 0; }
  // Returns a record of the group, of which only the key is meaningful.
  const std::byte* record() const { return record_.data(); }

  // Begins a new group with `count` contiguous records, at least one.
  void start(const OperatorChain& shape, const std::byte* records, std::uint64_t count);
  // Adds records, or a partial group, that follow those already in the group.
  void add(const OperatorChain& shape, const std::byte* records, std::uint64_t count);
  void add(const OperatorChain& shape, const Group& next);
  // Writes the group's resulting record to `out`, adds its other records to `counts`, and empties
  // the group. Returns false if the resulting record is dropped. Throws Error if a sum does not fit
  // its field.
  bool finish(const OperatorChain& shape, std::byte* out, ResolvedCounts& counts);

 private:
  void reduce(const OperatorChain& shape, const std::byte* records, std::uint64_t count);
  void put_sums(const OperatorChain& shape);

  std::uint64_t count_ = 0;  // records
  std::vector<std::byte> record_;
  std::vector<__int128> integers_;
  std::vector<ExactSum> floats_;
};

}  // namespace corank
