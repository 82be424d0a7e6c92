#include "backend/failover_backend.hpp"

#include "backend/cpu_backend.hpp"

namespace corank {

void DeviceFaults::add(const DeviceError& fault) {
  if (!fault.out_of_memory()) give_up();
  const std::lock_guard lock(mutex_);
  if (first_.empty()) first_ = fault.problem();
}

std::string DeviceFaults::first() const {
  const std::lock_guard lock(mutex_);
  return first_;
}

namespace {

class FailoverBackend final : public Backend {
 public:
  FailoverBackend(std::unique_ptr<Backend> device, const BackendConfig& config,
                  DeviceFaults& faults)
      : device_(std::move(device)), config_(config), faults_(faults) {}

  MergedUnit merge(const WorkUnit& unit, std::byte* output) override {
    if (!faults_.given_up()) {
      try {
        return device_->merge(unit, output);
      } catch (const DeviceError& fault) {
        faults_.add(fault);
      }
    }
    faults_.redo_unit();
    return cpu().merge(unit, output);
  }

  // A failure to pin gives the device up, whatever the reason: it cannot read memory that is not
  // pinned.
  PinMemory pin_memory() override {
    return [this, pin = device_->pin_memory()](std::span<std::byte> memory) {
      return unless_given_up([&] { return pin ? pin(memory) : nullptr; });
    };
  }
  std::shared_ptr<void> pin(std::span<const std::byte> memory, bool read_only) override {
    return unless_given_up([&] { return device_->pin(memory, read_only); });
  }

  bool looks() const override { return device_->looks(); }

  std::string device() const override { return device_->device(); }

 private:
  template <class Pin>
  std::shared_ptr<void> unless_given_up(Pin pin) {
    if (faults_.given_up()) return nullptr;
    try {
      return pin();
    } catch (const DeviceError& fault) {
      faults_.add(fault);
      faults_.give_up();
      return nullptr;
    }
  }

  Backend& cpu() {
    std::call_once(cpu_made_, [this] { cpu_ = make_cpu_backend(config_); });
    return *cpu_;
  }

  std::unique_ptr<Backend> device_;
  BackendConfig config_;
  DeviceFaults& faults_;
  std::once_flag cpu_made_;
  std::unique_ptr<Backend> cpu_;
};

}  // namespace

std::unique_ptr<Backend> make_failover_backend(std::unique_ptr<Backend> device,
                                               const BackendConfig& config, DeviceFaults& faults) {
  return std::make_unique<FailoverBackend>(std::move(device), config, faults);
}

}  // namespace corank
