#include "run/run_ranges.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "format/text_columns.hpp"
#include "run/key_search.hpp"
#include "run/line_search.hpp"

namespace corank {
namespace {

// A record with the values of the bound, and the key that consists of them.
struct RecordBound {
  KeyEncoding encoding;
  std::vector<std::byte> record;
};

std::optional<RecordBound> record_bound(const Options& options,
                                        const std::vector<FieldValue>& values) {
  if (values.empty()) return std::nullopt;
  std::vector<KeyField> keys = options.keys;
  keys.resize(values.size());  // the default key is the first field, ascending
  RecordBound bound{{options.record, keys}, std::vector<std::byte>(options.record.record_bytes)};
  for (const FieldValue& value : values)
    std::ranges::copy(value.value,
                      bound.record.begin() + options.record.fields[value.field].offset);
  return bound;
}

std::uint64_t find(const Run& run, const RecordBound& bound) {
  return lower_bound(run, bound.encoding.layout(), bound.record.data());
}

// A line with the values of the bound in its first key columns.
struct LineBound {
  const TextLayout& text;
  TextBound line;
};

std::optional<LineBound> line_bound(const TextLayout& text, const std::vector<std::string>& values,
                                    Setting option) {
  if (values.empty()) return std::nullopt;
  return LineBound{text, {text, values, option}};
}

std::uint64_t find(const Run& run, const LineBound& bound) {
  return find_line(run, bound.text, bound.line.layout(), bound.line.record(), Bound::lower, 0,
                   run.records());
}

template <class End>
void keep_between(std::span<Run> runs, const std::optional<End>& from,
                  const std::optional<End>& to) {
  for (Run& run : runs) {
    const std::uint64_t first = from ? find(run, *from) : 0;
    const std::uint64_t end = to ? find(run, *to) : run.records();
    run = run.stretch(first, std::max(first, end) - first);
  }
}

}  // namespace

void keep_range(std::span<Run> runs, const Options& options) {
  keep_between(runs, record_bound(options, options.query.from),
               record_bound(options, options.query.to));
}

void keep_range(std::span<Run> runs, const TextLayout& text, const Query& query) {
  keep_between(runs, line_bound(text, query.text_from, Setting::from),
               line_bound(text, query.text_to, Setting::to));
}

}  // namespace corank
