#include "format/json_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "corank/error.hpp"
#include "corank/text_key.hpp"
#include "util/messages.hpp"

#ifdef CORANK_SIMDJSON
#include <simdjson.h>
#endif

namespace corank {
namespace {

using detail::is_char;
using detail::TextField;
using Bytes = std::span<const std::byte>;
using Path = std::vector<std::string>;  // names of members and indices of arrays, outermost first

// The kinds of bytes in JSON text.
enum ByteKind : std::uint8_t { other, blank, quote, opening, closing, separator };

constexpr std::array<std::uint8_t, 256> kinds = [] {
  std::array<std::uint8_t, 256> table{};
  for (const char c : {' ', '\t', '\r', '\n'}) table[static_cast<unsigned char>(c)] = blank;
  for (const char c : {',', ':'}) table[static_cast<unsigned char>(c)] = separator;
  for (const char c : {'{', '['}) table[static_cast<unsigned char>(c)] = opening;
  for (const char c : {'}', ']'}) table[static_cast<unsigned char>(c)] = closing;
  table['"'] = quote;
  return table;
}();

ByteKind kind_of(std::byte byte) {
  return ByteKind{kinds[static_cast<unsigned>(byte)]};
}

// Returns the first quote or backslash in [at, end), or `end`: in eight bytes at a time, the lowest
// zero byte is found exactly.
const std::byte* find_quote_or_escape(const std::byte* at, const std::byte* end) {
  constexpr std::uint64_t each = 0x0101010101010101u;
  const auto zeros = [](std::uint64_t word) { return (word - each) & ~word & each << 7; };
  for (; end - at >= 8; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    const std::uint64_t found = zeros(word ^ each * '"') | zeros(word ^ each * '\\');
    if (found != 0) return at + std::countr_zero(found) / 8;
  }
  while (at != end && !is_char(*at, '"') && !is_char(*at, '\\')) ++at;
  return at;
}

// A value in JSON text.
struct Value {
  Bytes text;
  bool has_escapes = false;  // a string with backslashes
};

// Returns a value as a column.
TextField field_of(const Value& value) {
  const std::byte* const at = value.text.data();
  const std::size_t bytes = value.text.size();
  if (bytes == 0 || !is_char(*at, '"')) {
    const bool is_null = bytes == 4 && std::memcmp(at, "null", 4) == 0;
    return {at, is_null ? 0 : bytes, false, true};
  }
  if (value.has_escapes)
    return {.at = at, .bytes = bytes, .quoted = true, .there = true, .is_json = true};
  return {at + 1, bytes - std::min<std::size_t>(bytes, 2), false, true};
}

bool is_equal(const Value& string, std::string_view text) {
  const TextField field = field_of(string);
  const auto bytes = std::as_bytes(std::span(text));
  if (!string.has_escapes)
    return field.bytes == bytes.size() && std::memcmp(field.at, bytes.data(), bytes.size()) == 0;
  return detail::compare_strings(field, {bytes.data(), bytes.size(), false, true}, false) == 0;
}

// Finds values in JSON text. In text that is not JSON it may find anything, but stays within it.
class Scanner {
 public:
  explicit Scanner(Bytes text) : at_(text.data()), end_(text.data() + text.size()) {}

  // Moves to the value of a member of the object, or of an element of the array, that comes next.
  // Returns false if there is none.
  bool enter(const std::string& name) {
    if (take('[')) return enter_element(name);
    if (!take('{')) return false;
    do {
      if (!is_next('"')) return false;
      const Value key = take_value();
      if (!take(':')) return false;
      if (is_equal(key, name)) return true;
      take_value();
    } while (take(','));
    return false;
  }
  // Returns the names of the members of the object that comes next.
  std::vector<std::string> names() {
    std::vector<std::string> names;
    if (!take('{')) return names;
    while (is_next('"')) {
      const Bytes key = take_value().text;
      names.emplace_back(reinterpret_cast<const char*>(key.data()) + 1, key.size() - 2);
      if (!take(':')) break;
      take_value();
      if (!take(',')) break;
    }
    return names;
  }
  // Returns the next value, and moves to its end.
  Value take_value() {
    skip_blanks();
    const std::byte* const begin = at_;
    const ByteKind kind = at_ == end_ ? other : kind_of(*at_);
    const bool has_escapes = kind == quote && skip_string();
    if (kind == opening)
      skip_nested();
    else if (kind != quote)
      while (at_ != end_ && kind_of(*at_) == other) ++at_;
    return {{begin, at_}, has_escapes};
  }

