// What happened when, for a viewer of Chrome's trace events such as Perfetto.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <vector>

namespace corank {

using TraceClock = std::chrono::steady_clock;

class Trace;

// A row of the picture: one thread, or one token, of a stage of a slice.
struct TraceRow {
  Trace* trace = nullptr;  // null where none is wanted
  const char* stage = "";
  unsigned partition = 0;
  unsigned number = 0;
};

// Thread-safe.
class Trace {
 public:
  // `number` tells which chunk or unit was worked on.
  void add(const TraceRow& row, std::uint64_t number, TraceClock::time_point begin,
           TraceClock::time_point end);

  // Throws Error.
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
