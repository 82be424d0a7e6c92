// Produces chunks of records that are found only as their bytes arrive, from start to end:
// variable-length records, and fixed-size records from a decompressor or a pipe.
//
// Bytes of an incomplete record at the end of a chunk are carried over to the next one. Sizes and
// offsets are in bytes. Damaged records are thrown as Error with their place.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "format/framing.hpp"
#include "io/byte_source.hpp"
#include "run/chunk_producer.hpp"

namespace corank {

// The bytes of one run: either a source or memory. A source of which a record does not fit the
// memory budget becomes memory, if `map` can map it.
struct Stream {
  std::filesystem::path path;
  std::uint64_t offset = 0;                  // of its first byte in the file, for error messages
  std::shared_ptr<ByteSource> source = {};   // null if the bytes are in memory
  bool is_pipe = false;                      // the source may wait for its writer
  std::span<const std::byte> in_place = {};  // the bytes in memory
  std::uint64_t mapped_page_bytes = 0;       // page size of the mapping; 0 if not mapped
  // Returns the bytes in memory instead; none if that is not possible.
  std::function<std::span<const std::byte>()> map = [] { return std::span<const std::byte>(); };
  // Returns the place of record `record`, which begins at byte `byte`, for error messages.
  std::function<Place(std::uint64_t record, std::uint64_t byte)> place_of =
      [](std::uint64_t record, std::uint64_t byte) -> Place {
    return {record, {}, byte};
  };
};

// Returns the place of record `record` of the run, which begins at byte `byte`, if that is known.
// May read the file up to there.
Place place_of(const Run& run, const RecordFormat& format, std::uint64_t record,
               std::optional<std::uint64_t> byte);

// Returns the stream of `run`, which must count bytes and outlive the stream. Waiting for a pipe
// ends when `stop` is requested.
Stream stream_of(const Run& run, const Reading& reading, std::stop_token stop);

ChunkProducers make_producers(std::vector<Stream> streams, const Reading& reading);

class FramingProducer final : public ChunkProducer {
 public:
  // Bytes that large records take in all runs, beyond their chunks.
  using LargeBytes = std::shared_ptr<std::atomic<std::uint64_t>>;

  // `index` is the number of the run among `num_runs`. Runs in memory begin with chunks of
  // different sizes, as first_chunk_records() says for records of a fixed size.
  FramingProducer(Stream stream, std::uint32_t index, std::uint32_t num_runs,
                  const Reading& reading, LargeBytes large_used_bytes);

  bool begin(ChunkRequest& request) override;
  Product produce(ChunkRequest request, std::uint64_t got) override;
  std::uint64_t skipped() const override { return skipped_; }

 private:
  class LargeMemory;
  struct Filling;

  std::uint64_t refs_bytes() const { return chunk_records_ * reading_.format.ref_bytes(); }
  void ensure_buffer(ChunkRequest& request) const;
  CountedRecords next_records() const;
  void advance(std::uint64_t records, std::uint64_t bytes, const Gap& skipped);
  void fill_counted(Filling& filling);
  void fill_in_place(Filling& filling);
  bool fill_from_source(Filling& filling, const std::atomic<Demand>& demand);
  bool go_on_in_place(std::uint64_t bytes);
  std::uint64_t read(std::span<std::byte> into, const std::atomic<Demand>& demand);
  std::uint64_t take_carried(std::span<std::byte> into);
  void carry_over(std::span<const std::byte> left, bool has_read);
  std::uint64_t find_records(Filling& filling, std::span<const std::byte> bytes, bool at_end);
  static void move_back(std::span<PrefixRef> refs, std::span<const std::byte> records,
                        std::uint64_t distance);
  void skip(Filling& filling, std::uint64_t bytes);
  Place place_after(const Filling& filling, std::uint64_t bytes) const;
  void find_last_record(Filling& filling, std::span<std::byte> memory, std::uint64_t bytes);
  std::shared_ptr<LargeMemory> take_large(std::uint64_t bytes, std::uint64_t own_bytes,
                                          std::uint64_t found_bytes) const;
  [[noreturn]] void throw_too_long(std::uint64_t bytes, std::uint64_t found_bytes,
                                   std::uint64_t used_bytes) const;

  Stream stream_;
  const Reading reading_;
  const KeyLayout layout_;
  const std::uint64_t chunk_records_;  // max records in a chunk
  const std::uint64_t room_bytes_;     // for the bytes of the records in a chunk
  const LargeBytes large_used_bytes_;

  std::span<const std::byte> unread_;       // rest of the bytes in memory
  bool exhausted_ = false;                  // the source has ended
  std::vector<std::byte> carried_;          // bytes read, in no chunk yet
  std::size_t carried_from_ = 0;            // start of those bytes
  std::uint64_t wanted_bytes_;              // to read for the next chunk
  std::uint64_t in_chunks_ = 0;             // records in chunks so far
  std::uint64_t records_ = 0;               // records so far, skipped ones included
  std::uint64_t offset_;                    // in the file, after these records
  std::atomic<std::uint64_t> skipped_ = 0;  // records; read by other threads
};

}  // namespace corank
