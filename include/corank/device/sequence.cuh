// Sequences in device memory: what the device merges read and write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace corank::device {

// Stands where there are no values.
struct NoValue {};

template <class Value>
inline constexpr bool has_values = !std::is_same_v<Value, NoValue>;

// What a key and its value may have together in a merge. Where records are wider, merge keys with
// places, and gather the records by these: it moves fewer bytes, too.
inline constexpr std::size_t max_record_bytes = 64;

// A sorted sequence of `count` keys and, unless Value is NoValue, a value for each of them. Both
// are moved as bytes. Pointers need only the alignment of their type.
template <class Key, class Value = NoValue>
struct Sequence {
  static_assert(std::is_trivially_copyable_v<Key> && std::is_trivially_copyable_v<Value>,
                "keys and values are moved as bytes");

  const Key* keys = nullptr;
  const Value* values = nullptr;
  std::uint64_t count = 0;
};

// Where a merge writes: room for all records of its inputs, overlapping none of them.
template <class Key, class Value = NoValue>
struct Output {
  Key* keys = nullptr;
  Value* values = nullptr;
};

}  // namespace corank::device
