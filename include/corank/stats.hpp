// Statistics of one merge. Plain data; sizes are bytes and times are seconds.
#pragma once

#include <cstdint>
#include <string>

namespace corank {

struct Stats {
  // Records of the runs. Those beyond a range or limit count if they had to be read to be left out:
  // of CSV, of streams, in sorts, and a few records of lines around a limit. A resumed merge of
  // lines counts only those that it merges itself, unless Options::checksum is set.
  std::uint64_t records = 0;
  std::uint64_t records_skipped = 0;  // not counted in `records`; see BadNumbers
  std::uint64_t records_written = 0;  // records in the output
  // Records that the resulting record of their group replaced, and records that a tombstone or
  // Query::having dropped. Counts only records that this merge itself read. If a limit ended the
  // merge, some records after the last emitted one may be counted, too.
  std::uint64_t records_replaced = 0;
  std::uint64_t records_deleted = 0;
  std::uint64_t bytes_read = 0;     // by all passes, after decompression
  std::uint64_t bytes_written = 0;  // by all passes, before compression
  std::uint64_t output_bytes = 0;   // size of the output files, after compression
  std::uint64_t resumed_bytes = 0;  // output that Options::resume found already written
  std::uint64_t passes = 0;         // 1 if the memory budget suffices for all runs
  std::uint64_t units = 0;          // work units merged
  double seconds = 0;               // wall time
  double pipeline_seconds = 0;      // part of it during which passes ran

  // Seconds of work in each stage, summed over its threads. Stages overlap, so the sum of all may
  // exceed `seconds`.
  struct Busy {
    double read = 0;
    double cut = 0;
    double merge = 0;
    double write = 0;
    double compress = 0;
    // Verification of the output, concurrent with writing. Verification of the input is part of
    // `read`; verification on a device is part of `merge`.
    double verify = 0;
  } busy;

  // Seconds in which the stage named first was idle, waiting for the stage named second.
  struct Waits {
    double read_for_cut = 0;  // summed over the reading threads
    double cut_for_read = 0;
    double cut_for_merge = 0;    // until a unit leaves the pipeline
    double merge_for_cut = 0;    // while no unit is being merged
    double merge_for_write = 0;  // summed over the units
    double write_for_merge = 0;
    double write_for_compress = 0;
  } waits;

  // Bottleneck: the stage that limits the speed of the merge.
  struct Bound {
    std::string what;             // "reading", "cutting", "merging", "compressing" or "writing
                                  // OUTPUT"; empty if no pass ran
    double bytes_per_second = 0;  // output of the merge, over the wall time
    double ceiling_bytes_per_second = 0;  // output of that stage, over the time that it worked
  } bound;

  // How the runs are read: "buffered", "direct" or "mapped"; "streamed" if all runs are compressed
  // or pipes; "memory" if no file is read.
  std::string io;
  std::string backend;         // "cpu", "cuda", or "none" for a copy
  std::string backend_reason;  // why it was chosen, as text
  std::string device;          // processor or device that merges, as text

  std::uint64_t units_redone_on_cpu = 0;  // units that a failing device left to the CPU
  std::string device_fault;               // first failure of a device, as text; empty if none

  bool verified = false;  // see Options::verify

  std::uint64_t memory_peak_bytes = 0;  // max resident set size of the whole process
  std::uint64_t checksum = 0;           // of the output, if requested; see CheckResult::checksum
};

}  // namespace corank
