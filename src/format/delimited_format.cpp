#include "format/delimited_format.hpp"

#include <fmt/format.h>

#include "format/text_columns.hpp"
#include "format/variable_format.hpp"

namespace corank {
namespace {

FormatTraits traits_of(const TextFormat& format) {
  const bool is_csv = format.kind == TextKind::csv;
  return {.name = is_csv ? "CSV" : "lines", .can_search = !is_csv, .has_columns = true};
}

// Copies the selected columns, with delimiters between them.
class ColumnProjection final : public Projection {
 public:
  ColumnProjection(const TextFormat& format, std::string_view columns_line,
                   const std::vector<TextKey>& columns)
      : columns_(format, columns_line, columns) {
    TextFormat output = format;
    output.keys.clear();
    output_ = make_delimited_format(output, {});
  }

  const RecordFormat& output() const override { return *output_; }
  std::size_t num_keys() const override { return 0; }
  std::optional<TextLayout> columns() const override { return columns_.encoding().layout(); }
  std::uint64_t max_bytes(RowSpan rows) const override {
    std::uint64_t bytes = 0;
    for (std::uint64_t i = 0; i < rows.count; ++i) bytes += columns_.max_bytes(record(rows, i));
    return bytes;
  }
  std::byte* project(RowSpan rows, std::byte* to) const override {
    for (std::uint64_t i = 0; i < rows.count; ++i) to = columns_.select(record(rows, i), to);
    return to;
  }
  RowBound key_of(std::span<const std::byte> record) const override {
    return output_->key_of(record);
  }
  std::string of_header(std::string_view header) const override {
    return columns_.of_header(header);
  }

 private:
  std::span<const std::byte> record(RowSpan rows, std::uint64_t i) const {
    return bytes_of(columns_.encoding().layout(), rows.data + i * sizeof(PrefixRef), 1);
  }

  TextSelection columns_;
  std::unique_ptr<const RecordFormat> output_;
};

class DelimitedFormat final : public VariableFormat {
 public:
  DelimitedFormat(const TextFormat& format, std::string_view columns_line)
      : VariableFormat(traits_of(format), format, columns_line) {}

  std::string_view end_of_record() const override { return {&format().terminator, 1}; }
  std::unique_ptr<Projection> projection(const Query& query) const override {
    if (query.select.empty()) return nullptr;
    return std::make_unique<ColumnProjection>(format(), columns_line(), query.select);
  }

 private:
  std::string column_name(std::uint32_t column) const override {
    return column == 0 ? "line" : fmt::format("column {}", column);
  }
};

}  // namespace

std::unique_ptr<const RecordFormat> make_delimited_format(const TextFormat& format,
                                                          std::string_view columns_line) {
  return std::make_unique<DelimitedFormat>(format, columns_line);
}

}  // namespace corank
