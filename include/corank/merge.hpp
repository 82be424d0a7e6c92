// The library's front door: k sorted files in, one sorted file out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "corank/error.hpp"
#include "corank/options.hpp"

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

  // What the merge would have to do faster to end earlier.
  struct Bound {
    std::string what;             // "reading", "cutting", "merging", "compressing", "writing
                                  // OUTPUT"
    double bytes_per_second = 0;  // over the whole wall time
    double ceiling_bytes_per_second = 0;  // of that stage while it was at work
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

// Merges `runs`, each sorted by `options.keys`, into `output`. Records with equal keys keep the
// order of `runs` and, within a run, their order in the file. "-" as a run is standard input, which
// can be one run only, and as output standard output; a device or a pipe is written to as it is.
// Any other output appears under its name only when it is whole and durable, and may be one of the
// runs. It takes the mode of the file that it replaces, and the owner where the process may set it;
// a link stays, and what it points to is replaced.
//
// Throws OutOfOrder if a run is not sorted, Interrupted if options.stop asks for it, Corrupted if
// the output is not what it must be, and Error for everything else, but std::bad_alloc and
// std::system_error where the system refuses memory or a thread. After a throw the old output, if
// any, is untouched and no temporary file is left, unless for Options::resume; only if the last
// step fails, which renames the files of several parts one after another and makes their names
// durable, some of them, or the output, may be new, and whole.
Stats merge(std::span<const std::filesystem::path> runs, const std::filesystem::path& output,
            const Options& options);

// The same from memory into memory: `output` must have room for exactly the records of the runs,
// and overlap none of them. Where Options::shaping lets fewer bytes go out, they are its first,
// and the rest holds anything. Memory that a CUDA device can't reach is registered with it for the
// time of the merge; to spare that time, register all of it beforehand or take it from
// cudaMallocHost.
// After a throw the output holds anything. OutOfOrder calls the runs "run 0" and so on.
Stats merge(std::span<const std::span<const std::byte>> runs, std::span<std::byte> output,
            const Options& options);

}  // namespace corank
