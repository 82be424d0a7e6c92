#include "jobs/resume.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "corank/error.hpp"
#include "format/rows.hpp"
#include "io/writer.hpp"
#include "run/block_reader.hpp"
#include "run/record_search.hpp"
#include "util/system_limits.hpp"

namespace corank {
namespace {

// Returns how many bytes at the end of the partial output are merged again, to be compared.
std::uint64_t bytes_to_merge_again(std::uint64_t kept_bytes, bool has_operators) {
  constexpr std::uint64_t max_bytes = std::uint64_t{64} << 10;
  return std::min(has_operators ? kept_bytes / 100 : kept_bytes, max_bytes);
}

void append(std::string& text, const TextKey& column) {
  text += fmt::format(" {} {} {} {} {}:{}", column.column, static_cast<int>(column.type),
                      column.descending, column.nocase, column.name.size(), column.name);
}

void append(std::string& text, const ColumnValue& value) {
  append(text, value.column);
  text += fmt::format(" {}:{}", value.value.size(), value.value);
}

// Returns a query as text. Leaves out its ranges, which already cut the runs.
std::string query_text(const Query& query) {
  std::string text = fmt::format("{} {} {}", static_cast<int>(query.on_equal),
                                 static_cast<int>(query.overflow), query.limit.has_value());
  if (query.limit) text += fmt::format(" {}", *query.limit);
  for (const Condition* const condition : {&query.where, &query.having}) {
    text += ":";
    for (const Condition::Step& step : condition->steps) {
      text += fmt::format(" {}", static_cast<int>(step.operation));
      append(text, step.with);
    }
  }
  text += ":";
  for (const Reduction& reduction : query.reductions) {
    text += fmt::format(" {}", static_cast<int>(reduction.operation));
    if (reduction.column) append(text, *reduction.column);
  }
  text += ":";
  if (query.tombstone) append(text, *query.tombstone);
  text += ":";
  for (const TextKey& column : query.select) append(text, column);
  return text;
}

// Returns the whole records after the header in the first `bytes` of a partial output as a run.
Run written(const AtomicFile& left, const OutputOrigin& origin, std::uint64_t bytes) {
  const std::uint64_t header_bytes = std::min<std::uint64_t>(origin.output_header.size(), bytes);
  const std::uint32_t record_bytes = origin.format.output().counted_bytes();
  Run run(FileDescriptor(::fcntl(left.descriptor().get(), F_DUPFD_CLOEXEC, 0)),
          "the unfinished output", record_bytes, (bytes - header_bytes) / record_bytes,
          header_bytes);
  run.stop_on(origin.options.stop);
  return run;
}

std::vector<std::uint64_t> ends_of(std::span<const Run> runs) {
  std::vector<std::uint64_t> ends;
  for (const Run& run : runs) ends.push_back(run.records());
  return ends;
}

}  // namespace

Resumption resume_at_rank(std::uint64_t partial_bytes, std::uint32_t output_bytes) {
  assert(output_bytes != 0);
  const std::uint64_t kept = partial_bytes / output_bytes;
  const std::uint64_t again = bytes_to_merge_again(kept * output_bytes, false) / output_bytes;
  const std::uint64_t merged = kept - std::min(kept, std::max<std::uint64_t>(again, 1));
  return {kept * output_bytes, merged * output_bytes, merged, {}};
}

std::optional<Resumption> resume_at_key(const Run& left, const MergeFormat& format,
                                        bool has_operators, std::span<const Run> runs) {
  const RecordFormat& input = format.input();
  const Projection* const projection = format.projection();
  BlockReader output(left);
  const std::uint64_t end = record_before(output, format.output(), left.records() + 1);
  if (end == 0) return Resumption();
  Resumption found;
  found.kept_bytes = end * left.record_bytes();
  // Without a key, the output records cannot be found in the runs: merge all again.
  if (projection && projection->num_keys() == 0) return found;
  const std::uint64_t again =
      bytes_to_merge_again(found.kept_bytes, has_operators) / left.record_bytes();
  const std::vector<std::byte> record = record_at(
      output, format.output(),
      record_before(output, format.output(), end - std::max<std::uint64_t>(again, 1) + 1));
  found.merged_bytes =
      find_record(output, format.output(), format.output().key_of(record), Bound::lower, 0, end) *
      left.record_bytes();

  const RowBound key = projection ? projection->key_of(record) : input.key_of(record);
  bool known = false;
  for (const Run& run : runs) {
    BlockReader reader(run);
    found.cut.push_back(find_record(reader, input, key, Bound::lower, 0, run.records()));
    assert(found.cut.back() <= run.records());
    found.rank += found.cut.back();
    if (known || found.cut.back() == run.records()) continue;
    RowCopy first;
    first.assign_record(input.keys().layout(), record_at(reader, input, found.cut.back()));
    known = key.compare(first.row()) <= 0;
  }
  if (!known) return std::nullopt;
  return found;
}

std::optional<Resumption> find_resumption(const AtomicFile& left, const OutputOrigin& origin,
                                          std::span<const Run> runs, const Partition& partition) {
  const std::uint64_t partial_bytes = left.partial_bytes(),
                      header_bytes = origin.output_header.size();
  const RecordFormat& output = origin.format.output();
  if (left.is_in_place())
    return Resumption{partial_bytes, partial_bytes, partition.end, ends_of(runs)};
  if (partial_bytes < header_bytes + output.counted_bytes()) return Resumption();
  std::string header(header_bytes, '\0');
  read_at(left.descriptor(), std::as_writable_bytes(std::span(header)), 0, "the unfinished output");
  if (header != origin.output_header) return std::nullopt;
  std::optional<Resumption> found;
  if (output.traits().has_fixed_size && (!origin.operators || origin.operators->keeps_count())) {
    found = resume_at_rank(partial_bytes - header_bytes, output.record_bytes());
    found->rank += partition.begin;
  } else {
    found = resume_at_key(written(left, origin, partial_bytes), origin.format,
                          origin.operators != nullptr, runs);
  }
  if (!found || found->kept_bytes == 0) return found;
  found->kept_bytes += header_bytes;
  found->merged_bytes += header_bytes;
  if (found->rank >= partition.end) return std::nullopt;
  return found;
}

ScanResult count_left(const AtomicFile& left, const std::filesystem::path& output,
                      const OutputOrigin& origin, std::uint64_t bytes) {
  const bool checksum = origin.options.checksum;
  const Run run = written(left, origin, bytes);
  const bool knows_count = origin.format.output().traits().has_fixed_size;
  if (run.records() == 0 || (!checksum && (knows_count || !origin.operators)))
    return {knows_count ? run.records() : 0, 0};
  const bool is_ordered =
      origin.format.order(origin.operators, true).kind != OutputOrder::Kind::none;
  try {
    return scan(run, origin.format.output(), checksum, is_ordered,
                scans_at_once(1, origin.options).share);
  } catch (const OutOfOrder&) {
    throw PartialOutputDiffers(output);
  }
}

std::uint64_t missing_terminators(std::span<const Run> runs, const RecordFormat& format) {
  const auto end = std::as_bytes(std::span(format.end_of_record()));
  std::uint64_t missing = 0;
  for (const Run& run : runs) {
    std::byte last{};
    if (run.records() == 0 || end.empty()) continue;
    assert(run.record_bytes() == 1);
    run.read(run.records() - 1, 1, {&last, 1});
    missing += last != end.back();
  }
  return missing;
}

std::string output_description(const Options& options, const Compression& compression,
                               const MergeFormat& format, std::span<const Run> runs) {
  std::string text =
      fmt::format("{} {} {} {} {} {}:{}", options.copy_only, static_cast<int>(compression.codec),
                  compression.level, runs.size(), options.drop_header, format.input().signature(),
                  format.header());
  for (const Run& run : runs)
    text += fmt::format(" {} {} {} {}", run.offset(), run.bytes(), run.modified_ns(),
                        run.identity().inode);
  return text + query_text(options.query);
}

}  // namespace corank
