#include "corank/query.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "util/option_items.hpp"

namespace corank {
namespace {

constexpr std::pair<std::string_view, Reduction::Operation> reductions[] = {
    {"sum", Reduction::Operation::sum},     {"min", Reduction::Operation::min},
    {"max", Reduction::Operation::max},     {"count", Reduction::Operation::count},
    {"first", Reduction::Operation::first}, {"last", Reduction::Operation::last},
};

// Returns the column that `name`, a part of the option's `text`, names.
TextKey column_of(Setting option, std::string_view text, const Item& name, std::string_view why) {
  const std::vector<TextKey> columns = parse_text_keys(name.text, option);
  if (columns.size() != 1 || columns.front().descending) reject(option, text, name, why);
  return columns.front();
}

// Parses a condition by recursive descent.
class ConditionParser {
 public:
  ConditionParser(std::string_view text, Setting option) : text_(text), option_(option) {}

  Condition parse() {
    either();
    if (!peek().text.empty())
      fail(peek(), "the condition should end here, or continue with \"and\" or \"or\"");
    return std::move(condition_);
  }

 private:
  using Operation = ConditionOperation;

  [[noreturn]] void fail(const Item& item, std::string_view why) const {
    reject(option_, text_, item, why);
  }

  void either() {
    both();
    while (take("or")) {
      both();
      condition_.steps.push_back({Operation::either, {}});
    }
  }
  void both() {
    term();
    while (take("and")) {
      term();
      condition_.steps.push_back({Operation::both, {}});
    }
  }
  void term() {
    if (take("not")) {
      nested([this] { term(); });
      condition_.steps.push_back({Operation::negate, {}});
    } else if (take("(")) {
      nested([this] { either(); });
      if (!take(")")) fail(peek(), "a parenthesis should be closed here");
    } else {
      comparison();
    }
  }

  // Limits the nesting to a depth that nobody writes and the stack easily holds.
  template <class Parse>
  void nested(Parse parse) {
    if (++depth_ > 1000) fail(peek(), "is nested too deeply");
    parse();
    --depth_;
  }

  void comparison() {
    static constexpr std::pair<std::string_view, Operation> operations[] = {
        {"<", Operation::less},       {"<=", Operation::less_equal},    {"==", Operation::equal},
        {"!=", Operation::not_equal}, {">=", Operation::greater_equal}, {">", Operation::greater},
    };
    const Item name = next();
    if (name.text.empty()) fail(name, "a comparison is missing, such as field > 5");
    ColumnValue with{
        column_of(option_, text_, name, "a comparison is of one column, which has no direction"),
        {}};
    const Item sign = next();
    const auto operation =
        std::ranges::find(operations, sign.text, &std::pair<std::string_view, Operation>::first);
    if (operation == std::end(operations))
      fail(sign, "is not a comparison; allowed: < <= == != >= >");
    const Item value = next();
    if (value.text.empty()) fail(value, "a value is missing");
    with.value = value_of(option_, text_, value);
    with.is_number = !is_quote(value.text.front());
    condition_.steps.push_back({operation->second, std::move(with)});
  }

  bool take(std::string_view wanted) {
    if (peek().text != wanted) return false;
    next();
    return true;
  }

  Item peek() const {
    const std::size_t from = std::min(text_.find_first_not_of(" \t\n", at_), text_.size());
    std::size_t end = from;
    if (from == text_.size()) return {{}, from};
    constexpr std::string_view signs = "<=!>";
    constexpr std::string_view ends_word = " \t\n()<=!>'\"";
    if (text_[from] == '(' || text_[from] == ')') {
      end = from + 1;
    } else if (is_quote(text_[from])) {
      for (end = from + 1; end < text_.size() && text_[end] != text_[from]; ++end)
        if (text_[end] == '\\') ++end;
      ++end;
      // A quoted name may be followed by its type.
      if (end < text_.size() && text_[end] == ':') end = text_.find_first_of(ends_word, end);
    } else if (signs.find(text_[from]) != signs.npos) {
      end = text_.find_first_not_of(signs, from);
    } else {
      end = text_.find_first_of(ends_word, from);
    }
    end = std::min(end, text_.size());
    return {text_.substr(from, end - from), from};
  }
  Item next() {
    const Item item = peek();
    at_ = item.position + item.text.size();
    return item;
  }

