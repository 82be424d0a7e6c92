#include "merge/word_merger.hpp"

#include <algorithm>
#include <cassert>
#include <functional>

#include "corank/algorithm/co_rank.hpp"
#include "util/math.hpp"

namespace corank {
namespace {

constexpr int lanes = WordLanes::count;
constexpr std::uint64_t block = WordLanes::block;
constexpr Word max_word = INT64_MAX;

// Words per lane and job: enough to amortise the change of jobs. Not whole pages, so that the lanes
// do not compete for the same cache sets.
constexpr std::uint64_t part_words = 4424;
// Words per lane of a front, which is read from memory and written to it.
constexpr std::uint64_t raw_part_words = 1416;
constexpr std::uint64_t piece = 128;

// Returns whether the words after a run, which lanes may read, do not sort before its last.
[[maybe_unused]] bool has_margin(const Word* run, std::uint64_t count) {
  return std::is_sorted(run + count - (count != 0), run + count + word_margin);
}

}  // namespace

void WordMerger::reset(std::uint64_t words, std::uint64_t runs) {
  runs_.clear();
  end_ = 0;
  for (auto& buffer : buffers_)
    if (buffer.size() < words + runs * word_margin) buffer.resize(words + runs * word_margin);
}

Word* WordMerger::add(Word first, std::uint64_t count) {
  Word* const words = buffers_[0].data();
  if (runs_.empty() || first < words[end_ - 1]) {
    if (!runs_.empty()) end_ = std::fill_n(words + end_, word_margin, max_word) - words;
    runs_.push_back({end_, 0});
  }
  assert(count != 0 && end_ + count + word_margin <= buffers_[0].size());
  runs_.back().count += count;
  end_ += count;
  return words + end_ - count;
}

std::span<Word> WordMerger::merge() {
  Word *from = buffers_[0].data(), *to = buffers_[1].data();
  const std::uint64_t greatest = take_max();
  for (; runs_.size() > 1; std::swap(from, to)) merge_level(from, to);
  const Run merged = runs_.empty() ? Run{0, 0} : runs_.front();
  // Runs that held only max words may precede it, and leave no room after it.
  if (merged.begin != 0) std::copy_n(from + merged.begin, merged.count, from);
  std::fill_n(from + merged.count, greatest, max_word);
  assert(merged.count + greatest <= end_);
  return {from, merged.count + greatest};
}

void WordMerger::merge_into(Word* out, Word flip, bool streams) {
  Word *from = buffers_[0].data(), *to = buffers_[1].data();
  const std::uint64_t greatest = take_max();
  for (; runs_.size() > 2; std::swap(from, to)) merge_level(from, to);
  std::uint64_t count = 0;
  for (const Run& run : runs_) count += run.count;
  std::fill_n(out + count, greatest, max_word ^ flip);
  if (runs_.empty()) return;
  Run &a = runs_.front(), &b = runs_.back();
  if (runs_.size() == 1) {
    for (std::uint64_t i = 0; i < count; ++i) out[i] = from[a.begin + i] ^ flip;
    return;
  }
  const auto place = reinterpret_cast<std::uintptr_t>(out);
  streams = streams && place % sizeof(Word) == 0;  // packed records may be unaligned
  for (auto at = place; streams && at % streamed_bytes != 0 && count != 0; at += sizeof(Word)) {
    Run& first = from[b.begin] < from[a.begin] ? b : a;
    assert(first.count != 0);  // the margin after a run sorts after all words
    *out++ = from[first.begin++] ^ flip;
    --first.count;
    --count;
  }
  // `out` has no margin, so the last words, which do not fill a block, are merged backwards.
  const Word* a_end = from + a.begin + a.count;
  const Word* b_end = from + b.begin + b.count;
  for (std::uint64_t last = count; last % block != 0;) {
    const bool take_b =
        a_end == from + a.begin || (b_end != from + b.begin && !(*(b_end - 1) < *(a_end - 1)));
    out[--last] = *--(take_b ? b_end : a_end) ^ flip;
  }
  jobs_.clear();
  add_job(from + a.begin, a.count, from + b.begin, b.count, out, count / block * block, lanes * 64);
  const auto advance = streams ? kernel_.advance_streaming : kernel_.advance;
  run_jobs(false, [&](WordLanes& l, std::uint64_t steps) { advance(l, steps, flip); });
}

std::optional<Front> WordMerger::merge_front(std::span<const Word> a, std::span<const Word> b,
                                             bool unsigned_order, Word* out) {
  const Word flip = unsigned_order ? INT64_MIN : 0;
  const auto less = [flip](Word x, Word y) { return (x ^ flip) < (y ^ flip); };
  constexpr std::uint64_t most = lanes * raw_part_words;
  const Front front =
      cut_front(a.data(), a.size(), b.data(), b.size(), most, word_margin, lanes * block, less);
  const std::uint64_t words = front.count();
  if (words == 0) return front;
  assert(words % (lanes * block) == 0);
  assert(front.a + word_margin <= a.size() && front.b + word_margin <= b.size());
  // Among equal words, lanes may take those of `b` beyond the front instead of those of `a`. They
  // must not reach the end of `b`. The reverse cannot happen: words of `b` in the front equal none
  // of `a` after it.
  if (front.a != 0 && !less(a[front.a - 1], b[b.size() - word_margin])) return Front{};
  // Checks the words while they come into cache, and the margin after them, which the lanes read.
  const auto ascend = [&](std::span<const Word> run) {
    return kernel_.ascend(reinterpret_cast<const std::byte*>(run.data()), sizeof(Word), run.size(),
                          false, static_cast<std::uint64_t>(flip));
  };
  if (!ascend(a.first(front.a + word_margin)) || !ascend(b.first(front.b + word_margin)) ||
      !is_front(front, a.data(), b.data(), less))
    return std::nullopt;
  jobs_.clear();
  const std::uint64_t part = words / lanes;
  for (std::uint64_t rank = 0; rank < words; rank += part) {
    const std::uint64_t first = co_rank(rank, a.data(), front.a, b.data(), front.b, less);
    jobs_.push_back({&a[first], &b[rank - first], out + rank, part});
  }
  // Prefetches the likely next front while this one is emitted, so that loads, stores and
  // comparisons overlap. Non-temporal stores help here on some processors and hurt on others.
  const auto fetch = [](std::span<const Word> run, std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t i = first; i < std::min(first + count, run.size()); i += 8)
      __builtin_prefetch(&run[i], 0, 2);
  };
  std::uint64_t at = 0;
  run_jobs(unsigned_order, [&](WordLanes& l, std::uint64_t steps) {
    for (const std::uint64_t end = at + lanes * steps; at < end;) {
      const std::uint64_t size = std::min(piece, end - at);
      fetch(a, front.a + at * front.a / words, size * front.a / words);
      fetch(b, front.b + at * front.b / words, size - size * front.a / words);
      kernel_.advance_raw(l, size / lanes, unsigned_order);
      at += size;
    }
  });
  return front;
}

