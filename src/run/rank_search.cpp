#include "run/rank_search.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "run/block_reader.hpp"
#include "run/work_unit.hpp"
#include "util/math.hpp"

namespace corank {
namespace {

// A record that was read.
struct Sample {
  std::uint64_t position;
  Key<max_key_words> key;
  std::vector<std::byte> record;  // empty unless keys have tails
};

// Part of a run in which the cut lies: at its begin, at its end, or between.
struct Window {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::vector<Sample> samples = {};   // in ascending order
  std::uint64_t block_begin = 0;      // of the block
  std::vector<std::byte> block = {};  // the records of the window, once they are few

  std::uint64_t records() const { return end - begin; }
};

struct Probe {
  std::size_t run;
  std::uint64_t position;
};

// Narrows a window of each run to the cut. Each round reads some records of all windows. A record
// lies before the cut if its rank is less than the cut's, and the records read bound the ranks of
// all of them. Only records between two that are known remain uncertain, so that windows hold about
// twice as many records as there are between neighbours.
class RankSearch {
 public:
  RankSearch(std::uint64_t rank, std::span<const Run> runs, KeyLayout layout, ProbeThreads& threads)
      : rank_(rank), runs_(runs), layout_(layout), threads_(threads), windows_(runs.size()) {
    for (std::size_t run = 0; run < runs.size(); ++run) windows_[run].end = runs[run].records();
  }

  std::vector<std::uint64_t> find() {
    // A good guess narrows windows more than halving the gaps between samples, which always helps.
    bool guesses = true;
    for (;;) {
      const std::uint64_t begin = total(&Window::begin), end = total(&Window::end);
      if (begin == rank_) return positions(&Window::begin);
      if (end == rank_) return positions(&Window::end);
      assert(begin < rank_ && rank_ < end);
      read(guesses ? guess(begin, end) : halve());
      narrow();
      const std::uint64_t left = total(&Window::end) - total(&Window::begin);
      guesses = guesses && left <= (end - begin) / 4;
    }
  }

 private:
  struct SampleRef {
    const Sample* sample;
    std::size_t run;
  };

  std::vector<std::uint64_t> positions(std::uint64_t Window::*edge) const {
    std::vector<std::uint64_t> positions(windows_.size());
    std::ranges::transform(windows_, positions.begin(), edge);
    return positions;
  }
  std::uint64_t total(std::uint64_t Window::*edge) const {
    const std::vector<std::uint64_t> edges = positions(edge);
    return std::reduce(edges.begin(), edges.end());
  }

  bool less(const Sample& x, const Sample& y) const {
    return x.key < y.key || (layout_.has_tail() && x.key == y.key &&
                             tail_less(layout_, x.record.data(), y.record.data()));
  }

  // Returns probes at the places as far into the windows as the cut is into all of them, and some
  // standard deviations of such a place around it, if keys are distributed alike.
  std::vector<Probe> guess(std::uint64_t begin, std::uint64_t end) const {
    constexpr double deviations = 8;
    std::vector<Probe> probes;
    for (std::size_t run = 0; run < windows_.size(); ++run) {
      const Window& window = windows_[run];
      if (window.records() == 0) continue;
      const std::uint64_t middle = part_of(window.records(), rank_ - begin, end - begin);
      const auto wide =
          static_cast<std::uint64_t>(deviations * std::sqrt(window.records()) / 2) + 1;
      const std::uint64_t around = std::min(wide, window.records() / 8 + 1);
      std::uint64_t after = 0;  // the last probe
      for (const std::uint64_t place : {middle - std::min(middle, around), middle, middle + around})
        if (place >= after && place < window.records()) {
          probes.push_back({run, window.begin + place});
          after = place + 1;
        }
    }
    return probes;
  }

  // Calls on_gap(run, begin, records) for the records between neighbouring samples.
  template <class OnGap>
  void for_each_gap(OnGap on_gap) const {
    for (std::size_t run = 0; run < windows_.size(); ++run) {
      const Window& window = windows_[run];
      std::uint64_t begin = window.begin;
      for (const Sample& sample : window.samples) {
        on_gap(run, begin, sample.position - begin);
        begin = sample.position + 1;
      }
      on_gap(run, begin, window.end - begin);
    }
  }

  // Returns probes in the middle of the widest gaps, after which none is wider than half of them.
  std::vector<Probe> halve() const {
    std::uint64_t widest = 0;
    for_each_gap([&](std::size_t, std::uint64_t, std::uint64_t records) {
      widest = std::max(widest, records);
    });
    assert(widest != 0);
    std::vector<Probe> probes;
    for_each_gap([&](std::size_t run, std::uint64_t begin, std::uint64_t records) {
      if (records > widest / 2) probes.push_back({run, begin + records / 2});
    });
    return probes;
  }

