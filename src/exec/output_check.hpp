// Verifies the output of one partition: its order, and that it holds the records that it must.
#pragma once

#include <cstdint>

#include "exec/in_flight_unit.hpp"
#include "exec/pass.hpp"
#include "verify/output_verifier.hpp"
#include "verify/text_verifier.hpp"

namespace corank {

class OutputCheck {
 public:
  explicit OutputCheck(const Pass& pass)
      : is_text_(pass.encoding.layout().text != nullptr),
        records_(pass.output, pass.fingerprint),
        text_(pass.output, pass.fingerprint) {}

  // Checks that a piece, the first record of which has rank `first`, follows the piece before it.
  // Called in the order of the output, one call at a time.
  void follow(std::span<const std::byte> piece, std::uint64_t first);
  // Checks the records within the unit's pieces, or takes what the backend found. Thread-safe.
  void verify(const InFlightUnit& token, std::uint32_t output_bytes, unsigned threads);

  // Checks that `next`, a later partition, begins after this one ends.
  void check_edge(const OutputCheck& next) const;
  bool empty() const { return records_.empty() && text_.empty(); }
  // Hash of all records that were verified.
  std::uint64_t fingerprint() const {
    return is_text_ ? text_.fingerprint() : records_.fingerprint();
  }

 private:
  bool is_text_;
  OutputVerifier records_;
  TextVerifier text_;
};

}  // namespace corank
