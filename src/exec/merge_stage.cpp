#include "exec/merge_stage.hpp"

#include <algorithm>
#include <cassert>

#include "ops/unit_operators.hpp"

namespace corank {
namespace {

std::uint64_t skew_bytes(const Pass& pass) {
  const bool is_direct = !pass.writers.empty() && pass.writers.front().is_direct();
  return pass.format.ref_bytes() != 0 && is_direct ? page_bytes() : 0;
}

std::uint64_t num_output_buffers(const Pass& pass, const PassFacts& facts) {
  if (!facts.needs_output) return 0;
  return pass.backend ? std::min<std::uint64_t>(pass.plan.tokens, facts.units) : pass.plan.tokens;
}

}  // namespace

void IdleClock::enter() {
  const std::lock_guard lock(mutex_);
  if (inside_++ == 0) clock_ += (TraceClock::now() - empty_since_).count();
}

void IdleClock::leave() {
  const std::lock_guard lock(mutex_);
  assert(inside_ != 0);
  if (--inside_ == 0) empty_since_ = TraceClock::now();
}

MergeStage::MergeStage(const Pass& pass, const PassFacts& facts, PassTotals& totals)
    : pass_(pass),
      facts_(facts),
      totals_(totals),
      skew_bytes_(skew_bytes(pass)),
      written_before_(pass.writers.empty() ? 0 : pass.writers.front().bytes()),
      output_pool_(pass.plan.unit_bytes + skew_bytes_, num_output_buffers(pass, facts),
                   pass.backend ? pass.backend->pin_memory() : nullptr,
                   !pass.writers.empty() && pass.writers.front().is_direct()
                       ? BufferPool::Pages::huge
                       : BufferPool::Pages::small),
      idle_(totals.merge_for_cut) {}

bool MergeStage::stays(const WorkUnit& unit) const {
  // A record that is larger than a unit is written from where it was read, too.
  return !pass_.writers.empty() && (!facts_.needs_output || unit.bytes > pass_.plan.unit_bytes);
}

std::span<std::byte> MergeStage::output_of(const InFlightUnit& token) const {
  const std::uint64_t skew =
      skew_bytes_ != 0 ? (written_before_ + token.unit.offset) % skew_bytes_ : 0;
  assert(skew + token.unit.bytes <= token.buffer->bytes().size());
  return token.buffer->bytes().subspan(skew, token.unit.bytes);
}

std::span<const std::byte> MergeStage::bytes_of_segment(const Segment& segment) const {
  return bytes_of(facts_.layout, *segment.chunk, segment.first, segment.count);
}

void MergeStage::merge(InFlightUnit& token) {
  assert(!token.buffer && token.merged.pieces.empty());
  const bool stays_in_place = stays(token.unit);
  if (!stays_in_place) take_buffer(token);
  idle_.enter();
  {
    Stopwatch merging(totals_.merge, {pass_.trace, "merge", pass_.partition, token.number},
                      token.unit.sequence);
    if (stays_in_place)
      merge_in_place(token);
    else if (pass_.backend)
      merge_by_backend(token);
    else
      copy(token);
  }
  token.merged_at = TraceClock::now();
  idle_.leave();
}

void MergeStage::take_buffer(InFlightUnit& token) {
  assert(!pass_.writers.empty() || token.unit.offset + token.unit.bytes <= pass_.in_place.size());
  Stopwatch waiting(totals_.merge_for_write);
  token.buffer = std::make_shared<Buffer>(
      pass_.writers.empty() ? Buffer(pass_.in_place.subspan(token.unit.offset, token.unit.bytes))
                            : output_pool_.lease());
}

void MergeStage::merge_in_place(InFlightUnit& token) const {
  const std::vector<Segment>& segments = token.unit.segments;
  if (pass_.operators) {
    // Only a record that is larger than a unit comes here, so it is emitted where it is, or
    // dropped.
    assert(segments.size() == 1 && segments.front().count == 1);
    const auto record = bytes_of_segment(segments.front());
    token.merged =
        apply_to_unit(*pass_.operators, token.unit,
                      {const_cast<std::byte*>(record.data()), record.size()}, pass_.fingerprint);
    return;
  }
  for (const Segment& segment : segments) token.merged.pieces.push_back(bytes_of_segment(segment));
}

void MergeStage::merge_by_backend(InFlightUnit& token) {
  const WorkUnit& unit = token.unit;
  token.merged = pass_.backend->merge(unit, output_of(token).data());
  if (facts_.backend_reads) {
    if (const auto& proof = token.merged.proof)
      fingerprint_read_ += proof->read;
    else if (token.merged.read)
      fingerprint_read_ += *token.merged.read;
    else
      for (const Segment& segment : unit.segments)
        fingerprint_read_ += pass_.fingerprint(bytes_of_segment(segment), facts_.record_bytes);
  }
  token.unit.segments.clear();  // chunks are free for reading again
}

void MergeStage::copy(InFlightUnit& token) const {
  const std::span<std::byte> output = output_of(token);
  auto to = output.begin();
  for (const Segment& segment : token.unit.segments)
    to = std::ranges::copy(bytes_of_segment(segment), to).out;
  token.merged.pieces = {output};
}

}  // namespace corank
