// Goes on where a device fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "backend/backend.hpp"

namespace corank {

// What the backends of a merge, all on one device, met together. Thread-safe.
class DeviceFaults {
 public:
  void add(const DeviceError& fault);
  void give_up() { given_up_ = true; }
  bool given_up() const { return given_up_; }
  void redo_unit() { ++units_redone_; }
  std::uint64_t units_redone() const { return units_redone_; }
  std::string first() const;  // the first fault in words; empty if there was none

 private:
  std::atomic<bool> given_up_ = false;
  std::atomic<std::uint64_t> units_redone_ = 0;
  mutable std::mutex mutex_;
  std::string first_;
};

// Merges on `device`, and on the CPU whatever that fails at. A device that has too little memory
// for a unit gets the next one; one that fails otherwise is given up. `faults` must outlive it.
std::unique_ptr<Backend> make_failover_backend(std::unique_ptr<Backend> device,
                                               const BackendConfig& config, DeviceFaults& faults);

}  // namespace corank
