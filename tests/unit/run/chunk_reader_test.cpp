// Tests of reading chunks ahead of need.
#include "run/chunk_reader.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "corank/error.hpp"
#include "corank/record.hpp"
#include "format/fixed_format.hpp"
#include "format/variable_format.hpp"
#include "run/framing_producer.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "util/buffer_pool.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// A source that gives `bytes` in pieces of any size, some of them empty, as a pipe does.
class Pieces final : public ByteSource {
 public:
  Pieces(Bytes bytes, std::size_t max_piece_bytes, std::uint64_t seed)
      : bytes_(std::move(bytes)), max_piece_bytes_(max_piece_bytes), random_(seed) {}

  std::optional<std::size_t> read(std::span<std::byte> into) override {
    if (at_ == bytes_.size()) return std::nullopt;
    const std::size_t count = std::min<std::size_t>(
        {below(random_, max_piece_bytes_ + 1), into.size(), bytes_.size() - at_});
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at_), count, into.begin());
    at_ += count;
    return count;
  }

 private:
  Bytes bytes_;
  std::size_t max_piece_bytes_;
  std::size_t at_ = 0;
  Random random_;
};

// Returns the bytes of all chunks of one run. Several threads read them, if the order allows.
Bytes read_chunks(Stream stream, const RecordFormat& format, ReadOrder order = ReadOrder::forecast,
                  bool frames_when_taken = false) {
  PassPlan plan{};
  plan.chunk_bytes = std::uint64_t{1} << 14;
  plan.chunk_records = 150;
  plan.chunks = 6;
  plan.read_ahead = 4;
  plan.large_bytes = std::uint64_t{1} << 20;
  BufferPool pool(plan.chunk_bytes, plan.chunks, {});
  const Reading reading{
      .format = format, .plan = plan, .order = order, .frames_when_taken = frames_when_taken};
  std::vector<Stream> streams;
  streams.push_back(std::move(stream));
  ChunkReader reader(make_producers(std::move(streams), reading), reading, pool, 3, {}, {});
  Bytes all;
  std::uint64_t first = 0;
  while (const ChunkRef chunk = reader.next(0)) {
    CHECK(chunk->first == first);
    CHECK((chunk->count <= plan.chunk_records && chunk->offset == all.size()));
    first += chunk->count;
    const auto bytes = bytes_of(format.keys().layout(), *chunk, 0, chunk->count);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  CHECK(reader.bytes_read() == all.size());
  return all;
}

// An endless source of lines: a shared beginning and a number that grows by `step`. Records each
// read.
class Lines final : public ByteSource {
 public:
  Lines(std::string beginning, unsigned run, unsigned step, std::vector<unsigned>& reads,
        std::mutex& mutex)
      : beginning_(std::move(beginning)), run_(run), step_(step), reads_(reads), mutex_(mutex) {}

  std::optional<std::size_t> read(std::span<std::byte> into) override {
    {
      const std::lock_guard lock(mutex_);
      reads_.push_back(run_);
    }
    while (left_.size() < into.size()) {
      char number[16];
      std::snprintf(number, sizeof number, "%09u", number_ += step_);
      left_ += beginning_ + number + std::string(60, ' ') + '\n';  // long lines fill a chunk
    }
    std::memcpy(into.data(), left_.data(), into.size());
    left_.erase(0, into.size());
    return into.size();
  }

 private:
  std::string beginning_, left_;
  unsigned run_, step_, number_ = 0;
  std::vector<unsigned>& reads_;
  std::mutex& mutex_;
};

// Equal lines in memory, of which a chunk holds a part.
struct LinesInPlace {
  static constexpr std::uint64_t line_bytes = 100, records = 2000;

  LinesInPlace() {
    for (std::uint64_t i = 0; i < records; ++i) text += std::string(line_bytes - 1, 'a') + '\n';
    text.resize(text.size() + stream_margin_bytes);
    plan.chunk_bytes = std::uint64_t{1} << 16;
    plan.chunk_records = 1000;
    plan.chunks = 16;
    plan.read_ahead = 4;
  }
  // Returns streams that are the lines each.
  std::vector<Stream> streams(std::size_t count) const {
    std::vector<Stream> streams(count);
    for (Stream& stream : streams)
      stream.in_place = std::as_bytes(std::span(text)).first(records * line_bytes);
    return streams;
  }

  std::string text;
  std::unique_ptr<const RecordFormat> format = make_variable_format({}, {});
  PassPlan plan{};
};

}  // namespace

