#include "exec/pipeline.hpp"

#include <fmt/format.h>
#include <tbb/global_control.h>
#include <tbb/parallel_pipeline.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "corank/error.hpp"
#include "format/framing.hpp"
#include "ops/unit_operators.hpp"
#include "run/reader.hpp"
#include "run/stream_reader.hpp"
#include "run/unit_cutter.hpp"
#include "util/math.hpp"
#include "util/parallel_for.hpp"
#include "util/start_workers.hpp"
#include "verify/checksum.hpp"
#include "verify/output_verifier.hpp"
#include "verify/text_verifier.hpp"

namespace corank {
namespace {

// Enough bytes that a task outweighs its start.
constexpr std::uint64_t checksum_task_bytes = std::uint64_t{256} << 10;

std::uint64_t parallel_checksum(std::span<const std::byte> bytes, std::uint32_t record_bytes) {
  const std::uint64_t task =
      std::max<std::uint64_t>(checksum_task_bytes / record_bytes, 1) * record_bytes;
  std::atomic<std::uint64_t> sum = 0;
  tbb::this_task_arena::isolate([&] {
    parallel_for(0, (bytes.size() + task - 1) / task, [&](std::uint64_t i) {
      const std::uint64_t from = i * task;
      sum +=
          records_checksum(bytes.subspan(from, std::min(task, bytes.size() - from)), record_bytes);
    });
  });
  return sum;
}

std::uint64_t text_checksum(const TextLayout& layout, std::span<const std::byte> bytes) {
  const auto parts = parts_of(layout, bytes, checksum_task_bytes);
  std::atomic<std::uint64_t> sum = 0;
  tbb::this_task_arena::isolate([&] {
    parallel_for(0, parts.size(), [&](std::uint64_t i) {
      std::array<PrefixRef, 256> entries;
      for (std::span<const std::byte> rest = parts[i]; !rest.empty();) {
        const Indexed found = index_records(layout, rest, true, entries);
        if (found.records == 0) throw Corrupted("a merged record is none");
        sum += prefix_refs_checksum(layout, std::span(entries).first(found.records));
        rest = rest.subspan(found.bytes);
      }
    });
  });
  return sum;
}

// Threads that copy from the page cache; one copies 5 to 8 GB/s.
unsigned reading_threads(unsigned threads) {
  return std::clamp(threads / 2, 2u, 8u);
}

bool is_in_place(const Run& run) {
  return run.records() == 0 || run.in_place(0) != nullptr;
}

// One may be waiting for files, and each token for a device. More threads would only look for work:
// on two cores they took a tenth of the time.
unsigned workers_of(const Pass& pass) {
  if (pass.backend && !pass.backend->computes())
    return std::max(pass.threads, pass.plan.tokens) + 2;
  const bool waits = !std::ranges::all_of(pass.runs, is_in_place) ||
                     std::ranges::any_of(pass.writers, &Writer::compressor);
  return std::max(pass.threads + waits, 2u);
}

// Measures what a stage that several tokens may be in at once waits for: the time when none is.
class IdleClock {
 public:
  explicit IdleClock(StageClock& clock) : clock_(clock) {}
  void enter() {
    const std::lock_guard lock(mutex_);
    if (inside_++ == 0) clock_ += (TraceClock::now() - empty_since_).count();
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0) empty_since_ = TraceClock::now();
  }

