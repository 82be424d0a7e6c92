#include <fmt/format.h>

#include "plan/plan.hpp"

namespace corank {
namespace {

std::string size_text(std::uint64_t bytes) {
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double size = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(units); ++unit) size /= 1024;
  return fmt::format("{:.1f} {}", size, units[unit]);
}

std::string in_brackets(const std::string& reason) {
  return reason.empty() ? "" : fmt::format(" ({})", reason);
}

std::string counted(std::uint64_t count, const char* singular, const char* plural) {
  return fmt::format("{} {}", count, count == 1 ? singular : plural);
}

// All passes of a sort but the last one write a load to a temporary run; the last one sorts those
// that stay in memory, and merges them with these.
std::string sort_text(const Plan& plan, const PlannedPass& pass) {
  const std::uint64_t first = pass.num_runs;
  const std::uint64_t last = &pass == &plan.passes.back() ? plan.num_loads : pass.num_loads;
  std::string text = first + 1 == last ? fmt::format("load {}", last)
                                       : fmt::format("loads {} to {}", first + 1, last);
  text += fmt::format(" of {}  sort, merge", plan.num_loads);
  if (pass.num_runs != 0)
    text += fmt::format(" with {}", counted(pass.num_runs, "temporary run", "temporary runs"));
  return text + fmt::format(": {}{}{} -> {}\n", plan.has_known_size ? "" : "at least ",
                            size_text(pass.bytes), pass.num_loads == 1 ? "" : " each", pass.output);
}

std::string pass_text(const Plan& plan, std::size_t number) {
  const PlannedPass& pass = plan.passes[number];
  if (plan.sorts) return sort_text(plan, pass);
  std::string text =
      fmt::format("pass {} of {}  {} {}", number + 1, plan.passes.size(),
                  plan.is_copy ? "copy" : "merge", counted(pass.num_runs, "run", "runs"));
  if (number + 1 != plan.passes.size())
    text +=
        fmt::format(", {} to {} of those left", pass.first_run + 1, pass.first_run + pass.num_runs);
  return text + fmt::format(": {}{} -> {}\n", plan.has_known_size ? "" : "at least ",
                            size_text(pass.bytes), pass.output);
}

// Returns the stage that the others will probably wait for. A codec is slower than all of them;
// else the bytes are moved more slowly than they are merged.
std::string expected_bound(const Plan& plan) {
  if (!plan.compression.empty()) return "compressing";
  if (plan.reading == "streamed") return "pipes or decompressing";
  std::uint64_t moved_bytes = 0;
  for (const PlannedPass& pass : plan.passes) moved_bytes += 2 * pass.bytes * pass.num_loads;
  if (plan.has_direct_output || plan.reading == "direct")
    return fmt::format("the disk, which reads and writes {}", size_text(moved_bytes));
  if (plan.reading == "memory" || plan.num_partitions > 1) return "memory bandwidth";
  return "writing one file; several parts are written faster";
}

}  // namespace

std::string explain(const Plan& plan) {
  std::string text = fmt::format(
      "{} {}, {}{}, {}\n",
      plan.sorts     ? "sort"
      : plan.is_copy ? "copy"
                     : "merge",
      plan.sorts ? counted(plan.num_runs, "file", "files") : counted(plan.num_runs, "run", "runs"),
      plan.has_known_size ? "" : "at least ", size_text(plan.input_bytes), plan.records);
  for (std::size_t number = 0; number < plan.passes.size(); ++number)
    text += pass_text(plan, number);
  const auto line = [&](const char* name, const std::string& what) {
    text += fmt::format("  {:<10} {}\n", name, what);
  };
  const PassPlan& buffers = plan.buffers;
  line("read",
       fmt::format(
           "{}{}, up to {} of {}", plan.reading,
           plan.files_at_once == 1 ? "" : fmt::format(", {} files at a time", plan.files_at_once),
           counted(plan.files_at_once * buffers.chunks, "chunk", "chunks"),
           size_text(buffers.chunk_bytes)));
  if (plan.sorts)
    line("sort",
         fmt::format("{}, blocks of {}{}, {} of {} at a time in memory", plan.sorter,
                     size_text(plan.block_bytes),
                     plan.batch_blocks == 1
                         ? ""
                         : fmt::format(", merged in batches of {}", plan.batch_blocks),
                     counted(plan.loads_in_memory, "load", "loads"), size_text(plan.load_bytes)));
  line(plan.is_copy ? "copy" : "merge",
       fmt::format("{} ({}), {}{}, units of {}, {} in flight", plan.backend, plan.backend_reason,
                   counted(plan.threads, "thread", "threads"), in_brackets(plan.threads_reason),
                   size_text(buffers.unit_bytes), buffers.tokens));
  line("operators",
       plan.operators.empty() ? "none" : fmt::format("{}", fmt::join(plan.operators, ", ")));
  line("write", fmt::format("{}{}{}{}", counted(plan.num_partitions, "partition", "partitions"),
                            plan.has_temporary_output
                                ? ", to a temporary file first, which is then cut into parts"
                                : "",
                            plan.has_direct_output ? ", past the page cache" : "",
                            plan.compression.empty() ? "" : ", compressed by " + plan.compression));
  line("verify", plan.is_verified ? "order, and that all records were written" : "nothing");
  line("memory", fmt::format("{} for buffers{}", size_text(plan.memory_bytes),
                             in_brackets(plan.memory_reason)));
  line("bound", "probably " + expected_bound(plan));
  return text;
}

}  // namespace corank
