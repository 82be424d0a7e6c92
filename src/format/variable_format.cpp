#include "format/variable_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "corank/error.hpp"
#include "format/key_order.hpp"
#include "format/text_columns.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

// Returns what devices do not read of records in this format; empty if they read all.
std::string cpu_only(const TextFormat& format) {
  if (format.escape) return "escape characters";
  if (format.kind == TextKind::json_lines) return "JSON Lines";
  for (const TextKey& key : format.keys)
    if (!device_reads(key.type)) return fmt::format("keys of type {}", type_name(key.type));
  return {};
}

FormatTraits traits_of(const TextFormat& format) {
  FormatTraits traits;
  switch (format.kind) {
    case TextKind::lines:
      traits = {.name = "lines",
                .can_search = true,
                .has_columns = true,
                .has_text_columns = true,
                .are_lines = true,
                .can_add_column = format.delimiter.has_value()};
      break;
    case TextKind::csv:
      traits = {
          .name = "CSV", .has_columns = true, .has_text_columns = true, .can_add_column = true};
      break;
    case TextKind::pairs:
      traits = {.name = "pairs", .are_binary = true};
      break;
    case TextKind::json_lines:
      traits = {.name = "JSON Lines", .can_search = true, .are_lines = true, .are_parsed = true};
      break;
  }
  traits.has_header = format.header || format.header_lines != 0 || !format.comment.empty();
  if (format.header_bytes) traits.header_bytes = 0;  // of what is not lines
  traits.may_skip = format.bad_numbers == BadNumbers::skip;
  traits.cpu_only = cpu_only(format);
  return traits;
}

TextFormat with_keys(TextFormat format, const std::vector<TextKey>& keys) {
  format.keys = keys;
  return format;
}

// Copies the selected columns, with delimiters between them.
class ColumnProjection final : public Projection {
 public:
  // Throws Error if the columns do not fit the format. `columns_line` is as in make_format().
  ColumnProjection(const TextFormat& format, std::string_view columns_line,
                   const std::vector<TextKey>& columns)
      : selected_(with_keys(format, columns), columns_line, Setting::select),
        output_(make_variable_format(with_keys(format, {}), {})) {
    const auto& selected = selected_.columns();
    for (auto column = selected.begin(); column != selected.end(); ++column) {
      if (column->column == 0)
        throw_error(ErrorCode::options,
                    "{}: the whole line is not a column; name columns, or drop it",
                    Setting::select);
      if (std::any_of(selected.begin(), column,
                      [&](const TextColumn& other) { return other.column == column->column; }))
        throw_error(ErrorCode::options, "{}: column {} is named twice", Setting::select,
                    column->column);
    }
  }

  const RecordFormat& output() const override { return *output_; }
  std::size_t num_keys() const override { return 0; }
  std::optional<TextLayout> columns() const override { return selected_.layout(); }
  std::uint64_t max_bytes(RowSpan rows) const override {
    std::uint64_t bytes = rows.count * (selected_.columns().size() - 1);
    for (std::uint64_t i = 0; i < rows.count; ++i) bytes += record(rows, i).size();
    return bytes;
  }
  std::byte* project(RowSpan rows, std::byte* to) const override {
    for (std::uint64_t i = 0; i < rows.count; ++i)
      put(record(rows, i),
          [&](const std::byte* at, std::uint64_t bytes) { to = std::copy_n(at, bytes, to); });
    return to;
  }
  RowBound key_of(std::span<const std::byte> record) const override {
    return output_->key_of(record);
  }
  std::string of_header(std::string_view header) const override {
    std::string names;
    put(std::as_bytes(std::span(header)), [&](const std::byte* at, std::uint64_t bytes) {
      names.append(reinterpret_cast<const char*>(at), bytes);
    });
    return names;
  }

 private:
  std::span<const std::byte> record(RowSpan rows, std::uint64_t i) const {
    return bytes_of(selected_.layout(), rows.data + i * sizeof(PrefixRef), 1);
  }
  template <class Put>
  void put(std::span<const std::byte> record, Put put) const {
    put_columns(selected_.layout(), record.data(), record.size(), put);
  }

  TextEncoding selected_;
  std::unique_ptr<const RecordFormat> output_;
};

class VariableFormat final : public RecordFormat {
 public:
  VariableFormat(const TextFormat& format, std::string_view columns_line)
      : VariableFormat(format, columns_line, TextEncoding(format, columns_line)) {}

