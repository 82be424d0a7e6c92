// What the self-verification sums up: a number for each record, cheap enough for every merge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "corank/text_key.hpp"

namespace corank {

// The sum modulo 2^64 of a 64-bit fingerprint of every record: equal for equal multisets of
// records, whatever their order and however they are cut into blocks. Every bit counts with its
// place in its record, so that bytes which change places within a record or between records show.
// A change that was not made to deceive goes unnoticed with a chance near 2^-64. The value depends
// on the processor and is of no use outside this process.
std::uint64_t records_fingerprint(std::span<const std::byte> records, std::uint32_t record_bytes);

// The same of the records that the entries stand for, the length of each being a part of it.
std::uint64_t entries_fingerprint(const TextLayout& layout, std::span<const Entry> entries);

// The ways to compute it that this processor has, each with values of its own; the first is taken.
using FingerprintSum = std::uint64_t (*)(std::span<const std::byte>, std::uint32_t);
std::span<const FingerprintSum> fingerprint_sums();

}  // namespace corank
