#include "cpu_backend.hpp"

#include <fmt/format.h>
#include <tbb/enumerable_thread_specific.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "corank/co_rank.hpp"
#include "corank/error.hpp"
#include "loser_tree.hpp"

namespace corank {
namespace {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

const std::byte* record_at(const Segment& segment, std::uint64_t index,
                           std::uint32_t record_bytes) {
  return segment.chunk->records() + (segment.first + index) * record_bytes;
}

template <int W>
class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const BackendConfig& config)
      : layout_(config.encoding->layout()), threads_(config.threads) {}

  MergedUnit merge(WorkUnit unit, Buffer output) override {
    const auto& segments = unit.segments;
    // Wide units have large tiles, lest cutting costs more than merging.
    const std::uint64_t tile_records =
        std::max<std::uint64_t>(std::uint64_t{1} << 15, 16 * segments.size());
    const std::uint64_t tiles = (unit.records + tile_records - 1) / tile_records;

    std::vector<std::uint64_t> counts;
    for (const Segment& segment : segments) counts.push_back(segment.count);
    std::vector<Cut> cuts(tiles + 1);
    std::atomic<bool> disorder = false;
    // Isolated, lest a thread that waits here starts on another unit and holds this one up.
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(std::uint64_t{0}, tiles + 1, [&](std::uint64_t t) {
        cuts[t] = cut(segments, counts, std::min(t * tile_records, unit.records));
      });
      tbb::parallel_for(std::uint64_t{0}, tiles, [&](std::uint64_t t) {
        std::byte* out = output.bytes().data() + t * tile_records * layout_.record_bytes;
        if (!merge_tile(segments, cuts[t].position, cuts[t + 1].position, out)) disorder = true;
      });
    });
    if (disorder) throw_disorder(segments);
    return {unit.sequence, unit.records, std::move(output)};
  }

  std::string device() const override {
    return fmt::format("{} thread{}, {}", threads_, threads_ == 1 ? "" : "s", cpu_model());
  }

 private:
  struct Head {
    Key<W> key;
    const std::byte* record;
  };
  struct Source {
    std::uint64_t next, end;  // in Scratch::keys
    const std::byte* record;  // of `next`
  };
  struct Scratch {
    std::vector<Key<W>> keys;
    std::vector<Source> sources;
    std::vector<std::size_t> nodes;
  };

  bool less(const Head& a, const Head& b) const {
    if (layout_.has_tail() && a.key == b.key) return tail_less(layout_, a.record, b.record);
    return a.key < b.key;
  }

  Cut cut(const std::vector<Segment>& segments, std::span<const std::uint64_t> counts,
          std::uint64_t rank) const {
    return co_rank(
        rank, counts,
        [&](std::size_t s, std::uint64_t index) {
          const std::byte* record = record_at(segments[s], index, layout_.record_bytes);
          return Head{encode<W>(layout_, record), record};
        },
        [this](const Head& a, const Head& b) { return less(a, b); });
  }

  // False if a segment is out of order; what is in `out` then means nothing.
  bool merge_tile(const std::vector<Segment>& segments, const std::vector<std::uint64_t>& begin,
                  const std::vector<std::uint64_t>& end, std::byte* out) {
    Scratch& scratch = scratch_.local();
    auto& [keys, sources, nodes] = scratch;
    sources.clear();
    std::uint64_t records = 0;
    for (std::size_t s = 0; s < segments.size(); ++s) {
      if (end[s] < begin[s]) return false;  // of cuts only those of an unsorted segment can cross
      records += end[s] - begin[s];
    }
    if (keys.size() < records + 1) keys.resize(records + 1);

    std::uint64_t at = 0;
    for (std::size_t s = 0; s < segments.size(); ++s) {
      const std::uint64_t count = end[s] - begin[s];
      if (count == 0) continue;
      const std::byte* record = record_at(segments[s], begin[s], layout_.record_bytes);
      encode_keys(layout_, record, count, keys.data() + at);
      if (!in_order(keys.data() + at, record, count, begin[s] != 0)) return false;
      sources.push_back({at, at + count, record});
      at += count;
    }

    const auto head = [&](const Source& source) { return Head{keys[source.next], source.record}; };
    const auto before = [&](std::size_t i, std::size_t j) {
      const Source &a = sources[i], &b = sources[j];
      if (a.next == a.end || b.next == b.end) return a.next != a.end || (b.next == b.end && i < j);
      return i < j ? !less(head(b), head(a)) : less(head(a), head(b));
    };
    LoserTree tree(sources.size(), before, nodes);
    for (; records > 0; --records) {
      Source& source = sources[tree.winner()];
      std::memcpy(out, source.record, layout_.record_bytes);
      out += layout_.record_bytes;
      source.record += layout_.record_bytes;
      ++source.next;
      tree.replay();
    }
    return true;
  }

  // Whether `count` records that lie end to end ascend; also from the record before the first, if
  // there is one, for a tile's boundary separates no pair from this check.
  bool in_order(const Key<W>* keys, const std::byte* record, std::uint64_t count,
                bool predecessor) const {
    const std::uint32_t bytes = layout_.record_bytes;
    if (predecessor && record_less(layout_, record, record - bytes)) return false;
    for (std::uint64_t i = 1; i < count; ++i)
      if (less({keys[i], record + i * bytes}, {keys[i - 1], record + (i - 1) * bytes}))
        return false;
    return true;
  }

  [[noreturn]] void throw_disorder(const std::vector<Segment>& segments) const {
    for (const Segment& segment : segments)
      for (std::uint64_t i = 1; i < segment.count; ++i)
        if (record_less(layout_, record_at(segment, i, layout_.record_bytes),
                        record_at(segment, i - 1, layout_.record_bytes)))
          throw RunDisorder(segment.chunk->run, segment.chunk->first + segment.first + i);
    throw Error("a run changed while it was merged");
  }

  KeyLayout layout_;
  unsigned threads_;
  tbb::enumerable_thread_specific<Scratch> scratch_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const BackendConfig& config) {
  switch (config.encoding->prefix_words()) {
    case 1: return std::make_unique<CpuBackend<1>>(config);
    case 2: return std::make_unique<CpuBackend<2>>(config);
    default: return std::make_unique<CpuBackend<4>>(config);
  }
}

}  // namespace corank
