// Tests fixed-size records against a condition, a block at a time. A `Filter` is immutable and
// thread-safe; every thread has its own scratch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "corank/query.hpp"

namespace corank {

// A condition compiled for the records of a schema.
class Filter {
 public:
  static constexpr std::uint64_t max_records = 256;
  using Mask = std::array<std::uint8_t, max_records>;

  struct Step {
    Condition::Operation operation;
    KeyEncoding field;
    std::uint64_t word;                // the value's key word, if the field fits one
    std::vector<std::byte> of_record;  // otherwise, a record that holds the value
  };

  // Throws Error, which names `option`, if the condition does not fit the records.
  Filter(const Schema& schema, const Condition& condition, Setting option = Setting::where);

  // Returns a mask that is 1 for each record that satisfies the condition and 0 for the others;
  // `count` is at most max_records. The mask lies in `scratch`, and is valid until the next call
  // with it.
  const Mask& test(const std::byte* records, std::uint64_t count, std::vector<Mask>& scratch) const;

  std::span<const Step> steps() const { return steps_; }

 private:
  static void compare(const Step& step, const std::byte* records, std::uint64_t count, Mask& mask);

  std::vector<Step> steps_;
};

}  // namespace corank
