// Measures the rates that no merge can exceed on this machine (roofline).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace corank {

struct Ceiling {
  std::string name;             // machine-readable
  std::string what;             // human-readable
  double bytes_per_second = 0;  // every byte moved counts once; 0: not measured
  std::string note;             // reason, if not measured
};

struct CeilingOptions {
  std::filesystem::path folder = ".";  // on the file system to measure
  int device = 0;                      // CUDA device number
  // Size of the files of a round, and of its memory. Much larger than the CPU caches.
  std::uint64_t bytes = std::uint64_t{512} << 20;
  std::chrono::milliseconds round{150};  // time limit of a round; the best of three counts
};

// Measures all limits, in a few seconds. Its temporary files have no name, so they never remain.
// Throws Error if the folder is not writable or lacks space.
std::vector<Ceiling> measure_ceilings(const CeilingOptions& options);

}  // namespace corank
