// Interface of whatever merges and sorts work units for the pipeline: the CPU or a device. The
// pipeline owns the backends and calls merge() and sort() from several threads. A failing device
// throws DeviceError, a run out of order RunOutOfOrder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "corank/error.hpp"
#include "corank/key.hpp"
#include "ops/merged_unit.hpp"
#include "ops/operator_chain.hpp"
#include "run/work_unit.hpp"
#include "util/buffer_pool.hpp"

namespace corank {

// A device or its driver failed. The merge can continue without the device.
class DeviceError : public Error {
 public:
  // Adds the remedy, the CPU backend, to the problem.
  DeviceError(const std::string& problem, bool out_of_memory);
  // Returns the message without the remedy.
  const std::string& problem() const { return problem_; }
  // Returns whether smaller units, or fewer in flight, may help.
  bool out_of_memory() const { return out_of_memory_; }

 private:
  std::string problem_;
  bool out_of_memory_;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Merges the unit's segments, stably, into `output`, which has room for unit.records records.
  // Applies the operator chain, if there is one, to the merged records. Checks that every segment
  // is in order (the reader and the cutter check where segments meet). Throws RunOutOfOrder with
  // the first offender of some run. After a throw nothing accesses the unit or the output any more.
  // Called from as many threads at a time as units are in flight.
  virtual MergedUnit merge(const WorkUnit& unit, std::byte* output) = 0;

  // Sorts the unit's records, stably, as if its segments were one sequence in any order, into
  // `output`, which has room for them. Applies no operators. Returns their portable_fingerprint(),
  // or 0 if they are not verified; nothing if the caller must sort them. If chunks have no
  // fingerprints, verifies that the sorted records are those of the unit. `output` may be where the
  // records of the only segment are: if a device fails while it overwrites them, this throws an
  // Error that is no DeviceError. Called as merge() is, if the backend was made for it.
  virtual std::optional<std::uint64_t> sort(const WorkUnit& /*unit*/, std::byte* /*output*/) {
    return std::nullopt;
  }

  // Returns how to pin the memory of chunks and outputs for this backend; null if there is no need.
  virtual PinMemory pin_memory() { return nullptr; }

  // Pins memory that holds data already, and keeps its bytes, for as long as the result lives. If
  // it is `read_only`, such as a mapped file, it cannot be written to.
  virtual std::shared_ptr<void> pin(std::span<const std::byte>, bool /*read_only*/) {
    return nullptr;
  }

  // Returns whether merge() computes on the calling thread instead of waiting for a device.
  virtual bool computes() const { return false; }

  // Returns whether merge() normally verifies the records that it reads or merges. If so, runs in
  // memory need no separate verification beforehand.
  virtual bool verifies() const { return false; }

  virtual std::string device() const = 0;  // human-readable name of the processor or device
};

// Configuration of a backend for one pass. `encoding` and `operators` must outlive the backend.
struct BackendConfig {
  const KeyEncoding* encoding;
  std::uint64_t unit_records;                // records of the largest unit
  unsigned tokens;                           // maximum units in flight
  unsigned threads;                          // CPU threads
  bool verify = false;                       // merge() verifies where that is cheap
  bool sorts = false;                        // the backend is for sort(), not for merge()
  std::uint64_t unit_bytes = 0;              // bytes of the largest unit, if records vary in length
  std::uint64_t streamed_unit_bytes = 0;     // bytes of merged units not read soon, or 0
  const OperatorChain* operators = nullptr;  // null: records are emitted unchanged
  // Fingerprints input of operators on the CPU, and input that the CPU backend is the first to
  // read. Null: these are not verified.
  FingerprintSum fingerprint = nullptr;
};

}  // namespace corank
