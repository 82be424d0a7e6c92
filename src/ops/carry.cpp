#include "ops/carry.hpp"

namespace corank {

void Carry::start(const OperatorChain& chain, const std::byte* rows, std::uint64_t count) {
  count_ = 1;
  set = {};
  row_.assign(chain.layout(), rows);
  start_sums(chain);
  if (count > 1) add(chain, rows + chain.layout().record_bytes, count - 1);
}

void Carry::start(const OperatorChain& chain, std::span<const std::byte> record) {
  count_ = 1;
  set = {};
  row_.assign_record(chain.layout(), record);
  start_sums(chain);
}

void Carry::start_sums(const OperatorChain& chain) {
  if (const GroupReducer* const reducer = chain.reducer()) reducer->start(row_.record(), sums_);
}

void Carry::add(const OperatorChain& chain, const std::byte* rows, std::uint64_t count) {
  count_ += count;
  if (chain.on_equal() == OnEqual::last)
    row_.assign(chain.layout(), rows + (count - 1) * chain.layout().record_bytes);
  if (const GroupReducer* const reducer = chain.reducer())
    reducer->add(rows, count, row_.record().data(), sums_);
}

void Carry::add(const OperatorChain& chain, Carry next) {
  count_ += next.count_;
  if (chain.on_equal() == OnEqual::last) row_ = std::move(next.row_);
  if (const GroupReducer* const reducer = chain.reducer())
    reducer->add(next.row_.record().data(), next.sums_, row_.record().data(), sums_);
}

const std::byte* Carry::resolve(const OperatorChain& chain, ResolvedCounts& counts) {
  if (const GroupReducer* const reducer = chain.reducer()) reducer->finish(count_, sums_, row_);
  counts.replaced += count_ - 1;
  return row_.row();
}

std::uint64_t Carry::emit(const OperatorChain& chain, TileMemory& to, FingerprintSum sum,
                          ResolvedCounts& counts) {
  const std::byte* const row = resolve(chain, counts);
  std::uint16_t which = 0;
  if (chain.drop(row, {&which, 1}) == 0) {
    ++counts.deleted;
    return 0;
  }
  if (chain.projection()) return chain.project(row, {&which, 1}, to, sum);
  to.append(record(), 1);
  return sum ? rows_fingerprint(sum, chain.layout(), row, 1) : 0;
}

}  // namespace corank
