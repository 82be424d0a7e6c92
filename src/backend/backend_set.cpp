#include "backend/backend_set.hpp"

#include <algorithm>
#include <cassert>
#include <optional>
#include <type_traits>
#include <utility>

#include "backend/cpu_backend.hpp"

namespace corank {

void DeviceFaults::add(std::size_t device, const DeviceError& fault) {
  if (is_strict_) throw fault;
  if (!fault.out_of_memory()) give_up(device);
  const std::lock_guard lock(mutex_);
  if (first_.empty()) first_ = fault.problem();
}

bool DeviceFaults::all_given_up() const {
  return std::ranges::all_of(given_up_, [](const std::atomic<bool>& one) { return one.load(); });
}

std::string DeviceFaults::first() const {
  const std::lock_guard lock(mutex_);
  return first_;
}

namespace {

class BackendSet final : public Backend {
 public:
  BackendSet(std::vector<SetDevice> devices, const BackendConfig& config, DeviceFaults& faults)
      : devices_(std::move(devices)),
        in_flight_(devices_.size()),
        config_(config),
        faults_(faults) {
    assert(!devices_.empty());
  }

  MergedUnit merge(const WorkUnit& unit, std::byte* output) override {
    auto merged = on_device([&](Backend& device) { return device.merge(unit, output); });
    return merged ? *std::move(merged) : cpu().merge(unit, output);
  }

  std::optional<std::uint64_t> sort(const WorkUnit& unit, std::byte* output) override {
    return on_device([&](Backend& device) { return device.sort(unit, output); })
        .value_or(std::nullopt);
  }

  PinMemory pin_memory() override {
    return [this, pin = first().pin_memory()](std::span<std::byte> memory) {
      return unless_given_up([&] { return pin ? pin(memory) : nullptr; });
    };
  }
  std::shared_ptr<void> pin(std::span<const std::byte> memory, bool read_only) override {
    return unless_given_up([&] { return first().pin(memory, read_only); });
  }

  bool verifies() const override { return first().verifies(); }

  std::string device() const override {
    std::string names = first().device();
    for (std::size_t d = 1; d < devices_.size(); ++d) names += "; " + devices_[d].backend->device();
    return names;
  }

 private:
  // A unit in flight on a device.
  class Taken {
   public:
    Taken(BackendSet& set, std::size_t device) : set_(set), device_(device) {}
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;
    ~Taken() {
      const std::lock_guard lock(set_.mutex_);
      assert(set_.in_flight_[device_] != 0);
      --set_.in_flight_[device_];
    }

   private:
    BackendSet& set_;
    std::size_t device_;
  };

  // Counts a unit to the usable device with the fewest, among equals in turn. Returns nothing if no
  // device is usable.
  std::optional<std::size_t> take() {
    const std::lock_guard lock(mutex_);
    std::optional<std::size_t> idlest;
    for (std::size_t i = 1; i <= devices_.size(); ++i) {
      const std::size_t d = (last_taken_ + i) % devices_.size();
      if (!faults_.given_up(devices_[d].number) && (!idlest || in_flight_[d] < in_flight_[*idlest]))
        idlest = d;
    }
    if (!idlest) return std::nullopt;
    last_taken_ = *idlest;
    ++in_flight_[last_taken_];
    return idlest;
  }

  // Returns run(device) of the device with the fewest units in flight, or of another if it fails;
  // nothing if the CPU must take the unit.
  template <class Run>
  std::optional<std::invoke_result_t<Run, Backend&>> on_device(Run run) {
    while (const std::optional<std::size_t> device = take()) {
      const Taken taken(*this, *device);
      try {
        return run(*devices_[*device].backend);
      } catch (const DeviceError& fault) {
        faults_.add(devices_[*device].number, fault);
        if (fault.out_of_memory()) break;
      }
    }
    faults_.redo_unit();
    return std::nullopt;
  }

  Backend& first() const { return *devices_.front().backend; }

  // A failure to pin gives all devices up, whatever the reason: they cannot read memory that is not
  // pinned.
  template <class Pin>
  std::shared_ptr<void> unless_given_up(Pin pin) {
    if (std::ranges::all_of(
            devices_, [&](const SetDevice& device) { return faults_.given_up(device.number); }))
      return nullptr;
    try {
      return pin();
    } catch (const DeviceError& fault) {
      for (const SetDevice& device : devices_) {
        faults_.add(device.number, fault);
        faults_.give_up(device.number);
      }
      return nullptr;
    }
  }

  Backend& cpu() {
    std::call_once(cpu_made_, [this] { cpu_ = make_cpu_backend(config_); });
    return *cpu_;
  }

  std::vector<SetDevice> devices_;
  std::mutex mutex_;
  std::vector<unsigned> in_flight_;  // units on each device
  std::size_t last_taken_ = 0;
  BackendConfig config_;
  DeviceFaults& faults_;
  std::once_flag cpu_made_;
  std::unique_ptr<Backend> cpu_;
};

}  // namespace

std::unique_ptr<Backend> make_backend_set(std::vector<SetDevice> devices,
                                          const BackendConfig& config, DeviceFaults& faults) {
  return std::make_unique<BackendSet>(std::move(devices), config, faults);
}

}  // namespace corank
