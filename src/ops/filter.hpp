// Which records fulfil a condition.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "corank/query.hpp"

namespace corank {

class Filter {
 public:
  static constexpr std::uint64_t max_records = 256;
  using Mask = std::array<std::uint8_t, max_records>;

  struct Step {
    Condition::Operation operation;
    KeyEncoding field;
    std::uint64_t word;                // of the value, where the field is one
    std::vector<std::byte> of_record;  // where it is not: a record with the value
  };

  Filter(const Schema& schema, const Condition& condition);

  // 1 for each of up to max_records records that fulfils the condition, 0 for the others.
  // `scratch` may be any; it is for the next call.
  const Mask& test(const std::byte* records, std::uint64_t count, std::vector<Mask>& scratch) const;

  std::span<const Step> steps() const { return steps_; }

 private:
  static void compare(const Step& step, const std::byte* records, std::uint64_t count, Mask& mask);

  std::vector<Step> steps_;
};

}  // namespace corank
