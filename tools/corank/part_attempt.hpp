// One attempt to write a part of a plan.
//
// An attempt writes into a hidden folder of its own, named by attempt_name(), so that
// attempts at one part cannot harm each other even if the file system has no locks. Both make the
// same bytes, and the last one to finish names them. With Options::resume all attempts at a part
// share a folder instead, whose lock refuses a second one at a time. Failures are thrown as Error.
#pragma once

#include <filesystem>

#include "io/file.hpp"
#include "plan_file.hpp"

namespace corank {

class PartAttempt {
 public:
  // Makes the folders, and publishes the part of an attempt that was killed when it was whole, with
  // Options::resume. Throws Error if there is a part or record of another plan, unless
  // Options::overwrite. Borrows its arguments.
  PartAttempt(const PlanFile& plan, std::size_t partition, const std::filesystem::path& folder,
              const Options& options);
  // Removes the attempt's folder, unless it holds a partial output to be resumed.
  ~PartAttempt();
  PartAttempt(const PartAttempt&) = delete;
  PartAttempt& operator=(const PartAttempt&) = delete;

  // True if the part is there already, from the same plan, and is not to be replaced.
  bool is_done() const { return is_done_; }
  const std::filesystem::path& part() const { return names_.part; }

  // Merges or sorts the partition, and gives the part and its record their names.
  Stats write();

 private:
  // Returns whether the part is there and not to be replaced. Throws Error if it is of another
  // plan.
  bool is_there() const;
  void remove_parts_of_other_plans() const;
  // Gives the attempt's part and its record their names, unless another attempt has done so.
  void publish();

  const PlanFile& plan_;
  std::size_t partition_;
  const Options& options_;
  PartNames names_;
  PartNames own_names_ = {};  // in the attempt's folder
  bool is_done_ = false;
  std::filesystem::path own_folder_;
  FileDescriptor lock_;  // of the folder, if it is shared
};

}  // namespace corank
