// Memory and processors that this process may use: those of the machine, or fewer in a container, a
// batch job, or on given processors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace corank {

// A limit, and what sets it; no reason if it is the whole machine.
struct SystemLimit {
  std::uint64_t value = 0;
  std::string reason = {};
};

// Return the smallest limit on memory, in bytes, and on processors: those of the machine, of the
// process's control groups (version 1 and 2), of its processor affinity, of its address space, and
// of Slurm's variables. `root` is the folder that holds `proc` and `sys`.
SystemLimit memory_limit(const std::filesystem::path& root = "/");
SystemLimit processor_limit(const std::filesystem::path& root = "/");

// Returns the memory budget of a merge: `wanted_bytes`; if that is 0, a quarter of the memory that
// the process may use.
SystemLimit memory_budget(std::uint64_t wanted_bytes);
// Returns the threads of a merge: `wanted`; if that is 0, as many as the process has processors.
// Throws Error if `wanted` is more than 4096.
SystemLimit thread_budget(unsigned wanted);

}  // namespace corank