  Indexed frame(std::span<const std::byte> bytes, bool at_end, std::uint64_t max_records,
                PrefixRef* into) const override {
    return index_records(layout(), bytes, at_end, {into, max_records});
  }
  std::unique_ptr<const RecordFormat> without_checks() const override {
    auto text = text_.without_checks();
    if (!text) return nullptr;
    return std::unique_ptr<const RecordFormat>(
        new VariableFormat(format_, columns_line_, *std::move(text)));
  }
  WholeRecords count(std::span<const std::byte> bytes, std::uint64_t max_records) const override {
    return count_records(layout(), bytes, max_records);
  }
  std::string_view end_of_record() const override {
    if (format_.kind == TextKind::pairs) return {};
    return {&format_.terminator, 1};
  }
  const TextHeader* header() const override { return &header_; }
  bool has_order(std::span<const std::byte> record) const override {
    return corank::has_order(layout(), record);
  }
  RowBound key_of(std::span<const std::byte> record) const override {
    return {TextEncoding(text_), {record.begin(), record.end()}};
  }
  std::string signature() const override;
  std::unique_ptr<Projection> projection(const Query& query) const override {
    if (query.select.empty() || !traits().has_columns) return nullptr;
    return std::make_unique<ColumnProjection>(
        format_, resolved_columns(header_, columns_line_, query), query.select);
  }
  std::string other_order(std::span<const std::byte* const> rows, const std::byte* before,
                          const std::byte* row) const override {
    return format_.kind == TextKind::pairs
               ? std::string()
               : find_other_order(layout(), format_.keys, rows, before, row);
  }
  std::string key_text(const std::byte* row) const override;
  std::optional<TextEncoding> columns(const std::vector<TextKey>& columns,
                                      Setting option) const override {
    return TextEncoding(with_keys(format_, columns), columns_line_, option);
  }
  void throw_bad_record(const std::filesystem::path& run, const Place& place, const BadRecord& bad,
                        const std::byte* at) const override {
    corank::throw_bad_record(run, place, layout(), bad, at,
                             format_.header && !format_.first_header);
  }

 private:
  VariableFormat(const TextFormat& format, std::string_view columns_line, TextEncoding text);

  TextLayout layout() const { return text_.layout(); }
  std::string name_of(std::uint32_t column) const;
  std::unique_ptr<const RecordFormat> resolved(const Query& query) const override {
    // The names of keys may be those of two columns now.
    return std::make_unique<VariableFormat>(with_keys(format_, {}),
                                            resolved_columns(header_, columns_line_, query));
  }
  RowBound key_bound(const std::vector<std::string>& values, Setting option) const override;
  RowBound operand(const Condition::Step& comparison, Setting option) const override;

  TextFormat format_;
  std::string columns_line_;
  TextEncoding text_;
  TextHeader header_;
};

VariableFormat::VariableFormat(const TextFormat& format, std::string_view columns_line,
                               TextEncoding text)
    : RecordFormat(traits_of(format), KeyEncoding(text.layout()), text.columns().size()),
      format_(format),
      columns_line_(columns_line),
      text_(std::move(text)),
      header_(format) {}

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
  for (std::uint32_t i = 0; by.finder && i < by.columns_count; ++i) {
    const std::string name = column_name(by, by.columns[i].column);
    text += fmt::format(" {}:{}", name.size(), name);
  }
  return text;
}

RowBound VariableFormat::key_bound(const std::vector<std::string>& values, Setting option) const {
  TextFormat by = format_;
  by.keys.resize(values.size());  // no keys mean one
  TextEncoding encoding(by, columns_line_);
  std::vector<std::byte> record = record_with(encoding.layout(), values, option);
  return {std::move(encoding), std::move(record)};
}

RowBound VariableFormat::operand(const Condition::Step& comparison, Setting option) const {
  const ColumnValue& value = comparison.with;
  require_comparable(value, option);
  TextFormat by = with_keys(format_, {value.column});
  by.keys.front().descending = false;  // a condition has no direction
  // Text that is not a number is neither less nor greater than one.
  const bool is_greater = comparison.operation == ConditionOperation::greater ||
                          comparison.operation == ConditionOperation::greater_equal;
  by.bad_numbers = is_greater ? BadNumbers::first : BadNumbers::last;
  TextEncoding encoding(by, columns_line_, option);
  std::vector<std::byte> record = record_with(encoding.layout(), {value.value}, option);
  return {std::move(encoding), std::move(record)};
}

// Returns the name of a column in the header, or else the format's.
std::string VariableFormat::name_of(std::uint32_t column) const {
  const TextLayout by = layout();
  const auto names = format_.header ? column_values(by, columns_line_) : std::vector<std::string>();
  return column != 0 && column <= names.size() && !names[column - 1].empty()
             ? without_nul(names[column - 1])
             : column_name(by, column);
}

std::string VariableFormat::key_text(const std::byte* row) const {
  constexpr std::uint64_t max_bytes = 80;
  const TextLayout by = layout();
  const PrefixRef& entry = *reinterpret_cast<const PrefixRef*>(row);
  std::string text;
  detail::Columns columns(by, record_of(entry), corank::record_bytes(by, entry));
  for (const TextColumn& column : std::span(by.columns, by.columns_count)) {
    const detail::TextField field = columns.written(column.column);
    text += text.empty() ? "" : ", ";
    text += name_of(column.column) + "=";
    for (std::uint64_t at = 0; at < std::min(field.bytes, max_bytes); ++at) {
      const auto byte = static_cast<unsigned char>(field.at[at]);
      text += byte < 0x20 || byte == 0x7f || byte == '\\' ? fmt::format("\\x{:02x}", byte)
                                                          : std::string(1, static_cast<char>(byte));
    }
    if (field.bytes > max_bytes) text += fmt::format("… ({} bytes)", field.bytes);
  }
  return text;
}

}  // namespace

std::unique_ptr<const RecordFormat> make_variable_format(const TextFormat& format,
                                                         std::string_view columns_line) {
  return std::make_unique<VariableFormat>(format, columns_line);
}

std::string resolved_columns(const TextHeader& header, std::string_view columns,
                             const Query& query) {
  const auto adds_column = [](const Reduction& reduction) { return !reduction.column; };
  if (columns.empty() || query.on_equal != OnEqual::reduce ||
      std::ranges::none_of(query.reductions, adds_column))
    return std::string(columns);
  return header.with_column(columns, "count");
}

}  // namespace corank
