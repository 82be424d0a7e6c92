#include "run/record_search.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "format/framing.hpp"
#include "run/work_unit.hpp"
#include "util/math.hpp"

namespace corank {
namespace {

constexpr std::uint64_t probe_bytes = 4096;                       // read at first, for a record
constexpr std::uint64_t max_step_bytes = std::uint64_t{1} << 20;  // read at a time, for its end

// Returns the byte that ends records, if it tells where they begin.
std::byte terminator_of(const RecordFormat& format) {
  assert(format.end_of_record().size() == 1);
  return static_cast<std::byte>(format.end_of_record().front());
}

// Returns the size of the first record; 0 if its end is not in `bytes`.
std::uint64_t framed_bytes(const RecordFormat& format, std::span<const std::byte> bytes) {
  PrefixRef row;
  const Indexed found = format.frame(bytes, false, 1, &row);
  return found.bad ? found.bad->bytes : found.bytes;
}

// Returns the end of the record that begins at `at`.
std::uint64_t end_from(BlockReader& run, const RecordFormat& format, std::uint64_t at) {
  assert(at < run.records());
  if (format.traits().has_fixed_size) return at + 1;
  std::span<const std::byte> block = run.from(at, probe_bytes);
  for (;;) {
    if (const std::uint64_t bytes = framed_bytes(format, block)) return at + bytes;
    if (block.size() == run.records() - at) return run.records();
    block = run.read(
        at, std::min(std::max<std::uint64_t>(2 * block.size(), probe_bytes), run.records() - at));
  }
}

// Returns the first record with a sort position that begins in [at, to); nothing if there is none.
// Sets `at` to its start, or to the end of the search.
std::vector<std::byte> ordered_record(BlockReader& run, const RecordFormat& format,
                                      std::uint64_t& at, std::uint64_t to) {
  while (at < to) {
    std::vector<std::byte> record = record_at(run, format, at);
    if (format.has_order(record)) return record;
    at += record.size();
  }
  return {};
}

// Returns a record with a sort position near `middle`, between the records at `low` and `high`;
// nothing if there is none.
std::vector<std::byte> record_between(BlockReader& run, const RecordFormat& format,
                                      std::uint64_t low, std::uint64_t middle, std::uint64_t high) {
  assert(low <= middle && middle < high);
  std::uint64_t at = next_record(run, format, middle);
  std::vector<std::byte> record = ordered_record(run, format, at, high);
  for (at = high; record.empty() && at > low;) {
    at = record_before(run, format, at);
    std::uint64_t begin = at;
    record = ordered_record(run, format, begin, at + 1);
  }
  return record;
}

}  // namespace

std::uint64_t next_record(BlockReader& run, const RecordFormat& format, std::uint64_t at,
                          std::uint64_t to) {
  if (format.traits().has_fixed_size) return std::min(at + 1, run.records());
  assert(run.record_bytes() == 1);
  if (!format.traits().can_search) {
    std::uint64_t begin = run.start_before(at + 1);
    while (begin <= at && begin < run.records()) begin = end_from(run, format, begin);
    return begin;
  }
  std::span<const std::byte> block;
  std::uint64_t size = probe_bytes;
  for (; at < std::min(to, run.records()); at += block.size()) {
    block = run.from(at, size);
    const void* const found =
        std::memchr(block.data(), std::to_integer<int>(terminator_of(format)), block.size());
    if (found)
      return at + static_cast<std::uint64_t>(static_cast<const std::byte*>(found) - block.data()) +
             1;
    size = std::min(2 * size, max_step_bytes);
  }
  return at;
}

std::vector<std::byte> record_at(BlockReader& run, const RecordFormat& format, std::uint64_t at) {
  assert(at < run.records());
  const auto found = run.read(at, end_from(run, format, at) - at);
  std::vector<std::byte> record(found.begin(), found.end());
  if (framed_bytes(format, record) == 0)  // the last record may lack its end
    for (const char c : format.end_of_record()) record.push_back(static_cast<std::byte>(c));
  return record;
}

std::uint64_t record_before(BlockReader& run, const RecordFormat& format, std::uint64_t at,
                            std::uint64_t from) {
  assert(at > from && at <= run.records() + 1);
  if (format.traits().has_fixed_size) return at - 1;
  if (!format.traits().can_search) {
    std::uint64_t begin = run.start_before(at - 1), end;
    while ((end = end_from(run, format, begin)) < at) begin = end;
    return begin;
  }
  std::span<const std::byte> block;
  std::uint64_t end = at - 1;  // excludes the terminator of the record before
  for (std::uint64_t size = probe_bytes; end > from; end -= block.size()) {
    const std::uint64_t bytes = std::min(size, end - from);
    block = run.read(end - bytes, bytes);
    const auto found = std::find(block.rbegin(), block.rend(), terminator_of(format));
    if (found != block.rend()) return end - static_cast<std::uint64_t>(found - block.rbegin());
    size = std::min(2 * size, max_step_bytes);
  }
  return from;
}

std::uint64_t find_record(BlockReader& run, const RecordFormat& format, const RowBound& key,
                          Bound bound, std::uint64_t from, std::uint64_t to) {
  assert(from <= to && to <= run.records());
  // Invariant: all records before `from` are before the bound; none that begins at or after `to`
  // is.
  while (from < to) {
    std::uint64_t middle = from + (to - from) / 2;
    if (const std::uint64_t start = run.start_before(middle); start > from) middle = start;
    run.expect(from, to);
    std::uint64_t begin = middle == from ? from : next_record(run, format, middle - 1, to);
    std::vector<std::byte> record = ordered_record(run, format, begin, to);
    // The record that holds `middle` may be long: compare it, and do not search in it again.
    if (record.empty() && middle != from) {
      to = begin = record_before(run, format, middle, from);
      record = ordered_record(run, format, begin, begin + 1);
    }
    if (record.empty())
      to = std::min(to, middle);
    else if (key.compare_record(record) < (bound == Bound::lower ? 0 : 1))
      from = std::min(begin + record.size() / run.record_bytes(), run.records());
    else
      to = begin;
  }
  return from;
}

std::uint64_t find_near_start(BlockReader& run, const RecordFormat& format, const RowBound& key) {
  const std::uint64_t near =
      next_record(run, format, std::max<std::uint64_t>(probe_bytes / run.record_bytes(), 1) - 1);
  const std::uint64_t found = find_record(run, format, key, Bound::upper, 0, near);
  return found < near ? found : find_record(run, format, key, Bound::upper, near, run.records());
}

namespace {

// A position in each run.
struct Edge {
  Edge() = default;
  explicit Edge(std::vector<std::uint64_t> positions)
      : position(std::move(positions)), rank(std::reduce(position.begin(), position.end())) {}

