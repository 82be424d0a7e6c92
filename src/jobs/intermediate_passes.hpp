// Merges neighbouring runs into temporary runs, each of which takes the place of its sources.
//
// One thread uses an object. Throws what PassRunner::run() throws, and FileError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "io/writer.hpp"
#include "jobs/merge_format.hpp"
#include "jobs/pass_runner.hpp"
#include "plan/budget.hpp"
#include "run/run.hpp"

namespace corank {

class IntermediatePasses {
 public:
  // Reserves memory of `budget` for temporary runs that are compressed, if the options want this.
  // The arguments must outlive the object.
  IntermediatePasses(std::vector<Run>& runs, PassRunner& passes, Budget& budget);

  // Returns the passes that leave at most `widest` runs.
  std::vector<IntermediatePass> plan(std::uint64_t widest) const;
  // Runs them, and warns if there are any. `folder` is for temporary files.
  void run(std::uint64_t widest, const std::filesystem::path& folder);
  // Merges runs, and writes the first `limit` results of `operators` to `temporary`.
  Run merge(std::span<const Run> runs, const PassOperators& operators, std::uint64_t limit,
            Writer temporary);

  std::uint64_t records() const { return records_; }  // that the passes wrote

 private:
  std::vector<Run>& runs_;
  PassRunner& passes_;
  const Budget& budget_;
  unsigned compressing_threads_ = 0;  // of each temporary run
  std::uint64_t records_ = 0;
};

}  // namespace corank
