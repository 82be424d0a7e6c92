// The seam between the pipeline and what merges: the CPU or a device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "corank/error.hpp"
#include "corank/key.hpp"
#include "format/work_unit.hpp"
#include "ops/merged_unit.hpp"
#include "ops/operator_chain.hpp"
#include "ops/text_operators.hpp"
#include "util/buffer_pool.hpp"

namespace corank {

// A device, or what drives it, failed. The merge itself may go on without it.
class DeviceError : public Error {
 public:
  DeviceError(const std::string& what, bool out_of_memory)
      : Error(what), out_of_memory_(out_of_memory) {}
  // Whether smaller units, or fewer at once, may help.
  bool out_of_memory() const { return out_of_memory_; }

 private:
  bool out_of_memory_;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Merges the unit's segments, stably, into `output`, which has room for unit.records records, and
  // checks that each segment is in order within itself (the reader and the cutter check where
  // segments meet). Throws RunOutOfOrder with the first offender of some run. After a throw nothing
  // works on the unit or the output any more. Called from as many threads at once as the pipeline
  // has tokens. Where there is a shape, it shapes what it merged.
  virtual MergedUnit merge(const WorkUnit& unit, std::byte* output) = 0;

  // How the memory of chunks and outputs is made fit for this backend; null if it needs nothing.
  virtual PinMemory pin_memory() { return nullptr; }

  // The same for memory that holds data already: its bytes stay what they are. What is `read_only`
  // can't be written to, such as a mapped file.
  virtual std::shared_ptr<void> pin(std::span<const std::byte>, bool /*read_only*/) {
    return nullptr;
  }

  // Whether merge() computes where it is called, instead of waiting for a device.
  virtual bool computes() const { return false; }

  // Whether merge() looks at what it merges, or reads, as a rule: then runs in memory need not be
  // looked at beforehand.
  virtual bool looks() const { return false; }

  virtual std::string device() const = 0;  // what it runs on, in words
};

// What one pass needs of a backend. `encoding` must outlive it.
struct BackendConfig {
  const KeyEncoding* encoding;
  std::uint64_t unit_records;             // of the largest unit
  unsigned tokens;                        // units in flight at most
  unsigned threads;                       // for the CPU
  bool look = false;                      // merge() is to look where that costs it little
  std::uint64_t unit_bytes = 0;           // of the largest unit, where records vary in length
  std::uint64_t streamed_unit_bytes = 0;  // of merged units that nobody reads for a while
  const OperatorChain* shape = nullptr;   // null: all records stay what they are
  const TextOperatorChain* text_operators = nullptr;  // the same of records of variable length
  // Of what the CPU shapes, before that, or is the first to read; null: they are not verified.
  FingerprintSum fingerprint = nullptr;
};

}  // namespace corank
