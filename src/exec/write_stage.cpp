#include "exec/write_stage.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "corank/error.hpp"

namespace corank {

WriteStage::WriteStage(const Pass& pass, PassTotals& totals)
    : pass_(pass), totals_(totals), parts_(pass) {
  if (pass.operators) groups_.emplace(*pass.operators, pass.limit, pass.fingerprint);
}

void WriteStage::write(InFlightUnit& token) {
  const auto begin = TraceClock::now();
  totals_.write_for_merge +=
      std::max(token.merged_at - written_until_, TraceClock::duration(0)).count();
  totals_.merge_for_write += (begin - token.merged_at).count();
  join(token);
  emit(token);
  ++totals_.units;
  totals_.records += token.unit.records;
  written_until_ = TraceClock::now();
  pass_.progress.add(token.unit.bytes);
}

void WriteStage::join(InFlightUnit& token) {
  if (!groups_) return;
  if (is_done_) {
    token.merged = MergedUnit();
  } else {
    groups_->join(token.merged);
    is_done_ = groups_->done();
  }
}

void WriteStage::write_rest(InFlightUnit& token) {
  if (groups_) groups_->finish(token.merged);
  emit(token);
}

void WriteStage::emit(InFlightUnit& token) {
  token.offset = written_bytes_;
  token.sequence = num_emitting_units_;
  if (!token.merged.pieces.empty()) ++num_emitting_units_;
  const auto buffer = token.buffer ? token.buffer->bytes() : std::span<std::byte>();
  const std::byte* unused = buffer.data();  // end of the last piece in the buffer
  for (std::span<const std::byte>& piece : token.merged.pieces) {
    const std::uint64_t at = written_bytes_;
    written_bytes_ += piece.size();
    const bool in_buffer =
        piece.data() >= buffer.data() && piece.data() < buffer.data() + buffer.size();
    if (!pass_.writers.empty() && in_buffer) {
      // The memory between two pieces of the buffer is free; see Writer::write().
      assert(unused <= piece.data() && piece.size() <= buffer.size());
      write_piece(piece, static_cast<std::size_t>(piece.data() - unused), token.buffer,
                  token.unit.sequence);
      unused = piece.data() + piece.size();
    } else if (!pass_.writers.empty()) {
      write_piece(piece, 0, nullptr, token.unit.sequence);
    } else if (pass_.operators) {
      // In memory, pieces move up to close the gaps that the operators left.
      assert(at + piece.size() <= pass_.in_place.size());
      const auto place = pass_.in_place.subspan(at, piece.size());
      if (!piece.empty()) std::memmove(place.data(), piece.data(), piece.size());
      piece = place;
    }
  }
}

void WriteStage::write_piece(std::span<const std::byte> piece, std::size_t free_before,
                             const WriteBehind::Owner& owner, std::uint64_t sequence) {
  Writer& writer = pass_.writers.front();
  // Queueing to the write-behind thread is not counted as write time.
  std::optional<Stopwatch> writing;
  if (!writer.is_direct())
    writing.emplace(totals_.write, TraceRow{pass_.trace, "write", pass_.partition}, sequence);
  if (pass_.writers.size() == 1)
    writer.write(piece, free_before, owner);
  else
    parts_.write(piece);
}

void WriteStage::check_conservation(std::uint64_t read, std::uint64_t written) const {
  if (read - (groups_ ? groups_->left_out() : 0) == written) return;
  throw Corrupted(groups_ ? "the records that were written are not those that the operators emitted"
                          : "the merged records are not those that were read");
}

void WriteStage::add_to_totals() const {
  totals_.bytes_written += written_bytes_;
  if (!groups_) return;
  totals_.records_written += groups_->records();
  totals_.records_replaced += groups_->resolved().replaced;
  totals_.records_deleted += groups_->resolved().deleted;
}

}  // namespace corank
