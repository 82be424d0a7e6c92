// Produces the chunks of one run, in their order: the part of reading that depends on where the
// bytes of a run are.
//
// `ChunkReader` calls request() in order, one call at a time, and produce() once for each request,
// on any thread. Only producers that know the places of their records in advance, or have begun all
// requests before, get several requests at a time. Runs, plans and formats must outlive their
// producers. Failures are thrown as Error.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "format/record_format.hpp"
#include "io/file.hpp"
#include "io/hole_puncher.hpp"
#include "io/mapped_file.hpp"
#include "run/pass_plan.hpp"
#include "run/run.hpp"
#include "run/work_unit.hpp"
#include "util/buffer_pool.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

// Order in which chunks are read ahead of need.
enum class ReadOrder {
  forecast,    // as a merge needs them
  one_by_one,  // all of one run, then all of the next
};

// How much the next chunk of a run is needed. It may change while the chunk is produced.
enum class Demand : std::uint8_t {
  none,     // the chunk is read ahead of need
  waiting,  // the merge waits for it
  starved,  // nothing else can be read meanwhile: the records that are there suffice
  dropped,  // it will not be used
};

// Whole records that were counted, but not found one by one.
struct CountedRecords {
  std::span<const std::byte> bytes = {};
  std::uint64_t count = 0;
  std::uint64_t first = 0;   // number of the first among the records in chunks
  std::uint64_t number = 0;  // number of the first in the run, skipped records included
  std::uint64_t offset = 0;  // of the first in the file
  MappedRange mapped{};      // that holds them, if they are in a mapped file
};

struct ChunkRequest {
  std::uint32_t run;
  const std::atomic<Demand>* demand;
  std::uint64_t first = 0, count = 0;         // its records, if their places are known
  Buffer buffer = {};                         // empty if a producer needs none, or must do without
  std::shared_ptr<std::byte[]> instead = {};  // memory of the producer that replaces a buffer
  CountedRecords counted = {};                // by begin(); none if it returned false
};

class ChunkProducer {
 public:
  // Traits, which never change.
  struct Traits {
    bool has_known_places = false;  // so that several requests may be in flight
    bool needs_buffers = true;
    bool may_lack_buffers = false;  // takes other memory if the pool is empty
    bool is_immediate = false;      // produces on the thread that asks for the chunk
    bool is_pipe = false;
    bool is_direct = false;
    bool may_begin = false;  // begin() may return true
  };
  // The next chunk, or null at the run's end. Without either, a record needs so much memory that
  // the request must be repeated when the merge waits for it.
  struct Product {
    ChunkRef chunk;
    bool is_end = false;
  };

  explicit ChunkProducer(Traits traits) : traits_(traits) {}
  virtual ~ChunkProducer() = default;
  ChunkProducer(const ChunkProducer&) = delete;
  ChunkProducer& operator=(const ChunkProducer&) = delete;

  const Traits& traits() const { return traits_; }

  // Adds to `request` the places of the next records, if they are known. Returns false if there are
  // none.
  virtual bool request(ChunkRequest&) { return true; }
  // Returns the read that must precede produce(), if there is one.
  virtual std::optional<FileRead> file_read(const ChunkRequest&) const { return std::nullopt; }
  // Does what must be done in the order of the chunks, if the rest can be done beside the next
  // request. Returns false if produce() must do all.
  virtual bool begin(ChunkRequest&) { return false; }
  // Produces the requested chunk; `got` bytes were read by file_read().
  virtual Product produce(ChunkRequest request, std::uint64_t got) = 0;

  // Gives back the file's space before each chunk that is taken. To be called before the first.
  void punch_holes(std::unique_ptr<HolePuncher> puncher) { puncher_ = std::move(puncher); }
  // Tells that the merge has taken a chunk, the next one in their order.
  void taken(const Chunk& chunk) {
    if (puncher_ && !is_file_held_) puncher_->punch_before(chunk.offset);
  }

  // Returns the number of records skipped so far.
  virtual std::uint64_t skipped() const { return 0; }

 protected:
  // Tells that chunks may lie in the mapped file from now on: no more of it may be given back,
  // since units hold chunks after later ones were taken.
  void hold_file() { is_file_held_ = true; }

 private:
  Traits traits_;
  std::unique_ptr<HolePuncher> puncher_;
  std::atomic<bool> is_file_held_ = false;
};

// Extra bytes in a chunk of a stream after its records, for a missing terminator, and for code that
// reads whole words or cache lines.
inline constexpr std::uint64_t stream_margin_bytes = 64;

// How the runs of a pass are read.
struct Reading {
  const RecordFormat& format;
  const PassPlan& plan;
  ReadOrder order;
  FingerprintSum sum = nullptr;  // null: chunks get no fingerprints
  // Whether the thread that takes a chunk finds its variable-length records, if they are in memory.
  bool frames_when_taken = false;
};

using ChunkProducers = std::vector<std::unique_ptr<ChunkProducer>>;

// Returns a producer for each run. Runs that are read `in_sequence`, from start to end, count
// bytes; others have records of a fixed size. Waiting for a pipe ends when `stop` is requested.
ChunkProducers make_producers(std::span<const Run> runs, bool in_sequence, const Reading& reading,
                              const std::stop_token& stop);

// Shares `chunk`, whose records are `bytes`. When it is released, they are dropped from the memory
// of `mapped`, if they are in it and do not stay there, and `memory` is released.
template <class... Memory>
ChunkRef share(Chunk chunk, std::span<const std::byte> bytes, const MappedRange& mapped,
               std::shared_ptr<Memory>... memory) {
  assert(chunk.count != 0);
  return {new Chunk(std::move(chunk)),
          [mapped, bytes, ... held = std::move(memory)](const Chunk* released) {
            if (mapped.page_bytes != 0 && !released->stays_mapped) forget(bytes, mapped);
            delete released;
          }};
}

}  // namespace corank
