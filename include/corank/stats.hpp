// What a merge tells of itself.
#pragma once

#include <cstdint>
#include <string>

namespace corank {

struct Stats {
  // Of the runs, within the range and the limit that were given; of lines that a merge went on
  // with, those that it merged itself.
  std::uint64_t records = 0;
  std::uint64_t records_skipped = 0;  // see BadNumbers; not among the records
  std::uint64_t records_written = 0;  // that went out
  std::uint64_t bytes_read = 0;       // of all passes; of files as they are, not of pipes
  std::uint64_t bytes_written = 0;    // of all passes, before they are compressed
  std::uint64_t output_bytes = 0;     // of the files as they stand there
  std::uint64_t resumed_bytes = 0;    // of the output, that Options::resume found written
  std::uint64_t passes = 0;           // 1 where the budget sufficed for all runs at once
  std::uint64_t units = 0;            // work units merged
  double seconds = 0;                 // wall time
  double pipeline_seconds = 0;        // of it, while chunks were read, merged and written

  // Seconds that each stage was at work, added up over the threads that worked on it; their sum
  // beyond `seconds` is what the stages overlapped.
  struct Busy {
    double read = 0;
    double cut = 0;
    double merge = 0;
    double write = 0;
    double compress = 0;
    // Of the output, beside the writing; what is read is verified there. What a device verifies is
    // a part of `merge`.
    double verify = 0;
  } busy;

  // Seconds that each stage had nothing to do, because of the neighbour that is named second.
  struct Waits {
    double read_for_cut = 0;  // added up over the threads that read
    double cut_for_read = 0;
    double cut_for_merge = 0;    // until a unit had left the pipeline
    double merge_for_cut = 0;    // while no unit was being merged
    double merge_for_write = 0;  // added up over the units
    double write_for_merge = 0;
    double write_for_compress = 0;
  } waits;

  // The stage that the others waited for, or that worked, for the longest time: a merge ends
  // earlier only if that stage is faster.
  struct Bound {
    // "reading", "cutting", "merging", "verifying", "compressing" or "writing OUTPUT".
    std::string what;
    double bytes_per_second = 0;  // over the whole wall time
    // Of that stage, had it worked all the time as it did while the others waited for it.
    double ceiling_bytes_per_second = 0;
  } bound;

  // "buffered", "direct" or "mapped"; "streamed" where all runs are compressed or pipes; "memory"
  // where no file is read.
  std::string io;
  std::string backend;         // "cpu" or "cuda"
  std::string backend_reason;  // why this one
  std::string device;          // what it runs on, in words

  std::uint64_t units_redone_on_cpu = 0;  // that a device failed at or was not given any more
  std::string device_fault;               // the first, in words; empty if there was none

  bool verified = false;  // see Options::verify

  std::uint64_t memory_peak_bytes = 0;  // resident set of the whole process at its largest
  std::uint64_t checksum = 0;  // sum modulo 2^64 of XXH64 (seed 0) of every record, if asked for
};

}  // namespace corank
