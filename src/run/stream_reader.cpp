#include "run/stream_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "corank/error.hpp"
#include "io/mapped_file.hpp"
#include "util/math.hpp"
#include "util/setting_format.hpp"

namespace corank {
namespace {

constexpr std::uint64_t margin_bytes = stream_margin_bytes;
// Records that are indexed together, few enough that their bytes stay in L1.
constexpr std::uint64_t batch_records = 256;
constexpr std::uint64_t min_wanted_bytes = 4096;

class RunSource final : public Source {
 public:
  explicit RunSource(const Run& run) : run_(run) {}

  std::optional<std::size_t> read(std::span<std::byte> into) override {
    const std::uint64_t count = std::min<std::uint64_t>(into.size(), run_.records() - at_);
    if (count == 0) return std::nullopt;
    run_.read(at_, count, into.first(count));
    at_ += count;
    return count;
  }

 private:
  const Run& run_;
  std::uint64_t at_ = 0;
};

}  // namespace

Stream stream_of(const Run& run, std::stop_token stop) {
  Stream stream{run.path(), run.offset(), nullptr, {}, run.mapped_page_bytes(), run.header_lines()};
  if (run.input().codec != Codec::none) stream.path += ", decompressed";
  if (run.is_stream())
    stream.source = run.source(std::move(stop));
  else if (const std::byte* bytes = run.in_place(0))
    stream.in_place = {bytes, run.records()};
  else
    stream.source = std::make_unique<RunSource>(run);
  return stream;
}

// Memory for records that do not fit in a buffer; counted against the limit on long records.
class StreamReader::LargeMemory {
 public:
  LargeMemory(std::uint64_t bytes, std::shared_ptr<std::atomic<std::uint64_t>> used)
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
  std::shared_ptr<std::atomic<std::uint64_t>> used_;
};

// A chunk under construction.
struct StreamReader::Filling {
  Buffer buffer;
  std::shared_ptr<std::byte[]> instead;  // replaces a buffer if the pool had none
  std::shared_ptr<LargeMemory> large;    // holds the bytes if the buffer is too small
  std::span<PrefixRef> entries;          // room for prefix references; empty for fixed-size records
  const std::byte* records = nullptr;    // prefix references, or the records themselves
  std::span<const std::byte> bytes;      // of the records
  std::uint64_t count = 0;
  std::uint64_t fingerprint = 0;
  bool words_ascend = true;
  MappedRange mapped{};  // mapping that holds the bytes, if any
};

StreamReader::StreamReader(std::vector<Stream> streams, const KeyEncoding& encoding,
                           const PassPlan& plan, Order order, BufferPool& pool, unsigned threads,
                           FingerprintSum sum, std::stop_token stop, TraceRow row)
    : encoding_(encoding),
      order_(order),
      chunk_records_(plan.chunk_records),
      room_bytes_(encoding.layout().text
                      ? plan.chunk_bytes - plan.chunk_records * sizeof(PrefixRef) - margin_bytes
                      : plan.chunk_records * encoding.record_bytes()),
      large_bytes_(plan.large_bytes),
      read_ahead_limit_(plan.read_ahead),
      pool_(pool),
      sum_(sum),
      stop_(std::move(stop)),
      large_used_bytes_(std::make_shared<std::atomic<std::uint64_t>>(0)),
      runs_(streams.size()) {
  assert(plan.read_ahead != 0);
  assert(room_bytes_ != 0 && room_bytes_ < plan.chunk_bytes);
  for (std::uint32_t run = 0; run < runs_.size(); ++run) {
    runs_[run].offset = streams[run].offset;
    runs_[run].stream = std::move(streams[run]);
    runs_[run].unread = runs_[run].stream.in_place;
    // Stagger the chunk ends, as first_chunk_records() does.
    const bool goes_on = runs_[run].unread.size() > room_bytes_;
    runs_[run].wanted_bytes =
        goes_on && order == Order::forecast
            ? std::max(part_of(room_bytes_, run + 1, runs_.size()), min_wanted_bytes)
            : room_bytes_;
    forecast_.push({{}, 0, run});
  }
  {
    std::lock_guard lock(mutex_);
    read_ahead();
  }
  try {
    for (row.number = 0; row.number < threads; ++row.number)
      threads_.emplace_back([this, row] { serve_requests(row); });
  } catch (...) {
    close();  // stops the threads that have started
    throw;
  }
}

StreamReader::~StreamReader() {
  close();
}

void StreamReader::close() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  requested_.notify_all();
}

