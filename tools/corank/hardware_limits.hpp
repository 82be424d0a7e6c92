// The rates that no merge on this machine can pass, whatever it computes: measured, not looked up.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace corank {

struct Ceiling {
  std::string name;             // for programs
  std::string what;             // in words
  double bytes_per_second = 0;  // every byte that is moved counts once; 0: not measured
  std::string note;             // why not
};

struct CeilingOptions {
  std::filesystem::path folder = ".";  // which file system is measured
  int device = 0;                      // CUDA's number of the device
  // Of each round's files together, and of memory beside them; the processors' caches should be
  // small against it.
  std::uint64_t bytes = std::uint64_t{512} << 20;
  std::chrono::milliseconds round{150};  // a round stops after so long; the best of three counts
};

// Takes a few seconds. The files are nameless and gone after it. Throws Error where the folder
// can't be written to or lacks the room.
std::vector<Ceiling> measure_ceilings(const CeilingOptions& options);

}  // namespace corank
