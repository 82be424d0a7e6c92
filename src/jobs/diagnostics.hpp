// Names the records that a merge fails at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "corank/key.hpp"
#include "corank/query.hpp"
#include "format/text_columns.hpp"
#include "run/run.hpp"

namespace corank {

// A merge finds some record that is out of order, `found`; this names the run's first.
[[noreturn]] void throw_first_out_of_order(const Run& run, std::uint64_t found,
                                           const KeyEncoding& encoding);

[[noreturn]] void throw_temporary_corrupted(const Run& run);

// Names the first two records of `runs` that pass `where` and have the key of `record`, in words
// `key_text`.
[[noreturn]] void throw_equal(std::span<const Run> runs, const Schema& schema,
                              const KeyEncoding& encoding, const Condition& where,
                              const std::byte* record, const std::string& key_text);

// The same of records of variable length.
[[noreturn]] void throw_equal_text(std::span<const Run> runs, const KeyEncoding& encoding,
                                   const TextFilter* filter, std::span<const std::byte> record);

}  // namespace corank
