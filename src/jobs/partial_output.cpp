#include "jobs/partial_output.hpp"

#include <fcntl.h>

#include <algorithm>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "io/writer.hpp"

namespace corank {
namespace {

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

std::optional<Resumption> find_resumption(const AtomicFile& left, const OutputOrigin& origin,
                                          std::span<const Run> runs, const Partition& partition) {
  const std::uint64_t left_bytes = left.left_bytes(), header_bytes = origin.output_header.size();
  const RecordFormat& output = origin.format.output();
  if (left.is_in_place()) return Resumption{left_bytes, left_bytes, partition.end, ends_of(runs)};
  if (left_bytes < header_bytes + output.counted_bytes()) return Resumption();
  std::string header(header_bytes, '\0');
  read_at(left.descriptor(), std::as_writable_bytes(std::span(header)), 0, "the unfinished output");
  if (header != origin.output_header) return std::nullopt;
  std::optional<Resumption> found;
  if (output.traits().has_fixed_size && (!origin.operators || origin.operators->keeps_count())) {
    found = resume_at_rank(left_bytes - header_bytes, output.record_bytes());
    found->rank += partition.begin;
  } else {
    found = resume_at_key(written(left, origin, left_bytes), origin.format,
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
    return scan(run, origin.format.output(), checksum, is_ordered);
  } catch (const OutOfOrder&) {
    throw PartialOutputDiffers(output);
  }
}

}  // namespace corank
