// What becomes of the merged records: which are kept, what equal keys turn into, which fields go
// out, and where it ends.
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

// What becomes of a group: the records whose keys are equal, in the order of the merge.
enum class OnEqual : std::uint8_t {
  keep,    // all of them stay
  first,   // the first stays
  last,    // the last stays
  error,   // two are an error, which names both
  reduce,  // one goes out: the first, but for the fields that Shaping::reductions name
  // Set operations of the runs as std::set_union and its kin define them for equal elements, of
  // more than two runs from left to right:
  unite,      // of each run those that are more than any run before it has; these are its last
  intersect,  // the first of the first run, as many as the run has that has the fewest
  subtract,   // the last of the first run, as many as it has more than all the others together
};

constexpr bool is_set_operation(OnEqual on_equal) {
  return on_equal == OnEqual::unite || on_equal == OnEqual::intersect ||
         on_equal == OnEqual::subtract;
}

struct Reduction {
  // Floats are summed up exactly and rounded once, so that the order does not matter; of floats and
  // integers alike, NaN is the greatest, and of equal values the first is taken.
  enum class Operation : std::uint8_t { sum, min, max, count, first, last };
  Operation operation;
  std::uint32_t field;  // index into Schema::fields
};

// What a sum or a count turns into that its field cannot hold.
enum class Overflow : std::uint8_t { error, saturate, wrap };

struct FieldValue {
  std::uint32_t field;           // index into Schema::fields
  std::vector<std::byte> value;  // as the field holds it
};

struct TextValue {
  TextKey column;
  std::string value;  // as it stands in the text, without quotes of CSV
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

// What a record must fulfil, in postfix order: a comparison pushes its result, `negate` changes the
// topmost, `both` and `either` join two. Numbers compare as keys do: NaN equals NaN and is
// greatest; greater still is text that is no number.
template <class Value>
struct ConditionOf {
  using Operation = ConditionOperation;
  struct Step {
    Operation operation;
    Value with;  // of a comparison
  };
  std::vector<Step> steps;  // none: every record does
};
using Condition = ConditionOf<FieldValue>;
using TextCondition = ConditionOf<TextValue>;

// In this order: `from` and `to`, `where`, equal keys, `tombstone`, `select`, `limit`.
struct Query {
  // Of the merged records those from `from` on, up to and without `to`: values of the first key
  // fields, of all or of fewer; none: there is no such bound. What is outside is not read.
  std::vector<FieldValue> from, to;
  Condition where;
  OnEqual on_equal = OnEqual::keep;
  std::vector<Reduction> reductions;
  Overflow overflow = Overflow::error;
  // Drops what a group has become where the field has this value, so that deletions are records.
  std::optional<FieldValue> tombstone;
  std::vector<std::uint32_t> select;   // fields in their new order, each once; empty: all
  std::optional<std::uint64_t> limit;  // records that go out at most

  // Records of variable length have no fields. Of the above they take `on_equal`, but for reduce,
  // and `limit`; and instead of `from` and `to` these: values of the first keys, as text, of all or
  // of fewer; none: there is no such bound. Of lines in files what is outside is not read.
  std::vector<std::string> text_from, text_to;
  // The same as `where`, `tombstone` and `select`, of columns of lines or CSV; the first two may be
  // on whole lines, or on the keys and values of pairs, which are columns of these names. A column
  // that a line does not have is empty to a condition, and left out of a selection. Their types and
  // orders do not matter to a selection.
  TextCondition text_where;
  std::optional<TextValue> text_tombstone;
  std::vector<TextKey> text_select;
};

// All throw Error, which points into the text. `keys` as in Options::keys.

// `text` is keep, first, last, error or `reduce:operation(field),…`; the operations are sum, min,
// max, count, first and last. Sets on_equal and reductions. Key fields cannot be reduced, nor can
// fields of bytes, but by first and last.
void parse_on_equal(std::string_view text, const Schema& schema, const std::vector<KeyField>& keys,
                    Query& query);

// `text` compares fields with values by < <= == != >= >, joined by and, or, not and parentheses,
// such as `a > 5 and (name == 'x' or not c < 2)`. Values of bytesN stand in quotes, with \\, \',
// \" and \xNN in them; one of fewer bytes is filled up by NUL bytes.
Condition parse_where(std::string_view text, const Schema& schema);

// The same of columns as in parse_text_keys(), but for their order, such as
// `2:u64 > 5 and name == 'x'`. What does not compare as a number stands in quotes, and so may the
// name of a column.
TextCondition parse_text_where(std::string_view text);

// `text` is `field=value`; a value of bytesN may stand in quotes.
FieldValue parse_tombstone(std::string_view text, const Schema& schema);

// `text` is `column=value`, where a column is one as in parse_text_keys(), with a type or not.
TextValue parse_text_tombstone(std::string_view text);

// `text` is `value,…`, of the first key fields; `option` is what it was given as.
std::vector<FieldValue> parse_bound(std::string_view option, std::string_view text,
                                    const Schema& schema, const std::vector<KeyField>& keys);

// The same of records of variable length. `text` is `value,…`, where a value may stand in quotes as
// in parse_where(); where there is no more than one key, it is the value as it stands.
std::vector<std::string> parse_text_bound(std::string_view option, std::string_view text,
                                          const std::vector<TextKey>& keys);

// `text` is `field,…`.
std::vector<std::uint32_t> parse_select(std::string_view text, const Schema& schema);

// The same of columns: numbers, or names that the header has.
std::vector<TextKey> parse_text_select(std::string_view text);

// The fields that `select` names, laid end to end; all of them if it is empty.
Schema selected(const Schema& schema, const std::vector<std::uint32_t>& select);

}  // namespace corank