  std::string_view text_;
  Setting option_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Condition condition_;
};

Reduction parse_reduction(Reduction::Operation operation, std::string_view text, const Item& name) {
  if (name.text.empty() && operation == Reduction::Operation::count) return {operation};
  TextKey column =
      column_of(Setting::on_equal, text, name, "a reduction is of one column, such as sum(3:i64)");
  const bool has_sum = column.type == TextType::bytes || column.type == TextType::u64 ||
                       column.type == TextType::i64 || column.type == TextType::f64 ||
                       column.type == TextType::decimal;
  if (operation == Reduction::Operation::sum && !has_sum)
    reject(Setting::on_equal, text, name, "sums are of type u64, i64, f64 or decimal");
  return {operation, std::move(column)};
}

// Splits reductions at commas, except in the quoted names of fields.
std::vector<Item> split_reductions(std::string_view text) {
  std::vector<Item> items;
  for (std::size_t from = 0;;) {
    const std::size_t open = std::min(text.find_first_of("(,", from), text.size());
    const std::string_view name = text.substr(std::min(open + 1, text.size()));
    const bool is_quoted =
        open != text.size() && text[open] == '(' && !name.empty() && is_quote(name.front());
    const std::size_t named = is_quoted ? open + split_quoted(name, ')').front().text.size() : open;
    const std::size_t end = std::min(text.find(',', named), text.size());
    items.push_back({text.substr(from, end - from), from});
    if (end == text.size()) return items;
    from = end + 1;
  }
}

}  // namespace

void parse_on_equal(std::string_view text, Query& query) {
  constexpr std::string_view reduce = "reduce:";
  constexpr std::array<std::pair<std::string_view, OnEqual>, 4> names{{{"keep", OnEqual::keep},
                                                                       {"first", OnEqual::first},
                                                                       {"last", OnEqual::last},
                                                                       {"error", OnEqual::error}}};
  query.reductions.clear();
  const auto named = std::ranges::find(names, text, &std::pair<std::string_view, OnEqual>::first);
  if (named != names.end()) {
    query.on_equal = named->second;
    return;
  }
  if (!text.starts_with(reduce))
    reject(Setting::on_equal, text, {text, 0},
           "allowed: keep first last error reduce:sum(field),min(field),…");
  query.on_equal = OnEqual::reduce;
  for (Item item : split_reductions(text.substr(reduce.size()))) {
    item.position += reduce.size();
    const std::size_t open = std::min(item.text.find('('), item.text.size());
    const auto operation = std::ranges::find(reductions, item.text.substr(0, open),
                                             [](const auto& known) { return known.first; });
    if (operation == std::end(reductions) || open == item.text.size() || item.text.back() != ')')
      reject(Setting::on_equal, text, item,
             "a reduction is operation(field); the operations: sum min max count first last");
    const Item name = item.part(open + 1, item.text.size() - open - 2);
    query.reductions.push_back(parse_reduction(operation->second, text, name));
  }
}

Condition parse_where(std::string_view text, Setting option) {
  return ConditionParser(text, option).parse();
}

ColumnValue parse_tombstone(std::string_view text) {
  constexpr Setting option = Setting::tombstone;
  constexpr std::string_view signs = "<=!>";
  const Item whole{text, 0};
  const std::size_t sign = split_quoted(text, '=').front().text.size();
  const bool compares = sign + 1 < text.size() && text[sign + 1] == '=';
  if (sign >= text.size() || compares || (sign > 0 && signs.find(text[sign - 1]) != signs.npos))
    reject(option, text, whole,
           fmt::format("a tombstone is column=value, such as op=D, and not a condition; conditions "
                       "are for {}, and a value that begins with = stands in quotes",
                       Setting::having));
  return {column_of(option, text, whole.part(0, sign), "a tombstone is of one column"),
          value_of(option, text, whole.part(sign + 1))};
}

std::vector<TextKey> parse_select(std::string_view text) {
  std::vector<TextKey> columns;
  for (const Item& item : split_quoted(text)) {
    const std::vector<TextKey> column = parse_text_keys(item.text, Setting::select);
    if (column.size() != 1 || split_quoted(item.text, ':').size() != 1)
      reject(Setting::select, text, item, "a selection is of columns, without types and orders");
    columns.push_back(column.front());
  }
  return columns;
}

}  // namespace corank
