// Records when each stage worked on which chunk or unit, and writes it for viewers of Chrome trace
// events, such as Perfetto.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <vector>

namespace corank {

using TraceClock = std::chrono::steady_clock;

class Trace;

// A track of the trace: one thread, or one in-flight unit, of a stage of a partition.
struct TraceRow {
  Trace* trace = nullptr;  // null if no trace is requested
  const char* stage = "";
  unsigned partition = 0;
  unsigned number = 0;
};

// Collects the events of a merge. add() is thread-safe; write() must not run at the same time.
class Trace {
 public:
  // Adds an event. `number` identifies the chunk or unit that the stage worked on.
  void add(const TraceRow& row, std::uint64_t number, TraceClock::time_point begin,
           TraceClock::time_point end);

  // Writes all events to `file`. Throws Error if that fails.
  void write(const std::filesystem::path& file) const;

 private:
  struct Event {
    TraceRow row;
    std::uint64_t number;
    TraceClock::time_point begin, end;
  };

  TraceClock::time_point start_ = TraceClock::now();
  std::mutex mutex_;
  std::vector<Event> events_;
};

}  // namespace corank
