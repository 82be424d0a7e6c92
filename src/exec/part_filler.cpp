#include "exec/part_filler.hpp"

#include <algorithm>

#include "corank/error.hpp"
#include "io/file.hpp"
#include "util/math.hpp"

namespace corank {
namespace {

// Bytes of a temporary file that are read together, unless a unit's piece is larger.
constexpr std::size_t block_bytes = 4 * MiB;

}  // namespace

PartFiller::PartFiller(const Pass& pass) : pass_(pass), layout_(pass.output.encoding->layout()) {
  if (pass.writers.size() < 2) return;
  total_ = pass.shares.of_limit ? pass.limit : pass.shares.bytes.value_or(0);
  if (!pass.shares.of_limit && !pass.shares.bytes)
    temporary_.emplace(open_nameless(pass.shares.folder), pass.shares.folder);
}

void PartFiller::write(std::span<const std::byte> records) {
  if (temporary_)
    spill(records);
  else
    fill(records);
}

void PartFiller::spill(std::span<const std::byte> records) {
  temporary_->write(records);
  if (!blocks_.empty() && blocks_.back() + records.size() <= block_bytes)
    blocks_.back() += records.size();
  else
    blocks_.push_back(records.size());
}

void PartFiller::finish(std::uint64_t fingerprint) {
  if (!temporary_) return;
  temporary_->make_durable();
  total_ = temporary_->bytes();
  const FileDescriptor file = temporary_->take_file();
  std::vector<std::byte> memory;
  std::uint64_t offset = 0, found = 0;
  for (const std::size_t bytes : blocks_) {
    if (pass_.stop.stop_requested()) throw Interrupted();
    memory.resize(std::max(memory.size(), bytes));
    const auto block = std::span(memory).first(bytes);
    if (read_at(file, block, offset, pass_.shares.folder) != bytes)
      throw Corrupted("a temporary file became shorter");
    if (pass_.fingerprint) found += records_fingerprint(pass_.fingerprint, layout_, block);
    fill(block);
    offset += bytes;
  }
  if (pass_.fingerprint && found != fingerprint)
    throw Corrupted("a temporary file did not hold what was written to it");
}

void PartFiller::fill(std::span<const std::byte> records) {
  while (!records.empty()) {
    const bool was_full = has_share_;
    const Records taken = was_full                            ? records_of_last_key(records)
                          : part_ + 1 == pass_.writers.size() ? Records{records, 0}
                                                              : take_share(records);
    if (!taken.bytes.empty()) pass_.writers[part_].write(taken.bytes);
    written_ += pass_.shares.of_limit ? taken.count : taken.bytes.size();
    records = records.subspan(taken.bytes.size());
    if (!was_full || records.empty()) continue;
    ++part_;
    has_share_ = false;
  }
}

// Returns the first records, as many as the part takes, and sets `has_share_` if it takes no more.
Records PartFiller::take_share(std::span<const std::byte> records) {
  const std::uint64_t end = part_of(total_, part_ + 1, pass_.writers.size());
  const std::uint64_t wanted = end - std::min(end, written_);
  const Records share = pass_.shares.of_limit ? first_records(layout_, records, wanted)
                                              : first_bytes(records, wanted);
  has_share_ = (pass_.shares.of_limit ? share.count : share.bytes.size()) >= wanted;
  if (has_share_ && pass_.shares.keep_keys && share.count != 0) {
    const Records before = first_records(layout_, share.bytes, share.count - 1);
    last_.assign_record(layout_, share.bytes.subspan(before.bytes.size()));
  }
  return share;
}

// Returns the fewest first records that have `min_bytes`, or all if these have fewer.
Records PartFiller::first_bytes(std::span<const std::byte> records, std::uint64_t min_bytes) const {
  if (min_bytes > records.size()) return {records, 0};
  Records first{records.first(0), 0};
  for (; first.bytes.size() < min_bytes; ++first.count) {
    const auto next = first_records(layout_, records.subspan(first.bytes.size()), 1).bytes;
    first.bytes = records.first(first.bytes.size() + next.size());
  }
  return first;
}

// Returns the first records that have the key of the last record.
Records PartFiller::records_of_last_key(std::span<const std::byte> records) const {
  Records first{records.first(0), 0};
  if (!pass_.shares.keep_keys || last_.empty()) return first;
  for (RowCopy next; first.bytes.size() != records.size(); ++first.count) {
    const auto record = first_records(layout_, records.subspan(first.bytes.size()), 1).bytes;
    next.assign_record(layout_, record);
    if (record_less(layout_, last_.row(), next.row())) break;
    first.bytes = records.first(first.bytes.size() + record.size());
  }
  return first;
}

}  // namespace corank
