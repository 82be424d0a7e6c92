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

// Combines one field over the records of a group.
struct Reduction {
  // Float sums are exact and rounded once, so the order does not matter. `min` and `max` order NaN
  // after all numbers, and take the first of equal values.
  enum class Operation : std::uint8_t { sum, min, max, count, first, last };
  Operation operation;
  std::uint32_t field;  // index into Schema::fields
};

// How to treat a sum or a count that its field cannot hold.
enum class Overflow : std::uint8_t { error, saturate, wrap };

struct FieldValue {
  std::uint32_t field;           // index into Schema::fields
  std::vector<std::byte> value;  // as stored in a record: Field::bytes bytes in its byte order
};

struct TextValue {
  TextKey column;
  std::string value;  // text of the column, without CSV quotes
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
// number is greater still.
template <class Value>
struct ConditionOf {
  using Operation = ConditionOperation;
  struct Step {
    Operation operation;
    Value with;  // right operand of a comparison; unused by other operations
  };
  std::vector<Step> steps;  // empty: every record fulfils the condition
};
using Condition = ConditionOf<FieldValue>;
using TextCondition = ConditionOf<TextValue>;

// Operators, applied in this order: `from` and `to`, `where`, `on_equal`, `tombstone` and `having`,
// `select`, `limit`.
struct Query {
  // Emits only keys in [from, to). Each bound holds values of the leading key fields, of all or of
  // fewer; empty: no bound. Records outside are not read.
  std::vector<FieldValue> from, to;
  Condition where;
  OnEqual on_equal = OnEqual::keep;
  std::vector<Reduction> reductions;  // for OnEqual::reduce, each field at most once
  Overflow overflow = Overflow::error;
  // Drops the record that a group was combined to if its field has this value. So records with this
  // value are deletions.
  std::optional<FieldValue> tombstone;
  // Drops the record that a group was combined to unless it fulfils this condition. With
  // OnEqual::keep and set operations, tests every record that they would emit.
  Condition having;
  std::vector<std::uint32_t> select;   // fields of the output in their order, each once; empty: all
  std::optional<std::uint64_t> limit;  // max number of records in the output

  // Members for variable-length records, which have no fields. Of the members above, they use only
  // `on_equal`, without reduce, and `limit`.
  //
  // Emits only keys in [text_from, text_to). Each bound holds values of the leading keys, as text,
  // of all or of fewer; empty: no bound. Lines outside are not read if they are in plain files.
  std::vector<std::string> text_from, text_to;
  // Conditions and tombstones are on columns of lines or CSV, on whole lines, or on the `key` and
  // the `value` of pairs. A column that a line lacks is empty to them.
  TextCondition text_where, text_having;
  std::optional<TextValue> text_tombstone;
  // Columns of the output in their order; empty: whole lines. Types and directions are ignored, and
  // a column that a line lacks is empty.
  std::vector<TextKey> text_select;
};

// Parsers of the command line's notation. `schema` is that of the records; `keys` are
// Options::keys. Each throws Error, which marks the position in `text`.

// Parses keep, first, last, error or `reduce:operation(field),…` into `on_equal` and `reductions`
// of `query`. The operations are sum, min, max, count, first and last. Key fields cannot be
// reduced; bytes fields only by first and last.
void parse_on_equal(std::string_view text, const Schema& schema, const std::vector<KeyField>& keys,
                    Query& query);

// Parses a condition such as `a > 5 and (name == 'x' or not c < 2)`: comparisons of fields with
// values by < <= == != >= >, combined by and, or, not and parentheses. Field names may be quoted.
// Values of bytesN must be quoted, with the escapes \\ \' \" \xNN; shorter ones are padded with NUL
// bytes. `option` names the option in errors.
Condition parse_where(std::string_view text, const Schema& schema, Setting option = Setting::where);

// Parses a condition on columns, such as `2:u64 > 5 and name == 'x'`, with the operators of
// parse_where(). Columns are written as in parse_text_keys(), without a direction; names may be
// quoted. Values must be quoted unless they compare as numbers.
TextCondition parse_text_where(std::string_view text, Setting option = Setting::where);

// Parses `field=value`. The field may be quoted, and so may a value of bytesN, as in parse_where().
FieldValue parse_tombstone(std::string_view text, const Schema& schema);

// Parses `column=value`; the column is written as in parse_text_keys(). The value may be quoted.
TextValue parse_text_tombstone(std::string_view text);

// Parses `value,…`, values of the leading key fields; those of bytesN may be quoted. `option` is
// the setting that they are of.
std::vector<FieldValue> parse_bound(Setting option, std::string_view text, const Schema& schema,
                                    const std::vector<KeyField>& keys);

// Parses `value,…`, values of the leading keys of variable-length records. Values may be quoted as
// in parse_where(). With at most one key, `text` is taken as its value, unchanged.
std::vector<std::string> parse_text_bound(Setting option, std::string_view text,
                                          const std::vector<TextKey>& keys);

// Parses `field,…`, each field at most once.
std::vector<std::uint32_t> parse_select(std::string_view text, const Schema& schema);

// Parses `column,…`; a column is a number from 1 or a name in the header.
std::vector<TextKey> parse_text_select(std::string_view text);

// Returns the schema of the output: the fields in `select`, end to end; all fields if it is empty.
Schema selected(const Schema& schema, const std::vector<std::uint32_t>& select);

}  // namespace corank
