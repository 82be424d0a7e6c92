#include "format/row_filter.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

namespace corank {
namespace {

// Calls use(holds), where holds(order) tells whether `order`, that of a row and the bound, is the
// relation `operation`.
template <class Use>
void with_relation(ConditionOperation operation, Use use) {
  using enum ConditionOperation;
  switch (operation) {
    case less:
      return use([](auto order) { return order < 0; });
    case less_equal:
      return use([](auto order) { return order <= 0; });
    case equal:
      return use([](auto order) { return order == 0; });
    case not_equal:
      return use([](auto order) { return order != 0; });
    case greater_equal:
      return use([](auto order) { return order >= 0; });
    default:
      return use([](auto order) { return order > 0; });
  }
}

}  // namespace

RowBound::RowBound(KeyEncoding encoding, std::vector<std::byte> record)
    : encoding_(std::move(encoding)),
      record_(std::move(record)),
      word_(encode<1>(encoding_.layout(), record_.data()).word[0]) {}

RowBound::RowBound(TextEncoding encoding, std::vector<std::byte> record)
    : text_(std::move(encoding)),
      encoding_(text_->layout()),
      record_(std::move(record)),
      word_(text_word(text_->layout(), record_.data(), record_.size(), 0)) {}

int RowBound::compare(const std::byte* row) const {
  return compare_record(bytes_of(encoding_.layout(), row, 1));
}

int RowBound::compare_record(std::span<const std::byte> record) const {
  const KeyLayout layout = encoding_.layout();
  const std::byte* const at = record.data();
  if (!layout.text)
    return record_less(layout, record_.data(), at) - record_less(layout, at, record_.data());
  const std::uint64_t word = text_word(*layout.text, at, record.size(), 0);
  if (word != word_) return word < word_ ? -1 : 1;
  return text_less(*layout.text, record_.data(), record_.size(), at, record.size()) -
         text_less(*layout.text, at, record.size(), record_.data(), record_.size());
}

void RowBound::test(ConditionOperation operation, RowSpan rows, std::uint8_t* mask) const {
  const KeyLayout layout = encoding_.layout();
  if (!is_word()) {
    with_relation(operation, [&](auto holds) {
      for (std::uint64_t i = 0; i < rows.count; ++i)
        mask[i] = holds(compare(rows.data + i * layout.record_bytes));
    });
    return;
  }
  constexpr std::uint64_t block_rows = 256;
  std::array<Key<1>, block_rows> keys;
  for (std::uint64_t first = 0; first < rows.count; first += block_rows) {
    const std::uint64_t count = std::min(block_rows, rows.count - first);
    encode_keys(layout, rows.data + first * layout.record_bytes, count, keys.data());
    with_relation(operation, [&](auto holds) {
      for (std::uint64_t i = 0; i < count; ++i)
        mask[first + i] =
            holds((keys[i].word[0] > word_) - static_cast<int>(keys[i].word[0] < word_));
    });
  }
}

const RowFilter::Mask& RowFilter::test(RowSpan rows, std::vector<Mask>& scratch) const {
  assert(rows.count <= max_rows);
  scratch.resize(steps_.size());
  std::size_t depth = 0;
  for (const Step& step : steps_) {
    switch (step.operation) {
      case ConditionOperation::negate:
        for (std::uint64_t i = 0; i < rows.count; ++i) scratch[depth - 1][i] ^= 1;
        break;
      case ConditionOperation::both:
        --depth;
        for (std::uint64_t i = 0; i < rows.count; ++i) scratch[depth - 1][i] &= scratch[depth][i];
        break;
      case ConditionOperation::either:
        --depth;
        for (std::uint64_t i = 0; i < rows.count; ++i) scratch[depth - 1][i] |= scratch[depth][i];
        break;
      default:
        step.with->test(step.operation, rows, scratch[depth++].data());
    }
  }
  return scratch.front();
}

}  // namespace corank
