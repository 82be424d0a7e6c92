#include "format/encoded_key.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <span>
#include <utility>

#include "corank/text_key.hpp"

namespace corank::detail {
namespace {

// First byte of an encoded number. The encoding of zero has no further bytes.
constexpr char negative_tag = '\x80', zero_tag = '\x81', positive_tag = '\x82';

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

char to_upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

std::size_t count_digits(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::find_if_not(text, is_digit) - text.begin());
}

void append_big_endian(std::uint64_t value, unsigned bytes, std::string& to) {
  while (bytes-- > 0) to += static_cast<char>(value >> (8 * bytes));
}

// Appends the digits, two in each byte. The bytes of two strings without trailing zeros compare as
// their decimal fractions do.
void append_digits(std::string_view digits, std::string& to) {
  std::size_t at = to.size();
  to.resize(at + (digits.size() + 1) / 2);
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    const int second = i + 1 < digits.size() ? digits[i + 1] - '0' : 0;
    to[at++] = static_cast<char>(1 + 10 * (digits[i] - '0') + second);
  }
}

std::string_view without_trailing_zeros(std::string_view digits) {
  while (digits.ends_with('0')) digits.remove_suffix(1);
  return digits;
}

// Appends the count in one byte, or in nine if it is large. Encodings compare as the counts do.
void append_count(std::uint64_t count, std::string& to) {
  constexpr std::uint64_t min_long_count = 0xff;
  if (count < min_long_count) {
    to += static_cast<char>(count);
  } else {
    to += '\xff';
    append_big_endian(count, 8, to);
  }
}

// Scans a string from its start. Functions that do not match take nothing and return false.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool at_end() const { return rest_.empty(); }
  char peek() const { return rest_.empty() ? '\0' : rest_.front(); }
  bool take(char c) {
    if (peek() != c || at_end()) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take_any(std::string_view choices) {
    return std::ranges::any_of(choices, [&](char choice) { return take(choice); });
  }
  void take_all() { rest_ = {}; }
  // Takes exactly `digits` digits, and sets `value` to theirs.
  bool take_number(std::size_t digits, int& value) {
    if (rest_.size() < digits) return false;
    value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      if (!is_digit(rest_[i])) return false;
      value = 10 * value + (rest_[i] - '0');
    }
    rest_.remove_prefix(digits);
    return true;
  }
  std::string_view digits() {
    const std::string_view found = rest_.substr(0, count_digits(rest_));
    rest_.remove_prefix(found.size());
    return found;
  }
  // Takes the three-letter name of a month, in either case, and sets `number` to its, from 1.
  bool take_month(int& number) {
    constexpr std::array<std::string_view, 12> names{"JAN", "FEB", "MAR", "APR", "MAY", "JUN",
                                                     "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"};
    if (rest_.size() < 3) return false;
    const std::array name{to_upper(rest_[0]), to_upper(rest_[1]), to_upper(rest_[2])};
    const auto* const found = std::ranges::find(names, std::string_view(name.data(), name.size()));
    if (found == names.end()) return false;
    rest_.remove_prefix(3);
    number = static_cast<int>(found - names.begin()) + 1;
    return true;
  }

 private:
  std::string_view rest_;
};

struct Time {
  int year = 0, month = 1, day = 1;
  std::int64_t seconds = 0;   // since midnight UTC; may be negative or exceed a day
  std::string_view fraction;  // of a second, as digits

  std::chrono::year_month_day date() const {
    return {std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
            std::chrono::day(static_cast<unsigned>(day))};
  }
};

// Takes HH:MM[:SS[.fraction]].
bool scan_clock(Scanner& scanner, Time& time) {
  int hour = 0, minute = 0, second = 0;
  if (!scanner.take_number(2, hour) || !scanner.take(':') || !scanner.take_number(2, minute))
    return false;
  if (scanner.take(':')) {
    if (!scanner.take_number(2, second)) return false;
    if (scanner.take_any(".,")) {
      time.fraction = scanner.digits();
      if (time.fraction.empty()) return false;
      time.fraction = without_trailing_zeros(time.fraction);
    }
  }
  if (hour > 24 || minute > 59 || second > 60) return false;
  if (hour == 24 && (minute != 0 || second != 0 || !time.fraction.empty())) return false;
  time.seconds = (std::int64_t{hour} * 60 + minute) * 60 + second;
  return true;
}

