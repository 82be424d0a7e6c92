// Finds the records of variable length in a block of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "corank/text_key.hpp"

namespace corank {

// A record that cannot be ordered, lacks columns, or has no end.
struct BadRecord {
  enum class Reason : std::uint8_t {
    no_number,   // a column that is to be one
    no_column,   // the same, and it is not there
    ragged,      // it has fewer columns than TextLayout::min_columns
    open_quote,  // no terminator follows the last quote
    cut_off,     // a pair whose lengths run past the end
    stray_text,  // text between a closing quote and the end of its column
  };
  Reason reason;
  std::uint32_t key = 0;  // for the first two: which of the layout's columns
  // Of the record. `open_quote` and `cut_off`: all bytes that are there; `stray_text`: those before
  // the text.
  std::uint64_t bytes = 0;

  // Whether the record has an end, and only a value is wrong, so that the record can be skipped.
  bool can_skip() const { return reason == Reason::no_number || reason == Reason::no_column; }
};

struct Indexed {
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;      // of these records, which lie end to end from the start on
  std::uint64_t max_words = 0;  // no key of theirs has more
  bool words_ascend = true;     // those of their entries
  // Of a record that is not there as a whole, if its beginning says how many bytes it has.
  std::uint64_t next_bytes = 0;
  std::optional<BadRecord> bad;  // which stands behind the records
};

// Indexes the whole records from the start of `bytes` on, until `into` is full or one is bad.
// `at_end` says that the run ends with `bytes`, its last record having its terminator; else what is
// no whole record yet is left for the next call.
Indexed index_records(const TextLayout& layout, std::span<const std::byte> bytes, bool at_end,
                      std::span<PrefixRef> into);

// Whole records, cut into parts of about part_bytes, whole records again. Only lines are found from
// anywhere, which CSV without quotes is: of others there is one part.
template <class Byte>
std::vector<std::span<Byte>> parts_of(const TextLayout& layout, std::span<Byte> records,
                                      std::uint64_t part_bytes) {
  std::vector<std::span<Byte>> parts;
  const auto is_lines = [&] {
    const std::byte* const end = records.data() + records.size();
    return layout.kind == TextKind::lines ||
           (layout.kind == TextKind::csv && detail::find_char(records.data(), end, '"') == end &&
            (layout.escape == 0 || detail::find_char(records.data(), end, layout.escape) == end));
  };
  const bool is_cut = records.size() > 2 * part_bytes && is_lines();
  while (is_cut && records.size() > 2 * part_bytes) {
    const std::byte* const end = detail::find_char(
        records.data() + part_bytes, records.data() + records.size() - 1, layout.terminator);
    parts.push_back(records.first(static_cast<std::size_t>(end + 1 - records.data())));
    records = records.subspan(parts.back().size());
  }
  parts.push_back(records);
  return parts;
}

// How many bytes the record that `bytes` begins with has, its framing included: a header, that is;
// 0 if it is not there as a whole.
std::uint64_t first_record_bytes(const TextLayout& layout, std::span<const std::byte> bytes);

// Returns where the first record of CSV has text between a closing quote and the end of its column:
// the first byte of the text. Nothing if the record has none, as far as it is there.
std::optional<std::uint64_t> find_stray_text(const TextLayout& layout,
                                             std::span<const std::byte> bytes);
// Says what is wrong with a record that begins at `record` and has stray text at its byte `at`.
std::string stray_text_message(const TextLayout& layout, const std::byte* record, std::uint64_t at);

// Names a record of a run for a message: by its number, counted from 0, or as a line of its file,
// counted from 1, after `header_lines`. `byte` is where it begins, if that is known.
std::string place_of(const TextLayout& layout, std::uint64_t header_lines, std::uint64_t record,
                     std::optional<std::uint64_t> byte);

// What to try, beside sorting, where this record of a run sorts before the one before it; empty, or
// continues the sentence.
std::string advice_on_disorder(const TextLayout& layout, std::uint64_t record);

// Throws Error about the record, which is number `record` of its run, counted from 0 after
// `header_lines`, and begins at byte `byte` of its file and at `at`.
[[noreturn]] void throw_bad_record(const std::filesystem::path& run, std::uint64_t header_lines,
                                   std::uint64_t record, std::uint64_t byte,
                                   const TextLayout& layout, const BadRecord& bad,
                                   const std::byte* at);

// Finds ends of records: writes where each `terminator` of `bytes` is, while `ends` has room for
// min_ends_room more. Returns how many; `scanned` is then how many bytes they were sought in.
inline constexpr std::size_t min_ends_room = 64;
using FindEnds = std::size_t(std::span<const std::byte> bytes, char terminator,
                             std::span<std::uint32_t> ends, std::size_t& scanned);
FindEnds find_ends_portable;
FindEnds* find_ends_avx2();    // null if this machine lacks it
FindEnds* find_ends_avx512();  // the same
FindEnds* best_find_ends();

}  // namespace corank
