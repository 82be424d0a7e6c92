#include "format/rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "corank/error.hpp"
#include "format/framing.hpp"
#include "format/gather.hpp"

namespace corank {

bool RowReader::next() {
  begin_ = end_;
  if (begin_ == records_.size()) return false;
  if (!layout_.text) {
    const std::uint64_t rest = (records_.size() - begin_) / layout_.record_bytes;
    rows_ = records_.data() + begin_;
    count_ = std::min(rest, max_batch_rows);
    end_ = begin_ + count_ * layout_.record_bytes;
    assert(count_ != 0);
    return true;
  }
  if (count_ != 0) refs_.front() = refs_[count_];
  const auto into = std::span(refs_).subspan(1);
  const Indexed found = index_records(*layout_.text, records_.subspan(begin_), true, into);
  if (found.records == 0)
    throw Corrupted(fmt::format("there is no whole record at byte {} of the output", offset()));
  rows_ = reinterpret_cast<const std::byte*>(into.data());
  count_ = found.records;
  end_ = begin_ + found.bytes;
  return true;
}

void RowCopy::copy(std::span<const std::byte> record) {
  bytes_ = record.size();
  memory_.resize(bytes_ + GatherWriter::max_bytes_read);
  std::ranges::copy(record, memory_.begin());
}

void RowCopy::assign(const KeyLayout& layout, const std::byte* row) {
  copy(bytes_of(layout, row, 1));
  is_ref_ = layout.text != nullptr;
  if (is_ref_)
    ref_ = make_entry(reinterpret_cast<const PrefixRef*>(row)->word, memory_.data(), bytes_);
}

void RowCopy::assign_record(const KeyLayout& layout, std::span<const std::byte> record) {
  copy(record);
  is_ref_ = layout.text != nullptr;
  if (is_ref_)
    ref_ = make_entry(text_word(*layout.text, memory_.data(), bytes_, 0), memory_.data(), bytes_);
}

std::span<const std::byte> first_records(const KeyLayout& layout,
                                         std::span<const std::byte> records, std::uint64_t count) {
  if (!layout.text)
    return records.first(std::min<std::uint64_t>(records.size() / layout.record_bytes, count) *
                         layout.record_bytes);
  std::uint64_t bytes = 0;
  for (; count != 0 && bytes < records.size(); --count)
    bytes += record_bytes(*layout.text, records.data() + bytes);
  return records.first(bytes);
}

template <class Byte>
std::vector<std::span<Byte>> parts_of(const KeyLayout& layout, std::span<Byte> records,
                                      std::uint64_t part_bytes) {
  if (layout.text) return parts_of(*layout.text, records, part_bytes);
  const std::uint64_t count = records.size() / layout.record_bytes;
  const std::uint64_t parts = std::max<std::uint64_t>(records.size() / part_bytes, 1);
  const auto start = [&](std::uint64_t part) { return count * part / parts * layout.record_bytes; };
  std::vector<std::span<Byte>> all;
  for (std::uint64_t part = 0; part < parts; ++part)
    all.push_back(records.subspan(start(part), start(part + 1) - start(part)));
  return all;
}
template std::vector<std::span<std::byte>> parts_of(const KeyLayout&, std::span<std::byte>,
                                                    std::uint64_t);
template std::vector<std::span<const std::byte>> parts_of(const KeyLayout&,
                                                          std::span<const std::byte>,
                                                          std::uint64_t);

}  // namespace corank
