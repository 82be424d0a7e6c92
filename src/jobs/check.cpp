#include "corank/check.hpp"

#include <memory>
#include <vector>

#include "jobs/merge_format.hpp"
#include "jobs/scan.hpp"
#include "run/run_io.hpp"

namespace corank {
namespace {

// An opened file: its run after the header, and the format of its records.
struct OpenFile {
  OpenFile(const std::filesystem::path& file, const Options& options)
      : format(make_format(options)),
        run(open_runs({&file, 1}, *format, options)),
        start(read_start(run, *format, options)) {
    format = make_format(options, start.columns_line);
  }

  std::unique_ptr<const RecordFormat> format;
  std::vector<Run> run;
  FileStart start;
};

}  // namespace

CheckResult check(const std::filesystem::path& path, const Options& options) {
  const OpenFile file(path, options);
  const ScanResult result = scan(file.run.front(), *file.format, options.checksum);
  warn_of_cut_off_pipes(file.run, options);
  return {result.records, result.checksum};
}

FileReport describe(const std::filesystem::path& path, const Options& options) {
  const OpenFile file(path, options);
  const Run& run = file.run.front();
  const RecordFormat& format = *file.format;
  const KeyLayout layout = format.keys().layout();
  FileReport report;
  report.is_pipe = run.input().is_stream;
  report.file_bytes = report.is_pipe ? 0 : run.input().bytes;
  report.codec = run.input().codec;
  report.bytes = run.offset();
  report.records_skipped = scan_blocks(run, format, [&](const ScannedBlock& block) {
    const std::byte* before = block.before;
    for (std::uint64_t i = 0; i < block.rows.count; ++i) {
      const std::byte* const row = block.rows.data + i * format.row_bytes();
      if (before && record_less(layout, row, before)) {
        if (!report.out_of_order)
          report.out_of_order = {block.first + i, offset_of(format, block, i)};
      } else if (before && !record_less(layout, before, row)) {
        ++report.duplicates;
      }
      before = row;
    }
    if (report.records == 0) report.first_key = format.key_text(block.rows.data);
    report.last_key = format.key_text(before);
    report.records += block.rows.count;
    report.bytes += format.bytes_of(block.rows).size();
  });
  warn_of_cut_off_pipes(file.run, options);
  return report;
}

}  // namespace corank
