#include "statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "corank/error.hpp"

namespace corank {
namespace {

// Describes the stage that limits the speed of the merge.
std::string bound_of(const Stats& stats) {
  if (stats.bound.what.empty()) return "nothing";
  return fmt::format("{}: {:.2f} GB/s of {:.2f}", stats.bound.what,
                     stats.bound.bytes_per_second * 1e-9,
                     stats.bound.ceiling_bytes_per_second * 1e-9);
}

}  // namespace

std::string summary_of(const Stats& stats) {
  std::string text =
      fmt::format("corank: {} records in, {} out", stats.records, stats.records_written);
  for (const auto& [count, what] : {std::pair(stats.records_skipped, "skipped"),
                                    {stats.records_replaced, "replaced"},
                                    {stats.records_deleted, "deleted"}})
    if (count != 0) text += fmt::format(", {} {}", count, what);
  return text + fmt::format("; {:.1f} s, {:.0f} MB/s\n", stats.seconds,
                            static_cast<double>(std::max(stats.bytes_read, stats.bytes_written)) *
                                1e-6 / stats.seconds);
}

std::string hexadecimal(std::uint64_t checksum) {
  return fmt::format("{:016x}", checksum);
}

void write_stats(const Stats& stats, bool checksum, const std::string& file) {
  nlohmann::ordered_json json = {
      {"records", stats.records},
      {"records_skipped", stats.records_skipped},
      {"records_written", stats.records_written},
      {"records_replaced", stats.records_replaced},
      {"records_deleted", stats.records_deleted},
      {"bytes_read", stats.bytes_read},
      {"bytes_written", stats.bytes_written},
      {"output_bytes", stats.output_bytes},
      {"resumed_bytes", stats.resumed_bytes},
      {"passes", stats.passes},
      {"units", stats.units},
      {"seconds", stats.seconds},
      {"pipeline_seconds", stats.pipeline_seconds},
      {"busy_seconds",
       {{"read", stats.busy.read},
        {"cut", stats.busy.cut},
        {"merge", stats.busy.merge},
        {"write", stats.busy.write},
        {"compress", stats.busy.compress},
        {"verify", stats.busy.verify}}},
      {"wait_seconds",
       {{"read_for_cut", stats.waits.read_for_cut},
        {"cut_for_read", stats.waits.cut_for_read},
        {"cut_for_merge", stats.waits.cut_for_merge},
        {"merge_for_cut", stats.waits.merge_for_cut},
        {"merge_for_write", stats.waits.merge_for_write},
        {"write_for_merge", stats.waits.write_for_merge},
        {"write_for_compress", stats.waits.write_for_compress}}},
      {"bound", bound_of(stats)},
      {"io", stats.io},
      {"backend", stats.backend},
      {"backend_reason", stats.backend_reason},
      {"device", stats.device},
      {"memory_peak_bytes", stats.memory_peak_bytes},
      {"units_redone_on_cpu", stats.units_redone_on_cpu},
      {"device_fault", stats.device_fault},
      {"verified", stats.verified},
  };
  if (checksum) json["checksum"] = hexadecimal(stats.checksum);
  const std::string text =
      json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
  constexpr std::string_view failure = ": cannot write the statistics; the merge itself is done";
  if (file == "-") {
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
      throw Error(fmt::format("standard output{}", failure));
  } else if (!(std::ofstream(file) << text).flush()) {
    throw Error(fmt::format("{}{}", file, failure));
  }
}

}  // namespace corank
