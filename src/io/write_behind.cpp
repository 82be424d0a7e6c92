#include "io/write_behind.hpp"

#include <cassert>
#include <utility>

namespace corank {

WriteBehind::WriteBehind(Write write, TraceRow row)
    : write_(std::move(write)),
      verifier_(1, [](Verify& verify, unsigned) { verify(); }),
      writer_(1, [this, row](Job& job, unsigned) { this->write(job, row); }) {}

void WriteBehind::add(std::span<const std::byte> bytes, Owner owner) {
  assert(!bytes.empty());
  verifier_.check();
  writer_.submit({bytes, std::move(owner), nullptr});
}

void WriteBehind::then(Verify verify) {
  assert(verify);
  verifier_.check();
  writer_.submit({{}, nullptr, std::move(verify)});
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
  if (job.verify) return verifier_.submit(std::move(job.verify));
  verifier_.check();
  Stopwatch writing(busy_, row, num_writes_++);
  write_(job.bytes);
}

}  // namespace corank
