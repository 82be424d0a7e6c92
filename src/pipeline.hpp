// One pass: the only place that knows the whole path from runs to output.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>

#include "backend.hpp"
#include "plan.hpp"
#include "run.hpp"
#include "stopwatch.hpp"
#include "writer.hpp"

namespace corank {

// What the passes of a merge add up to.
struct PassTotals {
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t units = 0;
  StageClock read = 0;
  StageClock read_wait = 0;
  StageClock cut = 0;
  StageClock merge = 0;
  StageClock write = 0;
};

struct Pass {
  std::span<const Run> runs;
  const KeyEncoding& encoding;
  const PassPlan& plan;
  Backend& backend;
  Writer& writer;
  unsigned threads;
  std::stop_token stop;
  std::atomic<std::uint64_t>* checksum;      // of the output; null where it is not wanted
  std::function<void(std::uint64_t)> wrote;  // told the bytes of each unit that was written
};

// Throws RunDisorder, Interrupted or Error.
void run_pass(const Pass& pass, PassTotals& totals);

}  // namespace corank
