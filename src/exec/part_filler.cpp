#include "exec/part_filler.hpp"

#include <algorithm>
#include <cassert>

#include "util/math.hpp"

namespace corank {

void PartFiller::begin_unit(std::uint64_t input_bytes,
                            std::span<const std::span<const std::byte>> pieces) {
  input_before_ += input_in_unit_;
  input_in_unit_ = input_bytes;
  output_in_unit_ = written_in_unit_ = 0;
  for (const auto& piece : pieces) output_in_unit_ += piece.size();
}

void PartFiller::write(std::span<const std::byte> records) {
  while (!records.empty()) {
    const bool was_full = has_share_;
    const auto taken = was_full                            ? records_of_last_key(records)
                       : part_ + 1 == pass_.writers.size() ? records
                                                           : take_share(records).bytes;
    put(taken);
    records = records.subspan(taken.size());
    if (!was_full || records.empty()) continue;
    ++part_;
    part_bytes_ = 0;
    has_share_ = false;
  }
}

// Returns the first records, as many as the part takes, and sets `has_share_` if it takes no more.
Records PartFiller::take_share(std::span<const std::byte> records) {
  const Records share =
      pass_.shares.input_bytes ? take_share_of_input(records) : take_share_of_limit(records);
  if (has_share_ && pass_.shares.keep_keys && share.count != 0) {
    const Records before = first_records(layout_, share.bytes, share.count - 1);
    last_.assign_record(layout_, share.bytes.subspan(before.bytes.size()));
  }
  return share;
}

Records PartFiller::take_share_of_limit(std::span<const std::byte> records) {
  const std::uint64_t end = part_of(pass_.limit, part_ + 1, pass_.writers.size());
  assert(records_ <= end);
  const Records share = first_records(layout_, records, end - records_);
  records_ += share.count;
  has_share_ = records_ == end;
  return share;
}

Records PartFiller::take_share_of_input(std::span<const std::byte> records) {
  const std::uint64_t end = part_of(*pass_.shares.input_bytes, part_ + 1, pass_.writers.size());
  if (end > input_before_ + input_in_unit_) return {records, 0};
  const std::uint64_t output_end =
      end <= input_before_ ? 0 : part_of(output_in_unit_, end - input_before_, input_in_unit_);
  if (output_end > written_in_unit_ + records.size()) return {records, 0};
  has_share_ = true;
  // The last record of a part that is not empty is unknown, unless it is among these.
  const std::uint64_t wanted = std::max<std::uint64_t>(
      output_end - std::min(output_end, written_in_unit_), part_bytes_ != 0 ? 1 : 0);
  Records share{records.first(0), 0};
  for (; share.bytes.size() < wanted; ++share.count) {
    const auto next = first_records(layout_, records.subspan(share.bytes.size()), 1).bytes;
    share.bytes = records.first(share.bytes.size() + next.size());
  }
  return share;
}

// Returns the first records that have the key of the last record.
std::span<const std::byte> PartFiller::records_of_last_key(
    std::span<const std::byte> records) const {
  if (!pass_.shares.keep_keys || last_.empty()) return records.first(0);
  std::size_t bytes = 0;
  for (RowCopy next; bytes != records.size();) {
    const auto record = first_records(layout_, records.subspan(bytes), 1).bytes;
    next.assign_record(layout_, record);
    if (record_less(layout_, last_.row(), next.row())) break;
    bytes += record.size();
  }
  return records.first(bytes);
}

void PartFiller::put(std::span<const std::byte> records) {
  if (!records.empty()) pass_.writers[part_].write(records);
  part_bytes_ += records.size();
  written_in_unit_ += records.size();
}

}  // namespace corank
