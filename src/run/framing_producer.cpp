#include "run/framing_producer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "corank/error.hpp"
#include "io/mapped_file.hpp"
#include "util/buffer_pool.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

constexpr std::uint64_t margin_bytes = stream_margin_bytes;
// Records that are indexed together, few enough that their bytes stay in L1.
constexpr std::uint64_t batch_records = 256;
constexpr std::uint64_t min_wanted_bytes = 4096;
// Bytes of a run that are read into the page cache ahead of need, if it is read alone: the prefetch
// of many runs at a time costs more than it gains. See docs/tuning.md.
constexpr std::uint64_t prefetched_bytes = 2 * MiB;

class RunSource final : public ByteSource {
 public:
  RunSource(const Run& run, ReadOrder order)
      : run_(run), prefetched_bytes_(order == ReadOrder::one_by_one ? prefetched_bytes : 0) {}

  std::optional<std::size_t> read(std::span<std::byte> into) override {
    const std::uint64_t count = std::min<std::uint64_t>(into.size(), run_.records() - at_);
    if (count == 0) return std::nullopt;
    run_.read(at_, count, into.first(count));
    at_ += count;
    run_.prefetch(at_, std::min(prefetched_bytes_, run_.records() - at_));
    return count;
  }

 private:
  const Run& run_;
  const std::uint64_t prefetched_bytes_;
  std::uint64_t at_ = 0;
};

std::uint64_t room_bytes(const Reading& reading) {
  const PassPlan& plan = reading.plan;
  const RecordFormat& format = reading.format;
  return format.traits().has_fixed_size
             ? plan.chunk_records * format.record_bytes()
             : plan.chunk_bytes - plan.chunk_records * format.ref_bytes() - margin_bytes;
}

// Returns the bytes of the first chunk. First chunks of runs in memory grow from a small part of a
// chunk to a whole one, as first_chunk_records() says for records of a fixed size.
std::uint64_t first_bytes(const Stream& stream, std::uint32_t index, std::uint32_t num_runs,
                          const Reading& reading) {
  const std::uint64_t room = room_bytes(reading);
  if (stream.in_place.size() <= room || reading.order != ReadOrder::forecast) return room;
  return std::max(part_of(room, index + 1, num_runs), min_wanted_bytes);
}

// Returns whether chunks of the stream are those of runs in memory beside others in files. To hand
// such small chunks to another thread costs more than to find their records.
bool has_small_chunks(const Stream& stream, const Reading& reading) {
  return !stream.source && stream.mapped_page_bytes == 0 && reading.plan.in_memory_records != 0;
}

ChunkProducer::Traits traits_of(const Stream& stream, const Reading& reading) {
  const FormatTraits& traits = reading.format.traits();
  const bool is_in_memory = !stream.source && stream.mapped_page_bytes == 0;
  const bool is_small = has_small_chunks(stream, reading);
  return {.needs_buffers = !is_small,
          .may_lack_buffers = !traits.has_fixed_size,
          .is_immediate = is_small || (is_in_memory && reading.frames_when_taken),
          .is_pipe = stream.is_pipe,
          .may_begin = !traits.has_fixed_size && !traits.may_skip};
}

}  // namespace

Place place_of(const Run& run, const RecordFormat& format, std::uint64_t record,
               std::optional<std::uint64_t> byte) {
  Place place{record, {}, byte};
  const std::string_view end = format.end_of_record();
  if (end.empty()) return place;
  if (format.traits().are_lines && run.first() == 0)
    place.line = run.header_lines() + record + 1;
  else if (byte)
    place.line = run.line_at(*byte, end.back());
  return place;
}

