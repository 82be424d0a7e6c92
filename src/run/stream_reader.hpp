// Reads runs whose records are found only as their bytes arrive: variable-length records, and data
// from a decompressor or a pipe. Reads each run from beginning to end, ahead of the cutter.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <span>
#include <stop_token>
#include <thread>
#include <tuple>
#include <vector>

#include "corank/key.hpp"
#include "format/framing.hpp"
#include "io/byte_source.hpp"
#include "run/chunk_source.hpp"
#include "run/pass_plan.hpp"
#include "run/run.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

// Extra bytes in a chunk after its records, for a missing terminator, and for code that reads whole
// words or cache lines.
inline constexpr std::uint64_t stream_margin_bytes = 64;

// The bytes of one run: either a source or memory.
struct Stream {
  std::filesystem::path path;
  std::uint64_t offset = 0;             // of its first byte in the file, for error messages
  std::shared_ptr<Source> source;       // null if the bytes are in memory
  std::span<const std::byte> in_place;  // the bytes in memory
  std::uint64_t mapped_page_bytes = 0;  // page size of the mapping; 0 if not mapped
  std::uint64_t header_lines = 0;  // lines of the file before its first byte, for error messages
};

// Returns the stream of `run`, which must count bytes and outlive the stream. Waiting for a pipe
// ends when `stop` is requested.
Stream stream_of(const Run& run, std::stop_token stop);

// Forecasts as Reader does, and reads one chunk of a run at a time.
class StreamReader final : public ChunkSource {
 public:
  // `pool` lends plan.chunks buffers; it and `encoding` must outlive the reader. If `sum` is null,
  // chunks get no fingerprints.
  StreamReader(std::vector<Stream> streams, const KeyEncoding& encoding, const PassPlan& plan,
               Order order, BufferPool& pool, unsigned threads, FingerprintSum sum,
               std::stop_token stop, TraceRow row);
  ~StreamReader() override;

  std::uint32_t runs() const override { return static_cast<std::uint32_t>(runs_.size()); }
  ChunkRef next(std::uint32_t run) override;
  std::uint64_t fingerprint(std::uint32_t run) const override { return runs_[run].fingerprint; }
  std::uint64_t skipped() const override;

 private:
  struct RunState {
    bool in_flight = false;
    bool ended = false;
    std::uint64_t fingerprint = 0;
    std::queue<ChunkRef> ready;              // loaded, not taken; in order
    std::atomic<std::uint64_t> skipped = 0;  // records; the reading thread may still add to it

    // The members below belong to the thread that reads the run.
    Stream stream;
    std::span<const std::byte> unread;  // rest of the bytes in memory
    bool exhausted = false;             // the source has ended
    std::vector<std::byte> carried;     // bytes read, in no chunk yet
    std::size_t carried_from = 0;       // start of those bytes
    std::uint64_t wanted_bytes = 0;     // to read for the next chunk
    std::uint64_t in_chunks = 0;        // records in chunks so far
    std::uint64_t records = 0;          // records so far, skipped ones included
    std::uint64_t offset = 0;           // in the file, after these records
  };
  struct Request {
    std::uint32_t run;
    Buffer buffer;
    bool urgent;  // next() waits for it
  };
  struct Forecast {
    Key<max_key_words> last_key;
    std::uint64_t turn;  // orders keys that are longer than last_key first in, first out
    std::uint32_t run;
    bool operator<(const Forecast& other) const {  // the smallest key on top
      return std::tie(other.last_key, other.turn, other.run) < std::tie(last_key, turn, run);
    }
  };
  class LargeMemory;
  struct Filling;

  void close();
  void issue(std::uint32_t run, bool urgent);
  void read_ahead();
  void forecast(const Chunk& chunk);
  void serve_requests(TraceRow row);
  // Returns null at the run's end; nothing if a record needs much memory that other runs may need
  // sooner.
  std::optional<ChunkRef> load(Request request);
  void fill_in_place(RunState& run, Filling& filling);
  bool fill_from_source(RunState& run, Filling& filling, bool urgent);
  std::uint64_t find_records(RunState& run, Filling& filling, std::span<const std::byte> bytes,
                             bool at_end) const;
  void find_last_record(RunState& run, Filling& filling, std::span<std::byte> memory,
                        std::uint64_t bytes) const;
  std::shared_ptr<LargeMemory> take_large(const RunState& run, std::uint64_t bytes) const;

  const KeyEncoding& encoding_;
  Order order_;
  std::uint64_t chunk_records_;
  std::uint64_t room_bytes_;  // for the bytes of the records in a chunk
  std::uint64_t large_bytes_;
  std::uint64_t read_ahead_limit_;
  BufferPool& pool_;
  FingerprintSum sum_;
  std::stop_token stop_;
  std::shared_ptr<std::atomic<std::uint64_t>> large_used_bytes_;

  std::mutex mutex_;  // guards the members below, except those of a reading thread
  std::condition_variable requested_;
  std::condition_variable_any loaded_;
  bool closing_ = false;
  std::vector<RunState> runs_;
  std::priority_queue<Forecast> forecast_;  // runs with more chunks to request
  std::uint64_t turns_ = 0;
  std::uint64_t ahead_ = 0;  // chunks requested, not taken
  std::queue<Request> requests_;
  std::exception_ptr failure_;
  std::vector<std::jthread> threads_;
};

}  // namespace corank
