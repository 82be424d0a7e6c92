#include "format/variable_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "corank/error.hpp"
#include "format/text_columns.hpp"
#include "util/setting_format.hpp"

namespace corank {
namespace {

// Returns what devices do not read of records in this format; empty if they read all.
std::string cpu_only(const TextFormat& format) {
  if (format.escape) return "escape characters";
  for (const TextKey& key : format.keys)
    if (!device_reads(key.type)) return fmt::format("keys of type {}", type_name(key.type));
  return {};
}

FormatTraits completed(FormatTraits traits, const TextFormat& format) {
  traits.has_header = format.header || format.header_lines != 0 || !format.comment.empty();
  traits.may_skip = format.bad_numbers == BadNumbers::skip;
  traits.cpu_only = cpu_only(format);
  return traits;
}

std::span<const PrefixRef> entries_of(RowSpan rows) {
  return {reinterpret_cast<const PrefixRef*>(rows.data), rows.count};
}

}  // namespace

VariableFormat::VariableFormat(FormatTraits traits, const TextFormat& format,
                               std::string_view columns_line)
    : VariableFormat(std::move(traits), format, columns_line, TextEncoding(format, columns_line)) {}

VariableFormat::VariableFormat(FormatTraits traits, const TextFormat& format,
                               std::string_view columns_line, TextEncoding text)
    : RecordFormat(completed(std::move(traits), format), KeyEncoding(text.layout()),
                   text.columns().size()),
      format_(format),
      columns_line_(columns_line),
      text_(std::move(text)) {}

Indexed VariableFormat::frame(std::span<const std::byte> bytes, bool at_end,
                              std::span<PrefixRef> into) const {
  return index_records(layout(), bytes, at_end, into);
}

RowBound VariableFormat::key_of(std::span<const std::byte> record) const {
  return {TextEncoding(text_), {record.begin(), record.end()}};
}

std::string VariableFormat::signature() const {
  const TextLayout by = layout();
  std::string text =
      fmt::format("{} {:x} {:x} {:x} {} {} {} {}:{}", static_cast<int>(by.kind),
                  static_cast<int>(by.terminator), static_cast<int>(by.delimiter),
                  static_cast<int>(by.escape), static_cast<int>(by.bad_numbers), by.min_columns,
                  format_.header_lines, format_.comment.size(), format_.comment);
  for (const TextColumn& column : std::span(by.columns, by.columns_count))
    text += fmt::format(" {} {} {} {}", column.column, static_cast<int>(column.type),
                        column.descending, column.nocase);
  return text;
}

RowBound VariableFormat::key_bound(const std::vector<std::string>& values, Setting option) const {
  TextFormat by = format_;
  by.keys.resize(values.size());  // no keys mean one
  TextEncoding encoding(by, columns_line_);
  std::vector<std::byte> record = record_with(encoding.layout(), values, option);
  return {std::move(encoding), std::move(record)};
}

RowBound VariableFormat::column_bound(const ColumnValue& value, Setting option) const {
  require_comparable(value, option);
  TextFormat by = format_;
  by.keys = {value.column};
  by.bad_numbers = BadNumbers::last;
  TextEncoding encoding(by, columns_line_, option);
  std::vector<std::byte> record = record_with(encoding.layout(), {value.value}, option);
  return {std::move(encoding), std::move(record)};
}

std::string VariableFormat::key_text(const std::byte* row) const {
  constexpr std::uint64_t max_bytes = 80;
  const TextLayout by = layout();
  const PrefixRef& entry = entries_of({row, 1}).front();
  std::string text;
  detail::Columns columns(by, record_of(entry), corank::record_bytes(by, entry));
  for (const TextColumn& column : std::span(by.columns, by.columns_count)) {
    const detail::TextField field = columns(column.column);
    text += text.empty() ? "" : ", ";
    text += column_name(column.column) + "=";
    for (std::uint64_t at = 0; at < std::min(field.bytes, max_bytes); ++at) {
      const auto byte = static_cast<unsigned char>(field.at[at]);
      text += byte < 0x20 || byte == 0x7f || byte == '\\' ? fmt::format("\\x{:02x}", byte)
                                                          : std::string(1, static_cast<char>(byte));
    }
    if (field.bytes > max_bytes) text += fmt::format("… ({} bytes)", field.bytes);
  }
  return text;
}

std::string VariableFormat::place_of(std::uint64_t header_lines, std::uint64_t record,
                                     std::optional<std::uint64_t> byte) const {
  return corank::place_of(layout(), header_lines, record, byte);
}

std::string VariableFormat::advice_on_disorder(std::uint64_t record) const {
  return corank::advice_on_disorder(layout(), record);
}

void VariableFormat::throw_bad_record(const std::filesystem::path& run, std::uint64_t header_lines,
                                      std::uint64_t record, std::uint64_t byte,
                                      const BadRecord& bad, const std::byte* at) const {
  corank::throw_bad_record(run, header_lines, record, byte, layout(), bad, at);
}

}  // namespace corank