// Removes the max words from the ends of the runs, and returns how many there were. They equal the
// margin, so a lane could not tell where its run ends.
std::uint64_t WordMerger::take_max() {
  assert(end_ + word_margin <= buffers_[0].size());
  std::fill_n(buffers_[0].data() + end_, word_margin, max_word);
  std::uint64_t taken = 0;
  for (Run& run : runs_)
    for (; run.count > 0 && buffers_[0][run.begin + run.count - 1] == max_word; ++taken)
      --run.count;
  if (taken > 0) std::erase_if(runs_, [](const Run& run) { return run.count == 0; });
  return taken;
}

// Merges the runs pairwise.
void WordMerger::merge_level(const Word* from, Word* to) {
  // Cutting costs time, but is needed if there are few merges for the lanes.
  const std::uint64_t min_cut_words = lanes * (runs_.size() >= 2 * lanes ? part_words : 64);
  jobs_.clear();
  for (std::size_t r = 0; r + 1 < runs_.size(); r += 2)
    add_job(from + runs_[r].begin, runs_[r].count, from + runs_[r + 1].begin, runs_[r + 1].count,
            to + runs_[r].begin, round_up(runs_[r].count + runs_[r + 1].count, block),
            min_cut_words);
  run_jobs(false, [&](WordLanes& l, std::uint64_t steps) { kernel_.advance(l, steps, 0); });
  std::size_t merged = 0;
  for (std::size_t r = 0; r < runs_.size(); r += 2) {
    Run result = runs_[r];
    assert(r == 0 ||
           runs_[merged - 1].begin + runs_[merged - 1].count + word_margin <= result.begin);
    if (r + 1 == runs_.size())
      std::copy_n(from + result.begin, result.count, to + result.begin);
    else
      result.count += runs_[r + 1].count;
    assert(result.begin + result.count + word_margin <= buffers_[0].size());
    std::fill_n(to + result.begin + result.count, word_margin, max_word);
    runs_[merged++] = result;
  }
  runs_.resize(merged);
}

