#include "format/record_format.hpp"

#include <utility>

#include "corank/error.hpp"
#include "format/fixed_format.hpp"
#include "format/variable_format.hpp"
#include "util/messages.hpp"
#include "util/option_items.hpp"

namespace corank {
namespace {

// Returns the condition for dropping a record: it is the tombstone, or fails `having`. The
// condition has no steps if there is neither.
Condition dropped_by(const std::optional<ColumnValue>& tombstone, const Condition& having) {
  Condition dropped;
  if (tombstone) dropped.steps.push_back({ConditionOperation::equal, *tombstone});
  if (having.steps.empty()) return dropped;
  dropped.steps.insert(dropped.steps.end(), having.steps.begin(), having.steps.end());
  dropped.steps.push_back({ConditionOperation::negate, {}});
  if (tombstone) dropped.steps.push_back({ConditionOperation::either, {}});
  return dropped;
}

// Throws Error unless the steps are in postfix order: each finds its operands, and one is left.
void check_postfix(const Condition& condition, Setting option) {
  std::size_t operands = 0;
  for (const Condition::Step& step : condition.steps) {
    const std::size_t taken = step.operation < ConditionOperation::negate    ? 0
                              : step.operation == ConditionOperation::negate ? 1
                                                                             : 2;
    if (operands < taken)
      throw_error(ErrorCode::options,
                  "{}: step {} lacks an operand; the steps are in postfix order, as parse_where() "
                  "returns them",
                  option, &step - condition.steps.data() + 1);
    operands = operands - taken + 1;
  }
  if (operands > 1)
    throw_error(ErrorCode::options,
                "{}: the steps leave {} results instead of one; combine them by `both` or `either`",
                option, operands);
}

}  // namespace

std::optional<RowBound> RecordFormat::bound(const Query& query, Setting option) const {
  const std::vector<std::string>& values = option == Setting::from ? query.from : query.to;
  if (values.empty()) return std::nullopt;
  if (values.size() > num_keys())
    throw_error(ErrorCode::options, "{}: there are {} values, and {} key{}", option, values.size(),
                num_keys(), num_keys() == 1 ? "" : "s");
  return key_bound(values, option);
}

RowFilter::Step RecordFormat::compile(const Condition::Step& step, Setting option) const {
  if (step.operation >= ConditionOperation::negate) return {step.operation, {}};
  return {step.operation, operand(step, option)};
}

std::optional<RowFilter> RecordFormat::filter(const Query& query) const {
  if (query.where.steps.empty()) return std::nullopt;
  check_postfix(query.where, Setting::where);
  std::vector<RowFilter::Step> steps;
  for (const Condition::Step& step : query.where.steps)
    steps.push_back(compile(step, Setting::where));
  return RowFilter(std::move(steps));
}

std::optional<RowFilter> RecordFormat::dropped(const Query& query) const {
  check_postfix(query.having, Setting::having);
  const Condition dropped = dropped_by(query.tombstone, query.having);
  if (dropped.steps.empty()) return std::nullopt;
  const std::unique_ptr<const RecordFormat> resolved = this->resolved(query);
  const RecordFormat& format = resolved ? *resolved : *this;
  std::vector<RowFilter::Step> steps;
  for (const Condition::Step& step : dropped.steps)
    steps.push_back(format.compile(
        step, steps.empty() && query.tombstone ? Setting::tombstone : Setting::having));
  return RowFilter(std::move(steps));
}

std::vector<std::string> parse_bound(Setting option, std::string_view text,
                                     const Options& options) {
  if (options.text && options.text->keys.size() <= 1) return {std::string(text)};
  std::vector<std::string> bound;
  for (const Item& item : split_quoted(text)) bound.push_back(value_of(option, text, item));
  return bound;
}

std::unique_ptr<const RecordFormat> make_format(const Options& options,
                                                std::string_view columns_line) {
  return options.text ? make_variable_format(*options.text, columns_line)
                      : make_fixed_format(options.record, options.keys);
}

}  // namespace corank
