// Query of a merge: operators that filter, combine, project and limit the merged records.
//
// Plain data, filled in by hand or by the parse functions below. merge() throws Error if a query
// does not fit the records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corank/record.hpp"
#include "corank/text.hpp"

namespace corank {

struct Options;

// Policy for groups. A group is all records with equal keys, in merge order.
enum class OnEqual : std::uint8_t {
  keep,    // emit all records
  first,   // emit the first record
  last,    // emit the last record
  error,   // throw Error, which names two of the records, if a group has several
  reduce,  // emit the first record, with the fields in Query::reductions combined over the group
  // Set operations of the runs, which treat equal keys as std::set_union, std::set_intersection and
  // std::set_difference do. More than two runs are combined from left to right.
  unite,      // of each run, the last records in excess of the max count in any run before it
  intersect,  // of the first run, as many first records as the min count in any run
  subtract,   // of the first run, the last records in excess of the total count in all others
};

constexpr bool is_set_operation(OnEqual on_equal) {
  return on_equal == OnEqual::unite || on_equal == OnEqual::intersect ||
         on_equal == OnEqual::subtract;
}

// Combines one column over the records of a group.
struct Reduction {
  // Float sums are exact and rounded once, so the order does not matter. `min` and `max` order NaN
  // after all numbers, and take the first of equal values.
  enum class Operation : std::uint8_t { sum, min, max, count, first, last };
  Operation operation;
  // Columns of lines and CSV have a type for sum, min and max; a sum without one is of decimals.
  // Without a column, the count is a new last column of lines or CSV.
  std::optional<TextKey> column = {};
};

// How to treat a sum or a count that its field cannot hold.
enum class Overflow : std::uint8_t { error, saturate, wrap };

// A column and a value of it. A field of fixed-size records is a column that is named; its type is
// that of the schema.
struct ColumnValue {
  TextKey column;
  std::string value;       // as text, without quotes; bytes fields are padded with NUL bytes
  bool is_number = false;  // written as a number, which a column of bytes is not compared with
};

enum class ConditionOperation : std::uint8_t {
  less,
  less_equal,
  equal,
  not_equal,
  greater_equal,
  greater,
  negate,
  both,
  either
};

// Condition on a record, in postfix order. A comparison pushes its result, `negate` inverts the top
// of the stack, `both` (and) and `either` (or) combine the top two.
//
// Numbers compare as keys do: NaN equals NaN and is greater than every number. Text that is not a
// number equals none and is neither less nor greater than one. A column that a line lacks is empty.
struct Condition {
  using Operation = ConditionOperation;
  struct Step {
    Operation operation;
    ColumnValue with;  // right operand of a comparison; unused by other operations
  };
  std::vector<Step> steps;  // empty: every record fulfils the condition
};

// Operators, applied in this order: `from` and `to`, `where`, `on_equal`, `tombstone` and `having`,
// `select`, `limit`. Columns are fields of fixed-size records, columns of lines or CSV, whole
// lines, or the `key` and the `value` of pairs.
struct Query {
  // Emits only keys in [from, to). Each bound holds values of the leading keys, as text, of all or
  // of fewer; empty: no bound. Records outside are not read if they can be found by search.
  std::vector<std::string> from, to;
  Condition where;
  OnEqual on_equal = OnEqual::keep;
  // For OnEqual::reduce, each field or column at most once. Sums of columns are exact unless of
  // type f64; empty columns have no value.
  std::vector<Reduction> reductions;
  Overflow overflow = Overflow::error;
  // Drops the record that a group was combined to if its column has this value. So records with
  // this value are deletions.
  std::optional<ColumnValue> tombstone;
  // Drops the record that a group was combined to unless it fulfils this condition. With
  // OnEqual::keep and set operations, tests every record that they would emit.
  Condition having;
  // Columns of the output in their order, each once; empty: whole records. Types and directions are
  // ignored, and a column that a line lacks is empty. Pairs have no columns to select.
  std::vector<TextKey> select;
  std::optional<std::uint64_t> limit;  // max number of records in the output
};

// Parsers of the command line's notation. Each throws Error, which marks the position in `text`.
// merge() checks that columns exist and values fit.

// Parses keep, first, last, error or `reduce:operation(column),…` into `on_equal` and `reductions`
// of `query`. The operations are sum, min, max, count, first and last. Columns are written as in
// parse_where(); `count()` is a new column. Keys cannot be reduced; fields of bytes only by first
// and last.
void parse_on_equal(std::string_view text, Query& query);

// Parses a condition such as `a > 5 and (name == 'x' or not 2:u64 < 2)`: comparisons of columns
// with values by < <= == != >= >, combined by and, or, not and parentheses. Columns are written as
// in parse_text_keys(), without a direction; names may be quoted. Values must be quoted unless they
// compare as numbers, with the escapes \\ \' \" \xNN. `option` names the option in errors.
Condition parse_where(std::string_view text, Setting option = Setting::where);

// Parses `column=value`; the column is written as in parse_where(). The value may be quoted.
ColumnValue parse_tombstone(std::string_view text);

// Parses `value,…`, values of the leading keys of `options`, which may be quoted as in
// parse_where(). If variable-length records have at most one key, `text` is its value, unchanged.
// `option` is the setting that they are of.
std::vector<std::string> parse_bound(Setting option, std::string_view text, const Options& options);

// Parses `column,…`; the columns are written as in parse_where(), without types.
std::vector<TextKey> parse_select(std::string_view text);

// Returns the schema of the output: the fields in `select`, end to end; all fields if it is empty.
// Throws Error if there is no such field, or one is named twice.
Schema selected(const Schema& schema, const std::vector<TextKey>& select);

}  // namespace corank
