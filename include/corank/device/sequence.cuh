// Sorted sequences in device memory: inputs and output of the device merges. These are views; the
// caller owns the arrays, and keeps them until the stream has passed the merge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace corank::device {

// Stands for absent values.
struct NoValue {};

template <class Value>
inline constexpr bool has_values = !std::is_same_v<Value, NoValue>;

// Maximum bytes of a key and its value together. For wider records, merge keys with row ids and
// gather the records afterwards, which also moves fewer bytes.
inline constexpr std::size_t max_record_bytes = 64;

// A sorted sequence of `count` keys and, unless Value is NoValue, one value per key. Both are moved
// as bytes. Pointers need only the alignment of their type.
template <class Key, class Value = NoValue>
struct Sequence {
  static_assert(std::is_trivially_copyable_v<Key> && std::is_trivially_copyable_v<Value>,
                "keys and values are moved as bytes");

  const Key* keys = nullptr;
  const Value* values = nullptr;
  std::uint64_t count = 0;
};

// The destination of a merge: it must have room for all input records, and must not overlap them.
template <class Key, class Value = NoValue>
struct Output {
  Key* keys = nullptr;
  Value* values = nullptr;
};

}  // namespace corank::device
