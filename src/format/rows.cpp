#include "format/rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "corank/error.hpp"
#include "format/framing.hpp"

namespace corank {
namespace {

// Moves the rows with the ascending indices `which` to `to`, which does not lie after them.
template <std::uint32_t bytes>
std::byte* move_small(std::byte* to, const std::byte* rows, RowIndices which) {
  for (const std::uint16_t i : which) {
    std::byte row[bytes];
    std::memcpy(row, rows + i * bytes, bytes);
    std::memcpy(to, row, bytes);
    to += bytes;
  }
  return to;
}

}  // namespace

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

std::byte* move_rows(std::byte* to, const std::byte* rows, RowIndices which,
                     std::uint32_t row_bytes) {
  if (which.empty()) return to;
  const auto move = [&](std::uint64_t first, std::uint64_t count) {
    const std::byte* const from = rows + first * row_bytes;
    if (from != to) std::memmove(to, from, count * row_bytes);
    to += count * row_bytes;
  };
  if (which.back() - which.front() + 1u == which.size()) {
    move(which.front(), which.size());
    return to;
  }
  if (row_bytes == 8) return move_small<8>(to, rows, which);
  if (row_bytes == 16) return move_small<16>(to, rows, which);
  for (std::size_t i = 0, end; i < which.size(); i = end) {
    for (end = i + 1; end < which.size() && which[end] == which[end - 1] + 1; ++end)
      ;
    move(which[i], end - i);
  }
  return to;
}

std::byte* copy_records(const KeyLayout& layout, const std::byte* rows, RowIndices which,
                        std::byte* to, const std::byte* limit, bool is_in_place) {
  if (!layout.text) return move_rows(to, rows, which, layout.record_bytes);
  if (!is_in_place) {
    GatherWriter writer(*layout.text, to, limit);
    writer.write_each(0, which.size(),
                      [=](std::size_t i) { return rows + which[i] * sizeof(PrefixRef); });
    return writer.position();
  }
  for (const std::uint16_t i : which) {
    const auto record = bytes_of(layout, rows + i * sizeof(PrefixRef), 1);
    if (to != record.data()) std::memmove(to, record.data(), record.size());
    to += record.size();
  }
  return to;
}

std::byte* copy_rows(const KeyLayout& layout, const std::byte* rows, RowIndices which,
                     std::byte* to, const std::byte* limit, std::vector<PrefixRef>& refs) {
  std::byte* const end = copy_records(layout, rows, which, to, limit, false);
  if (!layout.text) return end;
  for (const std::uint16_t i : which) {
    const PrefixRef& ref = reinterpret_cast<const PrefixRef*>(rows)[i];
    const std::uint64_t bytes = record_bytes(*layout.text, ref);
    refs.push_back(make_entry(ref.word, to, bytes));
    to += bytes;
  }
  assert(to == end);
  return end;
}

LeadingWords leading_words(const KeyLayout& layout, const std::byte* row) {
  if (!layout.text) return {encode<max_key_words>(layout, row), !layout.has_tail()};
  const auto record = bytes_of(layout, row, 1);
  LeadingWords leading{};
  for (int word = 0; word < max_key_words; ++word)
    leading.words.word[word] =
        text_word(*layout.text, record.data(), record.size(), static_cast<std::uint64_t>(word));
  leading.are_all = text_words(*layout.text, record.data(), record.size()) <= max_key_words;
  return leading;
}

Records first_records(const KeyLayout& layout, std::span<const std::byte> records,
                      std::uint64_t count) {
  if (!layout.text) {
    count = std::min<std::uint64_t>(records.size() / layout.record_bytes, count);
    return {records.first(count * layout.record_bytes), count};
  }
  std::uint64_t bytes = 0, found = 0;
  for (; found != count && bytes < records.size(); ++found)
    bytes += record_bytes(*layout.text, records.data() + bytes);
  return {records.first(bytes), found};
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
