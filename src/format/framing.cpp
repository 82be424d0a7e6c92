#include "format/framing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "format/encoded_key.hpp"
#include "util/messages.hpp"
#include "util/record_ends.hpp"

namespace corank {
namespace {

// Returns the first key word of a line that is its own key. `end` is the end of the readable block.
inline std::uint64_t line_word(const std::byte* line, std::uint64_t bytes, const std::byte* end) {
  std::uint64_t word;
  if (bytes >= 8) [[likely]] {
    std::memcpy(&word, line, 8);
    return (__builtin_bswap64(word) & ~std::uint64_t{0xff}) | 8;
  }
  if (end - line < 8) return detail::string_word({line, bytes, false, true}, false, 0);
  std::memcpy(&word, line, 8);
  return (__builtin_bswap64(word) & (~std::uint64_t{0xff} << (56 - 8 * bytes))) | bytes;
}

// Index of the records in a block. Checks each record as it is added, and stops at the first bad
// one.
class Index {
 public:
  Index(const TextLayout& layout, std::span<const std::byte> bytes, std::span<PrefixRef> into)
      : layout_(layout),
        whole_line_(layout.whole_line() && layout.min_columns == 0),
        bytes_(bytes),
        into_(into) {
    for (std::uint32_t key = 1; key < layout.columns_count; ++key)
      later_numbers_ |= must_be_value(key);
  }

  std::size_t room() const { return into_.size() - indexed_.records; }
  std::span<const std::byte> rest() const { return bytes_.subspan(indexed_.bytes); }

  // Adds the lines that end at the offsets `ends` from `block`. Returns false if one is bad.
  bool add_lines(const std::byte* block, std::span<const std::uint32_t> ends) {
    const std::byte* line = rest().data();
    if (!whole_line_) {
      for (const std::uint32_t end : ends) {
        const auto bytes = static_cast<std::uint64_t>(block + end + 1 - line);
        if (!add(bytes)) return false;
        line += bytes;
      }
      return true;
    }
    const std::byte* const all_end = bytes_.data() + bytes_.size();
    PrefixRef* to = into_.data() + indexed_.records;
    for (const std::uint32_t end : ends) {
      const auto bytes = static_cast<std::uint64_t>(block + end + 1 - line);
      *to++ = make_entry(line_word(line, bytes - 1, all_end), line, bytes);
      line += bytes;
    }
    indexed_.records += ends.size();
    indexed_.bytes = static_cast<std::uint64_t>(line - bytes_.data());
    return true;
  }
  // Adds the next record, of `bytes` bytes. Returns false if it is bad.
  bool add(std::uint64_t bytes) {
    const std::byte* const record = bytes_.data() + indexed_.bytes;
    const TextColumn& column = layout_.columns[0];
    if (layout_.finder && !layout_.finder->defect({record, bytes}).empty()) {
      indexed_.bad = BadRecord{BadRecord::Reason::defect, 0, bytes};
      return false;
    }
    detail::Columns columns(layout_, record, bytes);
    if (layout_.min_columns != 0 && !columns(layout_.min_columns).there) {
      indexed_.bad = BadRecord{BadRecord::Reason::ragged, 0, bytes};
      return false;
    }
    const auto field = columns(column.column);
    const std::optional<std::uint64_t> word = first_word(column, field);
    if (!word) return refuse(0, field, bytes);
    for (std::uint32_t key = 1; later_numbers_ && key < layout_.columns_count; ++key) {
      if (!must_be_value(key)) continue;
      const auto later = columns(layout_.columns[key].column);
      if (!is_acceptable(key, later)) return refuse(key, later, bytes);
    }
    into_[indexed_.records++] = make_entry(*word, record, bytes);
    indexed_.bytes += bytes;
    return true;
  }
  // Reports that the next record has no end.
  void add_open(BadRecord::Reason reason) { indexed_.bad = BadRecord{reason, 0, rest().size()}; }
  // Reports that the next record has stray text at its byte `at`.
  void add_stray_text(std::uint64_t at) {
    indexed_.bad = BadRecord{BadRecord::Reason::stray_text, 0, at};
  }
  std::uint64_t records() const { return indexed_.records; }
  bool stopped() const { return room() == 0 || indexed_.bad; }

  Indexed result() {
    indexed_.rows = reinterpret_cast<const std::byte*>(into_.data());
    return indexed_;
  }

