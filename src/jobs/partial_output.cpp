#include "jobs/partial_output.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>
#include <vector>

#include "corank/error.hpp"
#include "io/writer.hpp"
#include "verify/checksum.hpp"

namespace corank {
namespace {

// Returns the record size of the output; 1 for lines, whose runs count bytes.
std::uint32_t output_bytes(const Options& options) {
  return options.text ? 1 : selected(options.record, options.query.select).record_bytes;
}

// Returns the whole records after `header_bytes` in the first `bytes` of a partial output as a run.
Run written(const AtomicFile& left, const Options& options, std::uint64_t bytes,
            std::uint64_t header_bytes = 0) {
  assert(header_bytes <= bytes);
  Run run(FileDescriptor(::fcntl(left.descriptor().get(), F_DUPFD_CLOEXEC, 0)),
          "the unfinished output", output_bytes(options),
          (bytes - header_bytes) / output_bytes(options), header_bytes);
  run.stop_on(options.stop);
  return run;
}

std::vector<std::uint64_t> ends_of(std::span<const Run> runs) {
  std::vector<std::uint64_t> ends;
  for (const Run& run : runs) ends.push_back(run.records());
  return ends;
}

ScanResult count_lines(const Run& lines, const std::filesystem::path& output,
                       const OutputOrigin& origin) {
  TextFormat format = *origin.options.text;
  const bool selects = origin.text_operators && origin.text_operators->selection();
  if (selects) {
    // The key may not be selected, so order cannot be checked. A column that no line has makes all
    // keys equal, and any order valid.
    format.keys.assign(1, {});
    format.keys.front().column = ~std::uint32_t{0};
  }
  const TextEncoding text(format, selects ? std::string_view() : origin.header);
  try {
    return scan(lines.behind(origin.output_header.size()), KeyEncoding(text.layout()),
                origin.options.checksum);
  } catch (const OutOfOrder&) {
    throw PartialOutputDiffers(output);
  }
}

std::uint64_t checksum_of(const FileDescriptor& file, const std::filesystem::path& output,
                          const Options& options, std::uint64_t from, std::uint64_t bytes) {
  const std::uint32_t record_bytes = output_bytes(options);
  assert(from <= bytes && (bytes - from) % record_bytes == 0);
  const std::uint64_t block_bytes =
      std::max<std::uint64_t>((std::uint64_t{1} << 20) / record_bytes, 1) * record_bytes;
  std::vector<std::byte> block(block_bytes);
  std::uint64_t checksum = 0;
  for (std::uint64_t at = from; at < bytes; at += block_bytes) {
    if (options.stop.stop_requested()) throw Interrupted();
    const auto wanted = std::span(block).first(std::min(block_bytes, bytes - at));
    if (read_at(file, wanted, at, output) != wanted.size())
      throw Error(output.string() + ": its unfinished file became shorter; start again");
    checksum += records_checksum(wanted, record_bytes);
  }
  return checksum;
}

// Finds where to resume an output of fixed-size records.
std::optional<Resumption> resume_records(const AtomicFile& left, const OutputOrigin& origin,
                                         std::span<const Run> runs, const Partition& partition) {
  const Options& options = origin.options;
  const std::uint64_t header_bytes = origin.output_header.size();
  if (left.left_bytes() < header_bytes + output_bytes(options)) return Resumption();
  std::string header(header_bytes, '\0');
  read_at(left.descriptor(), std::as_writable_bytes(std::span(header)), 0, "the unfinished output");
  if (header != origin.output_header) return std::nullopt;
  std::optional<Resumption> found;
  if (origin.keeps_count) {
    found = resume_at_rank(left.left_bytes() - header_bytes, output_bytes(options));
    found->rank += partition.begin;
  } else {
    const Schema output = selected(options.record, options.query.select);
    std::vector<KeyField> keys = options.keys;
    std::vector<KeyField> output_keys = selected_keys(options.keys, options.query.select);
    keys.resize(output_keys.size());  // no keys mean the first field, ascending
    found = resume_at_key(
        written(left, options, left.left_bytes(), header_bytes),
        {options.record, options.query.select, output, std::move(keys), std::move(output_keys)},
        runs);
  }
  if (found) {
    found->kept_bytes += header_bytes;
    found->merged_bytes += header_bytes;
  }
  return found;
}

}  // namespace

std::optional<Resumption> find_resumption(const AtomicFile& left, const OutputOrigin& origin,
                                          std::span<const Run> runs, const Partition& partition) {
  const Options& options = origin.options;
  const std::uint64_t left_bytes = left.left_bytes();
  if (left.is_in_place()) return Resumption{left_bytes, left_bytes, partition.end, ends_of(runs)};
  std::optional<Resumption> found;
  if (const TextLayout* const text = origin.encoding.layout().text) {
    const Run lines = written(left, options, left_bytes);
    found = origin.text_operators && origin.text_operators->selection()
                ? resume_from_start(lines, *text)
                : resume_at_line(lines, *text, origin.output_header,
                                 origin.text_operators != nullptr, runs);
  } else {
    found = resume_records(left, origin, runs, partition);
  }
  if (found && found->kept_bytes != 0 && found->rank >= partition.end) return std::nullopt;
  return found;
}

ScanResult count_left(const AtomicFile& left, const std::filesystem::path& output,
                      const OutputOrigin& origin, std::uint64_t bytes) {
  const Options& options = origin.options;
  if (!options.text) {
    const std::uint64_t header_bytes = std::min<std::uint64_t>(origin.output_header.size(), bytes);
    return {(bytes - header_bytes) / output_bytes(options),
            options.checksum ? checksum_of(left.descriptor(), output, options, header_bytes, bytes)
                             : 0};
  }
  if (bytes == 0 || (!options.checksum && !origin.text_operators)) return {};
  return count_lines(written(left, options, bytes), output, origin);
}

}  // namespace corank
