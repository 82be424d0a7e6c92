#include "format/fixed_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "corank/error.hpp"
#include "format/field_value.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

FormatTraits traits_of(const Schema& schema) {
  return {.name = fmt::format("fixed-size records of {} bytes", schema.record_bytes),
          .has_fixed_size = true,
          .can_search = true,
          .has_columns = true,
          .are_binary = true,
          .has_header = schema.header_bytes.value_or(0) != 0,
          .header_bytes = schema.header_bytes};
}

// Returns the keys, the default one included.
std::vector<KeyField> all_keys(const std::vector<KeyField>& keys) {
  return keys.empty() ? std::vector<KeyField>{{0}} : keys;
}

// Returns the leading keys whose fields are selected, as fields of the selected records.
std::vector<KeyField> selected_keys(const std::vector<KeyField>& keys,
                                    const std::vector<std::uint32_t>& select) {
  std::vector<KeyField> chosen;
  for (const KeyField& key : keys) {
    const auto at = std::ranges::find(select, key.field);
    if (at == select.end()) break;
    chosen.push_back({static_cast<std::uint32_t>(at - select.begin()), key.descending});
  }
  return chosen;
}

// Copies the selected fields, as ranges of bytes.
class FieldProjection final : public Projection {
 public:
  // `keys` are those of the rows; `output` has the fields `select`.
  FieldProjection(const Schema& schema, const Schema& output, const std::vector<KeyField>& keys,
                  const std::vector<std::uint32_t>& select)
      : schema_(schema),
        fields_(select),
        output_schema_(output),
        keys_(selected_keys(keys, select)),
        output_(make_fixed_format(output_schema_, keys_)) {
    for (KeyField& key : keys_) key.field = select[key.field];
    for (const std::uint32_t index : select) {
      const Field& field = schema.fields[index];
      if (!ranges_.empty() && ranges_.back().from + ranges_.back().bytes == field.offset)
        ranges_.back().bytes += field.bytes;
      else
        ranges_.push_back({field.offset, field.bytes});
    }
  }

  // Returns whether projected records are the records.
  bool keeps_all() const {
    return ranges_.size() == 1 && ranges_.front().bytes == schema_.record_bytes;
  }

  const RecordFormat& output() const override { return *output_; }
  std::size_t num_keys() const override { return keys_.size(); }
  std::uint64_t max_bytes(RowSpan rows) const override { return rows.count * output_->row_bytes(); }
  std::string of_header(std::string_view header) const override { return std::string(header); }
  std::vector<std::uint32_t> source_bytes() const override {
    std::vector<std::uint32_t> bytes;
    for (const Range& range : ranges_)
      for (std::uint32_t i = 0; i < range.bytes; ++i) bytes.push_back(range.from + i);
    return bytes;
  }

  RowBound key_of(std::span<const std::byte> record) const override {
    std::vector<std::byte> row(schema_.record_bytes);
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      const Field& field = output_schema_.fields[i];
      std::copy_n(record.begin() + field.offset, field.bytes,
                  row.begin() + schema_.fields[fields_[i]].offset);
    }
    return {KeyEncoding(schema_, keys_), std::move(row)};
  }

  std::byte* project(RowSpan rows, std::byte* to) const override {
    for (std::uint64_t i = 0; i < rows.count; ++i)
      for (const Range& range : ranges_) {
        std::memcpy(to, rows.data + i * schema_.record_bytes + range.from, range.bytes);
        to += range.bytes;
      }
    return to;
  }

 private:
  struct Range {
    std::uint32_t from, bytes;
  };

  Schema schema_;
  std::vector<std::uint32_t> fields_;
  Schema output_schema_;
  std::vector<KeyField> keys_;  // that are selected, as fields of the rows
  std::unique_ptr<const RecordFormat> output_;
  std::vector<Range> ranges_;
};

class FixedFormat final : public RecordFormat {
 public:
  // The fields of `keys` exist in `schema`.
  FixedFormat(const Schema& schema, const std::vector<KeyField>& keys)
      : RecordFormat(traits_of(schema), KeyEncoding(schema, keys), all_keys(keys).size()),
        schema_(schema),
        key_fields_(all_keys(keys)) {}

