// Chooses the backend of a merge, creates the backends of each pass, and tells what happened if a
// device failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "backend/backend_set.hpp"
#include "corank/options.hpp"
#include "format/record_format.hpp"
#include "run/pass_plan.hpp"
#include "run/run.hpp"

namespace corank {

// Whether a merge uses CUDA, on which devices, and why, as text.
struct BackendDecision {
  bool cuda;
  std::string reason;
  std::vector<int> devices = {};
};

// Creates the backends of a merge. Keeps the merge's decision and its device failures across
// passes.
class Backends {
 public:
  // Decides for a merge of `num_runs` runs, or for a sort if that is 0, of `bytes` bytes in a
  // format with `traits`. `options` must outlive it. Throws Error if they request a backend that is
  // not available.
  Backends(const Options& options, const FormatTraits& traits, std::uint64_t bytes,
           std::size_t num_runs);

  bool uses_cuda() const { return decision_.cuda; }
  // Returns the number of devices in use; 0 on the CPU.
  std::size_t devices() const { return decision_.cuda ? decision_.devices.size() : 0; }
  const std::string& reason() const { return decision_.reason; }
  const DeviceFaults& faults() const { return faults_; }
  // Returns a human-readable summary of the device failures of a merge of `units` units; empty if
  // there were none.
  std::string outcome(std::uint64_t units) const;

  // Returns how many records each device can sort as one unit; 0 on the CPU.
  std::uint64_t max_sorted_at_once(const KeyEncoding& encoding) const;

  // Returns one backend per partition, made from `config`, which belongs to `plan`. Partitions
  // share the devices out. If device memory is short, shrinks the plan and retries. Leaves out
  // devices that fail otherwise; if all do, makes CPU backends.
  std::vector<std::unique_ptr<Backend>> make(std::size_t partitions, BackendConfig config,
                                             PassPlan& plan, std::uint32_t record_bytes);
  // Returns one backend that sorts the units of `plan` on the devices, and shrinks the plan
  // likewise; null if none can be used. `encoding` must outlive it.
  std::unique_ptr<Backend> make_sorter(const KeyEncoding& encoding, unsigned threads,
                                       PassPlan& plan);

 private:
  std::unique_ptr<Backend> make(std::size_t partition, std::size_t partitions,
                                BackendConfig config);

  const Options& options_;
  BackendDecision decision_;
  DeviceFaults faults_;
};

// Pins the runs that are in memory or mapped, and their output, for as long as the results live.
std::vector<std::shared_ptr<void>> pin(Backend& backend, std::span<const Run> runs,
                                       std::span<const std::byte> output);

}  // namespace corank
