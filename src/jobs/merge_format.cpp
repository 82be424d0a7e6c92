#include "jobs/merge_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "jobs/resume.hpp"

namespace corank {

MergeFormat::MergeFormat(const Options& options, FileStart start, bool has_streams,
                         std::size_t num_runs)
    : options_(options),
      has_streams_(has_streams),
      preamble_(options.drop_header ? "" : std::move(start.header.preamble)),
      columns_line_(std::move(start.columns_line)),
      header_(std::move(start.header.names)),
      output_header_(options.drop_header ? "" : preamble_ + header_),
      encoding_(options.text ? KeyEncoding(text_.emplace(*options.text, columns_line_).layout())
                             : KeyEncoding(options.record, options.keys)),
      output_schema_(selected(options.record, options.query.select)) {
  if (!options.text)
    output_encoding_.emplace(output_schema_, selected_keys(options.keys, options.query.select));
  else if (const PassOperators last = operators(num_runs); last.text && last.text->selection())
    select_columns(*last.text->selection());
}

void MergeFormat::select_columns(const TextSelection& selection) {
  if (!header_.empty() && !options_.drop_header)
    output_header_ = preamble_ + selection.of_header(header_);
  TextFormat format = *options_.text;
  format.keys.clear();
  output_encoding_.emplace(output_text_.emplace(format).layout());
}

PassOperators MergeFormat::operators(std::size_t num_runs) const {
  PassOperators operators;
  const Query& query = options_.query;
  if (options_.text) {
    TextOperatorChain chain(encoding_, *options_.text, columns_line_, query, finds_lines(),
                            num_runs);
    if (!chain.keeps_all()) operators.text = std::make_unique<TextOperatorChain>(std::move(chain));
  } else {
    OperatorChain chain(options_.record, options_.keys, encoding_, query, num_runs);
    // A limit on streams is an operator, because streams cannot be searched; otherwise it is a cut
    // of the runs.
    if (!chain.keeps_all() || (has_streams_ && query.limit))
      operators.fixed = std::make_unique<OperatorChain>(std::move(chain));
  }
  return operators;
}

PassOperators MergeFormat::intermediate_operators(std::size_t num_runs, bool has_last_run) const {
  PassOperators operators;
  const OnEqual kind = options_.query.on_equal;
  if (!is_set_operation(kind) || (kind == OnEqual::subtract && !has_last_run)) return operators;
  Query query;
  query.where = options_.query.where;
  query.on_equal = kind;
  query.text_where = options_.query.text_where;
  if (options_.text)
    operators.text = std::make_unique<TextOperatorChain>(encoding_, *options_.text, columns_line_,
                                                         query, true, num_runs);
  else
    operators.fixed =
        std::make_unique<OperatorChain>(options_.record, options_.keys, encoding_, query, num_runs);
  return operators;
}

OutputOrder MergeFormat::order(const PassOperators& operators, bool is_last) const {
  using enum OutputOrder::Kind;
  if (options_.copy_only) return {&encoding_, none};
  if (!is_last || operators.empty()) return {&encoding_, rising};
  if (const TextOperatorChain* const text = operators.text_chain()) {
    if (text->selection()) return {&*output_encoding_, none};
    return {&encoding_, text->groups() && !text->set_operation() ? strict : rising};
  }
  const std::size_t keys = selected_keys(options_.keys, options_.query.select).size();
  if (keys == 0) return {&*output_encoding_, none};
  const bool has_all_keys = keys == std::max<std::size_t>(options_.keys.size(), 1);
  const bool keys_differ = operators.fixed->groups() && !operators.fixed->set_operation();
  return {&*output_encoding_, has_all_keys && keys_differ ? strict : rising};
}

std::string MergeFormat::description() const {
  if (!options_.text)
    return fmt::format("fixed-size records of {} bytes", options_.record.record_bytes);
  switch (options_.text->kind) {
    case TextKind::lines:
      return "lines";
    case TextKind::csv:
      return "CSV";
    case TextKind::pairs:
      return "pairs";
  }
  return {};
}

std::vector<std::string> operator_names(const Query& query) {
  std::vector<std::string> names;
  const auto add = [&](bool applies, std::string name) {
    if (applies) names.push_back(std::move(name));
  };
  add(!query.from.empty() || !query.text_from.empty(), "from a key on");
  add(!query.to.empty() || !query.text_to.empty(), "up to a key");
  add(!query.where.steps.empty() || !query.text_where.steps.empty(), "filter");
  switch (query.on_equal) {
    case OnEqual::keep:
      break;
    case OnEqual::first:
      add(true, "first of equal keys");
      break;
    case OnEqual::last:
      add(true, "last of equal keys");
      break;
    case OnEqual::error:
      add(true, "no equal keys");
      break;
    case OnEqual::reduce:
      add(true, "reduce equal keys");
      break;
    case OnEqual::unite:
      add(true, "union");
      break;
    case OnEqual::intersect:
      add(true, "intersection");
      break;
    case OnEqual::subtract:
      add(true, "subtraction");
      break;
  }
  add(query.tombstone.has_value() || query.text_tombstone.has_value(), "drop tombstones");
  add(!query.having.steps.empty() || !query.text_having.steps.empty(), "filter results");
  add(!query.select.empty() || !query.text_select.empty(), "select");
  add(query.limit.has_value(), "limit");
  return names;
}

}  // namespace corank
