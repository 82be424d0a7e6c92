// `corank merge` and the set operations `union`, `intersect` and `subtract`, which share its
// options.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "corank/merge.hpp"
#include "query_arguments.hpp"
#include "record_arguments.hpp"

namespace corank {

class MergeCommand {
 public:
  enum class Verb { merge, sort, plan, plan_sort };
  // Adds a command: the set operation `on_equal`, or `verb` if it is `keep`.
  MergeCommand(CLI::App& app, const char* name, const char* description,
               OnEqual on_equal = OnEqual::keep, Verb verb = Verb::merge);
  bool chosen() const { return command_->parsed(); }
  // Merges, sorts or checks, and returns the exit code: 128 and the number of the signal that
  // stopped it. Throws Error. From here on, SIGHUP, SIGINT and SIGTERM are blocked.
  int run();

  // Returns the runs of the command line and of lists; standard input if there are none.
  std::vector<std::string> names_of_runs() const;
  // Returns the file that lists runs; an empty name if there is none.
  const std::string& list_of_runs() const {
    return files_from_.empty() ? files0_from_ : files_from_;
  }
  // Returns the options, without resources that only run() knows.
  Options options() const;
  const std::string& output() const { return output_; }
  bool sorts() const { return sorts_; }
  bool overwrites() const { return options_.overwrite; }
  // Return what a plan is given: the number of partitions, a plan of a sort whose runs are merged,
  // and the folder of these.
  unsigned num_partitions() const { return num_partitions_; }
  const std::string& runs_of() const { return runs_of_; }
  const std::string& folder() const { return folder_; }
  // Refuses options that a plan holds, if one is given beside it.
  void check_beside_plan() const;

 private:
  void add_input_options();
  void add_output_options();
  void add_performance_options();
  void add_temporary_option();
  void add_diagnostics_options();
  void add_parts_option();
  void add_partition_options();
  void use_resources();
  void take_options(const Options& planned);
  // Runs the merge or sort, and returns the exit code.
  int execute(const std::function<Stats()>& work);
  int run_partition();
  int check(const std::vector<std::string>& files);
  // The reports replace existing files, so they must not name a run, the plan, the output, or a
  // part in `parts_folder`, which is empty if there are no parts.
  void check_reports(const std::vector<std::filesystem::path>& runs,
                     const std::filesystem::path& parts_folder) const;

  CLI::App* command_;
  bool plans_, sorts_;
  RecordArguments record_;
  ShapingArguments query_;
  Options options_;
  std::string output_ = "-";
  std::string compress_;
  std::vector<std::string> runs_;
  std::string files_from_, files0_from_;
  std::vector<std::string> temporary_folders_;
  std::string compress_spill_;
  std::string stats_;
  std::string trace_;
  unsigned num_partitions_ = 0;
  std::string plan_, partition_, folder_, runs_of_;
  bool explain_ = false;
  bool checks_ = false;
  bool quiet_ = false;
  bool progress_ = false;
  bool no_progress_ = false;
};

}  // namespace corank