  Indexed frame(std::span<const std::byte> bytes, bool at_end, std::uint64_t max_records,
                PrefixRef*) const override {
    Indexed found;
    found.rows = bytes.data();
    found.records = std::min<std::uint64_t>(bytes.size() / row_bytes(), max_records);
    found.bytes = found.records * row_bytes();
    if (at_end && found.records < max_records && found.bytes != bytes.size())
      found.bad = BadRecord{BadRecord::Reason::cut_off, 0, bytes.size() - found.bytes};
    return found;
  }

  RowBound key_of(std::span<const std::byte> record) const override {
    return {keys(), {record.begin(), record.end()}};
  }
  std::string signature() const override {
    std::string text = fmt::format("{}", schema_.header_bytes.value_or(0));
    for (const Field& field : schema_.fields)
      text += fmt::format(" {} {} {} {}", field.offset, field.bytes, static_cast<int>(field.kind),
                          field.big_endian);
    for (const KeyField& key : key_fields_)
      text += fmt::format(":{} {}", key.field, key.descending);
    return text;
  }

  std::unique_ptr<Projection> projection(const Query& query) const override {
    if (query.select.empty()) return nullptr;
    auto projection =
        std::make_unique<FieldProjection>(schema_, selected(schema_, query.select), key_fields_,
                                          find_fields(schema_, query.select, Setting::select));
    if (projection->keeps_all()) return nullptr;
    return projection;
  }

  std::string key_text(const std::byte* row) const override {
    std::string text;
    for (const KeyField& key : key_fields_) {
      const Field& field = schema_.fields[key.field];
      text += fmt::format("{}{}={}", text.empty() ? "" : ", ", field.name, value_text(field, row));
    }
    return text;
  }
  void throw_bad_record(const std::filesystem::path& run, const Place& place, const BadRecord& bad,
                        const std::byte*) const override {
    throw_error(
        "{}: ends at byte {}, {} bytes after the last whole record; check that it is whole, and {}",
        run, place.byte.value() + bad.bytes, bad.bytes, Setting::record);
  }

 private:
  RowBound key_bound(const std::vector<std::string>& values, Setting option) const override {
    const std::vector<KeyField> keys(
        key_fields_.begin(), key_fields_.begin() + static_cast<std::ptrdiff_t>(values.size()));
    std::vector<std::byte> record(schema_.record_bytes);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Field& field = schema_.fields[keys[i].field];
      ColumnValue value;
      value.value = values[i];
      std::ranges::copy(encode_value(field, value, option), record.begin() + field.offset);
    }
    return {KeyEncoding(schema_, keys), std::move(record)};
  }
  RowBound operand(const Condition::Step& comparison, Setting option) const override {
    const std::uint32_t index = find_field(schema_, comparison.with.column, option);
    const Field& field = schema_.fields[index];
    std::vector<std::byte> record(schema_.record_bytes);
    std::ranges::copy(encode_value(field, comparison.with, option), record.begin() + field.offset);
    return {KeyEncoding(schema_, {{index}}), std::move(record)};
  }

  Schema schema_;
  std::vector<KeyField> key_fields_;
};

}  // namespace

std::unique_ptr<const RecordFormat> make_fixed_format(const Schema& schema,
                                                      const std::vector<KeyField>& keys) {
  if (schema.record_bytes == 0 || schema.fields.empty())
    throw Error(ErrorCode::options, "Options::record has no fields; use Schema::parse");
  for (const Field& field : schema.fields) {
    const bool has_size = field.kind == FieldKind::bytes ? field.bytes != 0
                          : field.kind == FieldKind::floating
                              ? field.bytes == 4 || field.bytes == 8
                              : std::has_single_bit(field.bytes) && field.bytes <= 8;
    if (!has_size)
      throw_error(ErrorCode::options, "Options::record: field \"{}\" cannot have {} bytes",
                  without_nul(field.name), field.bytes);
    if (field.bytes > schema.record_bytes || field.offset > schema.record_bytes - field.bytes)
      throw_error(
          ErrorCode::options, "Options::record: field \"{}\" ends at byte {} of a record of {}",
          without_nul(field.name), std::uint64_t{field.offset} + field.bytes, schema.record_bytes);
  }
  for (const KeyField& key : keys)
    if (key.field >= schema.fields.size())
      throw_error(ErrorCode::options, "Options::keys: there is no field {}; the record has {}",
                  key.field, schema.fields.size());
  return std::make_unique<FixedFormat>(schema, keys);
}

}  // namespace corank
