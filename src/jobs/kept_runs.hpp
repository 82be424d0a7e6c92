// Temporary runs of a sort that outlive it, for a later sort that resumes.
//
// The runs are hidden files in the folders for temporary files. A list beside the output, one line
// a run, tells what each of them holds; a line ends the run before it can be used, and begins with
// a digest, so that damage is detected. Only one process at a time may use the list, which the lock
// on the output ensures. Throws Error if a file cannot be read or written. Sizes and offsets are
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/run_formation.hpp"
#include "io/file.hpp"
#include "io/writer.hpp"
#include "jobs/merge_format.hpp"
#include "run/run.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

struct KeptRun {
  std::filesystem::path path = {};
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::uint64_t records = 0;      // of the inputs, in this run and all before it
  std::uint64_t fingerprint = 0;  // of its records; 0 unless they are verified
  InputPosition end = {};         // of these records in the inputs
};

class KeptRuns {
 public:
  // Finds the runs of a stopped sort to `output`. Removes them unless it had the same `content`,
  // which identifies inputs and options.
  KeptRuns(const std::filesystem::path& output, std::uint64_t content);
  // Removes the runs and the list unless leave() was called.
  ~KeptRuns();
  KeptRuns(const KeptRuns&) = delete;
  KeptRuns& operator=(const KeptRuns&) = delete;

  // Returns the whole runs, in the order of the inputs, each from where the one before ends.
  const std::vector<KeptRun>& runs() const { return runs_; }
  // Returns whether there were runs of other inputs or options.
  bool has_others() const { return has_others_; }
  // Opens the runs, and forgets the first that does not hold what was written to it, and all after
  // that. `sum` is that of the fingerprints; null if there are none.
  std::vector<Run> open(const MergeFormat& format, const Options& options, FingerprintSum sum);

  // Returns the file for the next run.
  FileDescriptor create(const std::filesystem::path& folder);
  // Adds the run that was created last; only its records, fingerprint and end must be set.
  void add(KeptRun run);
  void leave() { leave_ = true; }

 private:
  void read_list(std::string_view text);
  void write_list();
  void append(const KeptRun& run);
  bool is_run(const std::filesystem::path& path) const;
  void remove_runs() const;

  std::filesystem::path list_, new_list_;
  std::string run_name_;  // begins the name of each run
  std::string title_;     // first line of the list
  std::vector<KeptRun> runs_;
  std::vector<std::filesystem::path> files_;  // of all runs, whole or not
  bool has_others_ = false;
  bool leave_ = false;
};

// Returns the runs that a stopped sort of `inputs` to `output` left, for one that resumes it.
// Returns null, and removes them, unless the options ask for that. `sum` is as in KeptRuns::open().
std::unique_ptr<KeptRuns> find_kept_runs(const Destination& output, const MergeFormat& format,
                                         const Options& options, FingerprintSum sum,
                                         std::span<const Run> inputs);

// Removes the runs that a stopped sort to `output` left. The output must be locked.
void remove_kept_runs(const Destination& output);

// Throws Error if a sort or merge of these inputs to `output` would remove one of them.
void refuse_kept_inputs(const Destination& output, std::span<const Run> inputs);

// Returns the parts of the inputs after this position in them.
std::vector<Run> after(const InputPosition& end, std::vector<Run> inputs);

}  // namespace corank
