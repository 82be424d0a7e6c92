// Output files of a merge, one or several parts: creates, resumes and commits them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "corank/options.hpp"
#include "io/part_files.hpp"
#include "io/writer.hpp"
#include "jobs/merge_format.hpp"
#include "jobs/resume.hpp"
#include "jobs/run_cuts.hpp"
#include "jobs/scan.hpp"
#include "plan/budget.hpp"
#include "run/run.hpp"
#include "util/trace.hpp"

namespace corank {

// State that a resumed merge takes over from a partial output, over all parts.
struct Resumed {
  std::uint64_t kept_bytes = 0;      // of the output
  std::uint64_t remerged_bytes = 0;  // of these, merged again to be compared
  std::uint64_t records = 0;         // in the output and not merged again
  std::uint64_t checksum = 0;        // of these records
  std::uint64_t input_records = 0;   // merged into these; of lines, counted for Options::checksum
  std::vector<std::uint64_t> cut;    // of lines: where each run is merged from
};

class MergeOutput {
 public:
  // Creates the folder of the parts if needed, and reserves memory for compression. `options` and
  // `format` must outlive the output. Throws Error.
  MergeOutput(const Destination& output, const Options& options, const MergeFormat& format,
              Budget& budget);

  std::size_t num_files() const { return paths_.size(); }
  std::span<Writer> writers() { return writers_; }
  // Opens the files, one per partition, or all of them for the only partition. `operators` tell
  // whether every record of `runs` is emitted.
  void open(std::span<const Partition> partitions, std::span<const Run> runs,
            const PassOperators& operators);
  // Resumes the partial output if requested; the partitions then begin where it ends. Throws
  // PartialOutputDiffers.
  Resumed resume(std::span<Partition> partitions, std::span<const Run> runs,
                 const PassOperators& operators);
  // Prepares the files for writing. `file_bytes` is the expected size of each, before compression;
  // `reserve` tells that it is exact.
  void prepare(std::uint64_t file_bytes, bool reserve, Trace* trace);
  void write_header();

  // Gives the files their names, and returns their size in bytes. They must be durable.
  std::uint64_t commit();
  // Returns whether a later merge can resume the partial output, and saves much by that.
  bool is_worth_resuming() const;
  // Keeps the partial output for a later merge to resume, and warns about it.
  void leave_for_resume();

 private:
  // `output_header` is the expected start of this file.
  void resume_file(Writer& writer, Partition& partition, std::string_view output_header,
                   std::span<const Run> runs, const PassOperators& operators, Resumed& resumed);

  const Options& options_;
  const MergeFormat& format_;
  Destination output_;
  Compression compression_;
  unsigned compressing_threads_ = 0;  // for each file
  std::optional<PartFiles> parts_;
  std::vector<std::filesystem::path> paths_;
  std::vector<Writer> writers_;
  bool is_filled_in_turn_ = false;  // several files have one partition
};

// Returns how `output` is compressed: as the options say, or else as its name ends. Throws Error if
// that cannot be.
Compression compression_of(const Options& options, const Destination& output);
// Returns the folders for the files of intermediate passes, at least one: those of the options, or
// that of the output, which needs as much space anyway, or the folder for temporary files.
std::vector<std::filesystem::path> folders_for_passes(const Options& options,
                                                      const Destination& output);
// Disk space that a sort needs.
struct SpaceNeeds {
  std::uint64_t temporary_bytes;
  std::uint64_t late_bytes;  // of these, still on the disk when the output is whole
  std::uint64_t output_bytes;
};
// Throws Error unless the folders have room for temporary files, beside the output.
void check_space(std::span<const std::filesystem::path> folders, const SpaceNeeds& needs,
                 const Destination& output);
// Returns whether to bypass the page cache, where possible: files of `file_bytes` bytes are durable
// sooner then.
bool wants_direct(const Options& options, std::uint64_t file_bytes);

// Warns that the partial output of `output` is not used, and why.
void warn_starting_over(const Options& options, const std::filesystem::path& output,
                        std::string_view why);

inline constexpr std::string_view output_differs = "it does not match the inputs";

}  // namespace corank
