// Which backend a merge has, and what becomes of that where a device fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "backend/failover_backend.hpp"
#include "corank/options.hpp"
#include "run/pass_plan.hpp"
#include "run/run.hpp"

namespace corank {

struct BackendDecision {
  bool cuda;
  std::string reason;
};

class Backends {
 public:
  // Of a merge of `bytes` bytes. `options` must outlive it. Throws Error where they ask for what
  // can't be had.
  Backends(const Options& options, std::uint64_t bytes);

  bool uses_cuda() const { return decision_.cuda; }
  const std::string& reason() const { return decision_.reason; }
  const DeviceFaults& faults() const { return faults_; }
  // What the faults came to, in words, where `units` units were merged; empty if there were none.
  std::string outcome(std::uint64_t units) const;

  // One for each slice, by `config`, which is of `plan`; where a device has too little memory, for
  // a plan that takes less, and where it fails otherwise, on the CPU.
  std::vector<std::unique_ptr<Backend>> make(std::size_t partitions, BackendConfig config,
                                             PassPlan& plan, std::uint32_t record_bytes);

 private:
  const Options& options_;
  BackendDecision decision_;
  DeviceFaults faults_;
};

// Pins the runs that are in memory, and their output.
std::vector<std::shared_ptr<void>> pin(Backend& backend, std::span<const Run> runs,
                                       std::span<const std::byte> output);

}  // namespace corank
