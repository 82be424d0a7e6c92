#include "block_cutter.hpp"

#include <algorithm>
#include <bit>

namespace corank {

void BlockCutter::begin(std::span<const Stretch> runs, std::uint64_t block_records) {
  runs_ = runs;
  done_ = false;
  begins_.assign(runs.size(), 0);
  sampled_.assign(runs.size(), 0);
  ends_.resize(runs.size());
  probes_.resize(runs.size());
  words_.resize(runs.size());
  samples_.clear();
  next_sample_ = 0;
  step_ = std::bit_floor(std::clamp<std::uint64_t>(block_records / runs.size(), 4, 1024));
  block_samples_ = std::max<std::uint64_t>(block_records / step_, 1);
  std::uint64_t records = 0;
  for (const Stretch& run : runs) records += run.count;
  if (records <= block_records + block_records / 2) return;
  for (std::size_t run = 0; run < runs.size(); ++run)
    for (std::uint64_t i = step_; i <= runs[run].count; i += step_)
      samples_.push_back({runs[run].records + (i - 1) * keys_.record_bytes(), run});
  sorter_.sort(samples_, 0);
}

bool BlockCutter::next(std::vector<Stretch>& block) {
  if (done_) return false;
  done_ = samples_.size() - next_sample_ < block_samples_;
  if (done_) {
    for (std::size_t run = 0; run < runs_.size(); ++run) ends_[run] = runs_[run].count;
  } else {
    const std::size_t end = next_sample_ + block_samples_;
    for (; next_sample_ < end; ++next_sample_) sampled_[samples_[next_sample_].run] += step_;
    seek(samples_[end - 1]);
  }
  block.clear();
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    Stretch part = runs_[run];
    drop(part, begins_[run], keys_.record_bytes());
    part.count = ends_[run] - begins_[run];
    begins_[run] = ends_[run];
    block.push_back(part);
  }
  return true;
}

// Finds where the records end that sort up to and including the splitter: less than a step behind
// the last sample that does. Splitters ascend, so what is found does, too, whatever the runs.
void BlockCutter::seek(const RecordRef& splitter) {
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