ChunkRef StreamReader::next(std::uint32_t run) {
  assert(run < runs_.size());
  Stopwatch waiting(wait_);
  std::unique_lock lock(mutex_);
  RunState& state = runs_[run];
  while (state.ready.empty() && !state.ended) {
    if (!state.in_flight) issue(run, true);
    const bool arrived = loaded_.wait(lock, stop_, [&] { return failure_ || !state.in_flight; });
    if (failure_) std::rethrow_exception(failure_);
    if (!arrived) throw Interrupted();
  }
  if (state.ready.empty()) return nullptr;
  ChunkRef chunk = std::move(state.ready.front());
  state.ready.pop();
  assert(chunk->run == run && ahead_ != 0);
  state.fingerprint += chunk->fingerprint.value_or(0);
  --ahead_;
  read_ahead();
  return chunk;
}

std::uint64_t StreamReader::skipped() const {
  std::uint64_t skipped = 0;
  for (const RunState& run : runs_) skipped += run.skipped;
  return skipped;
}

// Requests the next chunk of `run`. If the pool is empty, an urgent request gets memory of its own,
// because the merge cannot continue without it.
void StreamReader::issue(std::uint32_t run, bool urgent) {
  assert(!runs_[run].in_flight && !runs_[run].ended);
  runs_[run].in_flight = true;
  ++ahead_;
  requests_.push(
      {run, pool_.available() != 0 || !encoding_.layout().text ? pool_.lease() : Buffer(), urgent});
  requested_.notify_one();
}

void StreamReader::read_ahead() {
  while (ahead_ < read_ahead_limit_ && !forecast_.empty() && pool_.available() != 0) {
    const std::uint32_t run = forecast_.top().run;
    forecast_.pop();
    if (!runs_[run].in_flight && !runs_[run].ended) issue(run, false);
  }
}

void StreamReader::forecast(const Chunk& chunk) {
  assert(chunk.count != 0);
  if (order_ != Order::forecast) return forecast_.push({{}, 0, chunk.run});
  const TextLayout* const text = encoding_.layout().text;
  if (!text) return forecast_.push({chunk.last_key, 0, chunk.run});
  const PrefixRef& last = reinterpret_cast<const PrefixRef*>(chunk.records())[chunk.count - 1];
  const std::byte* const record = record_of(last);
  const std::uint64_t bytes = record_bytes(*text, last);
  Key<max_key_words> key;
  for (int word = 0; word < max_key_words; ++word)
    key.word[word] = text_word(*text, record, bytes, static_cast<std::uint64_t>(word));
  const bool whole = text_words(*text, record, bytes) <= max_key_words;
  forecast_.push({key, whole ? 0 : ++turns_, chunk.run});
}

