#include "io/write_behind.hpp"

#include <cassert>
#include <utility>

namespace corank {

WriteBehind::WriteBehind(Write write, TraceRow row)
    : write_(std::move(write)),
      verifier_(1, [](Look& look, unsigned) { look(); }),
      writer_(1, [this, row](Job& job, unsigned) { this->write(job, row); }) {}

void WriteBehind::add(std::span<const std::byte> bytes, Owner owner) {
  assert(!bytes.empty());
  verifier_.check();
  writer_.submit({bytes, std::move(owner), nullptr});
}

void WriteBehind::then(Look look) {
  assert(look);
  verifier_.check();
  writer_.submit({{}, nullptr, std::move(look)});
}

void WriteBehind::finish() {
  writer_.finish();
  verifier_.finish();
}

void WriteBehind::abandon() noexcept {
  writer_.abandon();
  verifier_.abandon();
}

void WriteBehind::write(Job& job, TraceRow row) {
  if (job.look) return verifier_.submit(std::move(job.look));
  verifier_.check();
  Stopwatch writing(busy_, row, num_writes_++);
  write_(job.bytes);
}

}  // namespace corank
