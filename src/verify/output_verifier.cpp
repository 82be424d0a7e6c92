#include "verify/output_verifier.hpp"

#include <fmt/format.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "corank/error.hpp"
#include "format/framing.hpp"
#include "format/key_order.hpp"
#include "util/parallel_for.hpp"
#include "util/record_ends.hpp"
#include "verify/checksum.hpp"

namespace corank {
namespace {

// Maximum bytes of lines that are verified in one step.
constexpr std::size_t max_block_bytes = std::size_t{64} << 10;

// Bytes per task. Several threads share a unit, since there may be fewer units in flight than
// threads.
constexpr std::uint64_t part_bytes = std::uint64_t{512} << 10;
// Bytes per task of one thread: more than any piece has, since it needs no parts.
constexpr std::uint64_t whole_bytes = std::uint64_t{1} << 62;

[[noreturn]] void throw_disorder(std::uint64_t byte) {
  throw Corrupted(
      fmt::format("the record at byte {} of the output does not follow its predecessor", byte));
}

}  // namespace

bool OutputVerifier::verify_lines(Part& part) const {
  const std::optional<char> end = end_of_bytewise(layout_);
  if (!end || !is_ordered_) return false;
  std::array<std::uint32_t, max_batch_rows + min_ends_room> ends;
  std::uint64_t sum = 0, checksum = 0;
  std::string_view last;
  for (std::span<const std::byte> rest = part.bytes; !rest.empty();) {
    const auto block = rest.first(std::min(rest.size(), max_block_bytes));
    std::size_t scanned = 0;
    const std::size_t found = end_finders().front().lines(block, *end, ends, scanned);
    if (found == 0) return false;
    assert(found <= ends.size() && ends[found - 1] < block.size());
    const auto checked = sum_and_order(sum_, rest.data(), {ends.data(), found}, is_strict_, last);
    if (!checked || !checked->ascends) return false;
    sum += checked->sum;
    if (has_checksum_) checksum += lines_checksum(rest.data(), {ends.data(), found});
    rest = rest.subspan(ends[found - 1] + 1);
  }
  part.sum = sum;
  part.checksum = checksum;
  part.first.assign_record(layout_, first_records(layout_, part.bytes, 1).bytes);
  part.last.assign_record(layout_, part.bytes.last(last.size() + 1));
  return true;
}

void OutputVerifier::verify_batch(const RowReader& batch, Part& part) const {
  const bool has_predecessor = batch.offset() != part.offset;
  const std::byte* const first = batch.rows() - has_predecessor * layout_.record_bytes;
  std::optional<OrderedSum> checked;
  if (is_ordered_)
    checked = sum_and_order(sum_, layout_, {batch.rows(), batch.count() * layout_.record_bytes},
                            is_strict_);
  const bool ascends =
      checked && checked->ascends && (!has_predecessor || may_follow(first, batch.rows()));
  if (is_ordered_ && !ascends) {
    const std::uint64_t count = batch.count() + has_predecessor;
    const std::uint64_t descent = first_descent(layout_, first, count, is_strict_);
    if (descent != count)
      throw_disorder(batch.offset() +
                     first_records(layout_, batch.bytes(), descent - has_predecessor).bytes.size());
  }
  if (sum_)
    part.sum +=
        checked ? checked->sum : rows_fingerprint(sum_, layout_, batch.rows(), batch.count());
  if (has_checksum_) part.checksum += rows_checksum(layout_, batch.rows(), batch.count());
}

void OutputVerifier::sum_up(Part& part) const {
  RowReader batch(layout_, part.bytes, part.offset);
  while (batch.next()) part.checksum += rows_checksum(layout_, batch.rows(), batch.count());
}

void OutputVerifier::verify(Part& part) const {
  if (verify_lines(part)) return;
  RowReader batch(layout_, part.bytes, part.offset);
  while (batch.next()) {
    verify_batch(batch, part);
    if (part.first.empty()) part.first.assign(layout_, batch.rows());
  }
  part.last.assign(layout_, batch.rows() + (batch.count() - 1) * layout_.record_bytes);
}

template <class Work>
std::vector<OutputVerifier::Part> OutputVerifier::work_on_parts(
    std::span<const std::span<const std::byte>> pieces, std::uint64_t offset, unsigned threads,
    Work work) {
  assert(threads != 0);
  const std::uint64_t max_bytes = threads == 1 ? whole_bytes : part_bytes;
  std::vector<Part> parts;
  for (const auto piece : pieces)
    for (const auto bytes : parts_of(layout_, piece, max_bytes)) {
      if (!bytes.empty()) parts.push_back({bytes, offset});
      offset += bytes.size();
    }
  if (threads == 1)
    std::ranges::for_each(parts, work);
  else
    tbb::this_task_arena::isolate(
        [&] { parallel_for(0, parts.size(), [&](std::uint64_t i) { work(parts[i]); }); });
  for (const Part& part : parts) {
    fingerprint_ += part.sum;
    checksum_ += part.checksum;
  }
  return parts;
}

void OutputVerifier::verify(std::span<const std::span<const std::byte>> pieces,
                            std::uint64_t sequence, std::uint64_t offset, unsigned threads) {
  std::vector<Part> parts =
      work_on_parts(pieces, offset, threads, [this](Part& part) { verify(part); });
  if (parts.empty()) return;
  for (std::size_t i = 1; i < parts.size(); ++i)
    check_order(parts[i - 1].last, parts[i].first, parts[i].offset);
  join(sequence, {sequence + 1, parts.front().offset, std::move(parts.front().first),
                  std::move(parts.back().last)});
}

void OutputVerifier::take(const UnitProof& proof, std::span<const std::byte> piece,
                          std::uint64_t sequence, std::uint64_t offset, unsigned threads) {
  if (proof.last_offset >= piece.size())
    throw Corrupted(fmt::format("there is no whole record at byte {} of the output", offset));
  fingerprint_ += proof.written;
  if (has_checksum_)
    work_on_parts({&piece, 1}, offset, threads, [this](Part& part) { sum_up(part); });
  Verified unit{sequence + 1, offset, {}, {}};
  unit.first.assign_record(layout_, first_records(layout_, piece, 1).bytes);
  unit.last.assign_record(layout_, piece.subspan(proof.last_offset));
  join(sequence, std::move(unit));
}

void OutputVerifier::join(std::uint64_t sequence, Verified unit) {
  const std::lock_guard lock(mutex_);
  const auto [here, is_new] = verified_.emplace(sequence, std::move(unit));
  assert(is_new);  // every unit is verified once
  const auto join_next = [this](auto before) {
    const auto after = std::next(before);
    if (after == verified_.end() || before->second.end != after->first) return;
    assert(before->first < before->second.end && after->first < after->second.end);
    check_order(before->second.last, after->second.first, after->second.offset);
    before->second.end = after->second.end;
    before->second.last = std::move(after->second.last);
    verified_.erase(after);
  };
  join_next(here);
  if (here != verified_.begin()) join_next(std::prev(here));
}

bool OutputVerifier::may_follow(const std::byte* before, const std::byte* after) const {
  return !is_ordered_ ||
         (is_strict_ ? record_less(layout_, before, after) : !record_less(layout_, after, before));
}

void OutputVerifier::check_order(const RowCopy& before, const RowCopy& after,
                                 std::uint64_t offset) const {
  if (!may_follow(before.row(), after.row())) throw_disorder(offset);
}

void OutputVerifier::check_edge(const OutputVerifier& next) const {
  // All neighbours have been joined, and compared with each other.
  assert(verified_.size() == 1 && next.verified_.size() == 1);
  const Verified& before = verified_.begin()->second;
  const Verified& after = next.verified_.begin()->second;
  if (!may_follow(before.last.row(), after.first.row()))
    throw Corrupted(
        "a part of the output begins with a record that does not follow the part before");
}

}  // namespace corank