  std::vector<std::uint64_t> position;
  std::uint64_t rank = 0;  // sum of the positions
};

// Narrows all runs to the cut, by the bounds of one record in all of them after another.
class RecordCutter {
 public:
  RecordCutter(std::span<const Run> runs, const RecordFormat& format, std::uint64_t precision,
               ProbeThreads& threads)
      : runs_(runs), format_(format), precision_(precision), threads_(threads) {
    const std::uint64_t block_bytes = std::min(
        BlockReader::default_block_bytes, max_blocks_bytes / std::max<std::size_t>(runs.size(), 1));
    for (const Run& run : runs) readers_.emplace_back(run, block_bytes);
  }

  std::vector<std::uint64_t> find_cut(std::uint64_t rank) {
    std::vector<std::uint64_t> ends;
    for (const Run& run : runs_) ends.push_back(run.records());
    Edge low(std::vector<std::uint64_t>(runs_.size())), high(std::move(ends));
    assert(rank <= high.rank);
    // Samples between the nearest one and the one to try, towards the edge that stays far. Their
    // number doubles while only the other edge moves.
    constexpr std::int64_t max_beyond = std::int64_t{1} << 30;
    std::int64_t beyond = 0;
    std::uint64_t last_width = std::numeric_limits<std::uint64_t>::max();
    while (rank - low.rank > precision_ && high.rank - rank > precision_) {
      std::size_t widest = 0;
      for (std::size_t run = 1; run < runs_.size(); ++run)
        if (high.position[run] - low.position[run] > high.position[widest] - low.position[widest])
          widest = run;
      Sample sample;
      // Samples gain little where one record is longer than the distance between them.
      const std::uint64_t width = high.rank - low.rank;
      if (width > max_blocks_bytes && width <= last_width / 4 * 3)
        sample = nearest_sample(rank, beyond, low, high);
      last_width = width;
      if (sample.record.empty()) sample = middle_record(widest, low, high);
      if (sample.record.empty()) {  // no record of this run has an order
        low.position[widest] = high.position[widest];
        low = Edge(std::move(low.position));
        if (low.rank >= rank) return low.position;
        continue;
      }
      const RowBound key = format_.key_of(sample.record);
      Edge middle = find(key, Bound::lower, low, high);
      if (middle.rank == low.rank) middle = find(key, Bound::upper, low, high);
      if (middle.rank == low.rank) throw RunOutOfOrder(sample.run, low.position[sample.run]);
      if (middle.rank == high.rank) break;  // all records in between are equal
      const bool rises = middle.rank <= rank;
      beyond = rises ? std::clamp<std::int64_t>(2 * beyond, 1, max_beyond)
                     : std::clamp<std::int64_t>(2 * beyond, -max_beyond, -1);
      (rises ? low : high) = std::move(middle);
    }
    assert(low.rank <= rank && rank <= high.rank);
    return rank - low.rank < high.rank - rank ? low.position : high.position;
  }