 private:
  void skip_blanks() {
    while (at_ != end_ && kind_of(*at_) == blank) ++at_;
  }
  bool is_next(char c) {
    skip_blanks();
    return at_ != end_ && is_char(*at_, c);
  }
  bool take(char c) {
    const bool found = is_next(c);
    at_ += found;
    return found;
  }
  bool enter_element(std::string_view index) {
    std::uint64_t left = 0;
    const auto [end, error] = std::from_chars(index.data(), index.data() + index.size(), left);
    const bool has_zeros = index.size() > 1 && index.starts_with('0');
    if (error != std::errc{} || end != index.data() + index.size() || has_zeros) return false;
    for (; left != 0; --left) {
      take_value();
      if (!take(',')) return false;
    }
    return !is_next(']');
  }
  // Moves after the string that begins here. Returns whether it has escapes.
  bool skip_string() {
    constexpr std::ptrdiff_t short_bytes = 64;  // most strings are short, and have no escapes
    const std::byte* const begin = ++at_;
    at_ = find_quote_or_escape(at_, at_ + std::min(end_ - at_, short_bytes));
    if (at_ != end_ && is_char(*at_, '"')) {
      ++at_;
      return false;
    }
    for (;; ++at_) {
      at_ = detail::find_char(at_, end_, '"');
      const std::byte* escapes = at_;
      while (escapes != begin && is_char(escapes[-1], '\\')) --escapes;
      if (at_ == end_ || (at_ - escapes) % 2 == 0) break;
    }
    const bool has_escapes = detail::find_char(begin, at_, '\\') != at_;
    at_ += at_ != end_;
    return has_escapes;
  }
  void skip_nested() {
    for (std::uint64_t depth = 0; at_ != end_;) {
      const ByteKind kind = kind_of(*at_);
      if (kind == quote) {
        skip_string();
        continue;
      }
      ++at_;
      depth += kind == opening;
      if (kind == closing && --depth == 0) return;
    }
  }

  const std::byte* at_;
  const std::byte* const end_;
};

// Returns the value of four hexadecimal digits at `at`, and moves after them; nothing if there are
// none.
std::optional<std::uint32_t> take_unit(const std::byte*& at, const std::byte* end) {
  if (end - at < 4) return std::nullopt;
  const auto* const digits = reinterpret_cast<const char*>(at);
  std::uint32_t unit = 0;
  if (std::from_chars(digits, digits + 4, unit, 16).ptr != digits + 4) return std::nullopt;
  at += 4;
  return unit;
}

// Returns the character after \u, and moves after it. Two surrogates are one character.
std::uint32_t take_character(const std::byte*& at, const std::byte* end) {
  constexpr std::uint32_t replacement = 0xfffd;
  const std::uint32_t high = take_unit(at, end).value_or(replacement);
  if (high >> 10 != 0xd800 >> 10 || end - at < 2 || !is_char(at[0], '\\') || !is_char(at[1], 'u'))
    return high;
  const std::byte* after = at + 2;
  const std::uint32_t low = take_unit(after, end).value_or(replacement);
  if (low >> 10 != 0xdc00 >> 10) return high;
  at = after;
  return 0x10000 + ((high & 0x3ff) << 10) + (low & 0x3ff);
}

// Returns the first byte of the character in UTF-8, and sets `pending` to the others, lowest first.
unsigned encode_utf8(std::uint32_t character, std::uint32_t& pending) {
  if (character < 0x80) return character;
  std::uint32_t num_pending = 0;
  std::uint32_t first_values = 0x40;  // number of values that the first byte has room for
  do {
    pending = pending << 8 | 0x80 | (character & 0x3f);
    character >>= 6;
    first_values >>= 1;
    ++num_pending;
  } while (character >= first_values);
  constexpr unsigned marks[] = {0, 0xc0, 0xe0, 0xf0};
  return marks[num_pending] | character;
}

Path path_of(const std::string& field, Setting option) {
  if (!field.starts_with('/')) return {field};
  Path path;
  for (std::size_t at = 0; at < field.size(); ++at) {
    if (field[at] == '/') {
      path.emplace_back();
    } else if (field[at] != '~') {
      path.back() += field[at];
    } else {
      const char escaped = ++at < field.size() ? field[at] : '\0';
      if (escaped != '0' && escaped != '1')
        throw_error(ErrorCode::options,
                    "{} \"{}\": in a JSON pointer ~ is written ~0, and / in a name ~1", option,
                    without_nul(field));
      path.back() += escaped == '0' ? '~' : '/';
    }
  }
  return path;
}

void append_string(std::string_view text, std::string& to) {
  to += '"';
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      to += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
      continue;
    }
    if (c == '"' || c == '\\') to += '\\';
    to += c;
  }
  to += '"';
}

using Member = std::pair<Path, std::string>;  // path and value

// Appends an object that has the members, which are sorted, at their paths from `depth` on. Returns
// false if one is inside another.
bool append_object(std::span<const Member> members, std::size_t depth, std::string& to) {
  for (char before = '{'; !members.empty(); before = ',') {
    const std::string& name = members.front().first[depth];
    const auto is_same = [&](const Member& member) { return member.first[depth] == name; };
    const auto same = members.first(
        static_cast<std::size_t>(std::ranges::find_if_not(members, is_same) - members.begin()));
    to += before;
    append_string(name, to);
    to += ':';
    if (same.front().first.size() != depth + 1) {
      if (!append_object(same, depth + 1, to)) return false;
    } else {
      if (same.size() != 1) return false;
      append_string(same.front().second, to);
    }
    members = members.subspan(same.size());
  }
  to += '}';
  return true;
}

