#include "jobs/disorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "run/framing_producer.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

// Records before and after the disorder that another order must explain, too.
constexpr std::uint64_t max_examined = 1000;

using Rows = std::vector<const std::byte*>;

Rows rows_around(const RecordFormat& format, const ScannedBlock& block, std::uint64_t index) {
  Rows rows;
  const std::uint64_t first = index - std::min(index, max_examined);
  if (first == 0 && block.before) rows.push_back(block.before);
  const std::uint64_t end = std::min(block.rows.count, index + max_examined);
  for (std::uint64_t i = first; i < end; ++i)
    rows.push_back(block.rows.data + i * format.row_bytes());
  return rows;
}

bool are_sorted(const KeyLayout& layout, std::span<const std::byte* const> rows) {
  return std::ranges::is_sorted(
      rows, [&](const std::byte* a, const std::byte* b) { return record_less(layout, a, b); });
}

bool are_reversed(const KeyLayout& layout, std::span<const std::byte* const> rows) {
  return rows.size() > 2 &&
         std::ranges::is_sorted(rows, [&](const std::byte* a, const std::byte* b) {
           return record_less(layout, b, a);
         });
}

// Returns the likely cause of the disorder, as a continuation of the error; may be empty. `row`
// sorts before `before`; both are among `rows`.
std::string cause_of(const RecordFormat& format, const Rows& rows, const std::byte* before,
                     const std::byte* row, bool is_second) {
  const KeyLayout layout = format.keys().layout();
  if (std::string order = format.other_order(rows, before, row); !order.empty()) return order;
  const auto rest = std::span(rows).subspan(1);
  const bool rest_is_sorted = are_sorted(layout, rest);
  const std::string order_of_rest =
      !is_second || rest_is_sorted ? std::string() : format.other_order(rest, before, row);
  if (order_of_rest.empty() && are_reversed(layout, rows))
    return fmt::format("; the records are in reverse order: swap asc and desc in {}",
                       Setting::keys);
  if (!format.traits().can_have_names || !is_second || (order_of_rest.empty() && !rest_is_sorted))
    return {};
  return fmt::format("; if the file begins with a header, say {}{}", Setting::header,
                     order_of_rest);
}

}  // namespace

void throw_disorder(const Run& run, const RecordFormat& format, const ScannedBlock& block,
                    std::uint64_t index) {
  const std::byte* const row = block.rows.data + index * format.row_bytes();
  const std::byte* const before = index == 0 ? block.before : row - format.row_bytes();
  const Rows rows = rows_around(format, block, index);
  const std::uint64_t record = block.first + index, byte = offset_of(format, block, index);
  throw OutOfOrder(run.shown_path(), record, byte, place_text(place_of(run, format, record, byte)),
                   fmt::format(": {} after {}{}", format.key_text(row), format.key_text(before),
                               cause_of(format, rows, before, row, record == 1)));
}

}  // namespace corank