Stream stream_of(const Run& run, const Reading& reading, std::stop_token stop) {
  Stream stream{.path = run.shown_path(),
                .offset = run.offset(),
                .is_pipe = run.is_pipe(),
                .mapped_page_bytes = run.mapped_page_bytes(),
                .map = [&run] { return run.mapped_later(); },
                .place_of =
                    [&run, &format = reading.format](std::uint64_t record, std::uint64_t byte) {
                      return corank::place_of(run, format, record, byte);
                    }};
  if (run.input().codec != Codec::none) stream.path += ", decompressed";
  if (run.is_stream())
    stream.source = run.source(std::move(stop));
  else if (const std::byte* bytes = run.in_place(0))
    stream.in_place = {bytes, run.records()};
  else
    stream.source = std::make_unique<RunSource>(run, reading.order);
  return stream;
}

// Memory for records that do not fit in a buffer; counted against the limit on long records.
class FramingProducer::LargeMemory {
 public:
  LargeMemory(std::uint64_t bytes, LargeBytes used)
      : bytes_(bytes), memory_(new std::byte[bytes]), used_(std::move(used)) {
    *used_ += bytes;
  }
  ~LargeMemory() {
    assert(bytes_ <= *used_);
    *used_ -= bytes_;
  }
  LargeMemory(const LargeMemory&) = delete;
  LargeMemory& operator=(const LargeMemory&) = delete;

  std::span<std::byte> bytes() const { return {memory_.get(), bytes_}; }

 private:
  std::uint64_t bytes_;
  std::unique_ptr<std::byte[]> memory_;
  LargeBytes used_;
};

// A chunk under construction.
struct FramingProducer::Filling {
  const CountedRecords& counted;            // none unless they are all records of the chunk
  std::span<std::byte> memory;              // for the bytes of a source, and a margin
  std::byte* refs;                          // room for the rows, if they are prefix references
  std::shared_ptr<LargeMemory> large = {};  // holds the bytes if the buffer is too small
  const std::byte* rows = nullptr;          // the first row
  std::span<const std::byte> bytes = {};    // of the records
  std::uint64_t count = 0;
  std::vector<Gap> gaps = {};
  std::uint64_t fingerprint = 0;
};

ChunkProducers make_producers(std::vector<Stream> streams, const Reading& reading) {
  const auto large_used_bytes = std::make_shared<std::atomic<std::uint64_t>>(0);
  const auto num_runs = static_cast<std::uint32_t>(streams.size());
  ChunkProducers producers;
  for (std::uint32_t run = 0; run < num_runs; ++run)
    producers.push_back(std::make_unique<FramingProducer>(std::move(streams[run]), run, num_runs,
                                                          reading, large_used_bytes));
  return producers;
}

FramingProducer::FramingProducer(Stream stream, std::uint32_t index, std::uint32_t num_runs,
                                 const Reading& reading, LargeBytes large_used_bytes)
    : ChunkProducer(traits_of(stream, reading)),
      stream_(std::move(stream)),
      reading_(reading),
      layout_(reading.format.keys().layout()),
      chunk_records_(has_small_chunks(stream_, reading) ? reading.plan.in_memory_records
                                                        : reading.plan.chunk_records),
      room_bytes_(room_bytes(reading)),
      large_used_bytes_(std::move(large_used_bytes)),
      unread_(stream_.in_place),
      wanted_bytes_(first_bytes(stream_, index, num_runs, reading)),
      offset_(stream_.offset) {
  assert(room_bytes_ != 0 && room_bytes_ < reading.plan.chunk_bytes);
}

void FramingProducer::ensure_buffer(ChunkRequest& request) const {
  if (!request.buffer.bytes().empty()) return;
  const std::uint64_t bytes = refs_bytes() + (stream_.source ? room_bytes_ + margin_bytes : 0);
  request.instead.reset(new std::byte[bytes]);
  request.buffer = Buffer({request.instead.get(), bytes});
}

