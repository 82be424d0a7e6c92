#include "merge/block_partitioner.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

namespace corank {
namespace {

// Minimum records per run in a block of equal keys; cutting off fewer costs more than copying
// saves.
constexpr std::uint64_t min_equal_from_run = 16;

}  // namespace

void BlockPartitioner::begin(std::span<const SortedSpan> runs, std::uint64_t block_records) {
  assert(!runs.empty() && block_records != 0);
  runs_ = runs;
  done_ = false;
  begins_.assign(runs.size(), 0);
  sampled_.assign(runs.size(), 0);
  ends_.resize(runs.size());
  probes_.resize(runs.size());
  words_.resize(runs.size());
  samples_.clear();
  next_sample_ = equal_end_ = 0;
  step_ = std::bit_floor(std::clamp<std::uint64_t>(block_records / runs.size(), 4, 1024));
  assert(std::has_single_bit(step_));  // seek() halves it down to one record
  block_samples_ = std::max<std::uint64_t>(block_records / step_, 1);
  std::uint64_t records = 0;
  for (const SortedSpan& run : runs) records += run.count;
  if (records <= block_records + block_records / 2) return;
  for (std::size_t run = 0; run < runs.size(); ++run)
    for (std::uint64_t i = first_sample(run); i <= runs[run].count; i += step_)
      samples_.push_back({runs[run].records + (i - 1) * keys_.record_bytes(), run});
  sorter_.sort(samples_, 0);
}

bool BlockPartitioner::next(std::vector<SortedSpan>& block) {
  if (done_) return false;
  // The last block absorbs a remainder that is too small for a block of its own.
  const std::size_t left = samples_.size() - next_sample_;
  const std::size_t limit =
      left < block_samples_ + block_samples_ / 2 ? samples_.size() : next_sample_ + block_samples_;
  if (next_sample_ < equal_end_) {
    take_samples(std::min(limit, equal_end_));
    const RecordRef& last = samples_[next_sample_ - 1];
    seek(next_sample_ < equal_end_ ? last : RecordRef{last.record, runs_.size()});
  } else if (const std::size_t equal = find_equal(limit); equal != limit) {
    take_samples(equal);
    seek({samples_[equal].record, 0});
  } else if (limit < samples_.size()) {
    take_samples(limit);
    seek(samples_[limit - 1]);
  } else {
    done_ = true;
    for (std::size_t run = 0; run < runs_.size(); ++run) ends_[run] = runs_[run].count;
  }
  block.clear();
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    SortedSpan part = runs_[run];
    assert(begins_[run] <= runs_[run].count && ends_[run] <= runs_[run].count);
    drop(part, begins_[run], keys_.record_bytes());
    // In an unsorted run, a search may end before the previous block's end.
    const std::uint64_t end = std::max(begins_[run], ends_[run]);
    part.count = end - begins_[run];
    begins_[run] = end;
    block.push_back(part);
  }
  // The last block takes all that is left.
  assert(!done_ || std::ranges::equal(begins_, runs_, {}, {}, &SortedSpan::count));
  return true;
}

// Returns the first of the next samples that begins a long group of equal keys, and sets equal_end_
// to the group's end. Returns `limit` if no group begins before it.
std::size_t BlockPartitioner::find_equal(std::size_t limit) {
  assert(next_sample_ <= limit && limit <= samples_.size());
  const std::size_t apart =
      std::max<std::size_t>({block_samples_ / 8, min_equal_from_run * runs_.size() / step_, 1});
  const auto less = [this](const RecordRef& a, const RecordRef& b) {
    return keys_.less(a.record, b.record);
  };
  // Tests the block's last sample too, so that the block does not end inside a group that the next
  // block would cut off.
  std::size_t i = next_sample_ + (limit - next_sample_ + apart - 1) % apart;
  for (; i < limit && i + apart < samples_.size(); i += apart) {
    if (less(samples_[i], samples_[i + apart])) continue;
    const auto begin = samples_.begin();
    const auto [first, last] = std::equal_range(begin + static_cast<std::ptrdiff_t>(next_sample_),
                                                samples_.end(), samples_[i], less);
    equal_end_ = static_cast<std::size_t>(last - begin);
    return static_cast<std::size_t>(first - begin);
  }
  return limit;
}

// Returns the offset of a run's first sample, which differs from run to run: at equal offsets, runs
// of one distribution would give redundant samples.
std::uint64_t BlockPartitioner::first_sample(std::uint64_t run) const {
  assert(run < runs_.size());  // so that the first sample is a record of the first step
  return step_ - step_ * run / runs_.size();
}

void BlockPartitioner::take_samples(std::size_t end) {
  assert(end <= samples_.size());
  for (; next_sample_ < end; ++next_sample_) {
    const std::uint64_t run = samples_[next_sample_].run;
    sampled_[run] += sampled_[run] == 0 ? first_sample(run) : step_;
    assert(sampled_[run] <= runs_[run].count);
  }
}

// Sets ends_ to the end of each run's records that sort up to and including the splitter.
// `splitter.run` may also be 0, which excludes all records of equal keys, or the number of runs,
// which includes them. Each end is less than one step after the run's last sample that sorts up to
// the splitter.
void BlockPartitioner::seek(const RecordRef& splitter) {
  assert(splitter.run <= runs_.size());
  const std::uint32_t record_bytes = keys_.record_bytes();
  const bool more_words = keys_.words() > 1;
  std::uint64_t splitter_word;
  keys_.read(0, splitter.record, 1, &splitter_word);
  ends_ = sampled_;
  for (std::uint64_t half = step_ / 2; half != 0; half /= 2) {
    for (std::size_t run = 0; run < runs_.size(); ++run)
      probes_[run] = ends_[run] + half <= runs_[run].count
                         ? runs_[run].records + (ends_[run] + half - 1) * record_bytes
                         : splitter.record;
    keys_.gather(0, probes_, words_.data());
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      if (probes_[run] == splitter.record) continue;
      const bool behind = run >= splitter.run;
      const bool tie = words_[run] == splitter_word && more_words;
      const bool taken = tie      ? behind ? keys_.less(probes_[run], splitter.record)
                                           : !keys_.less(splitter.record, probes_[run])
                              : behind ? words_[run] < splitter_word
                                  : words_[run] <= splitter_word;
      ends_[run] += taken ? half : 0;
    }
  }
}

}  // namespace corank
