#include "run/chunk_reader.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <optional>
#include <utility>

#include "corank/error.hpp"
#include "format/rows.hpp"
#include "run/block_producer.hpp"
#include "run/framing_producer.hpp"

namespace corank {
namespace {

// Time that the merge waits for a pipe before it does something else.
constexpr std::chrono::milliseconds patience{20};
constexpr unsigned max_direct_threads = 32;

bool has_direct(const ChunkProducers& runs) {
  return std::ranges::any_of(runs, [](const auto& run) { return run->traits().is_direct; });
}

// Returns how many chunks of a run may be read ahead at a time. With few runs, one read of each at
// a time would leave the device idle.
std::uint64_t depth_of(const Reading& reading, std::size_t num_runs) {
  if (reading.order == ReadOrder::one_by_one) return 1;
  return std::clamp<std::uint64_t>(reading.plan.read_ahead / std::max<std::size_t>(num_runs, 1), 1,
                                   4);
}

// Returns how many chunks of a run may be ahead when it is read on, if its requests are begun; 0 if
// none are. The runs of a merge share the room, so that none fills it with chunks that are needed
// last. A merge of as many runs as threads has work for all threads, and would count in vain; but
// parsing records takes longer than counting them, and of runs that follow one another only one is
// wanted at a time.
std::uint64_t max_ahead_of(const Reading& reading, std::size_t num_runs, unsigned threads) {
  if (reading.order == ReadOrder::one_by_one) return std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t share = reading.plan.read_ahead / std::max<std::size_t>(num_runs, 1);
  const bool has_work = num_runs >= threads && !reading.format.traits().are_parsed;
  return !has_work && share > 1 ? share : 0;
}

ChunkProducers producers_of(std::span<const Run> runs, bool in_sequence, const Reading& reading,
                            const std::stop_token& stop) {
  if (in_sequence) {
    std::vector<Stream> streams;
    for (const Run& run : runs) streams.push_back(stream_of(run, reading, stop));
    return make_producers(std::move(streams), reading);
  }
  ChunkProducers producers;
  for (std::uint32_t run = 0; run < runs.size(); ++run)
    producers.push_back(std::make_unique<BlockProducer>(
        runs[run], run, static_cast<std::uint32_t>(runs.size()), reading));
  return producers;
}

}  // namespace

ChunkProducers make_producers(std::span<const Run> runs, bool in_sequence, const Reading& reading,
                              const std::stop_token& stop) {
  ChunkProducers producers = producers_of(runs, in_sequence, reading, stop);
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (runs[i].is_read_once() && !runs[i].is_stream())
      producers[i]->punch_holes(std::make_unique<HolePuncher>(
          runs[i].descriptor(), runs[i].offset(), runs[i].file_bytes()));
  return producers;
}

ChunkReader::ChunkReader(ChunkProducers runs, const Reading& reading, BufferPool& pool,
                         unsigned threads, std::stop_token stop, const TraceRow& row)
    : reading_(reading),
      pool_(pool),
      stop_(std::move(stop)),
      ring_(has_direct(runs) ? UringReader::open(static_cast<unsigned>(reading.plan.read_ahead))
                             : nullptr),
      max_ahead_of_run_(max_ahead_of(reading, runs.size(), threads)),
      runs_(runs.size()),
      queue_(threads_for(runs, threads), [this, row](ChunkRequest& request, unsigned worker) {
        serve(request, {row.trace, row.stage, row.partition, worker});
      }) {
  assert(reading.plan.read_ahead != 0);
  if (ring_) slots_.resize(reading.plan.read_ahead);
  const auto lock = queue_.lock();
  try {
    for (std::uint32_t run = 0; run < runs.size(); ++run) {
      const bool has_known_places = runs[run]->traits().has_known_places;
      runs_[run].producer = std::move(runs[run]);
      for (std::uint64_t i = has_known_places ? depth_of(reading, runs.size()) : 1; i > 0; --i)
        forecast_.push({.run = run});
    }
    read_ahead(lock);
  } catch (...) {
    drop_requests();
    throw;
  }
}

ChunkReader::~ChunkReader() {
  drop_requests();
}

unsigned ChunkReader::threads_for(const ChunkProducers& runs, unsigned threads) const {
  if (ring_) return 1;
  if (has_direct(runs))
    return static_cast<unsigned>(
        std::min<std::uint64_t>(reading_.plan.read_ahead, max_direct_threads));
  const auto pipes =
      std::ranges::count_if(runs, [](const auto& run) { return run->traits().is_pipe; });
  return threads + static_cast<unsigned>(pipes);
}

// Makes the threads return from pipes without data.
void ChunkReader::drop_requests() {
  for (RunState& run : runs_) run.demand = Demand::dropped;
}

bool ChunkReader::arrives(std::uint32_t run) {
  assert(run < runs_.size());
  Stopwatch waiting(wait_);
  auto lock = queue_.lock();
  queue_.check(lock);
  taken_run_ = run;
  RunState& state = runs_[run];
  const bool is_pipe = state.producer->traits().is_pipe;
  const auto is_there = [&] {
    return state.has_next() || state.fails_next() || state.in_flight == 0;
  };
  while (!state.has_next()) {
    if (state.fails_next()) std::rethrow_exception(state.failure.error);
    if (state.demand == Demand::none) state.demand = Demand::waiting;
    if (state.in_flight == 0 && !state.ended) issue(run, lock);
    if (state.in_flight == 0 && state.ended) break;
    if (!is_pipe) {
      queue_.wait(lock, stop_, is_there);
    } else if (!queue_.wait_until(lock, stop_, TraceClock::now() + patience, is_there)) {
      is_kept_waiting_ = true;
      read_pipes_ahead(lock);
      return false;
    }
  }
  return true;
}

ChunkRef ChunkReader::next(std::uint32_t run) {
  while (!arrives(run))
    if (reading_.order == ReadOrder::forecast) runs_[run].demand = Demand::starved;
  ChunkRef chunk = take(run);
  if (chunk) runs_[run].producer->taken(*chunk);
  return chunk;
}

ChunkRef ChunkReader::take(std::uint32_t run) {
  RunState& state = runs_[run];
  const auto lock = queue_.lock();
  is_kept_waiting_ = false;
  state.demand = Demand::none;
  if (!state.has_next()) {
    if (!state.ready.empty()) throw Corrupted("a chunk of a run was lost");
    return nullptr;
  }
  ChunkRef chunk = std::move(state.ready.front());
  state.ready.erase(state.ready.begin());
  assert(chunk->run == run && chunk->first == state.taken && chunk->count != 0);
  state.taken += chunk->count;
  state.fingerprint += chunk->fingerprint.value_or(0);
  assert(ahead_ != 0);
  --ahead_;
  if (state.held) forecast_.push(*std::exchange(state.held, std::nullopt));
  read_ahead(lock);
  return chunk;
}

std::uint64_t ChunkReader::skipped() const {
  std::uint64_t skipped = 0;
  for (const RunState& run : runs_) skipped += run.producer->skipped();
  return skipped;
}

bool ChunkReader::can_issue(const RunState& run) const {
  return !run.ended && !run.failure.error &&
         (run.in_flight == run.begun || run.producer->traits().has_known_places);
}

// Requests the next chunk of `run`. If the pool is empty, waits until the merge returns a buffer,
// or lets the producer do without.
void ChunkReader::issue(std::uint32_t run, const Queue::Lock& lock) {
  RunState& state = runs_[run];
  assert(can_issue(state));
  const ChunkProducer::Traits& traits = state.producer->traits();
  ChunkRequest request{.run = run, .demand = &state.demand};
  state.ended = !state.producer->request(request);
  if (state.ended) return;
  ++state.in_flight;
  ++ahead_;
  if (traits.needs_buffers && !(traits.may_lack_buffers && pool_.available() == 0))
    request.buffer = pool_.lease();
  if (traits.is_immediate) {
    Stopwatch reading(busy_);
    return loaded(run, state.producer->produce(std::move(request), 0));
  }
  queue_.submit(std::move(request), lock);
}

// Returns whether chunks of `run` would fill the room that the run taken now needs first.
bool ChunkReader::is_too_early(std::uint32_t run) const {
  if (reading_.order != ReadOrder::one_by_one || run == taken_run_) return false;
  const RunState& taken = runs_[taken_run_];
  const std::uint64_t later = ahead_ - taken.in_flight - taken.ready.size();
  return !taken.ended && later >= std::max<std::uint64_t>(reading_.plan.read_ahead / 4, 1);
}

void ChunkReader::read_ahead(const Queue::Lock& lock) {
  while (ahead_ < reading_.plan.read_ahead && !forecast_.empty()) {
    const std::uint32_t run = forecast_.top().run;
    if (is_too_early(run)) return;
    const ChunkProducer::Traits& traits = runs_[run].producer->traits();
    if (traits.needs_buffers && pool_.available() == 0) return;
    forecast_.pop();
    if (traits.is_immediate || !can_issue(runs_[run])) continue;
    issue(run, lock);
    if (reading_.order == ReadOrder::one_by_one && traits.has_known_places)
      forecast_.push({.run = run});
  }
}

// Reads all pipes, whatever the forecast. Leaves a buffer for each run, so that none of them waits
// for a buffer that only the others can free.
void ChunkReader::read_pipes_ahead(const Queue::Lock& lock) {
  for (std::uint32_t run = 0; run < runs_.size(); ++run)
    if (runs_[run].producer->traits().is_pipe && can_issue(runs_[run]) &&
        pool_.available() > runs_.size())
      issue(run, lock);
}

void ChunkReader::read_on(const Queue::Lock& lock) {
  if (is_kept_waiting_) read_pipes_ahead(lock);
  read_ahead(lock);
}

ChunkReader::Forecast ChunkReader::forecast(const Chunk& chunk) {
  if (reading_.order != ReadOrder::forecast) return {.run = chunk.run};
  const RecordFormat& format = reading_.format;
  const std::byte* const last = chunk.records() + (chunk.count - 1) * format.row_bytes();
  const LeadingWords key = leading_words(format.keys().layout(), last);
  return {.last_key = key.words, .turn = key.are_all ? 0 : ++turns_, .run = chunk.run};
}

void ChunkReader::serve(ChunkRequest& request, const TraceRow& row) {
  if (ring_) return serve_by_ring(request, row);
  const std::uint32_t run = request.run;
  ChunkProducer& producer = *runs_[run].producer;
  ChunkProducer::Product product;
  bool has_begun = false;
  {
    Stopwatch reading(busy_, row, run);
    std::uint64_t got = 0;
    if (const auto read = producer.file_read(request))
      got = read_at(*read->file, read->into, read->offset, *read->path);
    Failure failure;
    const auto succeeds = [&](auto step) {
      try {
        step();
        return true;
      } catch (...) {
        if (!producer.traits().may_begin) throw;
        failure.error = std::current_exception();
        failed(run, failure, has_begun);
        return false;
      }
    };
    if (!succeeds([&] { has_begun = begins(runs_[run]) && producer.begin(request); })) return;
    if (has_begun) {
      failure.first = request.counted.first;
      begun(run);  // no failure of this request: other requests may be lost by it
    }
    if (!succeeds([&] { product = producer.produce(std::move(request), got); })) return;
  }
  const auto lock = queue_.lock();
  loaded(run, std::move(product), has_begun);
  read_on(lock);
}

// Lets the run be read on, as soon as few enough of its chunks are ahead.
void ChunkReader::go_on(const Forecast& next) {
  RunState& state = runs_[next.run];
  if (!begins(state) || state.in_flight + state.ready.size() < max_ahead_of_run_)
    forecast_.push(next);
  else
    state.held = next;
}

// Requests the next chunk of a run of which a request has begun.
void ChunkReader::begun(std::uint32_t run) {
  const auto lock = queue_.lock();
  ++runs_[run].begun;
  go_on({.run = run});
  read_on(lock);
}

// Keeps the failure until the chunks before it are taken: which one comes first does not depend on
// the threads.
void ChunkReader::failed(std::uint32_t run, const Failure& failure, bool has_begun) {
  RunState& state = runs_[run];
  const auto lock = queue_.lock();
  --state.in_flight;
  state.begun -= has_begun;
  --ahead_;
  if (!state.failure.error || failure.first < state.failure.first) state.failure = failure;
}

// Serves `request` and all that follow, until none is queued and no read is in flight.
void ChunkReader::serve_by_ring(ChunkRequest& request, const TraceRow& row) {
  std::optional<ChunkRequest> next(std::move(request));
  while (next || !ring_->empty()) {
    Stopwatch reading(busy_, row);
    for (; next; next = ring_->full() ? std::nullopt : queue_.take(queue_.lock())) {
      auto read = runs_[next->run].producer->file_read(*next);
      assert(read);
      slots_[ring_->start(*std::move(read))] = *std::move(next);
    }
    const UringReader::Finished finished = ring_->wait();
    const std::uint32_t run = slots_[finished.slot].run;
    ChunkProducer::Product product =
        runs_[run].producer->produce(std::move(slots_[finished.slot]), finished.bytes);
    const auto lock = queue_.lock();
    loaded(run, std::move(product));
    read_on(lock);
    queue_.notify();
    next = queue_.take(lock);
  }
}

void ChunkReader::loaded(std::uint32_t run, ChunkProducer::Product product, bool has_begun) {
  RunState& state = runs_[run];
  assert(state.in_flight != 0 && state.begun >= has_begun);
  const Chunk* const added = product.chunk.get();
  if (added) {
    assert(added->run == run && added->first >= state.taken);
    // If this throws, the request stays in flight: the run must not seem to end before its chunk.
    const auto after = std::ranges::upper_bound(state.ready, added->first, {}, &Chunk::first);
    state.ready.insert(after, std::move(product.chunk));
  }
  --state.in_flight;
  state.begun -= has_begun;
  if (!added) {
    state.ended = product.is_end;
    assert(ahead_ != 0);
    --ahead_;
    return;
  }
  bytes_read_ += bytes_of(reading_.format.keys().layout(), *added, 0, added->count).size();
  if (!has_begun &&
      (reading_.order == ReadOrder::forecast || !state.producer->traits().has_known_places))
    go_on(forecast(*added));
}

}  // namespace corank
