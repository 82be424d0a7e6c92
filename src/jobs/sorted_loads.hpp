// The first phase of a sort: replaces the inputs by sorted runs, one memory load at a time.
//
// Loads that memory has no room for become temporary runs, each while the next is formed. The runs
// of the last loads stay in memory, for as long as this object lives, if the last pass can merge
// them with the others. One thread uses an object. Throws what RunFormer and PassRunner::run()
// throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <future>
#include <optional>
#include <span>
#include <vector>

#include "jobs/intermediate_passes.hpp"
#include "jobs/kept_runs.hpp"
#include "jobs/run_former.hpp"

namespace corank {

class SortedLoads {
 public:
  // Parts of the sort; these must outlive the object.
  struct Context {
    std::vector<Run>& runs;  // takes the sorted runs
    PassRunner& passes;
    IntermediatePasses& intermediate;
    Budget& budget;
    const PassOperators& operators;  // of the last pass
  };

  // Sorts `inputs` to `output`, and keeps the temporary runs in `kept`, unless null. Goes on after
  // those that it holds. Throws Error if disks lack space.
  SortedLoads(const Context& context, std::vector<Run> inputs, KeptRuns* kept,
              const Destination& output);
  // Sorts `inputs` to memory of `output_bytes`, which holds all of them.
  SortedLoads(const Context& context, std::vector<Run> inputs, std::uint64_t output_bytes);

  // Puts the sorted runs into the context. `partitions` merges of them will share the memory.
  void form(std::size_t partitions);

  const char* io() const { return former_.io(); }  // how the inputs are read; see Stats::io
  // Returns how many records of the inputs were read, now or by a sort that this one resumes.
  std::uint64_t records() const { return kept_records_ + former_.records(); }

 private:
  std::vector<Run> resume(std::vector<Run> inputs);
  void check_space(const Destination& output) const;
  void keep_smallest(std::vector<Run>& runs);
  void add_load();
  void make_room();
  void begin_spill();
  void end_spill();
  void add_spilled(std::size_t group, Run spilled);
  std::vector<Run> held_runs(std::size_t group) const;
  std::vector<Run> all_runs() const;
  void spill_held();
  std::vector<std::optional<Run>> spill(Load load);
  Run write(std::span<const Run> runs);
  void keep(std::uint64_t records, const Run& run, const InputPosition& end);

  const Context context_;
  const PassRunner::Context& pass_context_;
  KeptRuns* kept_ = nullptr;
  std::uint64_t kept_records_ = 0;              // in runs that a stopped sort left
  std::vector<std::filesystem::path> folders_;  // for temporary runs
  std::size_t num_written_ = 0;                 // temporary runs
  std::vector<std::vector<Run>> spilled_;       // temporary runs, one list a group of inputs
  RunFormer former_;
  std::deque<Load> held_;  // loads that stay in memory, or are spilled later
  // Temporary runs of the load before these, one a group that has any; uses all other members.
  std::future<std::vector<std::optional<Run>>> spilling_;
};

}  // namespace corank
