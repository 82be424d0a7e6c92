#include "jobs/resume.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "run/key_search.hpp"
#include "run/line_search.hpp"

namespace corank {
namespace {

// Returns how many bytes at the end of the partial output are merged again, to be compared.
std::uint64_t bytes_to_merge_again(std::uint64_t kept_bytes, bool shaped) {
  constexpr std::uint64_t max_bytes = std::uint64_t{64} << 10;
  return std::min(shaped ? kept_bytes / 100 : kept_bytes, max_bytes);
}

// Returns an input record with the fields of the output record `out`; all other bytes are 0.
std::vector<std::byte> to_input_record(const Selection& selection,
                                       const std::vector<std::byte>& out) {
  if (selection.fields.empty()) return out;
  assert(selection.output.fields.size() == selection.fields.size());
  assert(out.size() == selection.output.record_bytes);
  std::vector<std::byte> record(selection.record.record_bytes);
  for (std::size_t i = 0; i < selection.fields.size(); ++i) {
    const Field& field = selection.output.fields[i];
    std::copy_n(out.begin() + field.offset, field.bytes,
                record.begin() + selection.record.fields[selection.fields[i]].offset);
  }
  return record;
}

void append(std::string& text, const FieldValue& value) {
  text += fmt::format(" {} {} ", value.field, value.value.size());
  text.append(reinterpret_cast<const char*>(value.value.data()), value.value.size());
}

// Returns a query as text. Leaves out its ranges, which already cut the runs.
std::string query_text(const Schema& schema, const Query& query) {
  std::string text = fmt::format("{} {} {}", static_cast<int>(query.on_equal),
                                 static_cast<int>(query.overflow), query.limit.has_value());
  if (query.limit) text += fmt::format(" {}", *query.limit);
  for (const Field& field : schema.fields)
    text += fmt::format(" {} {} {} {}", field.offset, field.bytes, static_cast<int>(field.kind),
                        field.big_endian);
  for (const Condition* const condition : {&query.where, &query.having}) {
    text += ":";
    for (const Condition::Step& step : condition->steps) {
      text += fmt::format(" {}", static_cast<int>(step.operation));
      append(text, step.with);
    }
  }
  text += ":";
  for (const Reduction& reduction : query.reductions)
    text += fmt::format(" {} {}", static_cast<int>(reduction.operation), reduction.field);
  text += ":";
  if (query.tombstone) append(text, *query.tombstone);
  text += ":";
  for (const std::uint32_t field : query.select) text += fmt::format(" {}", field);
  const auto append_value = [&](const TextValue& value) {
    const TextKey& column = value.column;
    text += fmt::format(" {} {} {} {} {}:{} {}:{}", column.column, static_cast<int>(column.type),
                        column.descending, column.nocase, column.name.size(), column.name,
                        value.value.size(), value.value);
  };
  for (const TextCondition* const condition : {&query.text_where, &query.text_having}) {
    text += ":";
    for (const TextCondition::Step& step : condition->steps) {
      text += fmt::format(" {}", static_cast<int>(step.operation));
      append_value(step.with);
    }
  }
  text += ":";
  if (query.text_tombstone) append_value(*query.text_tombstone);
  text += ":";
  for (const TextKey& column : query.text_select) append_value({column, {}});
  return text;
}

}  // namespace

Resumption resume_at_rank(std::uint64_t left_bytes, std::uint32_t output_bytes) {
  assert(output_bytes != 0);
  const std::uint64_t kept = left_bytes / output_bytes;
  const std::uint64_t again = bytes_to_merge_again(kept * output_bytes, false) / output_bytes;
  const std::uint64_t merged = kept - std::min(kept, std::max<std::uint64_t>(again, 1));
  return {kept * output_bytes, merged * output_bytes, merged, {}};
}

std::vector<KeyField> selected_keys(const std::vector<KeyField>& keys,
                                    const std::vector<std::uint32_t>& select) {
  std::vector<KeyField> chosen;
  for (const KeyField& key : keys.empty() ? std::vector<KeyField>{{0}} : keys) {
    const auto at = std::ranges::find(select, key.field);
    if (!select.empty() && at == select.end()) break;
    chosen.push_back({select.empty() ? key.field : static_cast<std::uint32_t>(at - select.begin()),
                      key.descending});
  }
  return chosen;
}

std::optional<Resumption> resume_at_key(const Run& left, const Selection& selection,
                                        std::span<const Run> runs) {
  Resumption found;
  found.kept_bytes = left.bytes();
  // Without a key, the output records cannot be found in the runs: merge all again.
  if (left.records() == 0 || selection.keys.empty()) return found;
  const KeyEncoding output(selection.output, selection.output_keys);
  const KeyEncoding encoding(selection.record, selection.keys);
  std::vector<std::byte> out(left.record_bytes());
  const std::uint64_t again = bytes_to_merge_again(left.bytes(), true) / left.record_bytes();
  left.read(left.records() - std::max<std::uint64_t>(again, 1), 1, out);
  found.merged_bytes = lower_bound(left, output.layout(), out.data()) * left.record_bytes();

  const std::vector<std::byte> key = to_input_record(selection, out);
  std::vector<std::byte> record(key.size());
  bool known = false;
  for (const Run& run : runs) {
    const std::uint64_t at = lower_bound(run, encoding.layout(), key.data());
    found.rank += at;
    if (known || at == run.records()) continue;
    run.read(at, 1, record);
    known = !record_less(encoding.layout(), key.data(), record.data());
  }
  if (!known) return std::nullopt;
  return found;
}

std::optional<Resumption> resume_at_line(const Run& left, const TextLayout& text,
                                         std::string_view header, bool shaped,
                                         std::span<const Run> runs) {
  const std::uint64_t header_bytes = header.size();
  Resumption found;
  found.kept_bytes = line_before(left, text, left.records() + 1);
  if (found.kept_bytes <= header_bytes) return Resumption();
  std::vector<std::byte> begin(header_bytes);
  left.read(0, header_bytes, begin);
  if (!std::ranges::equal(begin, std::as_bytes(std::span(header)))) return std::nullopt;
  const std::uint64_t again =
      std::min(std::max<std::uint64_t>(bytes_to_merge_again(found.kept_bytes, shaped), 1),
               found.kept_bytes - header_bytes);
  const std::uint64_t at =
      std::max(line_before(left, text, found.kept_bytes - again + 1), header_bytes);
  const std::vector<std::byte> key = line_at(left, text, at);
  found.merged_bytes =
      find_line(left, text, text, key, Bound::lower, header_bytes, found.kept_bytes);

  bool known = false;
  for (const Run& run : runs) {
    found.cut.push_back(find_line(run, text, text, key, Bound::lower, 0, run.records()));
    assert(found.cut.back() <= run.records());
    found.rank += found.cut.back();
    if (known || found.cut.back() == run.records()) continue;
    const std::vector<std::byte> line = line_at(run, text, found.cut.back());
    known = !text_less(text, key.data(), key.size(), line.data(), line.size());
  }
  if (!known) return std::nullopt;
  return found;
}

Resumption resume_from_start(const Run& left, const TextLayout& text) {
  return {line_before(left, text, left.records() + 1), 0, 0, {}};
}

std::uint64_t missing_terminators(std::span<const Run> runs, const TextLayout& text) {
  std::uint64_t missing = 0;
  for (const Run& run : runs) {
    std::byte last{};
    if (run.records() == 0) continue;
    assert(run.record_bytes() == 1);
    run.read(run.records() - 1, 1, {&last, 1});
    missing += last != static_cast<std::byte>(text.terminator);
  }
  return missing;
}

std::string output_description(const Options& options, const Compression& compression,
                               const KeyEncoding& encoding, std::string_view header,
                               std::span<const Run> runs) {
  const KeyLayout layout = encoding.layout();
  std::string text =
      fmt::format("{} {} {} {} {}:", layout.text ? 1 : layout.record_bytes, options.copy_only,
                  static_cast<int>(compression.codec), compression.level, runs.size());
  if (layout.text) {
    text +=
        fmt::format("{} {:x} {:x} {:x} {} {} {}", static_cast<int>(layout.text->kind),
                    static_cast<int>(layout.text->terminator),
                    static_cast<int>(layout.text->delimiter), static_cast<int>(layout.text->escape),
                    static_cast<int>(layout.text->bad_numbers), layout.text->min_columns, header);
    text += fmt::format(" {}:{} {}", options.text->comment.size(), options.text->comment,
                        options.text->header_lines);
    for (const TextColumn& column : std::span(layout.text->columns, layout.text->columns_count))
      text += fmt::format(" {} {} {} {}", column.column, static_cast<int>(column.type),
                          column.descending, column.nocase);
  }
  text += fmt::format(" {} {}", options.drop_header, options.record.header_bytes.value_or(0));
  for (const KeyPiece& piece : encoding.pieces())
    text += fmt::format(" {} {} {} {} {}", piece.offset, piece.bytes,
                        static_cast<int>(piece.transform), piece.big_endian, piece.descending);
  for (const Run& run : runs)
    text += fmt::format(" {} {} {} {}", run.offset(), run.bytes(), run.modified_ns(),
                        run.identity().inode);
  return text + query_text(options.record, options.query);
}

}  // namespace corank