// Reads and counts whole records, if it can; leaves other bytes to produce().
bool FramingProducer::begin(ChunkRequest& request) {
  ensure_buffer(request);
  std::span<const std::byte> bytes;
  bool has_read = false;
  if (stream_.source) {
    const std::span<std::byte> memory =
        request.buffer.bytes().subspan(refs_bytes(), std::min(wanted_bytes_, room_bytes_));
    std::uint64_t filled = take_carried(memory);
    has_read = filled < memory.size() && !exhausted_;
    if (has_read) filled += read(memory.subspan(filled), *request.demand);
    bytes = memory.first(filled);
  } else {
    bytes = unread_.first(std::min<std::uint64_t>(wanted_bytes_, unread_.size()));
    if (stream_.mapped_page_bytes != 0) populate(bytes);
  }
  const WholeRecords whole = reading_.format.count(bytes, chunk_records_);
  if (stream_.source)
    carry_over(bytes.subspan(whole.bytes), has_read);
  else
    unread_ = unread_.subspan(whole.bytes);
  if (whole.records == 0) return false;
  request.counted = next_records();
  request.counted.bytes = bytes.first(whole.bytes);
  request.counted.count = whole.records;
  advance(whole.records, whole.bytes, {});
  return true;
}

// Returns where the next records are; how many there are is not known yet.
CountedRecords FramingProducer::next_records() const {
  CountedRecords next{.first = in_chunks_, .number = records_, .offset = offset_};
  if (!stream_.source) next.mapped = {stream_.in_place, stream_.mapped_page_bytes};
  return next;
}

// Advances past the records of a chunk and the records skipped among them.
void FramingProducer::advance(std::uint64_t records, std::uint64_t bytes, const Gap& skipped) {
  // Short records fill the room for prefix references before the room for bytes. The next chunk
  // then reads fewer bytes, so that few are carried over.
  wanted_bytes_ = records == chunk_records_ ? std::clamp(bytes + bytes / 16, min_wanted_bytes,
                                                         std::max(room_bytes_, min_wanted_bytes))
                                            : room_bytes_;
  in_chunks_ += records;
  records_ += records + skipped.records;
  offset_ += bytes + skipped.bytes;
}

ChunkProducer::Product FramingProducer::produce(ChunkRequest request, std::uint64_t) {
  ensure_buffer(request);
  const std::span<std::byte> buffer = request.buffer.bytes();
  assert(refs_bytes() <= buffer.size());
  Filling filling{
      .counted = request.counted, .memory = buffer.subspan(refs_bytes()), .refs = buffer.data()};
  const bool is_counted = request.counted.count != 0;
  if (is_counted)
    fill_counted(filling);
  else if (!stream_.source)
    fill_in_place(filling);
  else if (!fill_from_source(filling, *request.demand))
    return {};
  if (filling.count == 0) return {.chunk = nullptr, .is_end = true};
  assert(filling.count <= chunk_records_);
  const CountedRecords place = is_counted ? request.counted : next_records();
  const std::byte* const last = filling.rows + (filling.count - 1) * layout_.record_bytes;
  Chunk chunk{.run = request.run,
              .first = place.first,
              .count = filling.count,
              .last_key = encode<max_key_words>(layout_, last),
              .buffer = std::move(request.buffer),
              .in_place = filling.rows,
              .fingerprint = filling.fingerprint,
              .number = place.number,
              .offset = place.offset,
              .gaps = std::move(filling.gaps)};
  if (!is_counted)
    advance(filling.count, filling.bytes.size(), gaps_before(chunk.gaps, filling.count));
  const MappedRange mapped = filling.large ? MappedRange{} : place.mapped;
  return {share(std::move(chunk), filling.bytes, mapped, std::move(request.instead),
                std::move(filling.large))};
}

// Finds the records that begin() has counted.
void FramingProducer::fill_counted(Filling& filling) {
  find_records(filling, filling.counted.bytes, false);
  if (filling.count != filling.counted.count)
    throw Corrupted(fmt::format("{}: {} records were found where {} were counted",
                                stream_.path.string(), filling.count, filling.counted.count));
}