  void add_sample(const Probe& probe, const std::byte* record) {
    Sample& sample = windows_[probe.run].samples.emplace_back(
        Sample{probe.position, encode<max_key_words>(layout_, record), {}});
    if (layout_.has_tail()) sample.record.assign(record, record + layout_.record_bytes);
  }

  // Reads the probed records. Reads all records of a window instead if they are few.
  void read(const std::vector<Probe>& probes) {
    const std::uint64_t max_records =
        std::min(BlockReader::default_block_bytes, max_blocks_bytes / runs_.size()) /
        layout_.record_bytes;
    std::vector<std::size_t> blocks;
    std::vector<std::size_t> singles;
    for (std::size_t i = 0; i < probes.size(); ++i) {
      Window& window = windows_[probes[i].run];
      if (!window.block.empty()) continue;
      if (window.records() > max_records) {
        singles.push_back(i);
      } else {
        blocks.push_back(probes[i].run);
        window.block_begin = window.begin;
        window.block.resize(window.records() * layout_.record_bytes);
      }
    }
    std::vector<std::byte> records(singles.size() * layout_.record_bytes);
    threads_.for_each(blocks.size() + singles.size(), [&](std::size_t i) -> std::uint64_t {
      if (i < blocks.size()) {
        Window& window = windows_[blocks[i]];
        runs_[blocks[i]].read(window.block_begin, window.records(), window.block);
      } else {
        const Probe& probe = probes[singles[i - blocks.size()]];
        runs_[probe.run].read(probe.position, 1,
                              std::span(records).subspan((i - blocks.size()) * layout_.record_bytes,
                                                         layout_.record_bytes));
      }
      return 1;
    });
    for (std::size_t i = 0; i < singles.size(); ++i)
      add_sample(probes[singles[i]], records.data() + i * layout_.record_bytes);
    for (const Probe& probe : probes) {
      const Window& window = windows_[probe.run];
      if (!window.block.empty())
        add_sample(probe, window.block.data() +
                              (probe.position - window.block_begin) * layout_.record_bytes);
    }
  }

  // Returns the samples of all runs in the order of their merge.
  std::vector<SampleRef> merged_samples() {
    std::vector<SampleRef> merged;
    for (std::size_t run = 0; run < windows_.size(); ++run) {
      std::vector<Sample>& samples = windows_[run].samples;
      std::ranges::sort(samples, {}, &Sample::position);
      const auto again = std::ranges::unique(samples, {}, &Sample::position);
      samples.erase(again.begin(), again.end());
      for (std::size_t i = 0; i < samples.size(); ++i) {
        if (i != 0 && less(samples[i], samples[i - 1]))
          throw RunOutOfOrder(static_cast<std::uint32_t>(run), samples[i].position);
        merged.push_back({&samples[i], run});
      }
    }
    std::ranges::stable_sort(merged, [this](const SampleRef& x, const SampleRef& y) {
      return less(*x.sample, *y.sample);
    });
    return merged;
  }

  // Narrows the windows by what the samples tell.
  void narrow() {
    // Bounds of the number of records of each run that sort before the samples passed so far.
    const std::vector<SampleRef> merged = merged_samples();
    const std::vector<std::uint64_t> ends = positions(&Window::end);
    std::vector<std::uint64_t> min_before = positions(&Window::begin), max_before;
    for (const Window& window : windows_)
      max_before.push_back(window.samples.empty() ? window.end : window.samples.front().position);
    std::uint64_t min_rank = std::reduce(min_before.begin(), min_before.end()),
                  max_rank = std::reduce(max_before.begin(), max_before.end());
    for (const auto& [sample, run] : merged) {
      Window& window = windows_[run];
      const std::uint64_t position = sample->position;
      assert(max_before[run] == position);
      min_rank += position - std::exchange(min_before[run], position);
      if (max_rank < rank_) window.begin = position + 1;
      if (min_rank >= rank_) window.end = std::min(window.end, position);
      max_before[run] = sample == &window.samples.back() ? ends[run] : (sample + 1)->position;
      max_rank += max_before[run] - position;
      ++min_before[run];
      ++min_rank;
    }
    for (Window& window : windows_)
      std::erase_if(window.samples, [&](const Sample& sample) {
        return sample.position < window.begin || sample.position >= window.end;
      });
  }

  const std::uint64_t rank_;
  const std::span<const Run> runs_;
  const KeyLayout layout_;
  ProbeThreads& threads_;
  std::vector<Window> windows_;
};

}  // namespace

Cut cut_runs(std::uint64_t rank, std::span<const Run> runs, const KeyEncoding& encoding,
             ProbeThreads& threads) {
  Cut cut{rank, RankSearch(rank, runs, encoding.layout(), threads).find()};
  assert(std::reduce(cut.position.begin(), cut.position.end()) == rank);
  return cut;
}

}  // namespace corank