// Takes Z, +HH, +HHMM or +HH:MM, optionally after a space. At the end of the text, UTC is assumed.
bool scan_offset(Scanner& scanner, Time& time) {
  if (scanner.at_end() || scanner.take_any("Zz")) return true;
  const bool has_space = scanner.take(' ');
  const bool negative = scanner.peek() == '-';
  if (!scanner.take_any("+-")) return has_space && scanner.take_any("Zz");
  int hours = 0, minutes = 0;
  if (!scanner.take_number(2, hours)) return false;
  const bool has_minutes = scanner.take(':') || is_digit(scanner.peek());
  if (has_minutes && !scanner.take_number(2, minutes)) return false;
  if (hours > 23 || minutes > 59) return false;
  const std::int64_t offset = (std::int64_t{hours} * 60 + minutes) * 60;
  time.seconds -= negative ? -offset : offset;
  return true;
}

// Takes an ISO 8601 date, such as 2000-10-10, 2000-10-10T13:55:36.5+02:00 or 2000-10-10 13:55.
bool scan_iso(Scanner& scanner, Time& time) {
  if (!scanner.take_number(4, time.year) || !scanner.take('-') ||
      !scanner.take_number(2, time.month) || !scanner.take('-') ||
      !scanner.take_number(2, time.day))
    return false;
  if (scanner.at_end()) return true;
  return scanner.take_any("Tt ") && scan_clock(scanner, time) && scan_offset(scanner, time);
}

// Takes the time of an Apache log, such as 10/Oct/2000:13:55:36 -0700, with or without its
// brackets. After a closing bracket takes all text: the rest of a line in a column that begins
// after the opening one.
bool scan_apache(Scanner& scanner, Time& time) {
  scanner.take('[');
  if (!scanner.take_number(2, time.day) || !scanner.take('/') || !scanner.take_month(time.month) ||
      !scanner.take('/') || !scanner.take_number(4, time.year) || !scanner.take(':'))
    return false;
  if (!scan_clock(scanner, time)) return false;
  if (scanner.peek() != ']' && !scan_offset(scanner, time)) return false;
  if (scanner.take(']')) scanner.take_all();
  return true;
}

// Takes the time of a syslog line, such as Oct 11 22:14:15 or Oct  1 22:14:15.
bool scan_syslog(Scanner& scanner, Time& time) {
  if (!scanner.take_month(time.month) || !scanner.take(' ')) return false;
  const std::size_t digits = scanner.take(' ') ? 1 : 2;
  return scanner.take_number(digits, time.day) && scanner.take(' ') && scan_clock(scanner, time);
}

// Parses a time. Its first characters show which form it has.
bool scan_time(std::string_view text, Time& time) {
  Scanner scanner(text);
  const char third = text.size() > 2 ? text[2] : '\0';
  bool found;
  if (text.starts_with('[') || third == '/')
    found = scan_apache(scanner, time);
  else if (third == ':')
    found = scan_clock(scanner, time) && scan_offset(scanner, time);
  else if (is_digit(text.front()))
    found = scan_iso(scanner, time);
  else
    found = scan_syslog(scanner, time);
  return found && scanner.at_end() && time.date().ok();
}

// Takes [+-]digits[.digits], with digits on at least one side of the point.
bool scan_decimal(Scanner& scanner, Decimal& decimal) {
  decimal.is_negative = scanner.peek() == '-';
  scanner.take_any("+-");
  const std::string_view whole = scanner.digits();
  const std::string_view fraction = scanner.take('.') ? scanner.digits() : std::string_view();
  if (whole.empty() && fraction.empty()) return false;
  decimal.digits.assign(whole).append(fraction);
  decimal.digits.erase(0, std::min(decimal.digits.find_first_not_of('0'), decimal.digits.size()));
  decimal.scale = std::ssize(fraction);
  return true;
}

// Takes e[+-]digits if present. Returns false if the exponent has no digits or is out of range.
bool scan_exponent(Scanner& scanner, Decimal& decimal) {
  if (!scanner.take_any("eE")) return true;
  const bool negative = scanner.peek() == '-';
  scanner.take_any("+-");
  const std::string_view digits = scanner.digits();
  constexpr std::int64_t max_exponent = std::int64_t{1} << 61;  // see the bias in append_decimal()
  std::int64_t exponent = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
  if (digits.empty() || error != std::errc{} || exponent > max_exponent) return false;
  decimal.exponent = negative ? -exponent : exponent;
  return true;
}