 private:
  StageClock& clock_;
  std::mutex mutex_;
  unsigned inside_ = 0;
  TraceClock::time_point empty_since_ = TraceClock::now();
};

// Of records of a fixed size, or of variable length.
struct Verifier {
  explicit Verifier(const Pass& pass)
      : records(pass.output, pass.fingerprint), text(pass.output, pass.fingerprint) {}
  OutputVerifier records;
  TextVerifier text;
};

// `sum` null: chunks need no fingerprints.
std::unique_ptr<ChunkSource> read_chunks(const Pass& pass, BufferPool& pool, FingerprintSum sum,
                                         const TraceRow& row) {
  const auto order = pass.backend ? ChunkSource::Order::forecast : ChunkSource::Order::one_by_one;
  // Decompressing is work for all cores.
  const bool computes = std::ranges::any_of(pass.runs, &Run::is_stream);
  const unsigned threads = computes ? std::max(pass.threads, 2u) : reading_threads(pass.threads);
  if (!pass.sequential)
    return std::make_unique<Reader>(pass.runs, pass.encoding, pass.plan, order, pool, threads, sum,
                                    pass.stop, row);
  std::vector<Stream> streams;
  for (const Run& run : pass.runs) streams.push_back(stream_of(run, pass.stop));
  return std::make_unique<StreamReader>(std::move(streams), pass.encoding, pass.plan, order, pool,
                                        threads, sum, pass.stop, row);
}

void run_pass(const Pass& pass, PassTotals& totals, Verifier& verifier) {
  leave_memory_to_thread();
  const KeyLayout layout = pass.encoding.layout();
  const std::uint32_t record_bytes = layout.record_bytes;
  const std::uint32_t output_bytes = pass.shape ? pass.shape->output_bytes() : record_bytes;
  std::uint64_t bytes_in_runs = 0;
  std::uint64_t chunks_in_runs = pass.sequential ? pass.plan.chunks : 0;
  for (const Run& run : pass.runs) {
    bytes_in_runs += run.bytes();
    const std::uint64_t chunk_records = pass.plan.chunk_records;
    if (!pass.sequential && !run.in_place(0))  // one more where the first is smaller
      chunks_in_runs +=
          (run.records() + chunk_records - 1) / chunk_records + (run.records() > chunk_records);
  }
  Writer* const writer = pass.writers.empty() ? nullptr : &pass.writers.front();
  if (bytes_in_runs == 0 && std::ranges::none_of(pass.runs, &Run::is_stream)) {
    for (Writer& output : pass.writers) output.make_durable();
    return;
  }
  const std::uint64_t units =
      pass.sequential
          ? pass.plan.tokens
          : (bytes_in_runs / record_bytes + pass.plan.unit_records - 1) / pass.plan.unit_records;
  // Copies are written from where they were read, unless only whole pages of the output can be.
  const bool needs_output = writer && (pass.backend || writer->is_direct());
  const bool verify = pass.fingerprint != nullptr;
  // Who is the first to read records is the first to look at them.
  const bool backend_reads = verify && !pass.sequential && pass.backend && pass.backend->looks() &&
                             std::ranges::all_of(pass.runs, is_in_place);

  const auto row = [&](const char* stage, unsigned number = 0) {
    return TraceRow{pass.trace, stage, pass.partition, number};
  };
  Stopwatch whole(totals.wall);
  const PinMemory pin = pass.backend ? pass.backend->pin_memory() : nullptr;
  const auto pages_for = [](bool huge) {
    return huge ? BufferPool::Pages::huge : BufferPool::Pages::small;
  };
  // Of text that stays where it is, chunks hold nothing but entries, and those fill their pages.
  const bool entries_only =
      layout.text && !pin && std::ranges::all_of(pass.runs, [](const Run& run) {
        return !run.is_stream() && run.in_place(0);
      });
  BufferPool chunk_pool(entries_only
                            ? round_up(pass.plan.chunk_records * sizeof(PrefixRef), page_bytes())
                            : pass.plan.chunk_bytes,
                        std::min(pass.plan.chunks, chunks_in_runs), pin,
                        pages_for(entries_only || std::ranges::any_of(pass.runs, &Run::is_direct)));
  // Records of variable length fill no whole pages: so a unit stands in its buffer as far from a
  // page's start as it does in the output.
  const std::uint64_t skewed = layout.text && writer && writer->is_direct() ? page_bytes() : 0;
  const std::uint64_t written_before = writer ? writer->bytes() : 0;
  const auto skew_of = [&](const WorkUnit& unit) {
    return skewed != 0 ? (written_before + unit.offset) % skewed : 0;
  };
  BufferPool output_pool(pass.plan.unit_bytes + skewed,
                         !needs_output  ? 0
                         : pass.backend ? std::min<std::uint64_t>(pass.plan.tokens, units)
                                        : pass.plan.tokens,
                         pin, pages_for(writer && writer->is_direct()));
  const std::unique_ptr<ChunkSource> source =
      read_chunks(pass, chunk_pool, backend_reads ? nullptr : pass.fingerprint, row("read"));
  // Units of runs in memory need no chunks.
  const bool in_memory = std::ranges::all_of(
      pass.runs, [](const Run& run) { return run.in_place(0) && !run.is_mapped(); });
  UnitCutter cutter(*source, pass.encoding, pass.plan, in_memory ? 4 : 1);
  Concatenation concatenation(*source, pass.encoding, pass.plan,
                              // A unit of whole chunks begins and ends within one.
                              pass.plan.unit_records / pass.plan.chunk_records + 2);

  const auto stop_if_asked = [&] {
    if (pass.stop.stop_requested()) throw Interrupted();
  };
  const auto part_of_output = [&](const WorkUnit& unit) {
    return pass.in_place.subspan(unit.offset, unit.bytes);
  };
  const auto bytes_of_segment = [&](const Segment& segment) {
    return bytes_of(layout, *segment.chunk, segment.first, segment.count);
  };

  // What each token carries; kept here, since a cancelled pipeline destroys nothing.
  struct Token {
    unsigned number;
    WorkUnit unit;
    std::shared_ptr<Buffer> buffer;
    MergedUnit merged;
    std::vector<std::byte> edge;  // what goes out and is not in the buffer
    std::uint64_t first = 0;      // record of the output
    std::uint64_t offset = 0;     // of the pieces, in the output
    std::uint64_t sequence = 0;   // of those units that something goes out of
    TraceClock::time_point merged_at;
  };
  std::vector<Token> carried(pass.plan.tokens);
  for (unsigned number = 0; Token & token : carried) token.number = number++;
  std::mutex free_mutex;
  std::vector<Token*> free;
  for (Token& token : carried) free.push_back(&token);
  auto cut_until = TraceClock::now();
  auto written_until = cut_until;
  IdleClock merge_idle(totals.merge_for_cut);
  std::atomic<std::uint64_t> read_by_backend = 0;         // fingerprint
  std::vector<std::uint64_t> in_units(pass.runs.size());  // records of each run
  // What a backend reads it cannot miss, so units must hold each record once.
  const auto follow = [&](const WorkUnit& unit) {
    for (const Segment& segment : unit.segments) {
      std::uint64_t& next = in_units[segment.chunk->run];
      if (segment.chunk->first + segment.first != next)
        throw Corrupted(fmt::format("{}: record {} was to be merged where record {} is the next",
                                    pass.runs[segment.chunk->run].path().string(),
                                    segment.chunk->first + segment.first, next));
      next += segment.count;
    }
  };
  std::optional<TextBoundaryMerge> text_joiner;
  if (pass.text_operators) text_joiner.emplace(*pass.text_operators, pass.limit, pass.fingerprint);
  std::uint64_t pieces_sequence = 0;
  std::optional<BoundaryMerge> joiner;
  if (pass.shape) joiner.emplace(*pass.shape, pass.limit, pass.fingerprint);
  OutputVerifier before_operators({&pass.encoding, OutputOrder::Kind::rising}, nullptr);
  std::uint64_t operators_fingerprint = 0;
  std::uint64_t written_bytes = 0;
  std::atomic<bool> enough = false;

  const auto read_and_cut = tbb::make_filter<void, Token*>(
      tbb::filter_mode::serial_in_order, [&](tbb::flow_control& flow) -> Token* {
        stop_if_asked();
        totals.cut_for_merge += (TraceClock::now() - cut_until).count();
        std::optional<WorkUnit> unit;
        if (!enough) {
          Stopwatch cutting(totals.cut, row("cut"));
          unit = pass.backend ? cutter.next() : concatenation.next();
        }
        cut_until = TraceClock::now();
        if (!unit) {
          flow.stop();
          return nullptr;
        }
        if (backend_reads) follow(*unit);
        const std::lock_guard lock(free_mutex);
        Token* const token = free.back();
        free.pop_back();
        token->unit = *std::move(unit);
        return token;
      });
  const auto merge =
      tbb::make_filter<Token*, Token*>(tbb::filter_mode::parallel, [&](Token* token) {
        const WorkUnit& unit = token->unit;
        // A record that is larger than a unit is written from where it was read.
        const bool stays = writer && (!needs_output || unit.bytes > pass.plan.unit_bytes);
        if (!stays) {
          // All may be waiting to be written.
          Stopwatch waiting(totals.merge_for_write);
          token->buffer =
              std::make_shared<Buffer>(writer ? output_pool.lease() : Buffer(part_of_output(unit)));
        }
        merge_idle.enter();
        {
          Stopwatch merging(totals.merge, row("merge", token->number), unit.sequence);
          const auto output = stays ? std::span<std::byte>()
                                    : token->buffer->bytes().subspan(skew_of(unit), unit.bytes);
          if (stays && pass.text_operators) {
            token->merged = apply_to_text(*pass.text_operators, unit, pass.fingerprint);
          } else if (stays) {
            for (const Segment& segment : unit.segments)
              token->merged.pieces.push_back(bytes_of_segment(segment));
          } else if (pass.backend) {
            token->merged = pass.backend->merge(unit, output.data());
            if (backend_reads) {
              if (const auto& look = token->merged.look)
                read_by_backend += look->read;
              else if (token->merged.read)
                read_by_backend += *token->merged.read;
              else
                for (const Segment& segment : unit.segments)
                  read_by_backend += pass.fingerprint(bytes_of_segment(segment), record_bytes);
            }
            token->unit.segments.clear();
          } else {
            auto to = output.begin();
            for (const Segment& segment : unit.segments)
              to = std::ranges::copy(bytes_of_segment(segment), to).out;
            token->merged.pieces = {output};
          }
          if (pass.checksum && !pass.shape && !pass.text_operators)
            for (const auto piece : token->merged.pieces)
              totals.checksum += layout.text ? text_checksum(*layout.text, piece)
                                             : parallel_checksum(piece, record_bytes);
        }
        token->merged_at = TraceClock::now();
        merge_idle.leave();
        return token;
      });
  std::size_t filled = 0;  // outputs
  std::uint64_t records_out = 0;
  const auto write_out = [&](std::span<const std::byte> piece, std::size_t free_before,
                             const WriteBehind::Owner& owner) {
    const std::size_t outputs = pass.writers.size();
    if (outputs == 1) return writer->write(piece, free_before, owner);
    while (!piece.empty()) {
      while (records_out == part_of(pass.limit, filled + 1, outputs)) ++filled;
      const std::uint64_t room = part_of(pass.limit, filled + 1, outputs) - records_out;
      std::uint64_t records = std::min<std::uint64_t>(piece.size() / output_bytes, room);
      std::uint64_t bytes = records * output_bytes;
      if (const TextLayout* const text = pass.output.encoding->layout().text)
        for (records = bytes = 0; records < room && bytes < piece.size(); ++records)
          bytes += corank::record_bytes(*text, piece.data() + bytes);
      pass.writers[filled].write(piece.first(bytes));
      records_out += records;
      piece = piece.subspan(bytes);
    }
  };
  // What was shaped does not stand yet where it belongs in memory.
  const auto put_out = [&](Token& token) {
    token.first = pass.shape ? written_bytes / output_bytes : token.unit.rank;
    token.offset = written_bytes;
    token.sequence = pieces_sequence;
    if (!token.merged.pieces.empty()) ++pieces_sequence;
    const auto buffer = token.buffer ? token.buffer->bytes() : std::span<std::byte>();
    const std::byte* unused = buffer.data();  // of the buffer, up to the next piece in it
    for (auto& piece : token.merged.pieces) {
      const std::uint64_t at = written_bytes;
      written_bytes += piece.size();
      if (writer) {
        // To hand over to who writes behind is no work.
        std::optional<Stopwatch> writing;
        if (!writer->is_direct()) writing.emplace(totals.write, row("write"), token.unit.sequence);
        const bool in_buffer =
            piece.data() >= buffer.data() && piece.data() < buffer.data() + buffer.size();
        if (in_buffer) {
          write_out(piece, static_cast<std::size_t>(piece.data() - unused), token.buffer);
          unused = piece.data() + piece.size();
        } else {
          write_out(piece, 0, nullptr);
        }
      } else if (pass.shape) {
        const auto place = pass.in_place.subspan(at, piece.size());
        if (!piece.empty()) std::memmove(place.data(), piece.data(), piece.size());
        piece = place;
      }
      if (verify && pass.backend && !layout.text) verifier.records.follow(piece, token.first);
    }
  };
  const auto merge_boundary = [&](Token& token) {
    if (verify) {
      before_operators.follow(token.merged.edges, token.unit.rank);
      operators_fingerprint += token.merged.fingerprint.value();
    }
    joiner->join(token.merged, token.edge);
    enough = joiner->done();
  };
  const auto join_text = [&](Token& token) {
    text_joiner->join(token.merged);
    enough = text_joiner->done();
  };
  const auto write =
      tbb::make_filter<Token*, Token*>(tbb::filter_mode::serial_in_order, [&](Token* token) {
        stop_if_asked();
        const auto begin = TraceClock::now();
        totals.write_for_merge +=
            std::max(token->merged_at - written_until, TraceClock::duration(0)).count();
        totals.merge_for_write += (begin - token->merged_at).count();
        if (enough)
          token->merged = MergedUnit();
        else if (joiner)
          merge_boundary(*token);
        else if (text_joiner)
          join_text(*token);
        put_out(*token);
        ++totals.units;
        totals.records += token->unit.records;
        written_until = TraceClock::now();
        if (pass.on_progress) pass.on_progress(token->unit.bytes);
        return token;
      });
  const auto verify_written = [&](const Token& token, unsigned threads) {
    if (const auto& looked_at = token.merged.look) {
      if (layout.text)
        verifier.text.take(*looked_at, token.merged.pieces.front(), token.sequence, token.offset);
      else
        verifier.records.take(*looked_at);
      return;
    }
    Stopwatch verifying(totals.verify, row("verify", token.number), token.unit.sequence);
    if (layout.text)
      return verifier.text.look(token.merged.pieces, token.sequence, token.offset, threads);
    std::uint64_t first = token.first;
    for (const auto piece : token.merged.pieces) {
      verifier.records.look(piece, first, threads);
      first += piece.size() / output_bytes;
    }
  };
  // After it was written: what was wrong then is wrong still, whenever it came to be. Not by who
  // writes, whom the others wait for: the last cache has it still, unless it went past.
  const auto look_at = [&](Token& token) {
    if (pass.checksum && (pass.shape || pass.text_operators))
      for (const auto piece : token.merged.pieces)
        totals.checksum += layout.text ? text_checksum(*pass.output.encoding->layout().text, piece)
                                       : parallel_checksum(piece, output_bytes);
    if (!verify) return;
    if (writer && writer->is_direct())
      writer->then([&, written = std::make_shared<Token>(std::move(token))] {
        verify_written(*written, 1);
      });
    else
      verify_written(token, writer && !layout.text ? 1 : pass.threads);
  };
  const auto look = tbb::make_filter<Token*, void>(tbb::filter_mode::parallel, [&](Token* token) {
    look_at(*token);
    token->unit = WorkUnit();
    token->buffer.reset();
    token->merged = MergedUnit();
    const std::lock_guard lock(free_mutex);
    free.push_back(token);
  });

  // Nothing may be written or looked at that is gone.
  struct Abandon {
    std::span<Writer> writers;
    ~Abandon() { std::ranges::for_each(writers, &Writer::abandon); }
  } abandon{pass.writers};
  tbb::task_arena arena(static_cast<int>(workers_of(pass)));
  arena.execute(
      [&] { tbb::parallel_pipeline(pass.plan.tokens, read_and_cut & merge & write & look); });
  if (joiner || text_joiner) {
    Token last{};
    if (joiner)
      joiner->finish(last.merged, last.edge);
    else
      text_joiner->finish(last.merged);
    put_out(last);
    look_at(last);
  }
  for (Writer& output : pass.writers) output.drain();
  if (verify && !enough) {
    std::uint64_t fingerprint = read_by_backend;
    for (std::uint32_t run = 0; run < pass.runs.size(); ++run) {
      fingerprint += source->fingerprint(run);
      pass.fingerprints[run] += source->fingerprint(run);
    }
    if (backend_reads)
      for (std::size_t run = 0; run < pass.runs.size(); ++run)
        if (in_units[run] != pass.runs[run].records())
          throw Corrupted(fmt::format("{}: {} of its {} records were merged",
                                      pass.runs[run].path().string(), in_units[run],
                                      pass.runs[run].records()));
    const std::uint64_t written =
        layout.text ? verifier.text.fingerprint() : verifier.records.fingerprint();
    if (pass.written) *pass.written += written;
    const std::uint64_t merged = joiner        ? operators_fingerprint
                                 : text_joiner ? fingerprint
                                               : written;
    const std::uint64_t outgoing = joiner        ? joiner->fingerprint()
                                   : text_joiner ? fingerprint - text_joiner->left_out()
                                                 : written;
    if (fingerprint != merged) throw Corrupted("the merged records are not those that were read");
    if (outgoing != written)
      throw Corrupted("the records that were written are not those that were shaped");
  }
  for (Writer& output : pass.writers) {
    {
      Stopwatch writing(totals.write, row("write"), totals.units);
      output.make_durable();
    }
    if (const Compressor* const compressor = output.compressor()) {
      totals.compress += compressor->busy().load();
      totals.write_for_compress += compressor->wait().load();
      totals.write -= compressor->wait().load();
    }
    if (const WriteBehind* const behind = output.behind()) totals.write += behind->busy();
  }

  if (enough) totals.ended_early = true;
  totals.records_skipped += source->skipped();
  totals.bytes_read += source->bytes_read();
  totals.bytes_written += written_bytes;
  totals.records_written += pass.shape    ? written_bytes / output_bytes
                            : text_joiner ? text_joiner->records()
                                          : 0;
  totals.read += source->busy().load();
  totals.read_for_cut += source->idle().load();
  totals.cut_for_read += source->wait().load();
  totals.cut -= source->wait().load();
}

}  // namespace

