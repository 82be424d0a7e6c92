// Fills several part files one after another with the output of one pass.
//
// A part ends with the record that reaches its share: of the limit, or of the input, so that
// operators shorten all parts alike. One thread uses a filler; it borrows the pass. Throws what the
// writers throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "exec/pass.hpp"
#include "format/rows.hpp"

namespace corank {

class PartFiller {
 public:
  explicit PartFiller(const Pass& pass) : pass_(pass), layout_(pass.output.encoding->layout()) {}

  // Begins a unit of `input_bytes`, whose output are these pieces.
  void begin_unit(std::uint64_t input_bytes, std::span<const std::span<const std::byte>> pieces);
  // Writes whole records, the next ones of the unit.
  void write(std::span<const std::byte> records);

 private:
  Records take_share(std::span<const std::byte> records);
  Records take_share_of_limit(std::span<const std::byte> records);
  Records take_share_of_input(std::span<const std::byte> records);
  std::span<const std::byte> records_of_last_key(std::span<const std::byte> records) const;
  void put(std::span<const std::byte> records);

  const Pass& pass_;
  KeyLayout layout_;
  std::size_t part_ = 0;          // the one that is being filled
  std::uint64_t part_bytes_ = 0;  // in it
  bool has_share_ = false;        // it is full, except for records with the key of `last_`
  RowCopy last_;                  // last record of the share, if keys are kept together
  std::uint64_t records_ = 0;     // written; counted only if the limit is shared
  // Bytes of the input before and in the unit, and of the unit's output.
  std::uint64_t input_before_ = 0, input_in_unit_ = 0, output_in_unit_ = 0, written_in_unit_ = 0;
};

}  // namespace corank