// Appends the sign, then `magnitude`, the exponent of 0.DIGITS, and the digits. For a negative
// number these bytes are complemented and 0xff is appended, so that of two numbers the one with
// more digits sorts first.
void append_decimal(const Decimal& decimal, std::string_view magnitude, std::string& to) {
  if (decimal.digits.empty()) {
    to += zero_tag;
    return;
  }
  to += decimal.is_negative ? negative_tag : positive_tag;
  const std::size_t begin = to.size();
  to += magnitude;
  const std::int64_t exponent = std::ssize(decimal.digits) - decimal.scale + decimal.exponent;
  // Small exponents take one byte.
  constexpr std::int64_t max_short = 120;
  constexpr std::int64_t bias = std::int64_t{1} << 62;
  if (exponent > max_short)
    to += '\xf9';
  else if (exponent < -max_short)
    to += '\x01';
  else
    to += static_cast<char>(0x80 + exponent);
  if (exponent > max_short || exponent < -max_short)
    append_big_endian(static_cast<std::uint64_t>(exponent + bias), 8, to);
  append_digits(without_trailing_zeros(decimal.digits), to);
  if (!decimal.is_negative) return;
  for (std::size_t i = begin; i < to.size(); ++i) to[i] = static_cast<char>(~to[i]);
  to += '\xff';
}

// Returns the bytes of a column, decoded into `buffer` if they are quoted or escaped.
std::string_view decode(const TextField& field, std::string& buffer) {
  if (!field.quoted) return {reinterpret_cast<const char*>(field.at), field.bytes};
  return buffer = decoded(field);
}

// Returns the text as a column that is not quoted.
TextField field_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size(), false, true};
}

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t begin = std::min(text.find_first_not_of(blanks), text.size());
  const std::size_t end = text.find_last_not_of(blanks);
  return text.substr(begin, end == std::string_view::npos ? 0 : end + 1 - begin);
}

// Functions named encode_*() append the encoded value to `to`, and return false if `text` is not a
// value of the type; `to` is then unspecified. Encoded times and numbers are not empty and begin
// with neither 0x00 nor 0xff. Callers must remove blanks around the value.

// Encoding: five bytes of seconds since 1970, then the digits of the fraction. The bias makes all
// seconds positive and keeps their first byte from being 0x00 or 0xff, because years have four
// digits.
bool encode_time(std::string_view text, std::string& to) {
  constexpr std::int64_t bias = std::int64_t{1} << 37;
  Time time;
  if (text.empty() || !scan_time(text, time)) return false;
  const std::chrono::seconds midnight = std::chrono::sys_days(time.date()).time_since_epoch();
  append_big_endian(static_cast<std::uint64_t>(midnight.count() + time.seconds + bias), 5, to);
  append_digits(time.fraction, to);
  return true;
}

// Encoding: the sign, the decimal exponent, the digits.
bool encode_decimal(std::string_view text, std::string& to) {
  const std::optional<Decimal> decimal = parse_decimal(text);
  if (decimal) append_decimal(*decimal, {}, to);
  return decimal.has_value();
}

// Encoding: the sign, the rank of the suffix, the number. GNU `sort -h` compares in this order, so
// that 2000K sorts before 1M. An `i` and a `B` after the suffix are ignored.
bool encode_human(std::string_view text, std::string& to) {
  constexpr std::string_view suffixes = "KMGTPEZYRQ";
  Scanner scanner(text);
  Decimal decimal;
  if (!scan_decimal(scanner, decimal)) return false;
  char rank = 1;  // rank of a number without a suffix
  const char suffix = scanner.peek() == 'k' ? 'K' : scanner.peek();
  if (const std::size_t found = suffixes.find(suffix); found != std::string_view::npos) {
    rank = static_cast<char>(2 + found);
    scanner.take(scanner.peek());
    scanner.take('i');
  }
  scanner.take('B');
  if (!scanner.at_end()) return false;
  append_decimal(decimal, {&rank, 1}, to);
  return true;
}

