#include "part_attempt.hpp"

#include <fmt/format.h>

#include <system_error>

#include "corank/error.hpp"

namespace corank {
namespace {

namespace fs = std::filesystem;

// Returns whether the part of the record is there, from this plan.
bool is_written(const PartNames& names, const PlanFile& plan, std::size_t partition) {
  if (!fs::exists(names.record)) return false;
  const PartRecord record = read_record(names.record);
  std::error_code error;
  return record.plan == plan.digest && record.partition == partition &&
         fs::file_size(names.part, error) == record.bytes && !error;
}

}  // namespace

PartAttempt::PartAttempt(const PlanFile& plan, std::size_t partition, const fs::path& folder,
                         const Options& options)
    : plan_(plan),
      partition_(partition),
      options_(options),
      names_(part_names(folder, partition, options.compression.value_or(Compression{}).codec)) {
  if (!options.overwrite && fs::exists(names_.part)) {
    if (!is_written(names_, plan, partition))
      throw Error(ErrorCode::exists,
                  fmt::format("{}: exists already, and its record is not of this plan; use --force "
                              "to replace it, or another --output-folder",
                              names_.part.string()));
    is_done_ = true;
    return;
  }
  own_folder_ = folder / fmt::format(".{}.{}", names_.record.stem().string(),
                                     options.resume ? "resume" : attempt_name());
  fs::create_directories(own_folder_);
}

PartAttempt::~PartAttempt() {
  if (own_folder_.empty()) return;
  std::error_code ignored;
  if (options_.resume)
    fs::remove(own_folder_, ignored);  // fails if it is not empty
  else
    fs::remove_all(own_folder_, ignored);
}

Stats PartAttempt::write() {
  const fs::path written = own_folder_ / names_.part.filename();
  Stats stats = merge_partition(plan_.partitions, partition_, written, options_);
  PartRecord record{.plan = plan_.digest,
                    .partition = partition_,
                    .records_read = stats.records,
                    .records_skipped = stats.records_skipped,
                    .bytes = stats.output_bytes,
                    .content = read_part_keys(plan_.partitions, partition_, written, options_)};
  record.content.records = stats.records_written;
  record.content.checksum = stats.checksum;
  // The record precedes the part, so that a part without a record is never this program's.
  write_record(record, names_.record);
  fs::rename(written, names_.part);
  return stats;
}

}  // namespace corank
