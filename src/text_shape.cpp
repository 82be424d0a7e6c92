#include "text_shape.hpp"

#include <fmt/format.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <utility>

#include "corank/error.hpp"
#include "for_all.hpp"
#include "framing.hpp"
#include "order.hpp"

namespace corank {
namespace {

// Enough that a task outweighs its start.
constexpr std::uint64_t task_bytes = std::uint64_t{1} << 20;

std::span<const std::byte> bytes_of(const TextLayout& layout, const Entry& entry) {
  return {record_of(entry), record_bytes(layout, entry)};
}

}  // namespace

std::string text_key_text(const TextLayout& layout, std::span<const std::byte> record) {
  constexpr std::uint64_t most_shown = 40;
  std::string text;
  for (const TextColumn& column : std::span(layout.columns, layout.columns_count)) {
    const auto field = detail::text_field(layout, record.data(), record.size(), column.column);
    const std::string_view shown(reinterpret_cast<const char*>(field.at),
                                 std::min(field.bytes, most_shown));
    text += text.empty() ? "" : ", ";
    if (column.column != 0) text += fmt::format("column {} ", column.column);
    text += fmt::format("\"{}{}\"", shown, field.bytes > most_shown ? "…" : "");
  }
  return text;
}

TextShape::TextShape(const KeyEncoding& encoding, const TextFormat& format, std::string_view header,
                     const Shaping& shaping, bool within_bounds)
    : encoding_(encoding), on_equal_(shaping.on_equal), limits_(shaping.limit.has_value()) {
  if (const auto& tombstone = shaping.text_tombstone) {
    TextFormat by = format;
    by.keys = {tombstone->column};
    tombstone_.emplace(tombstone_column_.emplace(by, header, "--tombstone").layout(),
                       std::vector{tombstone->value}, "--tombstone");
  }
  if (!shaping.text_where.steps.empty()) where_.emplace(format, header, shaping.text_where);
  if (!shaping.text_select.empty()) selection_.emplace(format, header, shaping.text_select);
  if (within_bounds) return;
  if (!shaping.text_from.empty()) from_.emplace(layout(), shaping.text_from, "--from");
  if (!shaping.text_to.empty()) to_.emplace(layout(), shaping.text_to, "--to");
}

TextShaper::TextShaper(const TextShape& shape, std::span<std::byte> place, bool in_place,
                       FingerprintSum sum)
    : shape_(&shape),
      writer_(shape.layout(), place.data(), place.data() + place.size()),
      in_place_(in_place),
      begin_(place.data()),
      end_(begin_),
      sum_(sum) {}

std::vector<std::byte> TextShaper::copy_of(const Entry& entry) const {
  const auto bytes = bytes_of(shape_->layout(), entry);
  return {bytes.begin(), bytes.end()};
}

void TextShaper::take_batch() {
  if (batched_ == 0) return;
  const auto entries = std::span(batch_).subspan(1, batched_);
  const KeyLayout layout = shape_->encoding_.layout();
  if (sum_) shaped_.fingerprint += entries_fingerprint(sum_, *layout.text, entries);
  // Where every record is compared with its group, that tells the order as well.
  if (sum_ && (!shape_->groups() || shape_->chooses())) {
    const std::uint64_t before = has_last_;
    descends_ = descends_ ||
                first_descent(layout, reinterpret_cast<const std::byte*>(entries.data() - before),
                              batched_ + before) != batched_ + before;
    if (!has_last_) shaped_.first = copy_of(entries.front());
    // What is put out in place may go over the last record.
    shaped_.last = copy_of(entries.back());
    batch_.front() = make_entry(entries.back().word, shaped_.last.data(), shaped_.last.size());
  }
  has_last_ = true;
  for (const Entry& entry : entries)
    if (!shaped_.failure && wanted(entry)) take(entry);
  batched_ = 0;
}

bool TextShaper::wanted(const Entry& entry) {
  if (shape_->from_ && shape_->from_->behind(entry)) return false;
  shaped_.ended = shaped_.ended || (shape_->to_ && !shape_->to_->behind(entry));
  return !shaped_.ended &&
         (!shape_->where_ || shape_->where_->test(bytes_of(shape_->layout(), entry), results_));
}

void TextShaper::take(const Entry& entry) {
  if (!shape_->groups()) return put(entry);
  if (!open_ || open_->word != entry.word || text_less(shape_->layout(), *open_, entry)) {
    descends_ = descends_ || (open_ && entry.word < open_->word);
    close_group();
    open_ = entry;
    return;
  }
  descends_ = descends_ || (sum_ && text_less(shape_->layout(), entry, *open_));
  if (shape_->on_equal() == OnEqual::last) {
    open_ = entry;
  } else if (shape_->on_equal() == OnEqual::error) {
    const auto bytes = bytes_of(shape_->layout(), entry);
    shaped_.failure = std::make_exception_ptr(EqualKeys(bytes.data(), bytes.size()));
  }
}

void TextShaper::close_group() {
  if (!open_) return;
  if (in_head_)
    shaped_.head = copy_of(*open_);
  else
    put(*open_);
  in_head_ = false;
}

void TextShaper::put(const Entry& entry) {
  const auto record = bytes_of(shape_->layout(), entry);
  if (shape_->buries(record)) return;
  ++shaped_.records;
  Entry outgoing = entry;
  if (const TextSelection* const selection = shape_->selection()) {
    selection->select(record, selected_);
    outgoing = make_entry(0, selected_.data(), selected_.size());
  }
  if (sum_)
    shaped_.outgoing_fingerprint += entries_fingerprint(sum_, shape_->layout(), {&outgoing, 1});
  if (uses_writer())
    return writer_.write(reinterpret_cast<const std::byte*>(&outgoing), sizeof outgoing);
  const auto bytes = bytes_of(shape_->layout(), outgoing);
  if (end_ != bytes.data()) std::memmove(end_, bytes.data(), bytes.size());
  end_ += bytes.size();
}

void TextShaper::finish() {
  take_batch();
  if (open_) (in_head_ ? shaped_.head : shaped_.tail) = copy_of(*open_);
  shaped_.between = {begin_, uses_writer() ? writer_.position() : end_};
}

void TextUnitShaper::begin(std::span<const std::span<std::byte>> places, bool in_place) {
  tiles_.reserve(places.size());
  for (const std::span<std::byte> place : places)
    tiles_.emplace_back(shape_, place, in_place, sum_);
}

MergedUnit TextUnitShaper::join() {
  MergedUnit unit;
  for (TextShaper& tile : tiles_) {
    if (tile.descends_) throw Corrupted("a unit's merged records are not in order");
    if (tile.has_last_) unit.shaped.push_back(std::move(tile.shaped_));
  }
  return unit;
}

void TextJoiner::put(std::span<const std::byte> records, std::uint64_t count,
                     std::uint64_t fingerprint, MergedUnit& unit) {
  if (count > limit_ - records_) {
    count = limit_ - records_;
    std::uint64_t bytes = 0;
    for (std::uint64_t i = 0; i < count; ++i)
      bytes += record_bytes(shape_.layout(), records.data() + bytes);
    records = records.first(bytes);
  }
  records_ += count;
  outgoing_ += fingerprint;
  if (count != 0) unit.pieces.push_back(records);
}

void TextJoiner::put(std::vector<std::byte> record, MergedUnit& unit) {
  if (record.empty() || shape_.buries(record)) return;
  if (const TextSelection* const selection = shape_.selection()) {
    std::vector<std::byte> selected;
    selection->select(record, selected);
    record = std::move(selected);
  }
  const Entry entry = make_entry(0, record.data(), record.size());
  const std::uint64_t fingerprint =
      sum_ ? entries_fingerprint(sum_, shape_.layout(), {&entry, 1}) : 0;
  unit.apart.push_back(std::move(record));
  put(unit.apart.back(), 1, fingerprint, unit);
}

void TextJoiner::check_order(ShapedText& shaped) {
  if (shaped.first.empty()) return;
  if (!last_.empty() && shape_.less(shaped.first, last_))
    throw Corrupted("the merged units are not in order");
  last_ = std::move(shaped.last);
}

void TextJoiner::join(ShapedText& shaped, MergedUnit& unit) {
  if (shaped.head.empty())
    return put(shaped.between, shaped.records, shaped.outgoing_fingerprint, unit);
  if (!open_.empty() && shape_.less(shaped.head, open_))
    throw Corrupted("the merged units are not in order");
  const bool goes_on = !open_.empty() && !shape_.less(open_, shaped.head);
  if (goes_on && shape_.on_equal() == OnEqual::error) {
    shaped.failure = std::make_exception_ptr(EqualKeys(shaped.head.data(), shaped.head.size()));
    return;
  }
  if (!goes_on) put(std::move(open_), unit);
  if (!goes_on || shape_.on_equal() == OnEqual::last) open_ = std::move(shaped.head);
  if (shaped.tail.empty()) return;
  put(std::exchange(open_, std::move(shaped.tail)), unit);
  put(shaped.between, shaped.records, shaped.outgoing_fingerprint, unit);
}

void TextJoiner::join(MergedUnit& unit) {
  for (ShapedText& shaped : unit.shaped) {
    fingerprint_ += shaped.fingerprint;
    check_order(shaped);
    if (done()) continue;
    join(shaped, unit);
    if (shaped.failure) put(std::exchange(open_, {}), unit);
    if (shaped.failure && !done()) std::rethrow_exception(shaped.failure);
    ended_ = ended_ || shaped.ended;
  }
}

void TextJoiner::finish(MergedUnit& unit) {
  put(std::exchange(open_, {}), unit);
}

MergedUnit shape_text(const TextShape& shape, std::span<std::byte> merged, FingerprintSum sum) {
  const TextLayout& layout = shape.layout();
  // Only lines are found from anywhere.
  std::vector<std::span<std::byte>> places;
  while (layout.kind == TextKind::lines && merged.size() > 2 * task_bytes) {
    const std::byte* const end =
        detail::find_char(merged.data() + task_bytes, merged.data() + merged.size() - 1,
                          layout.terminator) +
        1;
    places.push_back(merged.first(static_cast<std::size_t>(end - merged.data())));
    merged = merged.subspan(places.back().size());
  }
  places.push_back(merged);
  TextUnitShaper shaper(shape, sum);
  shaper.begin(places, true);
  tbb::this_task_arena::isolate([&] {
    for_all(0, places.size(), [&](std::size_t tile) {
      std::array<Entry, 256> entries;
      for (std::span<const std::byte> rest = places[tile]; !rest.empty();) {
        const Indexed found = index_records(layout, rest, true, entries);
        if (found.records == 0) throw Corrupted("a merged record is none");
        // The next are found before these are shaped, which may go over them.
        shaper.tile(tile).write(reinterpret_cast<const std::byte*>(entries.data()),
                                found.records * sizeof(Entry));
        rest = rest.subspan(found.bytes);
      }
      shaper.tile(tile).finish();
    });
  });
  return shaper.join();
}

MergedUnit shape_text(const TextShape& shape, const Entry& only, FingerprintSum sum) {
  const auto record = bytes_of(shape.layout(), only);
  // Nothing is written where a record goes out as it is.
  std::vector<std::byte> room(shape.selection() ? record.size() : 0);
  const std::span place(room.empty() ? const_cast<std::byte*>(record.data()) : room.data(),
                        record.size());
  TextUnitShaper shaper(shape, sum);
  shaper.begin({&place, 1}, true);
  shaper.tile(0).write(reinterpret_cast<const std::byte*>(&only), sizeof only);
  shaper.tile(0).finish();
  MergedUnit unit = shaper.join();
  if (!room.empty()) unit.apart.push_back(std::move(room));
  return unit;
}

}  // namespace corank
