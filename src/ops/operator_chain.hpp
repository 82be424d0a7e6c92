// What is to become of merged records, and of groups of them with equal keys.
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
#include "ops/exact_sum.hpp"
#include "ops/filter.hpp"
#include "ops/set_operation.hpp"

namespace corank {

// Thrown where two records have equal keys that must not; `record` is one of them.
struct EqualKeys : std::exception {
  explicit EqualKeys(const std::byte* which, std::uint64_t bytes) : record(which, which + bytes) {}
  const char* what() const noexcept override { return "two records have equal keys"; }
  std::vector<std::byte> record;
};

// A Shaping of records of a schema, ready to be applied. Limits and ranges play no part here.
class OperatorChain {
 public:
  // A field that records of a group are reduced in.
  struct Column {
    Reduction::Operation operation;
    Field field;
    std::size_t sum;      // which of a group's integers or floats it is, for sum and count
    KeyEncoding ordered;  // by the field, for min and max
  };
  struct Stretch {
    std::uint32_t from;  // in the record, bytes
    std::uint32_t bytes;
  };

  // `encoding` must outlive it. `runs`: as many are merged, see SetOperation.
  OperatorChain(const Schema& schema, const std::vector<KeyField>& keys,
                const KeyEncoding& encoding, const Query& query, std::size_t runs);

  // Whether every record goes out, if not as it is.
  bool keeps_count() const { return !filters_ && !drops_tombstone_ && on_equal_ == OnEqual::keep; }
  // Whether it leaves every record as it is.
  bool keeps_all() const { return keeps_count() && selected_.empty(); }

  OnEqual on_equal() const { return on_equal_; }
  bool groups() const { return on_equal_ != OnEqual::keep; }
  // What the groups are treated by instead of becoming a record each; null if they do.
  const SetOperation* set_operation() const { return set_operation_ ? &*set_operation_ : nullptr; }
  const KeyEncoding& encoding() const { return encoding_; }
  std::uint32_t record_bytes() const { return encoding_.record_bytes(); }
  std::uint32_t output_bytes() const { return output_.record_bytes; }  // of a record that goes out
  const Schema& output() const { return output_; }

  bool equal(const std::byte* a, const std::byte* b) const;
  // The keys of a record, in words.
  std::string key_text(const std::byte* record) const;
  // What goes out of records that lie end to end, put where the first of them is.
  std::span<const std::byte> select(std::span<std::byte> records) const;

  // What it consists of.
  const Filter& filter() const { return filter_; }
  const Filter& tombstone() const { return tombstone_; }
  std::span<const Column> columns() const { return columns_; }
  Overflow overflow() const { return overflow_; }
  // What goes out of a record; none: all of it.
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
  std::size_t integers_ = 0, floats_ = 0;  // sums of a group
  bool counts_ = false;
  Filter tombstone_;
  bool drops_tombstone_;
  Schema output_;
  std::vector<Stretch> selected_;
};

// What the records of a group have come to so far.
class Group {
 public:
  bool empty() const { return count_ == 0; }
  // One of its records, as far as its key goes.
  const std::byte* record() const { return record_.data(); }

  // Begins anew with `count` records, at least one, that lie end to end.
  void start(const OperatorChain& shape, const std::byte* records, std::uint64_t count);
  // More of its records, which follow those that it has.
  void add(const OperatorChain& shape, const std::byte* records, std::uint64_t count);
  void add(const OperatorChain& shape, const Group& next);
  // Puts what goes out of it to `out`, and empties it; false if nothing does. Throws Error where a
  // sum does not fit.
  bool finish(const OperatorChain& shape, std::byte* out);

 private:
  void reduce(const OperatorChain& shape, const std::byte* records, std::uint64_t count);
  void put_sums(const OperatorChain& shape);

  std::uint64_t count_ = 0;  // records
  std::vector<std::byte> record_;
  std::vector<__int128> integers_;
  std::vector<ExactSum> floats_;
};

}  // namespace corank
