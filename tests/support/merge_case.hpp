// Test fixture: merges runs in files into a file, into memory or into parts.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "corank/merge.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

namespace corank::test {

struct MergeCase {
  TemporaryFolder folder;
  std::vector<std::filesystem::path> paths;
  std::vector<Bytes> runs;
  Options options;
  Stats stats;  // of the last merged()

  MergeCase(const std::string& schema, const std::string& keys) {
    options.record = Schema::parse(schema);
    options.keys = parse_keys(keys, options.record);
    options.overwrite = true;
  }

  // Adds a run of these records, sorted.
  void add_run(const Bytes& records) {
    runs.push_back(stably_sorted(options.record, options.keys, records));
    paths.push_back(folder / ("run" + std::to_string(paths.size())));
    write_file(paths.back(), runs.back());
  }

  Bytes merged(const Options& by) {
    stats = merge(paths, folder / "output", by);
    Bytes output = read_file(folder / "output");
    CHECK(stats.bytes_written >= output.size());
    const std::uint32_t bytes = selected(by.record, by.query.select).record_bytes;
    CHECK(stats.records_written * bytes == output.size());
    return output;
  }
  Bytes merged_in_memory(const Options& by) const {
    std::uint64_t bytes = 0;
    for (const Bytes& run : runs) bytes += run.size();
    const std::vector<std::span<const std::byte>> spans(runs.begin(), runs.end());
    Bytes output(bytes);
    output.resize(merge(spans, output, by).bytes_written);
    return output;
  }
  Bytes merged_into_parts(Options by, unsigned count) const {
    const TemporaryFolder parts;
    by.parts = count;
    by.memory_bytes *= count;
    merge(paths, parts.path(), by);
    Bytes all;
    for (const std::string& name : parts.names()) {
      const Bytes part = read_file(parts / name);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
};

}  // namespace corank::test
