// Fills several part files one after another with the output of one pass.
//
// Each part gets an equal share of the limit or of the bytes. It ends with the record that reaches
// its share, so parts depend on the records alone. If the size of the output is not known
// beforehand, finish() fills the parts from a temporary file. One thread uses a filler; it borrows
// the pass. Throws what the writers throw, Corrupted, and Interrupted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "exec/pass.hpp"
#include "format/rows.hpp"

namespace corank {

class PartFiller {
 public:
  explicit PartFiller(const Pass& pass);

  // Writes whole records, the next ones of the output.
  void write(std::span<const std::byte> records);
  // Must be called after the last record. `fingerprint` is that of all records, if these are
  // verified; Corrupted is thrown if the temporary file does not hold them.
  void finish(std::uint64_t fingerprint);

 private:
  void spill(std::span<const std::byte> records);
  void fill(std::span<const std::byte> records);
  Records take_share(std::span<const std::byte> records);
  Records first_bytes(std::span<const std::byte> records, std::uint64_t min_bytes) const;
  Records records_of_last_key(std::span<const std::byte> records) const;

  const Pass& pass_;
  KeyLayout layout_;
  std::uint64_t total_ = 0;    // records of the limit, or bytes, that the parts share
  std::uint64_t written_ = 0;  // records or bytes, as in `total_`
  std::size_t part_ = 0;       // the one that is being filled
  bool has_share_ = false;     // it is full, except for records with the key of `last_`
  RowCopy last_;               // last record of the share, if keys are kept together
  std::optional<Writer> temporary_;
  std::vector<std::size_t> blocks_;  // bytes of the whole records in the temporary file, in order
};

}  // namespace corank