// Uses the bytes in place. Only a last record without a terminator is copied.
void FramingProducer::fill_in_place(Filling& filling) {
  for (std::uint64_t wanted = wanted_bytes_; !unread_.empty();) {
    const auto bytes = unread_.first(std::min<std::uint64_t>(wanted, unread_.size()));
    if (stream_.mapped_page_bytes != 0) populate(bytes);
    const std::uint64_t skipped = find_records(filling, bytes, false);
    unread_ = unread_.subspan(skipped + filling.bytes.size());
    if (filling.count != 0) return;
    if (skipped != 0) continue;
    if (bytes.size() < unread_.size()) {
      wanted *= 2;
    } else {
      filling.large = take_large(unread_.size() + margin_bytes, 0, unread_.size());
      std::ranges::copy(unread_, filling.large->bytes().begin());
      find_last_record(filling, filling.large->bytes(), unread_.size());
      unread_ = {};
    }
  }
}

// Returns false if no record is complete and a larger buffer is refused; the bytes that it read are
// carried over.
bool FramingProducer::fill_from_source(Filling& filling, const std::atomic<Demand>& demand) {
  std::span<std::byte> memory = filling.memory.first(room_bytes_ + margin_bytes);
  std::uint64_t wanted = std::min(wanted_bytes_, room_bytes_);
  std::uint64_t filled = 0;
  bool has_read = false;
  for (;;) {
    // Bytes after the records must be readable, and one may become a terminator.
    assert(filled <= wanted && wanted + margin_bytes <= memory.size());
    filled += take_carried(memory.subspan(filled, wanted - filled));
    if (filled < wanted && !exhausted_) {
      filled += read(memory.subspan(filled, wanted - filled), demand);
      has_read = true;
    }
    const std::span<const std::byte> bytes = memory.first(filled);
    if (const std::uint64_t skipped = find_records(filling, bytes, false)) {
      // Close the gap between the records that were found and the rest.
      std::byte* const rest = memory.data() + filling.bytes.size();
      filled -= skipped;
      std::memmove(rest, rest + skipped, filled - filling.bytes.size());
      if (filling.count == 0) continue;
    }
    if (filling.count != 0) break;
    if (filled < wanted && exhausted_) {
      if (filled != 0) find_last_record(filling, memory, filled);
      return true;
    }
    if (filled < wanted) continue;  // what the pipe held is not a whole record
    // The bytes hold no whole record: read more of it, in larger memory if necessary.
    wanted *= 2;
    if (wanted + margin_bytes <= memory.size()) continue;
    // Records read ahead must not take the room that the next ones of a sort wait for.
    if (demand == Demand::none && (reading_.order == ReadOrder::one_by_one ||
                                   *large_used_bytes_ + wanted > reading_.plan.large_bytes / 2))
      break;
    if (go_on_in_place(wanted + margin_bytes)) {
      filling.large.reset();
      fill_in_place(filling);
      return true;
    }
    std::shared_ptr<LargeMemory> larger = take_large(
        wanted + margin_bytes, filling.large ? filling.large->bytes().size() : 0, bytes.size());
    std::ranges::copy(bytes, larger->bytes().begin());
    filling.large = std::move(larger);
    memory = filling.large->bytes();
  }
  carry_over(memory.subspan(filling.bytes.size(), filled - filling.bytes.size()), has_read);
  return filling.count != 0;
}

// Turns the source into memory if `bytes` more bytes exceed the limit on long records and the
// source can be mapped. Returns whether it did.
bool FramingProducer::go_on_in_place(std::uint64_t bytes) {
  if (*large_used_bytes_ + bytes <= reading_.plan.large_bytes) return false;
  stream_.in_place = stream_.map();
  hold_file();
  if (stream_.in_place.empty()) return false;
  stream_.source.reset();
  stream_.mapped_page_bytes = page_bytes();
  unread_ = stream_.in_place.subspan(offset_ - stream_.offset);
  carried_.clear();
  carried_from_ = 0;
  return true;
}

