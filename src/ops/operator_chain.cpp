#include "ops/operator_chain.hpp"

#include <algorithm>
#include <ranges>

namespace corank {

void TileMemory::append(std::span<const std::byte> added, std::uint64_t count) {
  if (spilled_records == 0 && static_cast<std::ptrdiff_t>(added.size()) <= limit - end) {
    end = std::ranges::copy(added, end).out;
    records += count;
    return;
  }
  spilled.insert(spilled.end(), added.begin(), added.end());
  spilled_records += count;
}

OperatorChain::OperatorChain(const RecordFormat& format, const Schema& schema, const Query& query,
                             bool within_bounds, std::size_t runs)
    : format_(format),
      dropped_(format.dropped(query)),
      where_(format.filter(query)),
      projection_(format.projection(query)),
      on_equal_(query.on_equal),
      layout_(format.keys().layout()),
      output_layout_(projection_ ? projection_->output().keys().layout() : layout_),
      output_bytes_(projection_ ? projection_->output().record_bytes() : format.record_bytes()) {
  if (on_equal_ == OnEqual::reduce)
    reducer_ = format.traits().has_text_columns ? make_column_reducer(format, query)
                                                : make_field_reducer(format, schema, query);
  if (is_set_operation(on_equal_)) set_operation_ = {on_equal_, static_cast<std::uint32_t>(runs)};
  if (within_bounds) return;
  from_ = format.bound(query, Setting::from);
  to_ = format.bound(query, Setting::to);
}

std::pair<std::uint64_t, std::uint64_t> OperatorChain::in_bounds(const std::byte* rows,
                                                                 std::uint64_t count) const {
  const auto indices = std::views::iota(std::uint64_t{0}, count);
  const auto rows_before = [&](const RowBound& bound) {
    return *std::ranges::partition_point(indices, [&](std::uint64_t i) {
      return bound.compare(rows + i * layout_.record_bytes) < 0;
    });
  };
  const std::uint64_t end = to_ ? rows_before(*to_) : count;
  return {from_ ? std::min(rows_before(*from_), end) : 0, end};
}

std::size_t OperatorChain::choose(const std::byte* rows, std::span<std::uint16_t> which) const {
  std::size_t kept = 0;
  for (const std::uint16_t i : which) {
    const std::byte* const row = rows + i * layout_.record_bytes;
    which[kept] = i;
    kept += (!from_ || from_->compare(row) >= 0) && (!to_ || to_->compare(row) < 0);
  }
  return filter(rows, which.first(kept));
}

std::size_t OperatorChain::filter(const std::byte* rows, std::span<std::uint16_t> which) const {
  return where_ ? keep(*where_, true, rows, which) : which.size();
}

std::size_t OperatorChain::drop(const std::byte* rows, std::span<std::uint16_t> which) const {
  return dropped_ ? keep(*dropped_, false, rows, which) : which.size();
}

// Keeps the indices of the rows for which the filter returns `result`; returns their number.
std::size_t OperatorChain::keep(const RowFilter& filter, bool result, const std::byte* rows,
                                std::span<std::uint16_t> which) const {
  std::vector<RowFilter::Mask> scratch;
  std::size_t kept = 0, tested = 0;
  for_spans(layout_, rows, which, [&](const std::byte* span, std::uint64_t count) {
    const RowFilter::Mask& mask = filter.test({span, count}, scratch);
    for (std::uint64_t i = 0; i < count; ++i) {
      which[kept] = which[tested++];
      kept += (mask[i] != 0) == result;
    }
  });
  return kept;
}

std::uint64_t OperatorChain::project(const std::byte* rows, RowIndices which, TileMemory& to,
                                     FingerprintSum sum) const {
  std::uint64_t fingerprint = 0;
  for_spans(layout_, rows, which, [&](const std::byte* span, std::uint64_t count) {
    // The output may be the memory of the records, so they are projected apart.
    std::vector<std::byte> records(projection_->max_bytes({span, count}));
    std::byte* const end = projection_->project({span, count}, records.data());
    records.resize(static_cast<std::size_t>(end - records.data()));
    if (sum) fingerprint += records_fingerprint(sum, output_layout_, records);
    to.append(records, count);
  });
  return fingerprint;
}

}  // namespace corank
