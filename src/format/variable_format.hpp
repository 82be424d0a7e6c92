// Records of variable length: the part that lines, CSV and pairs share. Rows are prefix references.
#pragma once

#include <string>
#include <vector>

#include "format/record_format.hpp"

namespace corank {

class VariableFormat : public RecordFormat {
 public:
  Indexed frame(std::span<const std::byte> bytes, bool at_end,
                std::span<PrefixRef> into) const override;
  RowBound key_of(std::span<const std::byte> record) const override;
  std::string signature() const override;
  std::string key_text(const std::byte* row) const override;
  std::string place_of(std::uint64_t header_lines, std::uint64_t record,
                       std::optional<std::uint64_t> byte) const override;
  std::string advice_on_disorder(std::uint64_t record) const override;
  void throw_bad_record(const std::filesystem::path& run, std::uint64_t header_lines,
                        std::uint64_t record, std::uint64_t byte, const BadRecord& bad,
                        const std::byte* at) const override;

 protected:
  // `columns_line` is as in make_format(). Completes `traits` by what follows from the options.
  VariableFormat(FormatTraits traits, const TextFormat& format, std::string_view columns_line);

  TextLayout layout() const { return text_.layout(); }
  const TextFormat& format() const { return format_; }
  const std::string& columns_line() const { return columns_line_; }

  // Returns the name of the key column `column` in messages.
  virtual std::string column_name(std::uint32_t column) const = 0;

 private:
  VariableFormat(FormatTraits traits, const TextFormat& format, std::string_view columns_line,
                 TextEncoding text);

  RowBound key_bound(const std::vector<std::string>& values, Setting option) const override;
  RowBound column_bound(const ColumnValue& value, Setting option) const override;

  TextFormat format_;
  std::string columns_line_;
  TextEncoding text_;
};

}  // namespace corank
