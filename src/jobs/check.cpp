#include "corank/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "format/field_value.hpp"
#include "jobs/scan.hpp"
#include "run/header.hpp"
#include "util/memory_budget.hpp"

namespace corank {
namespace {

Run open(const std::filesystem::path& file, std::uint32_t record_bytes, bool decompress,
         std::optional<std::uint64_t> header_bytes) {
  return Run(file, record_bytes,
             {.decompress = decompress,
              .max_decoder_bytes = memory_budget(0),
              .header_bytes = header_bytes});
}

// Opened file of variable-length records: the run after its header, and the encoding of its keys.
struct TextFile {
  TextFile(const std::filesystem::path& file, const TextFormat& format, bool decompress)
      : run(1, open(file, 1, decompress, std::nullopt)),
        header(take_header(run, format, {})),
        columns_line(format.header ? header.names : widest_first_record(run, format, {})),
        text(format, columns_line),
        encoding(text.layout()) {}

  std::vector<Run> run;
  Header header;
  std::string columns_line;  // the line that determines the columns: the header or the first record
  TextEncoding text;
  KeyEncoding encoding;
};

// Returns the key of a record as text: "field=value, …".
std::string key_text(const Schema& schema, const std::vector<KeyField>& keys,
                     const std::byte* record) {
  std::string text;
  for (const KeyField& key : keys) {
    const Field& field = schema.fields[key.field];
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", field.name, value_text(field, record));
  }
  return text;
}

// Returns the key of a variable-length record as text: "column N=…, …". Shows control bytes as \xNN
// and truncates long columns.
std::string key_text(const TextLayout& layout, const PrefixRef& entry) {
  constexpr std::uint64_t max_bytes = 80;
  std::string text;
  detail::Columns columns(layout, record_of(entry), record_bytes(layout, entry));
  for (std::uint32_t i = 0; i < layout.columns_count; ++i) {
    const std::uint32_t column = layout.columns[i].column;
    const detail::TextField field = columns(column);
    text += text.empty() ? "" : ", ";
    text += column != 0                      ? fmt::format("column {}=", column)
            : layout.kind == TextKind::pairs ? "key="
                                             : "line=";
    for (std::uint64_t at = 0; at < std::min(field.bytes, max_bytes); ++at) {
      const auto byte = static_cast<unsigned char>(field.at[at]);
      text += byte < 0x20 || byte == 0x7f || byte == '\\' ? fmt::format("\\x{:02x}", byte)
                                                          : std::string(1, static_cast<char>(byte));
    }
    if (field.bytes > max_bytes) text += fmt::format("… ({} bytes)", field.bytes);
  }
  return text;
}

FileReport describe(const Run& run, const KeyEncoding& encoding,
                    const std::function<std::string(const std::byte*)>& key_of) {
  const KeyLayout layout = encoding.layout();
  FileReport report;
  report.is_pipe = run.input().is_stream;
  report.file_bytes = report.is_pipe ? 0 : run.input().bytes;
  report.codec = run.input().codec;
  report.bytes = run.offset();
  report.records_skipped = scan_blocks(run, encoding, [&](const ScannedBlock& block) {
    const std::byte* before = block.before;
    for (std::uint64_t i = 0; i < block.count; ++i) {
      const std::byte* const record = block.records + i * layout.record_bytes;
      if (before && record_less(layout, record, before)) {
        if (!report.out_of_order)
          report.out_of_order = {block.first + i, offset_of(layout, block, i)};
      } else if (before && !record_less(layout, before, record)) {
        ++report.duplicates;
      }
      before = record;
    }
    if (report.records == 0) report.first_key = key_of(block.records);
    report.last_key = key_of(before);
    report.records += block.count;
    report.bytes += bytes_of(layout, block.records, block.count).size();
  });
  return report;
}

}  // namespace

CheckResult check(const std::filesystem::path& file, const Schema& schema,
                  const std::vector<KeyField>& keys, bool checksum, bool decompress) {
  const ScanResult result = scan(open(file, schema.record_bytes, decompress, schema.header_bytes),
                                 KeyEncoding(schema, keys), checksum);
  return {result.records, result.checksum};
}

CheckResult check(const std::filesystem::path& file, const TextFormat& format, bool checksum,
                  bool decompress) {
  const TextFile text(file, format, decompress);
  const ScanResult result = scan(text.run.front(), text.encoding, checksum);
  return {result.records, result.checksum};
}

FileReport describe(const std::filesystem::path& file, const Schema& schema,
                    const std::vector<KeyField>& keys, bool decompress) {
  return describe(open(file, schema.record_bytes, decompress, schema.header_bytes),
                  KeyEncoding(schema, keys), [&](const std::byte* record) {
                    return key_text(schema, keys.empty() ? std::vector<KeyField>{{0}} : keys,
                                    record);
                  });
}

FileReport describe(const std::filesystem::path& file, const TextFormat& format, bool decompress) {
  const TextFile text(file, format, decompress);
  return describe(text.run.front(), text.encoding, [&](const std::byte* entry) {
    return key_text(text.text.layout(), *reinterpret_cast<const PrefixRef*>(entry));
  });
}

}  // namespace corank
