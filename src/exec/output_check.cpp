#include "exec/output_check.hpp"

#include <cassert>

namespace corank {

void OutputCheck::follow(std::span<const std::byte> piece, std::uint64_t first) {
  if (!is_text_) records_.follow(piece, first);  // text_ finds its neighbours by their sequence
}

void OutputCheck::verify(const InFlightUnit& token, std::uint32_t output_bytes, unsigned threads) {
  const auto& pieces = token.merged.pieces;
  if (const auto& proof = token.merged.look) {
    assert(pieces.size() == 1);
    if (is_text_)
      text_.take(*proof, pieces.front(), token.sequence, token.offset);
    else
      records_.take(*proof);
    return;
  }
  if (is_text_) return text_.look(pieces, token.sequence, token.offset, threads);
  std::uint64_t first = token.first;
  for (const std::span<const std::byte> piece : pieces) {
    records_.look(piece, first, threads);
    first += piece.size() / output_bytes;
  }
}

void OutputCheck::check_edge(const OutputCheck& next) const {
  if (is_text_)
    text_.check_edge(next.text_);
  else
    records_.check_edge(next.records_);
}

}  // namespace corank
