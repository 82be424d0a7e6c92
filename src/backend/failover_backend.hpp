// Runs units on a device and falls back to the CPU if it fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "backend/backend.hpp"

namespace corank {

// Failures that the backends of a merge, all on one device, have met. Thread-safe.
class DeviceFaults {
 public:
  void add(const DeviceError& fault);
  void give_up() { given_up_ = true; }
  bool given_up() const { return given_up_; }
  void redo_unit() { ++units_redone_; }
  std::uint64_t units_redone() const { return units_redone_; }
  std::string first() const;  // message of the first failure; empty if there was none

 private:
  std::atomic<bool> given_up_ = false;
  std::atomic<std::uint64_t> units_redone_ = 0;
  mutable std::mutex mutex_;
  std::string first_;
};

// Returns a backend that merges on `device`, and repeats on the CPU every unit that fails there.
// After an out-of-memory failure the device still gets the next unit; after any other it is given
// up. `faults` must outlive the backend.
std::unique_ptr<Backend> make_failover_backend(std::unique_ptr<Backend> device,
                                               const BackendConfig& config, DeviceFaults& faults);

}  // namespace corank
