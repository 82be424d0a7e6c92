// Produces chunks of whole records of a fixed size, whose places in the run are known: from a file
// by positioned reads, from a mapping, or from memory.
#pragma once

#include <cstdint>
#include <optional>

#include "run/chunk_producer.hpp"

namespace corank {

class BlockProducer final : public ChunkProducer {
 public:
  // `index` is the number of the run among `num_runs`. Runs begin with chunks of different sizes,
  // as first_chunk_records() says, if they are merged and longer than a chunk.
  BlockProducer(const Run& run, std::uint32_t index, std::uint32_t num_runs,
                const Reading& reading);

  bool request(ChunkRequest& request) override;
  std::optional<FileRead> file_read(const ChunkRequest& request) const override;
  Product produce(ChunkRequest request, std::uint64_t got) override;

 private:
  const Run& run_;
  const Reading reading_;
  std::uint64_t first_chunk_records_;
  std::uint64_t requested_ = 0;  // records
};

}  // namespace corank
