#include "ops/text_operators.hpp"

#include <fmt/format.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <utility>

#include "corank/error.hpp"
#include "format/framing.hpp"
#include "format/key_order.hpp"
#include "ops/operator_chain.hpp"
#include "util/parallel_for.hpp"

namespace corank {
namespace {

// Minimum bytes per task; smaller tasks cost more to schedule than to run.
constexpr std::uint64_t task_bytes = std::uint64_t{1} << 20;

std::span<const std::byte> bytes_of(const TextLayout& layout, const PrefixRef& entry) {
  return {record_of(entry), record_bytes(layout, entry)};
}

const std::byte* entries_of(const Segment& segment) {
  return segment.chunk->records() + segment.first * sizeof(PrefixRef);
}

// Adds all segments of a unit that is one tile.
void add_segments(TextUnitOperators& shaper, const WorkUnit& unit) {
  for (std::size_t i = 0; i < unit.segments.size(); ++i)
    shaper.add_segment(0, i, entries_of(unit.segments[i]), unit.segments[i].count);
}

}  // namespace

std::string text_key_text(const TextLayout& layout, std::span<const std::byte> record) {
  constexpr std::uint64_t max_shown = 40;
  std::string text;
  detail::Columns columns(layout, record.data(), record.size());
  for (const TextColumn& column : std::span(layout.columns, layout.columns_count)) {
    const auto field = columns(column.column);
    const std::string_view shown(reinterpret_cast<const char*>(field.at),
                                 std::min(field.bytes, max_shown));
    text += text.empty() ? "" : ", ";
    if (column.column != 0) text += fmt::format("column {} ", column.column);
    text += fmt::format("\"{}{}\"", shown, field.bytes > max_shown ? "…" : "");
  }
  return text;
}

TextOperatorChain::TextOperatorChain(const KeyEncoding& encoding, const TextFormat& format,
                                     std::string_view header, const Query& query,
                                     bool within_bounds, std::size_t runs)
    : encoding_(encoding), on_equal_(query.on_equal), limits_(query.limit.has_value()) {
  if (is_set_operation(on_equal_)) set_operation_ = {on_equal_, static_cast<std::uint32_t>(runs)};
  if (query.tombstone || !query.having.steps.empty())
    dropped_.emplace(TextFilter::dropping(format, header, query));
  if (!query.where.steps.empty()) where_.emplace(format, header, query.where, Setting::where);
  if (!query.select.empty()) selection_.emplace(format, header, query.select);
  if (within_bounds) return;
  if (!query.from.empty()) from_.emplace(layout(), query.from, Setting::from);
  if (!query.to.empty()) to_.emplace(layout(), query.to, Setting::to);
}

TextTileOperators::TextTileOperators(const TextOperatorChain& shape, std::span<std::byte> place,
                                     bool in_place, FingerprintSum sum)
    : operators_(&shape),
      writer_(shape.layout(), place.data(), place.data() + place.size()),
      in_place_(in_place),
      begin_(place.data()),
      end_(begin_),
      place_end_(begin_ + place.size()),
      sum_(sum),
      sums_left_out_(sum && !shape.selection() && !shape.set_operation()),
      as_it_is_(uses_writer() && !shape.dropped_ && !shape.set_operation()),
      runs_(shape.encoding_.layout()) {}

void TextTileOperators::leave_out(const PrefixRef& entry) {
  if (sums_left_out_)
    shaped_.left_out += prefix_refs_fingerprint(sum_, operators_->layout(), {&entry, 1});
}

std::vector<std::byte> TextTileOperators::copy_of(const PrefixRef& entry) const {
  const auto bytes = bytes_of(operators_->layout(), entry);
  return {bytes.begin(), bytes.end()};
}

// Fast path for the common case: records that are emitted unchanged.
inline void TextTileOperators::put(std::span<const PrefixRef> entries) {
  if (!as_it_is_) {
    for (const PrefixRef& entry : entries) put_changed(entry);
    return;
  }
  shaped_.records += entries.size();
  writer_.write_each(0, entries.size(), [entries](std::size_t i) {
    return reinterpret_cast<const std::byte*>(&entries[i]);
  });
}

inline void TextTileOperators::put(const PrefixRef& entry) {
  put(std::span(&entry, 1));
}

inline void TextTileOperators::close_group() {
  if (!open_) return;
  if (in_head_)
    put_apart(shaped_.head);
  else
    put(*open_);
  in_head_ = false;
}

inline void TextTileOperators::take_of_group(const PrefixRef& entry) {
  if (!open_ || open_->word != entry.word || text_less(operators_->layout(), *open_, entry)) {
    descends_ = descends_ || (open_ && entry.word < open_->word);
    close_group();
    open_ = entry;
    return;
  }
  descends_ = descends_ || (sum_ && text_less(operators_->layout(), entry, *open_));
  ++shaped_.resolved.replaced;
  leave_out(operators_->on_equal() == OnEqual::last ? *open_ : entry);
  if (operators_->on_equal() == OnEqual::last) {
    open_ = entry;
  } else if (operators_->on_equal() == OnEqual::error) {
    const auto bytes = bytes_of(operators_->layout(), entry);
    shaped_.failure = std::make_exception_ptr(EqualKeys(bytes.data(), bytes.size()));
  }
}

void TextTileOperators::take_groups(std::span<const PrefixRef> entries) {
  for (std::size_t first = 0; first < entries.size();) {
    // Most records begin a group, as their ascending words prove.
    std::size_t end = first;
    if (open_ && !in_head_ && !shaped_.failure)
      for (std::uint64_t last = open_->word; end < entries.size() && last < entries[end].word;
           ++end)
        last = entries[end].word;
    if (end != first) {
      put(*open_);
      put(entries.subspan(first, end - first - 1));
      open_ = entries[end - 1];
      first = end;
    } else if (shaped_.failure) {
      leave_out(entries[first++]);
    } else {
      take_of_group(entries[first++]);
    }
  }
}

void TextTileOperators::take_batch() {
  if (batched_ == 0) return;
  const auto entries = std::span(batch_).subspan(1, batched_);
  const KeyLayout layout = operators_->encoding_.layout();
  if (sum_ && !sums_left_out_)
    shaped_.left_out += prefix_refs_fingerprint(sum_, *layout.text, entries);
  // Grouping compares every record with its predecessor, which checks the order; otherwise it is
  // checked here.
  if (sum_ && (!operators_->groups() || operators_->chooses())) {
    const std::uint64_t before = has_last_;
    descends_ = descends_ ||
                first_descent(layout, reinterpret_cast<const std::byte*>(entries.data() - before),
                              batched_ + before) != batched_ + before;
    if (!has_last_) shaped_.first = copy_of(entries.front());
    // Keep a copy of the last record, since output in place may overwrite it.
    shaped_.last = copy_of(entries.back());
    batch_.front() = make_entry(entries.back().word, shaped_.last.data(), shaped_.last.size());
  }
  has_last_ = true;
  batched_ = 0;
  if (operators_->groups() && !operators_->chooses() && !operators_->set_operation())
    return take_groups(entries);
  for (const PrefixRef& entry : entries) {
    if (shaped_.failure || (operators_->has_bounds() && !in_range(entry))) {
      leave_out(entry);
      continue;
    }
    const bool counts = !operators_->where_ ||
                        operators_->where_->test(bytes_of(operators_->layout(), entry), results_);
    if (operators_->set_operation())
      take_of_set(entry, counts);
    else if (!counts)
      leave_out(entry);
    else if (operators_->groups())
      take_of_group(entry);
    else
      put(entry);
  }
}

bool TextTileOperators::in_range(const PrefixRef& entry) {
  if (operators_->from_ && operators_->from_->behind(entry)) return false;
  shaped_.ended = shaped_.ended || (operators_->to_ && !operators_->to_->behind(entry));
  return !shaped_.ended;
}

void TextTileOperators::put_apart(std::vector<std::byte>& end) {
  end = copy_of(*open_);
  leave_out(*open_);
}

void TextTileOperators::take_of_set(const PrefixRef& entry, bool counts) {
  if (open_ && (open_->word != entry.word || text_less(operators_->layout(), *open_, entry))) {
    descends_ = descends_ || entry.word < open_->word;
    close_set();
  }
  descends_ = descends_ || (sum_ && open_ && text_less(operators_->layout(), entry, *open_));
  if (!open_) open_ = entry;
  group_.push_back({entry, counts});
  if (group_.size() == batch_records) decide();
}

// Decides on the open group's records so far; more may follow.
void TextTileOperators::decide() {
  if (group_.empty()) return;
  if (open_set_.empty()) open_set_.record = copy_of(*open_);
  if (in_head_ && shaped_.head.empty()) shaped_.head = open_set_.record;
  put_pieces(open_set_.group, runs_.count(reinterpret_cast<const std::byte*>(&group_.front().entry),
                                          open_->word, decided_, group_.size(), true));
  // Refer to the copy from here on, since output in place may have overwritten the group.
  open_ = make_entry(open_->word, open_set_.record.data(), open_set_.record.size());
  decided_ += group_.size();
  group_.clear();
}

// Decides on a group that lies in the tile as a whole, which needs fewer counts.
void TextTileOperators::decide_whole() {
  const SetOperation& operation = *operators_->set_operation();
  const auto* const record = reinterpret_cast<const std::byte*>(&group_.front().entry);
  const std::uint64_t size = group_.size();
  const std::uint32_t last_run = operation.runs - 1;
  SetGroup group;
  if (operation.kind == OnEqual::unite && size == 1) {
    const SetPiece piece{0, 1};
    put_pieces(group, {&piece, 1});
  } else if (operation.kind == OnEqual::subtract) {
    const std::uint64_t last = std::min(runs_.count_in_last(last_run, record, open_->word), size);
    const SetPiece pieces[] = {{0, size - last}, {last_run, last}};
    if (last != 0) put_pieces(group, std::span(pieces).subspan(last == size));
  } else if (operation.kind == OnEqual::unite || size >= operation.runs) {
    put_pieces(group, runs_.count(record, open_->word, 0, size, false));
  }
}

// Emits the records of `group_` that the set operation keeps; `pieces` tells their runs. Moves all
// records of the undecided leading partial group that pass the filter.
void TextTileOperators::put_pieces(SetGroup& group, std::span<const SetPiece> pieces) {
  const SetRecord* record = group_.data();
  for (const SetPiece& piece : pieces) {
    const SetRecord* const end = record + piece.count;
    const auto count =
        static_cast<std::uint64_t>(std::count_if(record, end, [](auto& of) { return of.counts; }));
    if (in_head_) {
      std::byte* const begin = position();
      for (; record != end; ++record)
        if (record->counts) move(record->entry);
      shaped_.head_pieces.push_back({{piece.run, count}, {begin, position()}});
      continue;
    }
    const SetGroup::Range range =
        count == 0 ? SetGroup::Range{}
                   : group.take(*operators_->set_operation(), {piece.run, count});
    for (std::uint64_t number = 0; record != end; ++record) {
      if (!record->counts) continue;
      if (number >= range.first && number < range.end) put(record->entry);
      ++number;
    }
  }
}

void TextTileOperators::close_set() {
  if (in_head_ || !open_set_.empty())
    decide();
  else
    decide_whole();
  if (in_head_) begin_ = position();
  in_head_ = false;
  open_.reset();
  group_.clear();
  open_set_ = OpenSet();
  decided_ = 0;
}

void TextTileOperators::put_changed(const PrefixRef& entry) {
  if (operators_->drops(bytes_of(operators_->layout(), entry), results_)) {
    ++shaped_.resolved.deleted;
    return leave_out(entry);
  }
  if (operators_->selection()) return put_selected(entry);
  ++shaped_.records;
  const std::byte* const begin = position();
  move(entry);
  note_outgoing(begin);
}

// Emits a projected record. It may be longer than its source, and in place it must not overwrite
// records that are not read yet. From the first record without room on, all records are spilled.
void TextTileOperators::put_selected(const PrefixRef& entry) {
  const auto record = bytes_of(operators_->layout(), entry);
  const TextSelection& selection = *operators_->selection();
  const std::byte* const begin = end_;
  const bool spills = shaped_.spilled_records != 0;
  const auto room =
      static_cast<std::uint64_t>((in_place_ ? record.data() + record.size() : place_end_) - begin);
  if (!in_place_ && !spills && selection.max_bytes(record) <= room) {
    end_ = selection.select(record, end_);
  } else {
    const auto selected = selection.select(record);
    if (spills || selected.size() > room) {
      const PrefixRef spilled = make_entry(0, selected.data(), selected.size());
      if (sum_)
        shaped_.left_out -= prefix_refs_fingerprint(sum_, operators_->layout(), {&spilled, 1});
      shaped_.spilled.insert(shaped_.spilled.end(), selected.begin(), selected.end());
      ++shaped_.spilled_records;
      return;
    }
    end_ = std::ranges::copy(selected, end_).out;
  }
  ++shaped_.records;
  note_outgoing(begin);
}

// Notes for the fingerprint that the record at `begin` was emitted.
void TextTileOperators::note_outgoing(const std::byte* begin) {
  if (!sum_ || sums_left_out_) return;
  outgoing_.push_back(make_entry(0, begin, static_cast<std::uint64_t>(position() - begin)));
  if (outgoing_.size() == batch_records) sum_outgoing();
}

void TextTileOperators::sum_outgoing() {
  if (outgoing_.empty()) return;
  shaped_.left_out -= prefix_refs_fingerprint(sum_, operators_->layout(), outgoing_);
  outgoing_.clear();
}

// Appends a record to the output.
void TextTileOperators::move(const PrefixRef& entry) {
  if (uses_writer()) return writer_.write(reinterpret_cast<const std::byte*>(&entry), sizeof entry);
  const auto bytes = bytes_of(operators_->layout(), entry);
  if (end_ != bytes.data()) std::memmove(end_, bytes.data(), bytes.size());
  end_ += bytes.size();
}

void TextTileOperators::finish() {
  take_batch();
  if (operators_->set_operation()) {
    decide();
    if (in_head_)
      begin_ = position();
    else
      shaped_.tail_set = std::move(open_set_);
  } else if (open_) {
    put_apart(in_head_ ? shaped_.head : shaped_.tail);
  }
  sum_outgoing();
  shaped_.between = {begin_, position()};
}

void TextUnitOperators::begin(std::span<const std::span<std::byte>> places, bool in_place) {
  tiles_.reserve(places.size());
  for (const std::span<std::byte> place : places)
    tiles_.emplace_back(operators_, place, in_place, sum_);
}

MergedUnit TextUnitOperators::join() {
  MergedUnit unit;
  for (TextTileOperators& tile : tiles_) {
    if (tile.descends_) throw Corrupted("a unit's merged records are not in order");
    if (tile.has_last_) unit.shaped.push_back(std::move(tile.shaped_));
  }
  return unit;
}

void TextBoundaryMerge::put(std::span<const std::byte> records, std::uint64_t count,
                            MergedUnit& unit) {
  if (count > limit_ - records_) {
    count = limit_ - records_;
    std::uint64_t bytes = 0;
    for (std::uint64_t i = 0; i < count; ++i)
      bytes += record_bytes(operators_.layout(), records.data() + bytes);
    records = records.first(bytes);
  }
  records_ += count;
  if (count != 0) unit.pieces.push_back(records);
}

void TextBoundaryMerge::put_between(TextOperatorOutput& shaped, MergedUnit& unit) {
  put(shaped.between, shaped.records, unit);
  if (shaped.spilled_records == 0) return;
  unit.apart.push_back(std::move(shaped.spilled));
  put(unit.apart.back(), shaped.spilled_records, unit);
}

void TextBoundaryMerge::put(std::vector<std::byte> record, MergedUnit& unit) {
  if (record.empty()) return;
  if (operators_.drops(record, results_)) {
    ++resolved_.deleted;
    return;
  }
  if (const TextSelection* const selection = operators_.selection())
    record = selection->select(record);
  const PrefixRef entry = make_entry(0, record.data(), record.size());
  if (sum_) left_out_ -= prefix_refs_fingerprint(sum_, operators_.layout(), {&entry, 1});
  unit.apart.push_back(std::move(record));
  put(unit.apart.back(), 1, unit);
}

void TextBoundaryMerge::check_order(TextOperatorOutput& shaped) {
  if (shaped.first.empty()) return;
  if (!last_.empty() && operators_.less(shaped.first, last_))
    throw Corrupted("the merged units are not in order");
  last_ = std::move(shaped.last);
}

void TextBoundaryMerge::join(TextOperatorOutput& shaped, MergedUnit& unit) {
  if (shaped.head.empty()) return put_between(shaped, unit);
  if (!open_.empty() && operators_.less(shaped.head, open_))
    throw Corrupted("the merged units are not in order");
  const bool goes_on = !open_.empty() && !operators_.less(open_, shaped.head);
  if (goes_on && operators_.on_equal() == OnEqual::error) {
    shaped.failure = std::make_exception_ptr(EqualKeys(shaped.head.data(), shaped.head.size()));
    return;
  }
  if (goes_on) ++resolved_.replaced;
  if (!goes_on) put(std::move(open_), unit);
  if (!goes_on || operators_.on_equal() == OnEqual::last) open_ = std::move(shaped.head);
  if (shaped.tail.empty()) return;
  put(std::exchange(open_, std::move(shaped.tail)), unit);
  put_between(shaped, unit);
}

void TextBoundaryMerge::join_set(TextOperatorOutput& shaped, MergedUnit& unit) {
  if (!shaped.head.empty()) {
    if (!open_set_.empty() && operators_.less(shaped.head, open_set_.record))
      throw Corrupted("the merged units are not in order");
    if (open_set_.empty() || operators_.less(open_set_.record, shaped.head))
      open_set_ = {std::move(shaped.head), {}};
    for (const auto& [piece, records] : shaped.head_pieces)
      if (piece.count != 0)
        put_range(open_set_.group.take(*operators_.set_operation(), piece), records, unit);
  }
  put_between(shaped, unit);
  if (!shaped.tail_set.empty()) open_set_ = std::move(shaped.tail_set);
}

// Emits the records of `records` that `range` selects, unless dropped. Records that stay unchanged
// are emitted from where they are.
void TextBoundaryMerge::put_range(const SetGroup::Range& range, std::span<std::byte> records,
                                  MergedUnit& unit) {
  const bool changes = operators_.selection() || operators_.dropped();
  const std::byte* from = records.data();
  const std::byte* begin = from;
  for (std::uint64_t i = 0; i < range.end; ++i) {
    const std::span<const std::byte> record(from, record_bytes(operators_.layout(), from));
    if (i == range.first) begin = from;
    from += record.size();
    if (i < range.first) continue;
    if (changes) {
      put(std::vector(record.begin(), record.end()), unit);
      continue;
    }
    const PrefixRef entry = make_entry(0, record.data(), record.size());
    if (sum_) left_out_ -= prefix_refs_fingerprint(sum_, operators_.layout(), {&entry, 1});
  }
  if (!changes) put(std::span(begin, from), range.end - range.first, unit);
}

void TextBoundaryMerge::join(MergedUnit& unit) {
  for (TextOperatorOutput& shaped : unit.shaped) {
    left_out_ += shaped.left_out;
    check_order(shaped);
    if (done()) continue;
    resolved_ += shaped.resolved;
    if (operators_.set_operation())
      join_set(shaped, unit);
    else
      join(shaped, unit);
    if (shaped.failure) put(std::exchange(open_, {}), unit);
    if (shaped.failure && !done()) std::rethrow_exception(shaped.failure);
    ended_ = ended_ || shaped.ended;
  }
}

void TextBoundaryMerge::finish(MergedUnit& unit) {
  put(std::exchange(open_, {}), unit);
}

MergedUnit apply_to_text(const TextOperatorChain& shape, const WorkUnit& unit,
                         std::span<std::byte> merged, FingerprintSum sum) {
  const TextLayout& layout = shape.layout();
  // A set operation needs a single tile, since merged lines do not tell their runs.
  const auto places = parts_of(layout, merged, shape.set_operation() ? merged.size() : task_bytes);
  TextUnitOperators shaper(shape, unit, sum);
  shaper.begin(places, true);
  add_segments(shaper, unit);
  tbb::this_task_arena::isolate([&] {
    parallel_for(0, places.size(), [&](std::size_t tile) {
      std::array<PrefixRef, 256> entries;
      for (std::span<const std::byte> rest = places[tile]; !rest.empty();) {
        const Indexed found = index_records(layout, rest, true, entries);
        if (found.records == 0) throw Corrupted("a merged record is none");
        // Index a batch of records before operators overwrite it.
        shaper.tile(tile).write(reinterpret_cast<const std::byte*>(entries.data()),
                                found.records * sizeof(PrefixRef));
        rest = rest.subspan(found.bytes);
      }
      shaper.tile(tile).finish();
    });
  });
  return shaper.join();
}

MergedUnit apply_to_text(const TextOperatorChain& shape, const WorkUnit& unit, FingerprintSum sum) {
  const std::byte* const only = entries_of(unit.segments.front());
  const auto record = bytes_of(shape.layout(), *reinterpret_cast<const PrefixRef*>(only));
  // Only a projection needs room: otherwise the record is emitted from where it is.
  std::vector<std::byte> room(shape.selection() ? record.size() : 0);
  const std::span place(room.empty() ? const_cast<std::byte*>(record.data()) : room.data(),
                        record.size());
  TextUnitOperators shaper(shape, unit, sum);
  shaper.begin({&place, 1}, room.empty());
  add_segments(shaper, unit);
  shaper.tile(0).write(only, sizeof(PrefixRef));
  shaper.tile(0).finish();
  MergedUnit merged = shaper.join();
  if (!room.empty()) merged.apart.push_back(std::move(room));
  return merged;
}

}  // namespace corank
