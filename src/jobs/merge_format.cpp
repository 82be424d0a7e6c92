#include "jobs/merge_format.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "format/field_value.hpp"
#include "format/variable_format.hpp"

namespace corank {
namespace {

// Returns whether records are dropped after those of equal keys are resolved.
bool drops_resolved(const Query& query) {
  return query.tombstone || !query.having.steps.empty();
}

// Returns whether records of equal keys may be resolved in parts, and the results again. A sum of
// parts may overflow where the whole does not, if numbers have signs, and sums past a limit must
// not be told to overflow.
bool may_repeat(const Query& query, const Schema& schema, const FormatTraits& traits) {
  if (query.on_equal == OnEqual::error) return false;
  if (!traits.has_fixed_size) return query.reductions.empty();
  return std::ranges::all_of(query.reductions, [&](const Reduction& reduction) {
    const std::uint32_t field = find_field(schema, *reduction.column, Setting::on_equal);
    const FieldKind kind = schema.fields[field].kind;
    if (reduction.operation == Reduction::Operation::sum)
      return (kind == FieldKind::unsigned_integer &&
              !(query.limit && query.overflow == Overflow::error)) ||
             (kind == FieldKind::signed_integer && query.overflow == Overflow::wrap);
    return reduction.operation != Reduction::Operation::count;
  });
}

}  // namespace

FileStart read_start(std::vector<Run>& runs, const RecordFormat& format, const Options& options,
                     bool are_sorted) {
  FileStart start{take_header(runs, format, options, are_sorted), {}};
  if (const TextHeader* const header = format.header())
    start.columns_line =
        header->has_names() ? start.header.names : widest_first_record(runs, *header, options);
  return start;
}

MergeFormat::MergeFormat(const Options& options, FileStart start, bool has_streams)
    : options_(options),
      has_streams_(has_streams),
      are_indexed_(start.are_indexed),
      header_(std::move(start.header.names)),
      input_(make_format(options, start.columns_line)),
      checked_(input_->without_checks()),
      projection_(input_->projection(options.query)) {
  if (options.drop_header) return;
  if (!header_.empty()) header_ = resolved_columns(*input_->header(), header_, options.query);
  output_header_ = start.header.preamble;
  output_header_ += projection_ && !header_.empty() ? projection_->of_header(header_) : header_;
}

// Returns no operators if these keep all records.
PassOperators MergeFormat::make_operators(const Query& query, bool within_bounds,
                                          std::size_t num_runs) const {
  OperatorChain chain(*input_, options_.record, query, within_bounds, num_runs);
  // A limit on records that cannot be counted before they are read is an operator; otherwise it is
  // a cut of the runs.
  if (chain.keeps_all() && !(counts_bytes() && query.limit)) return nullptr;
  return std::make_unique<const OperatorChain>(std::move(chain));
}

PassOperators MergeFormat::operators(std::size_t num_runs) const {
  return make_operators(options_.query, can_search(), num_runs);
}

PassOperators MergeFormat::reading_operators() const {
  Query query;
  query.from = options_.query.from;
  query.to = options_.query.to;
  query.where = options_.query.where;
  return make_operators(query, false, 1);
}

std::uint64_t MergeFormat::load_limit() const {
  constexpr auto none = std::numeric_limits<std::uint64_t>::max();
  return drops_resolved(options_.query) ? none : options_.query.limit.value_or(none);
}

PassOperators MergeFormat::load_operators() const {
  const Query& all = options_.query;
  // A part that is resumed must begin where it began, whatever the loads of either sort.
  if (options_.resume && options_.parts > 1) return nullptr;
  if (!may_repeat(all, options_.record, input_->traits())) return nullptr;
  Query query;
  query.on_equal = all.on_equal;
  query.reductions = all.reductions;
  query.overflow = all.overflow;
  if (!drops_resolved(all)) query.limit = all.limit;
  return make_operators(query, true, 1);
}

PassOperators MergeFormat::operators_of_sort() const {
  Query query = options_.query;
  query.from.clear();
  query.to.clear();
  query.where.steps.clear();
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
  // Fingerprints prove that whole records are those that were checked as they were read.
  const KeyEncoding& whole = checked().keys();
  if (options_.copy_only) return {&whole, none};
  if (!is_last || !operators) return {&whole, rising};
  const std::size_t num_keys = projection_ ? projection_->num_keys() : input_->num_keys();
  // A line with another column is another key.
  if (operators->reducer() && operators->reducer()->adds_column())
    for (const TextColumn& key : input_->keys().columns())
      if (key.column == 0) return {&output().keys(), none};
  const bool is_strict =
      num_keys == input_->num_keys() && operators->groups() && !operators->set_operation();
  return {projection_ ? &output().keys() : &whole, num_keys == 0 ? none
                                                   : is_strict   ? strict
                                                                 : rising};
}

std::vector<std::string> operator_names(const Query& query) {
  static constexpr const char* names_of_on_equal[] = {
      // in the order of OnEqual
      "",      "first of equal keys", "last of equal keys", "no equal keys", "reduce equal keys",
      "union", "intersection",        "subtraction"};
  std::vector<std::string> names;
  const auto add = [&](bool applies, std::string name) {
    if (applies) names.push_back(std::move(name));
  };
  add(!query.from.empty(), "from a key on");
  add(!query.to.empty(), "up to a key");
  add(!query.where.steps.empty(), "filter");
  const auto on_equal = static_cast<std::size_t>(query.on_equal);
  add(query.on_equal != OnEqual::keep, names_of_on_equal[on_equal]);
  add(query.tombstone.has_value(), "drop tombstones");
  add(!query.having.steps.empty(), "filter results");
  add(!query.select.empty(), "select");
  add(query.limit.has_value(), "limit");
  return names;
}

}  // namespace corank