void StreamReader::serve_requests(TraceRow row) {
  std::unique_lock lock(mutex_);
  for (;;) {
    {
      Stopwatch idling(idle_);
      requested_.wait(lock, [this] { return closing_ || !requests_.empty(); });
    }
    if (closing_) return;
    Request request = std::move(requests_.front());
    requests_.pop();
    lock.unlock();
    const std::uint32_t run = request.run;
    std::optional<ChunkRef> chunk;
    std::exception_ptr failure;
    try {
      Stopwatch reading(busy_, row, run);
      chunk = load(std::move(request));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    RunState& state = runs_[run];
    assert(state.in_flight);
    state.in_flight = false;
    if (!failure) try {  // allocations may fail here, too
        if (chunk && *chunk) {
          forecast(**chunk);
          state.ready.push(*std::move(chunk));
        } else {
          state.ended = chunk.has_value();
          assert(ahead_ != 0);
          --ahead_;
        }
        read_ahead();
      } catch (...) {
        failure = std::current_exception();
      }
    if (failure) failure_ = failure;
    loaded_.notify_all();
  }
}

std::optional<ChunkRef> StreamReader::load(Request request) {
  RunState& run = runs_[request.run];
  const KeyLayout layout = encoding_.layout();
  Filling filling;
  filling.buffer = std::move(request.buffer);
  const std::uint64_t entries_bytes = layout.text ? chunk_records_ * sizeof(PrefixRef) : 0;
  if (filling.buffer.bytes().empty()) {
    const std::uint64_t bytes = entries_bytes + room_bytes_ + margin_bytes;
    filling.instead.reset(new std::byte[bytes]);
    filling.buffer = Buffer({filling.instead.get(), bytes});
  }
  assert(filling.buffer.bytes().size() >= entries_bytes);
  if (layout.text) {
    filling.entries = {reinterpret_cast<PrefixRef*>(filling.buffer.bytes().data()), chunk_records_};
    filling.records = filling.buffer.bytes().data();
  }
  if (!run.stream.source)
    fill_in_place(run, filling);
  else if (!fill_from_source(run, filling, request.urgent))
    return std::nullopt;
  if (filling.count == 0) return nullptr;
  assert(filling.count <= chunk_records_);
  if (!layout.text) filling.records = filling.bytes.data();
  // Short records fill the room for prefix references before the room for bytes. The next chunk
  // then reads fewer bytes, so that few are carried over.
  run.wanted_bytes = filling.count == chunk_records_
                         ? std::clamp(filling.bytes.size() + filling.bytes.size() / 16,
                                      min_wanted_bytes, std::max(room_bytes_, min_wanted_bytes))
                         : room_bytes_;
  const std::uint64_t first = run.in_chunks, number = run.records, offset = run.offset;
  run.in_chunks += filling.count;
  run.records += filling.count;
  run.offset += filling.bytes.size();
  bytes_read_ += filling.bytes.size();
  const auto last_key =
      encode<max_key_words>(layout, filling.records + (filling.count - 1) * layout.record_bytes);
  return ChunkRef(
      new Chunk{request.run, first, filling.count, last_key, std::move(filling.buffer),
                filling.records, filling.fingerprint, number, offset,
                layout.text && filling.words_ascend},
      [mapped = filling.mapped, bytes = filling.bytes, instead = std::move(filling.instead),
       large = std::move(filling.large)](const Chunk* chunk) {
        if (mapped.page_bytes != 0) forget(bytes, mapped);
        delete chunk;
      });
}

// Uses the bytes in place. Only a last record without a terminator is copied.
void StreamReader::fill_in_place(RunState& run, Filling& filling) {
  std::span<const std::byte>& rest = run.unread;
  for (std::uint64_t wanted = run.wanted_bytes; !rest.empty();) {
    const auto bytes = rest.first(std::min<std::uint64_t>(wanted, rest.size()));
    if (run.stream.mapped_page_bytes != 0) populate(bytes);
    if (const std::uint64_t skipped = find_records(run, filling, bytes, false)) {
      rest = rest.subspan(skipped);
    } else if (filling.count != 0) {
      filling.mapped = {run.stream.in_place, run.stream.mapped_page_bytes};
      rest = rest.subspan(filling.bytes.size());
      return;
    } else if (bytes.size() < rest.size()) {
      wanted *= 2;
    } else {
      filling.large = take_large(run, rest.size() + margin_bytes);
      std::ranges::copy(rest, filling.large->bytes().begin());
      find_last_record(run, filling, filling.large->bytes(), rest.size());
      rest = {};
    }
  }
}

// Returns false if no record is complete and a larger buffer is refused; the bytes that it read are
// carried over.
bool StreamReader::fill_from_source(RunState& run, Filling& filling, bool urgent) {
  std::span<std::byte> memory =
      filling.buffer.bytes().subspan(filling.entries.size_bytes(), room_bytes_ + margin_bytes);
  std::uint64_t wanted = std::min(run.wanted_bytes, room_bytes_);
  std::uint64_t filled = 0;
  bool has_read = false;
  for (;;) {
    // Bytes after the records must be readable, and one may become a terminator.
    assert(filled <= wanted && wanted + margin_bytes <= memory.size());
    assert(run.carried_from <= run.carried.size());
    const std::uint64_t carried =
        std::min<std::uint64_t>(wanted - filled, run.carried.size() - run.carried_from);
    std::copy_n(run.carried.data() + run.carried_from, carried, memory.data() + filled);
    run.carried_from += carried;
    filled += carried;
    if (filled < wanted && !run.exhausted) {
      filled += read_all(*run.stream.source, memory.subspan(filled, wanted - filled));
      run.exhausted = filled < wanted;
      has_read = true;
    }
    const std::span<const std::byte> bytes = memory.first(filled);
    if (const std::uint64_t skipped = find_records(run, filling, bytes, false)) {
      std::memmove(memory.data(), memory.data() + skipped, filled - skipped);
      filled -= skipped;
      continue;
    }
    if (filling.count != 0) break;
    if (filled < wanted) {
      if (filled != 0) find_last_record(run, filling, memory, filled);
      return true;
    }
    // The bytes hold no whole record: read more of it, in larger memory if necessary.
    wanted *= 2;
    if (wanted + margin_bytes <= memory.size()) continue;
    if (!urgent && *large_used_bytes_ + wanted > large_bytes_ / 2) break;
    std::shared_ptr<LargeMemory> larger = take_large(run, wanted + margin_bytes);
    std::ranges::copy(bytes, larger->bytes().begin());
    filling.large = std::move(larger);
    memory = filling.large->bytes();
  }
  const std::span<const std::byte> left =
      memory.subspan(filling.bytes.size(), filled - filling.bytes.size());
  if (has_read) {
    run.carried.assign(left.begin(), left.end());
    run.carried_from = 0;
  } else {
    assert(left.size() <= run.carried_from);  // the bytes are still there
    run.carried_from -= left.size();
  }
  return filling.count != 0;
}

// Finds the whole records at the start of `bytes`, as many as there is room for. If the first
// record must be skipped, returns its size, and the caller skips it; otherwise returns 0.
std::uint64_t StreamReader::find_records(RunState& run, Filling& filling,
                                         std::span<const std::byte> bytes, bool at_end) const {
  const KeyLayout layout = encoding_.layout();
  std::uint64_t end = 0;
  if (!layout.text) {
    filling.count = std::min(chunk_records_, bytes.size() / layout.record_bytes);
    end = filling.count * layout.record_bytes;
    if (sum_) filling.fingerprint = sum_(bytes.first(end), layout.record_bytes);
  }
  while (filling.count < filling.entries.size()) {
    const auto into = filling.entries.subspan(filling.count);
    const Indexed found =
        index_records(*layout.text, bytes.subspan(end), at_end,
                      into.first(std::min<std::uint64_t>(into.size(), batch_records)));
    if (sum_)
      filling.fingerprint += prefix_refs_fingerprint(sum_, *layout.text, into.first(found.records));
    filling.words_ascend &= found.words_ascend;
    if (found.records != 0 && filling.count != 0)
      filling.words_ascend &= filling.entries[filling.count - 1].word <= into.front().word;
    filling.count += found.records;
    end += found.bytes;
    assert(found.records <= into.size() && end <= bytes.size());
    if (found.bad) {
      if (layout.text->bad_numbers != BadNumbers::skip || !found.bad->can_skip())
        throw_bad_record(run.stream.path, run.stream.header_lines, run.records + filling.count,
                         run.offset + end, *layout.text, *found.bad, bytes.data() + end);
      if (filling.count != 0) break;
      ++run.records;
      ++run.skipped;
      run.offset += found.bad->bytes;
      return found.bad->bytes;
    }
    if (found.records == 0) break;
  }
  filling.bytes = bytes.first(end);
  return 0;
}

// Finds the last record: the first `bytes` bytes of `memory`, which has room for a terminator.
void StreamReader::find_last_record(RunState& run, Filling& filling, std::span<std::byte> memory,
                                    std::uint64_t bytes) const {
  const TextLayout* const text = encoding_.layout().text;
  if (!text)
    throw Error(
        fmt::format("{}: ends at byte {}, {} bytes after the last whole record; check that "
                    "it is whole, and {}",
                    run.stream.path.string(), run.offset + bytes, bytes, Setting::record));
  if (text->kind != TextKind::pairs) memory[bytes++] = static_cast<std::byte>(text->terminator);
  find_records(run, filling, memory.first(bytes), true);
}

std::shared_ptr<StreamReader::LargeMemory> StreamReader::take_large(const RunState& run,
                                                                    std::uint64_t bytes) const {
  if (*large_used_bytes_ + bytes > large_bytes_) {
    throw Error(ErrorCode::memory,
                fmt::format("{}: {} is too long for the memory budget, of which all long records "
                            "that are merged at a "
                            "time get {} bytes; use a larger {}",
                            run.stream.path.string(),
                            place_of(*encoding_.layout().text, run.stream.header_lines, run.records,
                                     run.offset),
                            large_bytes_, Setting::memory));
  }
  return std::make_shared<LargeMemory>(bytes, large_used_bytes_);
}

}  // namespace corank