 private:
  // A record of a run between two edges, and the bytes that it stands for.
  struct Sample {
    std::vector<std::byte> record = {};
    std::uint32_t run = 0;
    std::uint64_t at = 0;
    std::uint64_t bytes = 0;
  };

  // Returns the middle record of a run with a sort position; nothing if it has none.
  Sample middle_record(std::size_t run, const Edge& low, const Edge& high) {
    const std::uint64_t begin = low.position[run], end = high.position[run];
    Sample sample{.run = static_cast<std::uint32_t>(run)};
    threads_.for_each(1, [&](std::size_t) {
      return readers_[run].reads_of([&](BlockReader& reader) {
        reader.expect(begin, end);
        sample.record = record_between(reader, format_, begin, begin + (end - begin) / 2, end);
      });
    });
    return sample;
  }

  // Returns records at equal distances in each run, at other places in each, that have a sort
  // position.
  std::vector<Sample> samples(std::size_t per_run, const Edge& low, const Edge& high) {
    std::vector<Sample> samples(per_run * runs_.size());
    threads_.for_each(samples.size(), [&](std::size_t i) {
      const std::size_t run = i % runs_.size();
      const std::uint64_t begin = low.position[run], end = high.position[run];
      BlockReader reader(runs_[run]);
      return reader.reads_of([&](BlockReader&) {
        if (begin == end) return;
        const std::uint64_t at =
            next_record(reader, format_, begin + part_of(end - begin, i, samples.size()), end);
        if (at < end)
          samples[i] = {record_at(reader, format_, at), static_cast<std::uint32_t>(run), at,
                        (end - begin) / per_run};
      });
    });
    std::erase_if(samples, [&](const Sample& sample) {
      return sample.record.empty() || !format_.has_order(sample.record);
    });
    return samples;
  }

  // Returns the sample whose rank is likely to be the nearest, or the one that is `beyond` samples
  // after it; nothing if there are no samples.
  Sample nearest_sample(std::uint64_t rank, std::int64_t beyond, const Edge& low,
                        const Edge& high) {
    constexpr std::uint64_t per_precision = 4, max_per_run = 16;
    const std::uint64_t wanted = per_precision * (high.rank - low.rank) / (precision_ + 1);
    std::vector<Sample> records =
        samples(std::clamp<std::uint64_t>(wanted / runs_.size(), 1, max_per_run), low, high);
    std::vector<std::pair<RowBound, const Sample*>> sorted;
    for (const Sample& sample : records)
      sorted.emplace_back(format_.key_of(sample.record), &sample);
    std::ranges::stable_sort(sorted, [](const auto& x, const auto& y) {
      return x.first.compare_record(y.second->record) > 0;
    });
    std::vector<std::uint64_t> last(runs_.size());
    for (const auto& [key, sample] : sorted)
      if (sample->at < std::exchange(last[sample->run], sample->at))
        throw RunOutOfOrder(sample->run, sample->at);
    if (sorted.empty()) return {};
    std::uint64_t before = low.rank;
    std::int64_t nearest = 0;
    for (const auto& [key, sample] : sorted) {
      before += sample->bytes;
      if (before >= rank) break;
      ++nearest;
    }
    const std::int64_t greatest = static_cast<std::int64_t>(sorted.size()) - 1;
    const auto chosen = std::clamp<std::int64_t>(nearest + beyond, 0, greatest);
    return *sorted[static_cast<std::size_t>(chosen)].second;
  }

  Edge find(const RowBound& key, Bound bound, const Edge& low, const Edge& high) {
    std::vector<std::uint64_t> positions(runs_.size());
    threads_.for_each(runs_.size(), [&](std::size_t run) {
      return readers_[run].reads_of([&](BlockReader& reader) {
        positions[run] =
            find_record(reader, format_, key, bound, low.position[run], high.position[run]);
      });
    });
    return Edge(std::move(positions));
  }

  const std::span<const Run> runs_;
  const RecordFormat& format_;
  const std::uint64_t precision_;
  ProbeThreads& threads_;
  std::vector<BlockReader> readers_;
};

}  // namespace

std::vector<std::uint64_t> cut_records(std::uint64_t rank, std::span<const Run> runs,
                                       const RecordFormat& format, std::uint64_t precision,
                                       ProbeThreads& threads) {
  return RecordCutter(runs, format, precision, threads).find_cut(rank);
}

}  // namespace corank
