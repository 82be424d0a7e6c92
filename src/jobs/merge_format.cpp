#include "jobs/merge_format.hpp"

#include <utility>

namespace corank {

FileStart read_start(std::vector<Run>& runs, const Options& options) {
  FileStart start{take_header(runs, options), {}};
  if (options.text)
    start.columns_line = options.text->header ? start.header.names
                                              : widest_first_record(runs, *options.text,
                                                                    options.query, options.stop);
  return start;
}

MergeFormat::MergeFormat(const Options& options, FileStart start, bool has_streams)
    : options_(options),
      has_streams_(has_streams),
      columns_line_(std::move(start.columns_line)),
      header_(std::move(start.header.names)),
      input_(make_format(options, columns_line_)),
      projection_(input_->projection(options.query)) {
  if (options.drop_header) return;
  output_header_ = start.header.preamble;
  output_header_ += projection_ && !header_.empty() ? projection_->of_header(header_) : header_;
}

// Returns no operators if these keep all records.
PassOperators MergeFormat::make_operators(const Query& query, bool within_bounds,
                                          std::size_t num_runs) const {
  OperatorChain chain(*input_, options_.record, query, within_bounds, num_runs);
  // A limit on records that cannot be counted before they are read is an operator; otherwise it is
  // a cut of the runs.
  if (chain.keeps_all() && !(is_sequential() && query.limit)) return nullptr;
  return std::make_unique<const OperatorChain>(std::move(chain));
}

PassOperators MergeFormat::operators(std::size_t num_runs) const {
  return make_operators(options_.query, can_search(), num_runs);
}

PassOperators MergeFormat::load_operators() const {
  const Query& all = options_.query;
  Query query;
  query.where = all.where;
  const bool drops_resolved = all.tombstone || !all.having.steps.empty();
  const bool may_repeat = all.on_equal == OnEqual::keep || all.on_equal == OnEqual::first ||
                          all.on_equal == OnEqual::last;
  if (may_repeat && !drops_resolved) {
    query.on_equal = all.on_equal;
    query.limit = all.limit;
  }
  return make_operators(query, true, 1);
}

PassOperators MergeFormat::intermediate_operators(std::size_t num_runs, bool has_last_run) const {
  const OnEqual kind = options_.query.on_equal;
  if (!is_set_operation(kind) || (kind == OnEqual::subtract && !has_last_run)) return nullptr;
  Query query;
  query.where = options_.query.where;
  query.on_equal = kind;
  return make_operators(query, true, num_runs);
}

OutputOrder MergeFormat::order(const PassOperators& operators, bool is_last) const {
  using enum OutputOrder::Kind;
  if (options_.copy_only) return {&input_->keys(), none};
  if (!is_last || !operators) return {&input_->keys(), rising};
  const std::size_t num_keys = projection_ ? projection_->num_keys() : input_->num_keys();
  const bool is_strict =
      num_keys == input_->num_keys() && operators->groups() && !operators->set_operation();
  return {&output().keys(), num_keys == 0 ? none : is_strict ? strict : rising};
}

std::vector<std::string> operator_names(const Query& query) {
  std::vector<std::string> names;
  const auto add = [&](bool applies, std::string name) {
    if (applies) names.push_back(std::move(name));
  };
  add(!query.from.empty(), "from a key on");
  add(!query.to.empty(), "up to a key");
  add(!query.where.steps.empty(), "filter");
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
  add(query.tombstone.has_value(), "drop tombstones");
  add(!query.having.steps.empty(), "filter results");
  add(!query.select.empty(), "select");
  add(query.limit.has_value(), "limit");
  return names;
}

}  // namespace corank