std::uint64_t FramingProducer::take_carried(std::span<std::byte> into) {
  assert(carried_from_ <= carried_.size());
  const std::uint64_t count = std::min(into.size(), carried_.size() - carried_from_);
  std::copy_n(carried_.data() + carried_from_, count, into.data());
  carried_from_ += count;
  return count;
}

// Carries over the last bytes that were taken or read.
void FramingProducer::carry_over(std::span<const std::byte> left, bool has_read) {
  if (has_read) {
    carried_.assign(left.begin(), left.end());
    carried_from_ = 0;
  } else {
    assert(left.size() <= carried_from_);  // the bytes are still there
    carried_from_ -= left.size();
  }
}

// Reads until `into` is full, the source ends, or a pipe is empty and what it held is needed now.
std::uint64_t FramingProducer::read(std::span<std::byte> into, const std::atomic<Demand>& demand) {
  std::uint64_t filled = 0;
  while (filled < into.size() && !exhausted_) {
    const std::optional<std::size_t> got = stream_.source->read(into.subspan(filled));
    if (demand == Demand::dropped) throw Interrupted();
    exhausted_ = !got;
    filled += got.value_or(0);
    if (got == std::size_t{0} && demand == Demand::starved) break;
  }
  return filled;
}

// Finds the whole records at the start of `bytes`, as many as there is room for. Returns the bytes
// of records that must be skipped among them. Those of a source are overwritten by the records
// after them; in memory, only the first records are skipped, and others end the chunk.
std::uint64_t FramingProducer::find_records(Filling& filling, std::span<const std::byte> bytes,
                                            bool at_end) {
  const RecordFormat& format = reading_.format;
  const bool is_counted = filling.counted.count != 0;  // then nothing else of this may be read
  const bool closes_gaps = !is_counted && stream_.source != nullptr;
  std::uint64_t end = 0;  // of the records that are found, not counting bytes skipped before them
  std::uint64_t skipped = 0;
  while (filling.count < chunk_records_) {
    auto* const into =
        reinterpret_cast<PrefixRef*>(filling.refs + filling.count * format.ref_bytes());
    const std::uint64_t wanted = std::min(chunk_records_ - filling.count, batch_records);
    const Indexed found = format.frame(bytes.subspan(skipped + end), at_end, wanted, into);
    if (closes_gaps && skipped != 0)
      move_back({into, found.records}, {bytes.data() + skipped + end, found.bytes}, skipped);
    if (reading_.sum)
      filling.fingerprint += rows_fingerprint(reading_.sum, layout_, found.rows, found.records);
    if (filling.count == 0) filling.rows = found.rows;
    filling.count += found.records;
    end += found.bytes;
    assert(found.records <= wanted && skipped + end <= bytes.size());
    if (found.bad) {
      const std::byte* const record = bytes.data() + skipped + end;
      if (!format.traits().may_skip || !found.bad->can_skip())
        format.throw_bad_record(stream_.path, place_after(filling, end), *found.bad, record);
      if (!closes_gaps && filling.count != 0) break;
      skip(filling, found.bad->bytes);
      skipped += found.bad->bytes;
    } else if (found.records == 0) {
      break;
    }
  }
  filling.bytes = bytes.subspan(closes_gaps ? 0 : skipped, end);
  return skipped;
}

// Moves records and their prefix references back by `distance` bytes.
void FramingProducer::move_back(std::span<PrefixRef> refs, std::span<const std::byte> records,
                                std::uint64_t distance) {
  // The memory of a source belongs to the chunk that is filled.
  auto* const from = const_cast<std::byte*>(records.data());
  std::memmove(from - distance, from, records.size());
  for (PrefixRef& ref : refs) ref.place -= distance;  // the address is in its low bits
}

// Counts the record after those that were found, of `bytes` bytes, as skipped.
void FramingProducer::skip(Filling& filling, std::uint64_t bytes) {
  ++skipped_;
  if (filling.count == 0) {
    ++records_;
    offset_ += bytes;
  } else if (!filling.gaps.empty() && filling.gaps.back().index == filling.count) {
    ++filling.gaps.back().records;
    filling.gaps.back().bytes += bytes;
  } else {
    filling.gaps.push_back({filling.count, 1, bytes});
  }
}

