#include "exec/chunk_filter.hpp"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cassert>
#include <numeric>
#include <span>

#include "format/rows.hpp"
#include "ops/operator_chain.hpp"
#include "util/math.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

ChunkFilter::ChunkFilter(const Pass& pass, const Cutoff* cutoff)
    : pass_(pass), layout_(pass.format.keys().layout()), cutoff_(cutoff) {}

// Sets chosen_ and batches_ to the rows of the chunk that pass. Threads that have no blocks to sort
// help.
ChunkFilter::Chosen ChunkFilter::choose(const Chunk& chunk) {
  chosen_.resize(chunk.count);
  batches_.resize(divide_up(chunk.count, max_batch_rows));
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(std::size_t{0}, batches_.size(), [&](std::size_t batch) {
      const std::span<std::uint16_t> which = rows_of(batch);
      std::iota(which.begin(), which.end(), std::uint16_t{0});
      batches_[batch] =
          choose(chunk.records() + batch * max_batch_rows * layout_.record_bytes, which);
    });
  });
  Chosen chosen;
  for (const Chosen& batch : batches_) {
    chosen.records += batch.records;
    chosen.bytes += batch.bytes;
  }
  return chosen;
}

// Keeps the indices of the rows of a batch that pass.
ChunkFilter::Chosen ChunkFilter::choose(const std::byte* rows,
                                        std::span<std::uint16_t> which) const {
  if (pass_.operators) which = which.first(pass_.operators->choose(rows, which));
  if (cutoff_) which = which.first(cutoff_->keep(rows, which));
  Chosen chosen{which.size(), 0};
  for (const std::uint16_t i : which)
    chosen.bytes += bytes_of(layout_, rows + i * layout_.record_bytes, 1).size();
  return chosen;
}

std::span<std::uint16_t> ChunkFilter::rows_of(std::size_t batch) {
  const std::size_t first = batch * max_batch_rows;
  return std::span(chosen_).subspan(first,
                                    std::min<std::size_t>(chosen_.size() - first, max_batch_rows));
}

// Makes room for more copies, of records of `run`. Returns those that are complete then; null if
// there are none.
ChunkRef ChunkFilter::make_room(const Chosen& chosen, std::uint32_t run) {
  if (chosen.records == 0) return nullptr;
  ChunkRef full;
  if (open_ && (open_->bytes + chosen.bytes > open_->room_bytes ||
                open_->count + chosen.records > pass_.plan.chunk_records))
    full = std::move(open_);
  if (!open_) {
    open_ = std::make_shared<Copies>();
    open_->run = run;
    open_->room_bytes = std::max(pass_.plan.chunk_bytes, chosen.bytes);
    open_->records = std::make_unique_for_overwrite<std::byte[]>(open_->room_bytes +
                                                                 GatherWriter::max_bytes_read);
  }
  return full;
}

void ChunkFilter::copy(const Chunk& chunk) {
  std::uint64_t used = 0, copied = 0;
  for (std::size_t batch = 0; batch < batches_.size(); ++batch) {
    copy(chunk.records() + batch * max_batch_rows * layout_.record_bytes,
         rows_of(batch).first(batches_[batch].records));
    used += batches_[batch].records;
  }
  if (used != 0) {
    open_->in_place = open_->refs.empty() ? open_->records.get()
                                          : reinterpret_cast<const std::byte*>(open_->refs.data());
    if (pass_.fingerprint)
      copied =
          rows_fingerprint(pass_.fingerprint, layout_,
                           open_->in_place + (open_->count - used) * layout_.record_bytes, used);
    open_->fingerprint = open_->fingerprint.value_or(0) + copied;
  }
  records_left_out_ += chunk.count - used;
  fingerprint_left_out_ += chunk.fingerprint.value_or(0) - copied;
}

void ChunkFilter::copy(const std::byte* rows, RowIndices which) {
  if (which.empty()) return;
  std::byte* at = open_->records.get() + open_->bytes;
  std::byte* const limit = open_->records.get() + open_->room_bytes;
  std::byte* const end = copy_rows(layout_, rows, which, at, limit, open_->refs);
  assert(end <= limit);
  open_->count += which.size();
  open_->bytes = static_cast<std::uint64_t>(end - open_->records.get());
}

}  // namespace corank
