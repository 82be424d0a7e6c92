#include "plan/budget.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <string>

#include "codec/compressor.hpp"
#include "corank/error.hpp"
#include "run/chunk_producer.hpp"
#include "util/buffer_pool.hpp"
#include "util/messages.hpp"
#include "util/system_limits.hpp"

namespace corank {
namespace {

// Number of runs from which their bookkeeping is charged to the budget; for fewer it is negligible.
constexpr std::uint64_t many_runs = 10'000;
// Bytes of bookkeeping per run: its name and the state of the merge in it.
constexpr std::uint64_t bookkeeping_bytes_per_run = 768;

}  // namespace

Budget::Budget(const Options& options, const RecordFormat& format, std::span<const Run> runs,
               unsigned threads)
    : options_(options),
      record_bytes_(format.record_bytes()),
      threads_(threads),
      has_streams_(std::ranges::any_of(runs, &Run::is_stream)),
      memory_bytes_(memory_budget(options.memory_bytes).value),
      bytes_(memory_bytes_) {
  for (const Run& run : runs) decoder_bytes_ = std::max(decoder_bytes_, run.input().memory_bytes);
  if (runs.size() >= many_runs) {
    const std::uint64_t min_bytes = smallest() * std::max(options.parts, 1u);
    bytes_ = std::max(bytes_ - std::min(bytes_ / 4, runs.size() * bookkeeping_bytes_per_run),
                      std::min(bytes_, min_bytes));
  }
}

void Budget::take(std::uint64_t bytes) {
  assert(bytes <= bytes_);
  bytes_ -= bytes;
}

// Returns what the compressors of all outputs take of a budget of `bytes`.
Budget::Compressors Budget::compressors(const Compression& compression, std::uint64_t bytes) const {
  const unsigned outputs = std::max(options_.parts, 1u);
  unsigned threads = std::max(threads_ / outputs, 1u);
  const auto taken = [&] { return outputs * Compressor::memory_bytes(compression, threads); };
  // A second thread must not take what a small budget needs for records.
  while (threads > 1 && taken() > bytes / 4) --threads;
  return {threads, std::min(bytes, taken())};
}

unsigned Budget::reserve(const Compression& compression) {
  const auto [threads, taken] = compressors(compression, bytes_);
  reserved_.push_back(compression);
  bytes_ -= taken;
  return threads;
}

// Compressors take more of a larger budget, which gives them more threads.
std::uint64_t Budget::whole_for(std::uint64_t bytes) const {
  const auto left_of = [&](std::uint64_t whole) {
    for (const Compression& compression : reserved_) whole -= compressors(compression, whole).bytes;
    return whole;
  };
  std::uint64_t whole = bytes;
  for (std::uint64_t left; (left = left_of(whole)) < bytes;) whole += bytes - left;
  return whole;
}

void Budget::expect_streams(std::uint64_t decoder_bytes) {
  has_streams_ = true;
  decoder_bytes_ = std::max(decoder_bytes_, decoder_bytes);
}

std::uint64_t Budget::widest(std::size_t partitions) const {
  assert(partitions != 0);
  // Decompressors and pipes get the other half.
  const std::uint64_t bytes = bytes_ / partitions / (has_streams_ ? 2 : 1);
  std::uint64_t widest = widest_pass(record_bytes_, bytes);
  if (decoder_bytes_ != 0) widest = std::min(widest, bytes / decoder_bytes_);
  if (widest < 2)
    throw_error(
        ErrorCode::memory,
        "{}: too little to merge records of {}{}; the smallest budget that works is {} bytes",
        setting_is(Setting::memory, std::to_string(memory_bytes_)),
        record_bytes_ == 0 ? "variable length" : fmt::format("{} bytes", record_bytes_),
        partitions > 1 ? fmt::format(" into {} parts", partitions) : "",
        whole_for(smallest() * partitions));
  return widest;
}

std::optional<PassPlan> Budget::plan(std::span<const Run> runs, const PassNeeds& needs) const {
  std::uint64_t merged_bytes = 0;
  std::uint64_t decoders_bytes = 0;
  for (const Run& run : runs) {
    merged_bytes += run.bytes();
    decoders_bytes += run.input().memory_bytes;
  }
  assert(needs.partitions != 0 && needs.held != 0);
  decoders_bytes = std::min(decoders_bytes, needs.held * decoder_bytes_);
  assert(decoders_bytes <= bytes_ / needs.partitions);
  const std::uint64_t memory_bytes = bytes_ / needs.partitions - decoders_bytes;
  // The size of a stream is unknown until it ends.
  if (has_streams_) merged_bytes = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t slice_bytes = std::min(merged_bytes, needs.wanted_bytes) / needs.partitions;
  const bool mapped = std::ranges::all_of(runs, &Run::is_mapped);
  const std::uint64_t min_unit_bytes =
      needs.direct_output ? std::min(min_direct_unit_bytes, slice_bytes / runs_to_direct_units) : 0;
  const auto threads = std::max(threads_ / static_cast<unsigned>(needs.partitions), 1u);
  const std::uint64_t text_unit_bytes =
      std::max(max_text_unit_bytes,
               enough_unit_bytes(runs.size(), text_unit_bytes_a_run(threads), slice_bytes));
  if (record_bytes_ == 0 && std::ranges::all_of(runs, &Run::is_in_memory))
    return plan_pass_in_memory(needs.held, memory_bytes, slice_bytes, text_unit_bytes);
  const bool cuda = needs.devices != 0;
  std::uint64_t unit_bytes, edge_bytes = 0, runs_to_chunks;
  if (record_bytes_ == 0) {
    unit_bytes = cuda ? max_cuda_unit_bytes : std::max(text_unit_bytes, min_unit_bytes);
    runs_to_chunks = mapped ? runs_to_mapped_text_chunks : runs_to_cached_chunks;
  } else {
    const std::uint64_t bytes_a_run = cuda ? cuda_unit_bytes_a_run : cpu_unit_bytes_a_run(threads);
    unit_bytes =
        std::min(std::max({cuda ? max_cuda_unit_bytes : cpu_unit_bytes(threads), min_unit_bytes,
                           enough_unit_bytes(runs.size(), bytes_a_run, slice_bytes)}),
                 needs.wanted_bytes);
    edge_bytes = has_streams_ ? stream_margin_bytes : needs.direct ? 2 * page_bytes() : 0;
    // Chunks that a device reads must be pinned, which costs more than page faults: make them
    // small.
    runs_to_chunks = mapped                  ? runs_to_mapped_chunks
                     : needs.direct && !cuda ? runs_to_direct_chunks
                                             : runs_to_cached_chunks;
  }
  const auto plan = [&](unsigned tokens) {
    return plan_pass({.runs = needs.held,
                      .record_bytes = record_bytes_,
                      .memory_bytes = memory_bytes,
                      .merged_bytes = slice_bytes,
                      .max_unit_bytes = unit_bytes,
                      .edge_bytes = edge_bytes,
                      .runs_to_chunks = runs_to_chunks,
                      .tokens = tokens,
                      .in_memory_runs = needs.in_memory});
  };
  // Several devices need more units in flight, unless memory is scarce.
  const std::size_t devices = std::max(needs.devices / needs.partitions, std::size_t{1});
  const auto of_devices = plan(default_tokens * static_cast<unsigned>(devices));
  return of_devices ? of_devices : plan(default_tokens);
}

std::uint64_t Budget::smallest() const {
  const std::uint64_t bytes = min_memory(record_bytes_);
  return has_streams_ ? std::max(2 * bytes, 4 * decoder_bytes_) : bytes;
}

}  // namespace corank