// Returns the place after the records that were found, which have `bytes` bytes.
Place FramingProducer::place_after(const Filling& filling, std::uint64_t bytes) const {
  const Gap skipped = gaps_before(filling.gaps, filling.count);
  const bool is_counted = filling.counted.count != 0;
  return stream_.place_of(
      (is_counted ? filling.counted.number : records_) + filling.count + skipped.records,
      (is_counted ? filling.counted.offset : offset_) + bytes + skipped.bytes);
}

// Finds the last record: the first `bytes` bytes of `memory`, which has room for its end.
void FramingProducer::find_last_record(Filling& filling, std::span<std::byte> memory,
                                       std::uint64_t bytes) {
  for (const char c : reading_.format.end_of_record()) memory[bytes++] = static_cast<std::byte>(c);
  find_records(filling, memory.first(bytes), true);
}

// Takes memory for a record beside `own_bytes` of its chunk. In a sort, waits for the records of
// other chunks to be let go, as long as some are: that happens once they are sorted.
std::shared_ptr<FramingProducer::LargeMemory> FramingProducer::take_large(
    std::uint64_t bytes, std::uint64_t own_bytes, std::uint64_t found_bytes) const {
  constexpr std::chrono::milliseconds patience{3000}, step{1};
  const std::uint64_t max_bytes = reading_.plan.large_bytes;
  const bool may_wait = reading_.order == ReadOrder::one_by_one && own_bytes + bytes <= max_bytes;
  std::uint64_t used = *large_used_bytes_;
  for (auto left = patience / step; used + bytes > max_bytes; --left) {
    if (!may_wait || left == 0) throw_too_long(bytes, found_bytes, used);
    std::this_thread::sleep_for(step);
    if (*large_used_bytes_ < used) left = patience / step;
    used = *large_used_bytes_;
  }
  return std::make_shared<LargeMemory>(bytes, large_used_bytes_);
}

// Throws the Error for a record that needs `bytes` bytes of memory or more, of which `found_bytes`
// are read, where other records use `used_bytes`. Reads on to learn the length of a line.
void FramingProducer::throw_too_long(std::uint64_t bytes, std::uint64_t found_bytes,
                                     std::uint64_t used_bytes) const {
  constexpr std::uint64_t max_searched_bytes = std::uint64_t{1} << 30;
  const std::string_view line_end =
      reading_.format.traits().can_search ? reading_.format.end_of_record() : "";
  std::uint64_t length = found_bytes;
  const auto find_end = [&](std::span<const std::byte> part) {
    const auto end = std::ranges::find(part, static_cast<std::byte>(line_end.front()));
    length += static_cast<std::uint64_t>(end - part.begin());
    return end != part.end();
  };
  bool has_end = !stream_.source;
  if (!has_end && !line_end.empty()) has_end = find_end(std::span(carried_).subspan(carried_from_));
  std::vector<std::byte> block(MiB);
  while (!has_end && !line_end.empty() && length < max_searched_bytes) {
    const auto got = stream_.source->read(block);
    if (got == std::size_t{0}) break;  // a pipe is empty
    has_end = !got || find_end(std::span(block).first(*got));
  }
  while (bytes < length + margin_bytes) bytes *= 2;
  // A record moves to larger memory as more of it is found.
  const std::uint64_t needed = used_bytes + bytes + bytes / 2;
  throw_error(
      ErrorCode::memory,
      "{}: {} has {}{} bytes, too long for the memory budget: to read the long records that "
      "are merged at a time takes {} bytes, and they get {}; use a larger {}: try {} "
      "times as large",
      stream_.path, place_text(stream_.place_of(records_, offset_)), has_end ? "" : "more than ",
      length, needed, reading_.plan.large_bytes, Setting::memory,
      needed / reading_.plan.large_bytes + 1);
}

}  // namespace corank