// Adds jobs for the first `count` words of a merge, a multiple of the block. If `count` exceeds the
// number of words, max words follow them.
void WordMerger::add_job(const Word* a, std::uint64_t a_count, const Word* b, std::uint64_t b_count,
                         Word* out, std::uint64_t count, std::uint64_t min_cut_words) {
  assert(count % block == 0);
  assert(has_margin(a, a_count) && has_margin(b, b_count));
  // Long merges are cut into equal parts, a multiple of the lanes. The last part starts early
  // enough to have full length; where two parts overlap, they write the same words.
  const std::uint64_t parts =
      count < min_cut_words ? 1 : divide_up(count, lanes * part_words) * lanes;
  const std::uint64_t part = round_up(divide_up(count, parts), block);
  assert(part <= count);
  for (std::uint64_t p = 0; p < parts && part != 0; ++p) {
    const std::uint64_t rank = std::min(p * part, count - part);
    const std::uint64_t split = rank == 0 ? 0
                                          : co_rank(std::min(rank, a_count + b_count), a, a_count,
                                                    b, b_count, std::less<Word>{});
    jobs_.push_back({a + split, b + (std::min(rank, a_count + b_count) - split), out + rank, part});
  }
}

template <class Advance>
void WordMerger::run_jobs(bool unsigned_order, Advance advance) {
  if (jobs_.empty()) return;
  WordLanes state{};
  std::array<std::uint64_t, lanes> left{};
  std::size_t next = 0;
  const auto start = [&](int l) {
    const WordJob& job = jobs_[next++];
    assert(job.left != 0 && job.left % block == 0);
    state.p[l] = job.a;
    state.q[l] = job.b;
    state.out[l] = job.out;
    left[l] = job.left;
    if (!kernel_.carries) return;
    const bool b_first =
        unsigned_order ? static_cast<std::uint64_t>(*job.b) < static_cast<std::uint64_t>(*job.a)
                       : *job.b < *job.a;
    if (b_first) std::swap(state.p[l], state.q[l]);
    for (int row = 0; row < static_cast<int>(block); ++row) state.carry[row][l] = *state.p[l]++;
  };
  const auto imitate = [&](int l, int other) {
    state.p[l] = state.p[other];
    state.q[l] = state.q[other];
    state.out[l] = state.out[other];
    left[l] = left[other];
    for (auto& row : state.carry) row[l] = row[other];
  };
  for (int l = 0; l < lanes; ++l) {
    if (next < jobs_.size())
      start(l);
    else
      imitate(l, 0);
  }
  for (;;) {
    const std::uint64_t steps = *std::min_element(left.begin(), left.end());
    advance(state, steps);
    int busy = -1;
    for (int l = 0; l < lanes; ++l) {
      left[l] -= steps;
      if (left[l] == 0 && next < jobs_.size()) start(l);
      if (left[l] != 0) busy = l;
    }
    if (busy == -1) return;
    // A lane without a job repeats another lane's job, to the same output.
    for (int l = 0; l < lanes; ++l)
      if (left[l] == 0) imitate(l, busy);
  }
}

}  // namespace corank