void run_passes(std::span<const Pass> partitions, PassTotals& totals) {
  unsigned workers = 0;
  for (const Pass& partition : partitions) workers += workers_of(partition);
  const tbb::global_control allowance(tbb::global_control::max_allowed_parallelism, workers);
  start_workers(workers);
  std::deque<Verifier> verifiers;
  for (const Pass& partition : partitions) verifiers.emplace_back(partition);
  if (partitions.size() == 1) return run_pass(partitions.front(), totals, verifiers.front());

  // The first failure stops the others.
  std::stop_source stop;
  std::stop_callback when_asked(partitions.front().stop, [&] { stop.request_stop(); });
  std::mutex mutex;
  std::exception_ptr failure;
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < partitions.size(); ++i)
      threads.emplace_back([&, i, pass = partitions[i]]() mutable {
        pass.stop = stop.get_token();
        try {
          run_pass(pass, totals, verifiers[i]);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!failure) failure = std::current_exception();
          stop.request_stop();
        }
      });
  }
  if (failure) std::rethrow_exception(failure);
  const Verifier* before = nullptr;
  for (const Verifier& part : verifiers) {
    if (part.records.empty() && part.text.empty()) continue;
    if (before && part.text.empty()) before->records.check_edge(part.records);
    if (before && !part.text.empty()) before->text.check_edge(part.text);
    before = &part;
  }
}

}  // namespace corank
