#include "sort/cutoff.hpp"

#include <algorithm>
#include <array>
#include <cassert>

namespace corank {

// Returns false if neither this sample nor a later one of its block can lower the cutoff.
bool Cutoff::add_sample(const std::byte* row, std::uint64_t records) {
  const auto place = std::ranges::upper_bound(
      samples_, row, [this](const std::byte* a, const std::byte* b) { return keys_.less(a, b); },
      [](const Sample& sample) { return sample.row.row(); });
  if (has_cutoff_ && place == samples_.end()) return false;
  samples_.insert(place, {RowCopy(layout_, row), records});
  return true;
}

// Drops the samples after the first one up to which there are enough records.
void Cutoff::find_cutoff() {
  std::uint64_t records = 0;
  for (auto sample = samples_.begin(); sample != samples_.end(); ++sample) {
    records += sample->records;
    if (records < limit_) continue;
    samples_.erase(sample + 1, samples_.end());
    has_cutoff_ = true;
    return;
  }
}

std::size_t Cutoff::keep(const std::byte* rows, std::span<std::uint16_t> which) const {
  if (which.empty()) return 0;
  const std::shared_lock lock(mutex_);
  if (!has_cutoff_) return which.size();
  const std::byte* const cutoff = samples_.back().row.row();
  std::array<std::uint64_t, max_batch_rows> words;
  std::uint64_t cutoff_word;
  keys_.read(0, cutoff, 1, &cutoff_word);
  assert(which.back() < words.size());
  keys_.read(0, rows, which.back() + 1u, words.data());
  std::size_t kept = 0;
  for (const std::uint16_t i : which) {
    const bool is_needed = words[i] == cutoff_word
                               ? keys_.less(rows + i * keys_.record_bytes(), cutoff)
                               : words[i] < cutoff_word;
    which[kept] = i;
    kept += is_needed;
  }
  return kept;
}

}  // namespace corank