 private:
  bool must_be_value(std::uint32_t key) const {
    return layout_.columns[key].type != TextType::bytes && !are_ordered(layout_.bad_numbers);
  }
  bool is_acceptable(std::uint32_t key, const detail::TextField& field) const {
    return !must_be_value(key) || detail::holds_value(field, layout_.columns[key]);
  }
  // Returns the first key word, which is of `column`; nothing if that must hold a value and does
  // not.
  std::optional<std::uint64_t> first_word(const TextColumn& column,
                                          const detail::TextField& field) const {
    if (detail::is_encoded(column.type)) {
      const detail::EncodedKey key(field, column, detail::word_bytes);
      if (!key.is_valid() && must_be_value(0)) return std::nullopt;
      return key.word(column, 0);
    }
    if (!detail::is_number(column.type)) return detail::bytes_word(column, field, 0);
    std::uint64_t word = 0;
    if (detail::parse_number(field, column.type, word)) return column.descending ? ~word : word;
    if (!are_ordered(layout_.bad_numbers)) return std::nullopt;
    return column.bad_first ? 0 : ~std::uint64_t{0};
  }
  bool refuse(std::uint32_t key, const detail::TextField& field, std::uint64_t bytes) {
    using Reason = BadRecord::Reason;
    indexed_.bad = BadRecord{field.there ? Reason::no_number : Reason::no_column, key, bytes};
    return false;
  }

  const TextLayout& layout_;
  const bool whole_line_;
  bool later_numbers_ = false;  // whether keys after the first must hold values of their types
  std::span<const std::byte> bytes_;
  std::span<PrefixRef> into_;
  Indexed indexed_;
};

// Counts records, with the interface of Index.
class Counter {
 public:
  Counter(std::span<const std::byte> bytes, std::uint64_t max_records)
      : bytes_(bytes), max_records_(max_records) {}