// Returns how many bytes stand before the first digit or 0x00.
std::size_t count_plain(std::string_view text) {
  const auto is_plain = [](char c) { return !is_digit(c) && c != '\0'; };
  return static_cast<std::size_t>(std::ranges::find_if_not(text, is_plain) - text.begin());
}

// Encoding: bytes other than digits represent themselves. A run of digits is `0`, the count of its
// digits without leading zeros, and these digits. If any run has leading zeros, 0x00 0x00 and the
// counts of leading zeros follow. Strings with equal numbers are ordered by the first run whose
// counts differ, fewer zeros first. A byte 0x00 of the text becomes 0x00 0xff, so that it differs
// from that mark. With `nocase`, the letters a to z compare as A to Z. Stops once `to` has
// `enough_bytes`.
void encode_natural(std::string_view text, bool nocase, std::uint64_t enough_bytes,
                    std::string& to) {
  std::string zeros;            // counts of leading zeros, to the last one that is not 0
  std::size_t num_without = 0;  // runs after these
  while (!text.empty()) {
    if (to.size() >= enough_bytes) return;
    const std::size_t plain = count_plain(text.substr(0, enough_bytes - to.size()));
    if (plain != 0) {
      to += text.substr(0, plain);
      if (nocase)
        for (char& c : std::span(to).last(plain)) c = to_upper(c);
      text.remove_prefix(plain);
      continue;
    }
    if (text.front() == '\0') {
      to.append("\0\xff", 2);
      text.remove_prefix(1);
      continue;
    }
    const std::string_view run = text.substr(0, count_digits(text));
    text.remove_prefix(run.size());
    const std::string_view digits = run.substr(std::min(run.find_first_not_of('0'), run.size()));
    to += '0';
    append_count(digits.size(), to);
    append_digits(digits, to);
    const std::size_t leading = run.size() - std::max<std::size_t>(digits.size(), 1);
    if (leading == 0) {
      ++num_without;
    } else {
      zeros.append(std::exchange(num_without, 0), '\0');
      append_count(leading, zeros);
    }
  }
  if (!zeros.empty()) to.append(2, '\0') += zeros;
}

// Encodes the time at the start of a line: as many words as are a time. Without its last word, a
// time of several words is either one, too, or the beginning of a date.
bool encode_first_time(std::string_view line, std::string& to) {
  constexpr std::size_t max_time_bytes = 64;
  const auto may_end_time = [](char c) { return c == '\t' || c == ',' || c == ';' || c == '|'; };
  const auto extend = [&](std::size_t end) {
    std::string longer;
    const bool is_time = encode_time(without_blanks(line.substr(0, end)), longer);
    if (is_time) to = std::move(longer);
    return is_time;
  };
  for (std::size_t end = 0; end < std::min(line.size(), max_time_bytes);) {
    const std::size_t begin = end + 1;
    end = std::min(line.find(' ', begin), line.size());
    if (extend(end)) continue;
    // The time may end within the word.
    for (std::size_t at = begin; at < std::min(end, max_time_bytes); ++at)
      if (may_end_time(line[at]) && !extend(at) && !to.empty()) break;
    if (!to.empty()) break;
  }
  return !to.empty();
}

// Returns the size of what two texts begin with, up to the run of digits in which they differ.
// Without it their natural order is the same.
std::size_t common_bytes(std::string_view x, std::string_view y) {
  const auto differ = std::ranges::mismatch(x, y);
  auto common = static_cast<std::size_t>(differ.in1 - x.begin());
  while (common != 0 && is_digit(x[common - 1])) --common;
  return common;
}

// Compares as encode_natural() says, by their first differing bytes if these are enough.
int compare_natural(const TextField& x, const TextField& y, const TextColumn& column) {
  constexpr std::uint64_t usually_enough_bytes = 12;  // most strings then need no allocation
  std::string x_buffer, y_buffer, x_key, y_key;
  std::string_view x_text = decode(x, x_buffer), y_text = decode(y, y_buffer);
  const std::size_t common = common_bytes(x_text, y_text);
  x_text.remove_prefix(common);
  y_text.remove_prefix(common);
  for (std::uint64_t enough = usually_enough_bytes;;
       enough = std::numeric_limits<std::uint64_t>::max()) {
    x_key.clear();
    y_key.clear();
    encode_natural(x_text, column.nocase, enough, x_key);
    encode_natural(y_text, column.nocase, enough, y_key);
    const bool are_whole = std::max(x_key.size(), y_key.size()) < enough;
    const int order = std::string_view(x_key).substr(0, enough).compare(
        std::string_view(y_key).substr(0, enough));
    if (order != 0 || are_whole || enough > usually_enough_bytes) return order;
  }
}

}  // namespace

