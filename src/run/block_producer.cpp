#include "run/block_producer.hpp"

#include <algorithm>
#include <cassert>

namespace corank {
namespace {

ChunkProducer::Traits traits_of(const Run& run, const Reading& reading) {
  const bool is_in_place = run.in_place(0) != nullptr;
  return {.has_known_places = true,
          .needs_buffers = !is_in_place,
          .is_immediate = is_in_place && !run.is_mapped() && !reading.sum,
          .is_direct = run.is_direct()};
}

}  // namespace

BlockProducer::BlockProducer(const Run& run, std::uint32_t index, std::uint32_t num_runs,
                             const Reading& reading)
    : ChunkProducer(traits_of(run, reading)),
      run_(run),
      reading_(reading),
      first_chunk_records_(
          reading.order == ReadOrder::forecast && run.records() > reading.plan.chunk_records
              ? first_chunk_records(reading.plan, run.record_bytes(), index, num_runs)
              : reading.plan.chunk_records) {
  assert(run.record_bytes() == reading.format.record_bytes());
  assert(reading.plan.chunk_records != 0);
}

bool BlockProducer::request(ChunkRequest& request) {
  const std::uint64_t left = run_.records() - requested_;
  if (left == 0) return false;
  request.first = requested_;
  request.count =
      std::min(left, requested_ == 0 ? first_chunk_records_ : reading_.plan.chunk_records);
  requested_ += request.count;
  return true;
}

std::optional<FileRead> BlockProducer::file_read(const ChunkRequest& request) const {
  if (!traits().needs_buffers) return std::nullopt;
  const Run::Part part = run_.part(request.first, request.count);
  assert(part.bytes <= request.buffer.bytes().size());
  return FileRead{run_.descriptor(), &run_.path(), request.buffer.bytes().first(part.bytes),
                  part.offset, run_.is_direct()};
}

ChunkProducer::Product BlockProducer::produce(ChunkRequest request, std::uint64_t got) {
  const std::uint32_t record_bytes = run_.record_bytes();
  const std::byte* records = run_.in_place(request.first);
  if (!records) {
    const Run::Part part = run_.part(request.first, request.count);
    run_.check_got(part, got);
    records = request.buffer.bytes().data() + part.skew;
  }
  assert(request.count != 0);
  const std::span<const std::byte> bytes(records, request.count * record_bytes);
  if (run_.is_mapped()) populate(bytes);
  Chunk chunk{
      request.run,
      request.first,
      request.count,
      encode<max_key_words>(reading_.format.keys().layout(), &bytes.back() + 1 - record_bytes),
      std::move(request.buffer),
      records,
      {}};
  chunk.number = request.first;
  chunk.offset = run_.offset() + request.first * record_bytes;
  if (reading_.sum) chunk.fingerprint = reading_.sum(bytes, record_bytes);
  return {
      share(std::move(chunk), bytes, {{run_.in_place(0), run_.bytes()}, run_.mapped_page_bytes()})};
}

}  // namespace corank