TEST_CASE("chunks hold all records whatever the pieces in which they come", "[text]") {
  Random random(5);
  const auto lines = make_variable_format({}, {});
  const auto records = make_fixed_format(Schema::parse("k:u64,v:u32"), {});
  for (const std::size_t max_line_bytes : {1, 40, 3000, 60'000}) {
    std::string text;
    while (text.size() < 500'000) text += std::string(below(random, max_line_bytes), 'a') + '\n';
    for (const std::size_t max_piece_bytes : {7, 5000, 200'000})
      for (const bool is_terminated : {true, false}) {
        INFO(max_line_bytes << " a line, " << max_piece_bytes << " a piece");
        const std::string run = text + (is_terminated ? "" : "last");
        const Bytes whole = bytes_of_text(is_terminated ? run : run + '\n');
        const Bytes in_place = bytes_of_text(run + std::string(stream_margin_bytes, '\0'));
        for (const ReadOrder order : {ReadOrder::forecast, ReadOrder::one_by_one}) {
          Stream pipe;
          pipe.source = std::make_shared<Pieces>(bytes_of_text(run), max_piece_bytes, random());
          pipe.is_pipe = true;
          CHECK((read_chunks(std::move(pipe), *lines, order) == whole));
          for (const bool frames_when_taken : {false, true}) {
            Stream memory;
            memory.in_place = std::span(in_place).first(run.size());
            CHECK((read_chunks(std::move(memory), *lines, order, frames_when_taken) == whole));
          }
        }
      }
  }
  const Bytes whole(120'000);
  for (const std::size_t max_piece_bytes : {7, 5000, 200'000}) {
    Stream pipe;
    pipe.source = std::make_shared<Pieces>(whole, max_piece_bytes, random());
    CHECK((read_chunks(std::move(pipe), *records) == whole));
  }
}

TEST_CASE("a reader that waits for a pipe ends at once if it is no longer needed", "[pipes]") {
  const auto format = make_variable_format({}, {});
  Stream pipe;
  pipe.source = std::make_shared<Pieces>(Bytes(1), 0, 1);  // never gives its byte
  pipe.is_pipe = true;
  PassPlan plan{};
  plan.chunk_bytes = std::uint64_t{1} << 14;
  plan.chunk_records = 150;
  plan.chunks = 4;
  plan.read_ahead = 2;
  BufferPool pool(plan.chunk_bytes, plan.chunks, {});
  const Reading reading{*format, plan, ReadOrder::forecast};
  std::vector<Stream> streams;
  streams.push_back(std::move(pipe));
  ChunkReader reader(make_producers(std::move(streams), reading), reading, pool, 1, {}, {});
  CHECK(!reader.arrives(0));
}

TEST_CASE("text is read ahead where it runs dry first, or by turns", "[text]") {
  constexpr unsigned runs = 4;
  // The forecast compares up to 28 key bytes.
  for (const std::size_t alike : {0, 7, 18, 30, 60}) {
    INFO(alike << " bytes are the same");
    std::vector<unsigned> reads;
    std::mutex mutex;
    std::vector<Stream> streams(runs);
    constexpr unsigned steps[runs] = {40, 30, 1, 20};  // run 2's chunk has the smallest last key
    for (unsigned run = 0; run < runs; ++run)
      streams[run].source =
          std::make_unique<Lines>(std::string(alike, 'a'), run, steps[run], reads, mutex);
    const auto format = make_variable_format({}, {});
    PassPlan plan{};
    plan.chunk_bytes = std::uint64_t{1} << 16;
    plan.chunk_records = 1000;
    plan.chunks = 2 * runs;
    plan.read_ahead = runs;
    BufferPool pool(plan.chunk_bytes, plan.chunks, {});
    const Reading reading{*format, plan, ReadOrder::forecast};
    ChunkReader reader(make_producers(std::move(streams), reading), reading, pool, 1, {}, {});
    // The first chunks of all runs are loaded now.
    const ChunkRef last = reader.next(runs - 1);
    const auto read_next = [&](std::size_t reads_before) {
      const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      for (; std::chrono::steady_clock::now() < latest; std::this_thread::yield()) {
        const std::lock_guard lock(mutex);
        if (reads.size() > reads_before) return reads[reads_before];
      }
      FAIL("nothing was read ahead");
      return runs;
    };
    const unsigned first = read_next(runs);
    CHECK(first == (alike <= 18 ? 2 : 0));
    const ChunkRef taken = reader.next(first);
    // The next read is for run 2 again if its chunk has arrived, otherwise for the run with the
    // next key.
    const unsigned second = read_next(runs + 1);
    CHECK((alike <= 18 ? second == 2 || second == 3 : second == 1));
  }
}

TEST_CASE("runs of which several threads read share the room ahead", "[text]") {
  const auto format = make_variable_format({}, {});
  PassPlan plan{};
  plan.chunk_bytes = std::uint64_t{1} << 14;
  plan.chunk_records = 150;
  plan.chunks = 16;
  plan.read_ahead = 8;
  // One by one, the second run is needed later than all of the first.
  for (const ReadOrder order : {ReadOrder::forecast, ReadOrder::one_by_one}) {
    std::vector<unsigned> reads;
    std::mutex mutex;
    std::vector<Stream> streams(2);
    for (unsigned run = 0; run < 2; ++run)
      streams[run].source = std::make_unique<Lines>("", run, 1, reads, mutex);
    BufferPool pool(plan.chunk_bytes, plan.chunks, {});
    const Reading reading{*format, plan, order};
    ChunkReader reader(make_producers(std::move(streams), reading), reading, pool, 3, {}, {});
    std::uint64_t first = 0;
    for (int i = 0; i < 200; ++i) {
      const ChunkRef chunk = reader.next(0);
      CHECK(chunk->first == first);
      first += chunk->count;
    }
    const std::lock_guard lock(mutex);
    CHECK(std::ranges::count(reads, 1u) <= 4);
  }
}

TEST_CASE("runs that go on begin with a part of a chunk, others with all there is") {
  const auto format = make_fixed_format(Schema::parse("k:u64"), {});
  PassPlan plan{};
  plan.chunk_records = 10 * page_bytes() / 8;
  plan.chunk_bytes = plan.chunk_records * 8;
  plan.read_ahead = 4;
  const std::vector<std::byte> memory(3 * plan.chunk_bytes);  // all keys may be equal
  std::vector<Run> runs;
  runs.emplace_back(std::span(memory).first(plan.chunk_bytes), "short", 8);
  for (int i = 0; i < 3; ++i) runs.emplace_back(std::span(memory), "long", 8);
  for (const auto order : {ReadOrder::forecast, ReadOrder::one_by_one}) {
    BufferPool pool(plan.chunk_bytes, 0, {});
    const Reading reading{*format, plan, order};
    ChunkReader reader(make_producers(runs, false, reading, {}), reading, pool, 1, {}, {});
    for (std::uint32_t run = 0; run < runs.size(); ++run) {
      INFO("run " << run);
      const ChunkRef first = reader.next(run);
      const bool starts_small = run != 0 && order == ReadOrder::forecast;
      CHECK(first->count ==
            (starts_small ? first_chunk_records(plan, 8, run, runs.size()) : plan.chunk_records));
      std::uint64_t records = first->count;
      while (const ChunkRef chunk = reader.next(run)) {
        CHECK(chunk->first == records);
        CHECK(chunk->count <= plan.chunk_records);
        records += chunk->count;
      }
      CHECK(records == runs[run].records());
    }
  }
}

TEST_CASE("text in place that goes on begins with a part of a chunk", "[text]") {
  const LinesInPlace lines;
  std::vector<Stream> streams = lines.streams(4);
  streams[0].in_place = streams[0].in_place.first(300 * LinesInPlace::line_bytes);
  const Reading reading{*lines.format, lines.plan, ReadOrder::forecast};
  BufferPool pool(lines.plan.chunk_bytes, lines.plan.chunks, {});
  ChunkReader reader(make_producers(std::move(streams), reading), reading, pool, 1, {}, {});
  CHECK(reader.next(0)->count == 300);
  std::uint64_t before = 0;
  for (std::uint32_t run = 1; run < 4; ++run) {
    const std::uint64_t first = reader.next(run)->count;
    CHECK(first > before);
    before = first;
  }
  CHECK(reader.next(1)->count == before);
}

TEST_CASE("text in memory may be framed by the thread that takes it", "[text]") {
  const LinesInPlace lines;
  const Reading reading{.format = *lines.format,
                        .plan = lines.plan,
                        .order = ReadOrder::one_by_one,
                        .frames_when_taken = true};
  BufferPool pool(lines.plan.chunk_bytes, lines.plan.chunks, {});
  ChunkReader reader(make_producers(lines.streams(2), reading), reading, pool, 1, {}, {});
  CHECK(reader.bytes_read() == 0);
  const std::uint64_t count = reader.next(0)->count;
  CHECK(reader.bytes_read() == count * LinesInPlace::line_bytes);
}

TEST_CASE("a run that is mapped late tells what it loses") {
  const TemporaryFolder folder;
  const auto path = folder / "run";
  write_file(path, Bytes(3 * page_bytes(), std::byte{1}));
  const Run run = Run(path, 1, Run::Opening{}).subspan(1, 2 * page_bytes());
  const std::span<const std::byte> bytes = run.mapped_later();
  REQUIRE(bytes.size() == 2 * page_bytes());
  CHECK(run.mapped_later().data() == bytes.data());
  CHECK_NOTHROW(run.check_readable());
  std::filesystem::resize_file(path, page_bytes());
  CHECK(bytes.back() == std::byte{0});
  CHECK_THROWS_AS(run.check_readable(), Error);
}