bool is_number(std::string_view text) {
  const auto take = [&](std::string_view chars) {
    const bool found = !text.empty() && chars.find(text.front()) != chars.npos;
    text.remove_prefix(found);
    return found;
  };
  const auto take_digits = [&] {
    const bool found = take("0123456789");
    while (take("0123456789")) continue;
    return found;
  };
  take("-");
  if (!take("0") && !take_digits()) return false;
  if (take(".") && !take_digits()) return false;
  if (take("eE")) {
    take("+-");
    if (!take_digits()) return false;
  }
  return text.empty();
}

// Returns JSON text with zeros for its numbers.
std::string without_numbers(std::string text) {
  constexpr std::string_view ends = "{}[]:,\" \t\r\n";
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      at += Scanner(std::as_bytes(std::span(text)).subspan(at)).take_value().text.size();
      continue;
    }
    const std::size_t size = std::min(text.find_first_of(ends, at), text.size()) - at;
    if (is_number(std::string_view(text).substr(at, size)))
      text.replace(at, size, "0" + std::string(size - 1, ' '));
    at += std::max<std::size_t>(size, 1);
  }
  return text;
}

// Returns why the text is not a JSON object; empty if it is one.
std::string json_defect(std::string_view text) {
#ifdef CORANK_SIMDJSON
  // From version 3.2 on, simdjson skips it.
  if (text.starts_with("\xef\xbb\xbf"))
    return "is not valid JSON: it begins with a byte-order mark";
  thread_local simdjson::dom::parser parser;
  simdjson::dom::element element;
  // simdjson refuses numbers that no integer of 64 bits or double holds.
  if (parser.parse(text.data(), text.size()).get(element) != simdjson::SUCCESS) {
    const std::string zeros = without_numbers(std::string(text));
    if (const auto error = parser.parse(zeros.data(), zeros.size()).get(element))
      return fmt::format("is not valid JSON: {}", simdjson::error_message(error));
  }
  return element.is_object() ? "" : "is valid JSON, but not an object";
#else
  return fmt::format("cannot check {} bytes of JSON", text.size());
#endif
}

class JsonFinder final : public ColumnFinder {
 public:
  JsonFinder(const std::vector<std::string>& fields, Setting option) : fields_(fields) {
    for (const std::string& field : fields) paths_.push_back(path_of(field, option));
  }

  std::string defect(Bytes line) const override {
    if (!checks_) return {};
    return json_defect({reinterpret_cast<const char*>(line.data()), line.size() - 1});
  }
  std::shared_ptr<const ColumnFinder> without_checks() const override {
    auto finder = std::make_shared<JsonFinder>(*this);
    finder->checks_ = false;
    return finder;
  }
  TextField find(Bytes line, std::uint32_t column) const override {
    Scanner scanner(line.first(line.size() - 1));
    for (const std::string& name : paths_[column - 1])
      if (!scanner.enter(name)) return {line.data(), 0, false, false};
    return field_of(scanner.take_value());
  }
  std::vector<std::string> names(Bytes line) const override { return Scanner(line).names(); }
  std::string name(std::uint32_t column) const override { return "field " + fields_[column - 1]; }
  std::string line_with(std::span<const std::string* const> values, Setting option) const override {
    std::vector<Member> sorted;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i]) sorted.emplace_back(paths_[i], *values[i]);
    std::ranges::sort(sorted);
    // A field may have two names, such as k and /k.
    const auto again = std::ranges::unique(sorted);
    sorted.erase(again.begin(), again.end());
    std::string line;
    if (!append_object(sorted, 0, line))
      throw_error(ErrorCode::options, "{}: no object has these values: a field holds another one",
                  option);
    if (const std::string why = json_defect(line); !why.empty())
      throw_error(ErrorCode::options, "{}: {}", option, why);
    return line;
  }

 private:
  std::vector<std::string> fields_;
  std::vector<Path> paths_;
  bool checks_ = true;
};

}  // namespace

bool detail::next_json_byte(const std::byte*& at, const std::byte* end, std::uint32_t& pending,
                            unsigned& byte) {
  if (pending != 0) {
    byte = pending & 0xff;
    pending >>= 8;
    return true;
  }
  if (at == end || is_char(*at, '"')) return false;
  byte = static_cast<unsigned>(*at++);
  if (byte != '\\' || at == end) return true;
  byte = static_cast<unsigned>(*at++);
  constexpr std::string_view letters = "bfnrt", controls = "\b\f\n\r\t";
  if (const auto found = letters.find(static_cast<char>(byte)); found != letters.npos)
    byte = static_cast<unsigned char>(controls[found]);
  else if (byte == 'u')
    byte = encode_utf8(take_character(at, end), pending);
  return true;
}

bool reads_json_lines() {
#ifdef CORANK_SIMDJSON
  return true;
#else
  return false;
#endif
}

std::shared_ptr<const ColumnFinder> make_json_finder(const std::vector<std::string>& fields,
                                                     Setting option) {
  if (!reads_json_lines())
    throw Error(ErrorCode::options,
                "this build reads no JSON Lines; build it where the library simdjson is installed");
  return std::make_shared<JsonFinder>(fields, option);
}

}  // namespace corank
