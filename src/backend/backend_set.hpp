// Devices and the CPU as one backend: devices share the units, and the CPU merges what they fail
// at.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/backend.hpp"

namespace corank {

// Failures of the devices of a merge, over all its backends. Thread-safe.
class DeviceFaults {
 public:
  // `is_strict`: a failure ends the merge.
  DeviceFaults(std::size_t num_devices, bool is_strict)
      : is_strict_(is_strict), given_up_(num_devices) {}

  // Adds a failure of device number `device` of the merge, and gives the device up unless it was
  // short of memory. Throws the failure if it ends the merge.
  void add(std::size_t device, const DeviceError& fault);
  void give_up(std::size_t device) { given_up_[device] = true; }
  bool given_up(std::size_t device) const { return given_up_[device]; }
  bool all_given_up() const;
  void redo_unit() { ++units_redone_; }
  std::uint64_t units_redone() const { return units_redone_; }  // on the CPU
  std::string first() const;  // message of the first failure; empty if there was none

 private:
  const bool is_strict_;
  std::vector<std::atomic<bool>> given_up_;
  std::atomic<std::uint64_t> units_redone_ = 0;
  mutable std::mutex mutex_;
  std::string first_;
};

// A device of a set. `number` is its number in the DeviceFaults.
struct SetDevice {
  std::size_t number;
  std::unique_ptr<Backend> backend;
};

// Returns a backend that gives each unit to the device with the fewest units in flight. A unit that
// a device fails at goes to another device or, if memory was short or all others failed, to the
// CPU. `faults` must outlive the backend. All devices must be able to read memory that one of them
// pinned.
std::unique_ptr<Backend> make_backend_set(std::vector<SetDevice> devices,
                                          const BackendConfig& config, DeviceFaults& faults);

}  // namespace corank