EncodedKey::EncodedKey(const TextField& field, const TextColumn& column, std::uint64_t enough_bytes)
    : is_valid_(true) {
  const TextType type = column.type;
  std::string buffer;
  const std::string_view text = decode(field, buffer);
  if (type == TextType::natural)
    encode_natural(text, column.nocase, enough_bytes, bytes_);
  else if (type == TextType::time && column.column == 0)
    is_valid_ = encode_first_time(text, bytes_);
  else if (type == TextType::time)
    is_valid_ = encode_time(without_blanks(text), bytes_);
  else if (type == TextType::decimal)
    is_valid_ = encode_decimal(without_blanks(text), bytes_);
  else
    is_valid_ = encode_human(without_blanks(text), bytes_);
  if (!is_valid_) bytes_.assign(1, column.descending == column.bad_first ? '\xff' : '\0');
}

std::uint64_t EncodedKey::word(const TextColumn& column, std::uint64_t from) const {
  const std::uint64_t bits = string_word(field(), false, from);
  return column.descending ? ~bits : bits;
}

std::optional<Decimal> parse_decimal(std::string_view text) {
  Scanner scanner(text);
  Decimal decimal;
  if (!scan_decimal(scanner, decimal) || !scan_exponent(scanner, decimal) || !scanner.at_end())
    return std::nullopt;
  return decimal;
}

std::uint64_t encoded_bytes(const TextField& field, const TextColumn& column) {
  return EncodedKey(field, column).field().bytes;
}

std::uint64_t encoded_word(const TextField& field, const TextColumn& column, std::uint64_t from) {
  std::string buffer;
  std::string_view text = decode(field, buffer);
  if (column.type == TextType::natural) {
    // Text after plain bytes is encoded as if it stood alone.
    const std::size_t skipped = count_plain(text.substr(0, from));
    text.remove_prefix(skipped);
    from -= skipped;
  }
  return EncodedKey(field_of(text), column, from + word_bytes).word(column, from);
}

std::optional<std::uint64_t> encoded_difference(const TextField& x, const TextField& y,
                                                const TextColumn& column) {
  std::string x_buffer, y_buffer;
  std::string_view x_text = decode(x, x_buffer), y_text = decode(y, y_buffer);
  std::size_t skipped = 0;
  if (column.type == TextType::natural) {
    skipped =
        count_plain(x_text.substr(0, shared_bytes(field_of(x_text), field_of(y_text), false)));
    x_text.remove_prefix(skipped);
    y_text.remove_prefix(skipped);
  }
  for (std::uint64_t enough = 16;; enough *= 4) {  // most keys differ early
    const EncodedKey x_key(field_of(x_text), column, enough);
    const EncodedKey y_key(field_of(y_text), column, enough);
    const std::uint64_t shared = shared_bytes(x_key.field(), y_key.field(), false);
    const std::uint64_t longest = std::max(x_key.field().bytes, y_key.field().bytes);
    if (shared < std::min(longest, enough)) return skipped + shared;
    if (longest < enough) return std::nullopt;
  }
}

int compare_encoded(const TextField& x, const TextField& y, const TextColumn& column) {
  const int order =
      column.type == TextType::natural
          ? compare_natural(x, y, column)
          : compare_strings(EncodedKey(x, column).field(), EncodedKey(y, column).field(), false);
  return column.descending ? -order : order;
}

bool holds_value(const TextField& field, const TextColumn& column) {
  if (column.type == TextType::bytes || column.type == TextType::natural) return true;
  std::string buffer;
  if (column.type == TextType::decimal)
    return parse_decimal(without_blanks(decode(field, buffer))).has_value();
  if (is_encoded(column.type)) return EncodedKey(field, column).is_valid();
  std::uint64_t word;
  return parse_number(field, column.type, word);
}

}  // namespace corank::detail