  std::uint64_t room() const { return max_records_ - whole_.records; }
  std::span<const std::byte> rest() const { return bytes_.subspan(whole_.bytes); }
  bool add_lines(const std::byte* block, std::span<const std::uint32_t> ends) {
    if (!ends.empty())
      whole_.bytes = static_cast<std::uint64_t>(block + ends.back() + 1 - bytes_.data());
    whole_.records += ends.size();
    return true;
  }
  bool add(std::uint64_t bytes) {
    whole_.bytes += bytes;
    ++whole_.records;
    return true;
  }
  void add_open(BadRecord::Reason) {}
  void add_stray_text(std::uint64_t) {}
  std::uint64_t records() const { return whole_.records; }
  bool stopped() const { return room() == 0; }
  WholeRecords result() const { return whole_; }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t max_records_;
  WholeRecords whole_;
};

// Ends of records that are found at a time, in blocks so short that their offsets fit 32 bits and
// that they stay in cache.
using Ends = std::array<std::uint32_t, 1024>;
constexpr std::size_t block_bytes = std::size_t{1} << 16;

// Returns the part of `ends` that a search for `room` more records needs.
std::span<std::uint32_t> wanted(Ends& ends, std::uint64_t room) {
  return std::span(ends).first(std::min<std::uint64_t>(
      ends.size(), std::min<std::uint64_t>(room, ends.size()) + min_ends_room));
}

// Adds the lines in `bytes` to an Index or a Counter, until it has no room or a line is bad.
template <class Records>
void add_lines(const TextLayout& layout, std::span<const std::byte> bytes, Records& records) {
  FindEnds* const find_ends = end_finders().front().lines;
  Ends ends;
  for (std::size_t from = 0; from < bytes.size() && records.room() != 0;) {
    const auto block = bytes.subspan(from).first(std::min(bytes.size() - from, block_bytes));
    std::size_t scanned = 0;
    const std::size_t found =
        find_ends(block, layout.terminator, wanted(ends, records.room()), scanned);
    const std::size_t taken = std::min<std::uint64_t>(found, records.room());
    if (!records.add_lines(block.data(), {ends.data(), taken})) return;
    from += scanned;
  }
}

// Returns the size of the first record, or 0 if its end is not in `bytes`. Sets `stray` to the
// offset of the first text that follows a closing quote.
std::uint64_t first_csv_bytes(const TextLayout& layout, std::span<const std::byte> bytes,
                              std::optional<std::uint64_t>& stray) {
  const std::byte* const end = bytes.data() + bytes.size();
  const auto is_blank = [](std::byte byte) {
    return detail::is_char(byte, ' ') || detail::is_char(byte, '\t') || detail::is_char(byte, '\r');
  };
  for (const std::byte* at = bytes.data();; ++at) {
    const bool quoted = at != end && detail::is_char(*at, '"');
    const std::byte* const after = quoted ? detail::csv_quoted_end(layout, at, end) : at;
    at = detail::csv_unquoted_end(layout, after, end);
    if (quoted && !stray) {
      const std::byte* const text = std::find_if_not(after, at, is_blank);
      if (text != at) stray = static_cast<std::uint64_t>(text - bytes.data());
    }
    if (at == end) return 0;
    if (detail::is_char(*at, layout.terminator))
      return static_cast<std::uint64_t>(at + 1 - bytes.data());
  }
}

template <class Records>
void add_csv(const TextLayout& layout, bool at_end, Records& records) {
  FindCsvEnds* const find_ends = end_finders().front().csv;
  const CsvBytes csv{layout.delimiter, layout.terminator, layout.escape};
  Ends ends;
  while (!records.stopped() && !records.rest().empty()) {
    const auto rest = records.rest();
    const auto block = rest.first(std::min(rest.size(), block_bytes));
    const std::size_t found = find_ends(csv, block, wanted(ends, records.room()));
    if (found != 0) {
      const std::size_t taken = std::min<std::uint64_t>(found, records.room());
      if (!records.add_lines(block.data(), {ends.data(), taken})) return;
      continue;
    }
    std::optional<std::uint64_t> stray;
    const std::uint64_t bytes = first_csv_bytes(layout, rest, stray);
    if (stray) return records.add_stray_text(*stray);
    if (bytes == 0 && at_end) records.add_open(BadRecord::Reason::open_quote);
    if (bytes == 0 || !records.add(bytes)) return;
  }
}

// Returns the size of the first pair, as far as it is known: it may exceed that of `bytes`.
std::uint64_t first_pair_bytes(const TextLayout& layout, std::span<const std::byte> bytes) {
  return bytes.size() < detail::pair_header_bytes ? detail::pair_header_bytes
                                                  : record_bytes(layout, bytes.data());
}

template <class Records>
void add_pairs(const TextLayout& layout, bool at_end, Records& records) {
  while (records.room() != 0 && !records.rest().empty()) {
    const auto rest = records.rest();
    const std::uint64_t bytes = first_pair_bytes(layout, rest);
    if (bytes <= rest.size()) {
      records.add(bytes);
      continue;
    }
    if (at_end) records.add_open(BadRecord::Reason::cut_off);
    return;
  }
}

// Adds the records in `bytes` to an Index or a Counter of them. Returns its result.
template <class Records>
auto add_all(const TextLayout& layout, std::span<const std::byte> bytes, bool at_end,
             Records records) {
  switch (layout.kind) {
    case TextKind::lines:
    case TextKind::json_lines:
      add_lines(layout, bytes, records);
      break;
    case TextKind::csv:
      add_csv(layout, at_end, records);
      break;
    case TextKind::pairs:
      add_pairs(layout, at_end, records);
      break;
  }
  return records.result();
}

}  // namespace

Indexed index_records(const TextLayout& layout, std::span<const std::byte> bytes, bool at_end,
                      std::span<PrefixRef> into) {
  return add_all(layout, bytes, at_end, Index(layout, bytes, into));
}

WholeRecords count_records(const TextLayout& layout, std::span<const std::byte> bytes,
                           std::uint64_t max_records) {
  return add_all(layout, bytes, false, Counter(bytes, max_records));
}

std::uint64_t part_size(const TextLayout& layout, std::span<const std::byte> records,
                        std::uint64_t part_bytes) {
  // The ends of lines can be found from any position, those of other records only from an end.
  if (layout.kind == TextKind::lines || layout.kind == TextKind::json_lines) {
    const std::byte* const end = detail::find_char(
        records.data() + part_bytes, records.data() + records.size() - 1, layout.terminator);
    return static_cast<std::uint64_t>(end + 1 - records.data());
  }
  const auto whole = count_records(layout, records.first(part_bytes), ~std::uint64_t{0});
  return whole.bytes != 0 ? whole.bytes : count_records(layout, records, 1).bytes;
}

bool has_order(const TextLayout& layout, std::span<const std::byte> record) {
  if (layout.finder && !layout.finder->defect(record).empty()) return false;
  if (are_ordered(layout.bad_numbers)) return true;
  detail::Columns columns(layout, record.data(), record.size());
  return std::all_of(
      layout.columns, layout.columns + layout.columns_count,
      [&](const TextColumn& key) { return detail::holds_value(columns(key.column), key); });
}

std::uint64_t first_record_bytes(const TextLayout& layout, std::span<const std::byte> bytes) {
  if (layout.kind == TextKind::csv) {
    std::optional<std::uint64_t> stray;
    return first_csv_bytes(layout, bytes, stray);
  }
  const std::byte* const end = bytes.data() + bytes.size();
  const std::byte* const at = detail::find_char(bytes.data(), end, layout.terminator);
  return at == end ? 0 : static_cast<std::uint64_t>(at + 1 - bytes.data());
}

std::optional<std::uint64_t> find_stray_text(const TextLayout& layout,
                                             std::span<const std::byte> bytes) {
  std::optional<std::uint64_t> stray;
  if (layout.kind == TextKind::csv) first_csv_bytes(layout, bytes, stray);
  return stray;
}

std::string stray_text_message(const TextLayout& layout, const std::byte* record,
                               std::uint64_t at) {
  std::uint64_t column = 1;
  const std::byte* const text = record + at;
  for (const std::byte* next = record;; ++column, ++next) {
    next = detail::csv_field_end(layout, next, text);
    if (next == text) break;
  }
  const std::string remedy =
      layout.escape != 0
          ? "correct the file"
          : fmt::format(
                "double a quote in quotes; if the file escapes quotes by a character, "
                "name the character with {}; if quotes mean nothing, use {}",
                Setting::escape, Setting::lines);
  return fmt::format("column {} has text after its closing quote, at byte {} of the record; {}",
                     column, at, remedy);
}

std::string open_quote_message(const TextLayout& layout) {
  if (layout.escape != 0)
    return fmt::format(
        "the last record has no end: a quote is not closed, or the last line end is escaped; "
        "correct the file, or {}",
        Setting::escape);
  return fmt::format(
      "the last column begins with a quote that nothing closes; correct the file, or take {} if "
      "quotes mean nothing in it",
      Setting::lines);
}

std::string column_name(const TextLayout& layout, std::uint32_t column) {
  if (layout.kind == TextKind::pairs) return column == 0 ? "key" : "value";
  if (column == 0) return "line";
  return layout.finder ? layout.finder->name(column) : fmt::format("column {}", column);
}

std::string place_text(const Place& place) {
  const std::string number =
      place.line ? fmt::format("line {}", *place.line) : fmt::format("record {}", place.record);
  return place.byte ? fmt::format("{} (byte {})", number, *place.byte) : number;
}

void throw_bad_record(const std::filesystem::path& run, const Place& found,
                      const TextLayout& layout, const BadRecord& bad, const std::byte* at,
                      bool has_header) {
  const std::string place = fmt::format("{}: {}", run.string(), place_text(found));
  if (bad.reason == BadRecord::Reason::stray_text)
    throw_error("{}: {}", place, stray_text_message(layout, at, bad.bytes));
  if (bad.reason == BadRecord::Reason::defect)
    throw_error("{}: {}; correct it, or say {}", place,
                layout.finder->defect({at, static_cast<std::size_t>(bad.bytes)}),
                setting_is(Setting::bad_numbers, "skip"));
  if (bad.reason == BadRecord::Reason::open_quote)
    throw_error("{}: {}", place, open_quote_message(layout));
  if (bad.reason == BadRecord::Reason::cut_off) {
    if (bad.bytes < detail::pair_header_bytes)
      throw_error(
          "{}: the file ends after {} of the 8 bytes of a pair's lengths; check that it is whole",
          place, bad.bytes);
    throw_error(
        "{}: a pair's lengths, {} and {} bytes, run past the end: {} bytes are left; check that "
        "the file is whole and holds pairs",
        place, detail::load_length(at), detail::load_length(at + 4),
        bad.bytes - detail::pair_header_bytes);
  }
  if (bad.reason == BadRecord::Reason::ragged)
    throw_error("{}: has {} of {} columns; correct it, or take {}", place,
                count_columns(layout, {reinterpret_cast<const char*>(at), bad.bytes}),
                layout.min_columns, setting_is(Setting::ragged, "empty"));
  const TextColumn& column = layout.columns[bad.key];
  const std::string name = (column.column == 0 ? "the " : "") + column_name(layout, column.column);
  // To skip or reorder a first record might destroy a header.
  const std::string advice =
      found.record == 0 && !layout.finder && !has_header
          ? fmt::format("if the file begins with a header, say {}, {} or {}; else correct it",
                        Setting::header, setting_is(Setting::header_lines, "N"),
                        setting_is(Setting::comment, "PREFIX"))
          : fmt::format("correct it, or say {} or {}", setting_is(Setting::bad_numbers, "skip"),
                        setting_is(Setting::bad_numbers, "last"));
  if (bad.reason == BadRecord::Reason::no_column)
    throw_error("{}: there is no {}; {}", place, name, advice);
  const auto field = detail::Columns(layout, at, bad.bytes).written(column.column);
  constexpr std::uint64_t max_shown = 40;
  const std::string_view shown(reinterpret_cast<const char*>(field.at),
                               std::min(field.bytes, max_shown));
  const std::string_view type = type_name(column.type);
  throw_error("{}: {}, \"{}{}\", {}; {}", place, name, without_nul(shown),
              field.bytes > max_shown ? "…" : "",
              detail::is_encoded(column.type) ? fmt::format("is not a value of type {}", type)
                                              : fmt::format("is not a number that {} holds", type),
              advice);
}

}  // namespace corank
