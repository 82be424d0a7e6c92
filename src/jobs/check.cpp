#include <algorithm>
#include <iterator>
#include <memory>
#include <system_error>
#include <vector>

#include "format/text_header.hpp"
#include "jobs/check_share.hpp"
#include "jobs/merge_format.hpp"
#include "jobs/scan.hpp"
#include "run/run_io.hpp"

namespace corank {
namespace {

// An opened file: its run after the header, and the format of its records.
class OpenFile {
 public:
  OpenFile(const std::filesystem::path& file, const Options& options,
           std::span<const std::filesystem::path> before)
      : format_(make_format(options)) {
    Options at_start = options;
    at_start.drop_header = true;  // header lines may differ: there is no output
    if (const TextHeader* const header = format_->header(); header && header->is_in_first_file()) {
      runs_ = first_with_header(before, options);
      // A doubt of its header was told when it was read itself.
      if (!runs_.empty()) at_start.notice = nullptr;
    }
    std::ranges::move(open_runs({&file, 1}, *format_, options), std::back_inserter(runs_));
    format_ = make_format(options, read_start(runs_, *format_, at_start).columns_line);
  }

  const Run& run() const { return runs_.back(); }
  const RecordFormat& format() const { return *format_; }

 private:
  // Returns the first of the files that has a header; nothing if none has.
  std::vector<Run> first_with_header(std::span<const std::filesystem::path> files,
                                     const Options& options) const {
    Options quiet = options;
    quiet.notice = nullptr;
    for (const std::filesystem::path& file : files) {
      std::error_code unknown;  // of a pipe, say
      if (std::filesystem::file_size(file, unknown) == 0 && !unknown) continue;
      std::vector<Run> runs = open_runs({&file, 1}, *format_, quiet);
      if (runs.front().is_pipe())
        throw Error(runs.front().shown_path().string() +
                    ": is a pipe, of which the header is gone when the next file is read; write "
                    "it to a file first");
      std::vector<Run> whole = runs;
      if (!take_header(runs, *format_, quiet, true).names.empty()) return whole;
    }
    return {};
  }

  std::unique_ptr<const RecordFormat> format_;
  std::vector<Run> runs_;  // with that of the file that has the header
};

// Returns a report of the records of the block alone.
FileReport describe_block(const RecordFormat& format, const ScannedBlock& block) {
  const KeyLayout layout = format.keys().layout();
  FileReport report;
  report.records = block.rows.count;
  report.bytes = format.bytes_of(block.rows).size();
  const std::byte* previous = block.before;
  for (std::uint64_t i = 0; i < block.rows.count; ++i) {
    const std::byte* const row = block.rows.data + i * format.row_bytes();
    if (previous && record_less(layout, row, previous)) {
      if (!report.out_of_order)
        report.out_of_order = {block.first + i, offset_of(format, block, i)};
    } else if (previous && !record_less(layout, previous, row)) {
      ++report.duplicates;
    }
    previous = row;
  }
  report.first_key = format.key_text(block.rows.data);
  report.last_key = format.key_text(previous);
  return report;
}

// Adds the report of the next block to that of the blocks before it.
void add(const FileReport& block, FileReport& report) {
  if (report.records == 0) report.first_key = block.first_key;
  report.last_key = block.last_key;
  if (!report.out_of_order) report.out_of_order = block.out_of_order;
  report.records += block.records;
  report.bytes += block.bytes;
  report.duplicates += block.duplicates;
}

}  // namespace

CheckResult check(const std::filesystem::path& path, const Options& options,
                  std::span<const std::filesystem::path> before) {
  return check_within(scans_at_once(1, options).share, path, options, before);
}

CheckResult check_within(const ScanShare& share, const std::filesystem::path& path,
                         const Options& options, std::span<const std::filesystem::path> before) {
  const OpenFile file(path, options, before);
  const ScanResult result = scan(file.run(), file.format(), options.checksum, true, share);
  warn_of_cut_off_pipes({&file.run(), 1}, options);
  return {result.records, result.checksum};
}

FileReport describe(const std::filesystem::path& path, const Options& options,
                    std::span<const std::filesystem::path> before) {
  return describe_within(scans_at_once(1, options).share, path, options, before);
}

FileReport describe_within(const ScanShare& share, const std::filesystem::path& path,
                           const Options& options, std::span<const std::filesystem::path> before) {
  const OpenFile file(path, options, before);
  const Run& run = file.run();
  const RecordFormat& format = file.format();
  FileReport report;
  report.is_pipe = run.is_pipe();
  report.file_bytes = report.is_pipe ? 0 : run.input().bytes;
  report.codec = run.input().codec;
  report.bytes = run.offset();
  const auto look = [&](const ScannedBlock& block) {
    return [&report, of_block = describe_block(format, block)] { add(of_block, report); };
  };
  report.records_skipped = scan_side_by_side(run, format, share, look);
  warn_of_cut_off_pipes({&run, 1}, options);
  return report;
}

}  // namespace corank
