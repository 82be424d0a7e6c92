#include "verify/text_verifier.hpp"

#include <fmt/format.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <iterator>
#include <string_view>
#include <utility>

#include "corank/error.hpp"
#include "format/framing.hpp"
#include "format/key_order.hpp"
#include "util/parallel_for.hpp"
#include "verify/fingerprint.hpp"

namespace corank {
namespace {

// Records per batch: few enough to stay in L1 for the second pass over them.
constexpr std::uint64_t batch_records = 256;

// Maximum bytes of lines that are verified in one step.
constexpr std::size_t max_block_bytes = std::size_t{64} << 10;

// Bytes per task. Several threads share a unit, since there may be fewer units in flight than
// threads.
constexpr std::uint64_t part_bytes = std::uint64_t{512} << 10;

[[noreturn]] void throw_descent(std::uint64_t byte) {
  throw Corrupted(
      fmt::format("the record at byte {} of the output does not follow its predecessor", byte));
}

}  // namespace

bool TextVerifier::verify_lines(Part& part) const {
  const TextLayout& layout = *encoding_.layout().text;
  if (layout.kind != TextKind::lines || !layout.whole_line() || !ordered_ || !sum_) return false;
  std::array<std::uint32_t, batch_records + min_ends_room> ends;
  std::uint64_t sum = 0;
  std::string_view last;
  for (std::span<const std::byte> rest = part.bytes; !rest.empty();) {
    const auto block = rest.first(std::min(rest.size(), max_block_bytes));
    std::size_t scanned = 0;
    const std::size_t found = best_find_ends()(block, layout.terminator, ends, scanned);
    if (found == 0) return false;
    assert(found <= ends.size() && ends[found - 1] < block.size());
    const auto checked = sum_and_order(sum_, rest.data(), {ends.data(), found}, strict_, last);
    if (!checked || !checked->ascends) return false;
    sum += checked->sum;
    rest = rest.subspan(ends[found - 1] + 1);
  }
  part.sum = sum;
  index_records(layout, part.bytes, true, {&part.first, 1});
  index_records(layout, part.bytes.last(last.size() + 1), true, {&part.last, 1});
  return true;
}

void TextVerifier::look(Part& part) const {
  if (verify_lines(part)) return;
  const KeyLayout layout = encoding_.layout();
  // The first element holds the last record of the batch before.
  std::array<PrefixRef, batch_records + 1> entries;
  const auto into = std::span(entries).subspan(1);
  for (std::uint64_t at = 0; at < part.bytes.size();) {
    const Indexed found = index_records(*layout.text, part.bytes.subspan(at), true, into);
    if (found.records == 0)
      throw Corrupted(
          fmt::format("there is no whole record at byte {} of the output", part.offset + at));
    if (at == 0) part.first = into.front();
    if (ordered_) {
      const std::uint64_t before = at != 0;
      const auto* const from = reinterpret_cast<const std::byte*>(entries.data() + 1 - before);
      const std::uint64_t descent = first_descent(layout, from, found.records + before, strict_);
      if (descent != found.records + before)
        throw_descent(part.offset +
                      static_cast<std::uint64_t>(record_of(entries[1 - before + descent]) -
                                                 part.bytes.data()));
    }
    if (sum_) part.sum += prefix_refs_fingerprint(sum_, *layout.text, into.first(found.records));
    entries.front() = into[found.records - 1];
    at += found.bytes;
  }
  part.last = entries.front();
}

void TextVerifier::look(std::span<const std::span<const std::byte>> pieces, std::uint64_t sequence,
                        std::uint64_t offset, unsigned threads) {
  const TextLayout& layout = *encoding_.layout().text;
  std::vector<Part> parts;
  for (const auto piece : pieces)
    for (const auto bytes : parts_of(layout, piece, part_bytes)) {
      if (!bytes.empty()) parts.push_back({bytes, offset});
      offset += bytes.size();
    }
  assert(threads != 0);
  if (parts.empty()) return;
  if (threads == 1)
    for (Part& part : parts) look(part);
  else
    tbb::this_task_arena::isolate(
        [&] { parallel_for(0, parts.size(), [&](std::uint64_t i) { look(parts[i]); }); });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    fingerprint_ += parts[i].sum;
    if (ordered_ && i != 0 && descends(parts[i - 1].last, parts[i].first))
      throw_descent(parts[i].offset);
  }
  if (!ordered_) return;
  const auto copy = [&](const PrefixRef& entry) {
    const std::byte* const record = record_of(entry);
    return std::vector(record, record + record_bytes(layout, entry));
  };
  join(sequence, {sequence + 1, copy(parts.front().first), copy(parts.back().last)});
}

void TextVerifier::take(const UnitProof& found, std::span<const std::byte> piece,
                        std::uint64_t sequence, std::uint64_t offset) {
  PrefixRef first;
  const Indexed begin = index_records(*encoding_.layout().text, piece, true, {&first, 1});
  if (begin.records == 0 || found.last_offset >= piece.size())
    throw Corrupted(fmt::format("there is no whole record at byte {} of the output", offset));
  fingerprint_ += found.written;
  const auto copy = [](std::span<const std::byte> record) {
    return std::vector(record.begin(), record.end());
  };
  join(sequence,
       {sequence + 1, copy(piece.first(begin.bytes)), copy(piece.subspan(found.last_offset))});
}

void TextVerifier::join(std::uint64_t sequence, Verified unit) {
  const std::lock_guard lock(mutex_);
  const auto [here, is_new] = verified_.emplace(sequence, std::move(unit));
  assert(is_new);  // every unit is verified once
  const auto join_next = [this](auto before) {
    const auto after = std::next(before);
    if (after == verified_.end() || before->second.end != after->first) return;
    assert(before->first < before->second.end && after->first < after->second.end);
    check(before->second, after->second);
    before->second.end = after->second.end;
    before->second.last = std::move(after->second.last);
    verified_.erase(after);
  };
  join_next(here);
  if (here != verified_.begin()) join_next(std::prev(here));
}

bool TextVerifier::descends(const PrefixRef& before, const PrefixRef& after) const {
  const TextLayout& layout = *encoding_.layout().text;
  return strict_ ? !text_less(layout, before, after) : text_less(layout, after, before);
}

void TextVerifier::check(const Verified& before, const Verified& after) const {
  const auto less = [&](std::span<const std::byte> a, std::span<const std::byte> b) {
    return text_less(*encoding_.layout().text, a.data(), a.size(), b.data(), b.size());
  };
  if (strict_ ? !less(before.last, after.first) : less(after.first, before.last))
    throw Corrupted("a part of the output begins with a record that sorts before the part before");
}

void TextVerifier::check_edge(const TextVerifier& next) const {
  // All neighbours have been joined, and compared with each other.
  assert(verified_.size() == 1 && next.verified_.size() == 1);
  check(verified_.rbegin()->second, next.verified_.begin()->second);
}

}  // namespace corank
