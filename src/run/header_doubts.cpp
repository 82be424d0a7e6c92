#include "run/header_doubts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "corank/key.hpp"
#include "format/framing.hpp"
#include "util/setting_format.hpp"

namespace corank {
namespace {

// Max size of the first records that are examined.
constexpr std::uint64_t head_bytes = std::uint64_t{16} << 10;
constexpr std::uint32_t max_columns = 1000;

struct FirstRecords {
  std::string first, second;  // with their terminators; empty if the run has none
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string head_of(Run& run) {
  std::string head;
  if (run.is_stream()) {
    const std::vector<std::byte> begin = run.begin(run.offset() + head_bytes, run.stop());
    const std::size_t skipped = std::min<std::size_t>(run.offset(), begin.size());
    head.assign(reinterpret_cast<const char*>(begin.data()) + skipped, begin.size() - skipped);
    return head;
  }
  head.resize(std::min(head_bytes, run.records()));
  run.read(0, head.size(), std::as_writable_bytes(std::span(head)));
  return head;
}

FirstRecords first_records(Run& run, const TextLayout& layout) {
  std::string head = head_of(run);
  if (head.size() < head_bytes && !head.empty() && !head.ends_with(layout.terminator))
    head += layout.terminator;
  const std::uint64_t first = first_record_bytes(layout, bytes_of(head));
  const std::string rest = head.substr(first);
  return {head.substr(0, first), rest.substr(0, first_record_bytes(layout, bytes_of(rest)))};
}

bool holds_number(const TextLayout& layout, const std::string& record, std::uint32_t column,
                  TextType type) {
  detail::Columns columns(layout, bytes_of(record).data(), record.size());
  const detail::TextField field = columns(column);
  std::uint64_t word = 0;
  return field.there && detail::parse_number(field, type, word);
}

bool has_column(const TextLayout& layout, const std::string& record, std::uint32_t column) {
  detail::Columns columns(layout, bytes_of(record).data(), record.size());
  const detail::TextField field = columns(column);
  return field.there && field.bytes != 0;
}

// Returns whether a column holds text in `first` and a number in each of `seconds`.
bool is_named(const TextLayout& layout, const std::string& first,
              const std::vector<std::string>& seconds, std::uint32_t column) {
  return has_column(layout, first, column) && !holds_number(layout, first, column, TextType::f64) &&
         std::ranges::all_of(seconds, [&](const std::string& second) {
           return holds_number(layout, second, column, TextType::f64);
         });
}

bool looks_like_header(const TextLayout& layout, const std::string& first,
                       const std::vector<std::string>& seconds, bool has_columns, bool are_sorted,
                       bool is_verified) {
  if (seconds.empty()) return false;
  for (const TextColumn& key : std::span(layout.columns, layout.columns_count)) {
    if (key.type == TextType::bytes || holds_number(layout, first, key.column, key.type)) continue;
    // Unless told otherwise, the merge reports such a record as an error, so no warning is needed.
    return layout.bad_numbers != BadNumbers::error;
  }
  const auto is_before_first = [&](const std::string& second) {
    return text_less(layout, bytes_of(second).data(), second.size(), bytes_of(first).data(),
                     first.size());
  };
  if (are_sorted && std::ranges::any_of(seconds, is_before_first)) return !is_verified;
  for (std::uint32_t column = 1; has_columns && column <= max_columns; ++column) {
    if (is_named(layout, first, seconds, column)) return true;
    if (!has_column(layout, first, column)) break;
  }
  return false;
}

std::string shown(std::string_view record) {
  constexpr std::size_t max_shown_bytes = 60;
  while (record.ends_with('\n') || record.ends_with('\r') || record.ends_with('\0'))
    record.remove_suffix(1);
  return without_nul(record.substr(0, max_shown_bytes)) +
         (record.size() > max_shown_bytes ? "…" : "");
}

}  // namespace

std::string doubt_header(const TextFormat& format, std::string_view header) {
  if (header.empty()) return {};
  const std::string line(header.substr(byte_order_mark_bytes(format.kind, header)));
  const TextEncoding encoding(format, header);
  for (std::size_t i = 0; i < format.keys.size(); ++i) {
    const TextKey& key = format.keys[i];
    if (key.type == TextType::bytes || !key.name.empty()) continue;
    if (holds_number(encoding.layout(), line, key.column, key.type))
      return fmt::format(
          "the header, \"{}\", holds a number where the key is, as a record does; if the files "
          "have no header, leave out {}",
          shown(line), Setting::header);
  }
  return {};
}

std::string doubt_first_records(std::vector<Run>& runs, const TextFormat& format, bool are_sorted,
                                bool is_verified) {
  if (format.kind == TextKind::pairs || format.kind == TextKind::json_lines) return {};
  const TextEncoding encoding(format);
  const TextLayout layout = encoding.layout();
  std::string first;
  std::vector<std::string> seconds;
  std::size_t num_same = 0;
  for (Run& run : runs) {
    if (run.input().is_stream) continue;
    FirstRecords found = first_records(run, layout);
    if (found.first.empty()) continue;
    if (num_same++ == 0)
      first = std::move(found.first);
    else if (found.first != first)
      return {};
    if (!found.second.empty()) seconds.push_back(std::move(found.second));
  }
  const bool has_columns = format.kind == TextKind::csv || format.delimiter;
  if (num_same < 2 ||
      !looks_like_header(layout, first, seconds, has_columns, are_sorted, is_verified))
    return {};
  return fmt::format(
      "the first record of all runs is the same, \"{}\", and looks like a header; if it is one, "
      "say {}",
      shown(first), Setting::header);
}

}  // namespace corank
