// Where a merge goes on with what a stopped one left of its output.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corank/key.hpp"
#include "corank/options.hpp"
#include "run/run.hpp"

namespace corank {

// The last of what was left is merged again, to be compared: 64 KiB, of shaped outputs no more than
// a hundredth, since any number of records may have come to so much.
struct Resumption {
  std::uint64_t kept_bytes = 0;    // of the output, whole records
  std::uint64_t merged_bytes = 0;  // of these; what follows is merged again
  std::uint64_t rank = 0;          // of the first record that is merged again
  std::vector<std::uint64_t> cut;  // the same in each run; only of lines, which count bytes
};

// Of an output that every record goes out to, as one of `output_bytes`.
Resumption resume_at_rank(std::uint64_t left_bytes, std::uint32_t output_bytes);

// How records go out, as far as that tells where they came from.
struct Selection {
  const Schema& record;
  const std::vector<std::uint32_t>& fields;  // as in Shaping::select
  const Schema& output;
  // The first key fields, as many of them as go out, in either.
  std::vector<KeyField> keys, output_keys;
};

// The first of the key fields that go out, up to one that does not, as fields of what goes out.
std::vector<KeyField> selected_keys(const std::vector<KeyField>& keys,
                                    const std::vector<std::uint32_t>& select);

// Of any other output of records of a fixed size: goes on where a key, or what goes out of it,
// begins in the runs and in the output. None if the runs have no such key.
std::optional<Resumption> resume_at_key(const Run& left, const Selection& selection,
                                        std::span<const Run> runs);

// The same of lines behind a header; none as well if the header is another.
std::optional<Resumption> resume_at_line(const Run& left, const TextLayout& text,
                                         std::string_view header, bool shaped,
                                         std::span<const Run> runs);

// Of lines made up of columns of others, which tell of no run: all is merged again.
Resumption resume_from_start(const Run& left, const TextLayout& text);

// How many runs end with a line that lacks its terminator, and gets it.
std::uint64_t missing_terminators(std::span<const Run> runs, const TextLayout& text);

// All that says which bytes a merge writes: of the runs, which are cut to its ranges, and of what
// it is to do.
std::string output_description(const Options& options, const Compression& compression,
                               const KeyEncoding& encoding, std::string_view header,
                               std::span<const Run> runs);

}  // namespace corank
