// Plans a k-way merge on the device: its passes, and the levels of samples of each pass. Host code;
// all counts are records unless they say otherwise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace corank::device::detail {

// Maximum runs that one pass merges into one.
inline constexpr std::uint32_t max_fan_in = 16;

// Runs of one level that are merged together. Tiles and samples are counted over all groups of the
// level.
struct Group {
  std::uint32_t first_run;
  std::uint32_t runs;
  std::uint64_t first_output;
  std::uint64_t first_tile;
  std::uint64_t first_sample;  // index of the group's first sample among the next level's records
};

// Level 0 is the runs of the pass. Each further level is every `stride`-th record of the level
// before, merged in the same groups to cut that level into tiles. Each group of the last level is a
// single tile.
struct Level {
  std::vector<std::uint64_t> counts;  // records of each run
  std::vector<Group> groups;          // and an end marker
  std::uint32_t samples_per_tile;     // samples of the next level
  std::uint64_t records() const { return groups.back().first_output; }
  std::uint64_t tiles() const { return groups.back().first_tile; }
  // Borders between neighbouring tiles of a group.
  std::uint64_t borders() const { return tiles() - (groups.size() - 1); }
};

// How levels are cut: the distance between samples, and the records that fit in a tile.
struct LevelShape {
  std::uint32_t stride;
  std::uint32_t tile_records;    // on level 0
  std::uint32_t sample_records;  // on the other levels
};

// Returns how many samples a tile gets. Between two borders with m samples, a run that has m_i of
// them has fewer than (m_i + 1) · stride records. All runs together have fewer than (m + fan) ·
// stride. If the runs are independent, their remainders largely cancel, and rarely exceed (fan / 4
// + 1) · stride in total. A tile that turns out too large is merged in two parts, cut at its middle
// sample; halves_fit() checks that these always fit. Tuned by bench-device; see docs/tuning.md.
constexpr std::uint32_t samples_in_tile(std::uint32_t records, std::uint32_t stride,
                                        std::uint32_t fan) {
  return records / stride - (fan / 4 + 1);
}
constexpr bool halves_fit(std::uint32_t records, std::uint32_t stride, std::uint32_t fan) {
  return records / stride > fan / 4 + 1 &&
         (samples_in_tile(records, stride, fan) + 1) / 2 + fan <= records / stride;
}

// Returns how many runs a pass merges into one, so that all passes merge about equally many.
inline std::uint32_t fan_in(std::uint64_t runs) {
  std::uint32_t passes = 1;
  for (std::uint64_t reach = max_fan_in; reach < runs; reach *= max_fan_in) ++passes;
  std::uint32_t fan = 2;
  const auto reach = [&] {
    std::uint64_t product = 1;
    for (std::uint32_t p = 0; p < passes; ++p) product *= fan;
    return product;
  };
  while (reach() < runs) ++fan;
  return fan;
}

// Returns the levels of one pass, which merges each `fan` neighbouring runs into one.
inline std::vector<Level> plan_pass(std::span<const std::uint64_t> counts, std::uint32_t fan,
                                    LevelShape shape) {
  std::vector<Level> levels;
  std::vector<std::uint64_t> level_counts(counts.begin(), counts.end());
  for (bool whole = false; !whole;) {
    const std::uint32_t most = levels.empty() ? shape.tile_records : shape.sample_records;
    const std::uint32_t samples_per_tile = samples_in_tile(most, shape.stride, fan);
    std::vector<std::uint64_t> sampled(level_counts.size());
    std::vector<Group> groups;
    Group next{};
    whole = true;
    for (std::size_t first = 0; first < level_counts.size(); first += fan) {
      next.first_run = static_cast<std::uint32_t>(first);
      next.runs =
          static_cast<std::uint32_t>(std::min<std::size_t>(fan, level_counts.size() - first));
      groups.push_back(next);
      std::uint64_t records = 0, samples = 0;
      for (std::size_t i = first; i < first + next.runs; ++i) {
        records += level_counts[i];
        samples += sampled[i] = level_counts[i] / shape.stride;
      }
      whole = whole && records <= most;
      next.first_output += records;
      next.first_sample += samples;
      next.first_tile += samples / samples_per_tile + 1;
    }
    next.first_run = static_cast<std::uint32_t>(level_counts.size());
    next.runs = 0;
    groups.push_back(next);
    if (whole)
      for (std::size_t g = 0; g < groups.size(); ++g) groups[g].first_tile = g;
    levels.push_back({std::move(level_counts), std::move(groups), samples_per_tile});
    level_counts = std::move(sampled);
  }
  return levels;
}

}  // namespace corank::device::detail
