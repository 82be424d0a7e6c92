#include "backend/cpu_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "format/key_order.hpp"
#include "format/key_words.hpp"
#include "merge/parallel_merger.hpp"
#include "ops/unit_operators.hpp"

namespace corank {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

namespace {

const std::byte* record_at(const Segment& segment, std::uint64_t index,
                           std::uint32_t record_bytes) {
  return segment.chunk->records() + (segment.first + index) * record_bytes;
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const BackendConfig& config)
      : layout_(config.encoding->layout()),
        words_(make_key_words(layout_)),
        threads_(config.threads),
        operators_(config.operators),
        fingerprint_(config.fingerprint),
        merger_(*words_,
                operators_ ? Output::read_next : output_to_rest(config.streamed_unit_bytes),
                threads_, config.tokens) {}

  MergedUnit merge(const WorkUnit& unit, std::byte* output) override {
    assert(!unit.segments.empty());
    std::vector<SortedSpan> runs;
    // Joins a run's segments that are adjacent in memory: the first takes the records of all, and
    // the others stay empty. Fewer sequences merge faster.
    std::size_t taking = 0;
    const Chunk* chunk = nullptr;
    const std::byte* end = nullptr;
    for (const Segment& segment : unit.segments) {
      assert(segment.count != 0 && segment.first + segment.count <= segment.chunk->count);
      const std::byte* const begin = record_at(segment, 0, layout_.record_bytes);
      if (begin != end || segment.chunk->run != chunk->run) taking = runs.size();
      runs.push_back({begin, 0, false});
      runs[taking].count += segment.count;
      chunk = segment.chunk.get();
      end = begin + segment.count * layout_.record_bytes;
    }
    std::optional<UnitOperators> operators;
    if (operators_) operators.emplace(*operators_, unit, fingerprint_);
    const bool reads_first = fingerprint_ && !unit.segments.front().chunk->fingerprint;
    // The backend is the first to read either all segments of a unit or none.
    assert(std::ranges::all_of(unit.segments, [&](const Segment& segment) {
      return segment.chunk->fingerprint.has_value() ==
             unit.segments.front().chunk->fingerprint.has_value();
    }));
    const auto read = merger_.merge(runs, output, operators ? &*operators : nullptr,
                                    reads_first ? fingerprint_ : nullptr);
    if (!read) throw_disorder(unit.segments);
    MergedUnit merged;
    if (operators)
      merged = operators->join();
    else
      merged.pieces = {{output, unit.bytes}};
    if (reads_first) merged.read = read;
    return merged;
  }

  bool verifies() const override { return fingerprint_ != nullptr; }

  bool computes() const override { return true; }

  std::string device() const override {
    return fmt::format("{} thread{}, {}", threads_, threads_ == 1 ? "" : "s", cpu_model());
  }

 private:
  [[noreturn]] void throw_disorder(const std::vector<Segment>& segments) const {
    for (const Segment& segment : segments)
      for (std::uint64_t i = 1; i < segment.count; ++i)
        if (record_less(layout_, record_at(segment, i, layout_.record_bytes),
                        record_at(segment, i - 1, layout_.record_bytes)))
          throw RunOutOfOrder(layout_, *segment.chunk, segment.first + i);
    throw Error("a run changed while it was merged");
  }

  KeyLayout layout_;
  std::unique_ptr<detail::KeyWords> words_;
  unsigned threads_;
  const OperatorChain* operators_;
  FingerprintSum fingerprint_;
  ParallelMerger merger_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const BackendConfig& config) {
  return std::make_unique<CpuBackend>(config);
}

}  // namespace corank
