// Command-line options of the operators on merged records.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "corank/error.hpp"
#include "corank/options.hpp"

namespace corank {

// The parsed options, and the query made from them.
struct ShapingArguments {
  std::optional<std::string> from, to, where, on_equal, tombstone, having, select;
  Query query;

  // Adds the options. Set operations define the result for equal keys, so they have no such
  // options.
  void add_to(CLI::App& command) {
    const auto add = [&](const char* name, auto& text, const char* type, const char* help) {
      command.add_option(name, text, help)->type_name(type);
    };
    if (!is_set_operation(query.on_equal)) add_groups_to(command, add);
    const OptionGroup group(command, "Filtering");
    add("--where", where, "CONDITION",
        "Before equal keys are resolved, keep only records that fulfil it: field > 5 and (b == 'x' "
        "or not c < 2); of text, columns: 2:u64 > 5 and name == 'x'");
    add("--having", having, "CONDITION",
        "After equal keys are resolved, keep only results that fulfil it; a condition as in "
        "--where");
    add("--select", select, "FIELDS",
        "Emit only these fields, or columns of text, in this order: a,b,…");
    command.add_option("--limit", query.limit, "Stop after N records")
        ->transform(whole_number(0))
        ->option_text("N");
    add("--from", from, "KEY",
        "Begin with the first record that does not sort before KEY: values of key fields, "
        "comma-separated, or the whole of a text's only key");
    add("--to", to, "KEY", "End before the first record that does not sort before KEY");
  }

  // Returns the query for the records that `options` describe.
  Query parse(const Options& options) const {
    Query parsed = query;
    if (from) parsed.from = parse_bound(Setting::from, *from, options);
    if (to) parsed.to = parse_bound(Setting::to, *to, options);
    if (where) parsed.where = parse_where(*where);
    if (having) parsed.having = parse_where(*having, Setting::having);
    if (on_equal) parse_on_equal(*on_equal, parsed);
    if (tombstone) parsed.tombstone = parse_tombstone(*tombstone);
    if (select) parsed.select = parse_select(*select);
    return parsed;
  }

 private:
  template <class Add>
  void add_groups_to(CLI::App& command, Add add) {
    const OptionGroup group(command, "Duplicates");
    add("--on-equal", on_equal, "POLICY",
        "Resolve records with equal keys: keep, first, last, error or "
        "reduce:sum(a),min(b),max(c),count(d),last(e), which combines them into the first; "
        "min and max compare columns as bytes unless typed: max(c:f64) [keep]");
    command
        .add_option("--overflow", query.overflow,
                    "Treat a sum that its field cannot hold: error, saturate or wrap it [error]")
        ->transform(one_of<Overflow>({{"error", Overflow::error},
                                      {"saturate", Overflow::saturate},
                                      {"wrap", Overflow::wrap}}))
        ->option_text("HOW");
    add("--tombstone", tombstone, "FIELD=VALUE",
        "After equal keys are resolved, drop results that have this value: deletions");
  }
};

}  // namespace corank
