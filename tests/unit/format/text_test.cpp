#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "corank/text_key.hpp"
#include "format/framing.hpp"
#include "format/key_words.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "support/text_reference.hpp"

using namespace corank;
using namespace corank::test;

namespace {

TextFormat format_of(TextKind kind, const char* keys, std::optional<char> delimiter = {}) {
  TextFormat format;
  format.kind = kind;
  format.delimiter = delimiter;
  format.keys = parse_text_keys(keys);
  return format;
}

// --- The code under test, as a merge calls it ----------------------------------------------------

bool less_by_words(const TextLayout& layout, const std::string& a, const std::string& b) {
  const auto x = span_of(a), y = span_of(b);
  const std::uint64_t words =
      std::max(text_words(layout, x.data(), x.size()), text_words(layout, y.data(), y.size()));
  for (std::uint64_t w = 0; w < words + 2; ++w) {
    const std::uint64_t p = text_word(layout, x.data(), x.size(), w);
    const std::uint64_t q = text_word(layout, y.data(), y.size(), w);
    if (p != q) return p < q;
  }
  return false;
}

bool less_by_merge_words(const RefWords& words, const std::byte* a, const std::byte* b) {
  for (std::uint32_t word = 0; word < words.words();) {
    std::uint64_t p, q;
    words.read(word, a, 1, &p);
    words.gather(word, {&b, 1}, &q);
    if (p != q) return p < q;
    const std::uint32_t next = words.next_word(word, p);
    REQUIRE(next > word);
    if (words.is_last(word)) REQUIRE(next > words.words());
    if (next > words.words()) return false;
    word = next;
  }
  return words.less(a, b);
}

// Checks that the first distinguishing word of `a` and `b` differs between them, and that `other`
// shares the words before it exactly if it should.
void check_telling_word(const RefWords& words, const std::byte* a, const std::byte* b,
                        const std::byte* other) {
  const std::uint32_t word = words.first_distinguishing_word(a, b);
  CHECK(words.share_words(word, a, 1, a));
  CHECK(words.share_words(word, b, 1, a));
  std::uint64_t p, q;
  words.read(word, a, 1, &p);
  words.read(word, b, 1, &q);
  CHECK(p <= q);
  if (word % 256 != 255) CHECK(p != q);  // strings may differ after the words of a column
  const bool equal = !words.less(a, other) && !words.less(other, a);
  CHECK(words.share_words(word, other, 1, a) ==
        (word == 0 || equal || words.first_distinguishing_word(a, other) >= word));
}

// Checks all orders of pairs of records. Each record with its terminator is a separate allocation,
// so that a sanitizer detects reads past its end.
void check_order(const Strings& records, const TextFormat& format) {
  const TextEncoding encoding(format);
  const TextLayout layout = encoding.layout();
  const RefWords words(layout);
  std::vector<PrefixRef> entries;
  for (const std::string& record : records) {
    const auto bytes = span_of(record);
    entries.push_back(
        make_entry(text_word(layout, bytes.data(), bytes.size(), 0), bytes.data(), bytes.size()));
  }
  const auto entry = [&](std::size_t i) { return reinterpret_cast<const std::byte*>(&entries[i]); };
  for (std::size_t i = 0; i < records.size(); ++i)
    for (std::size_t j = 0; j < records.size(); ++j) {
      const std::string &a = records[i], &b = records[j];
      const bool expected =
          compare_records(a.substr(0, a.size() - 1), b.substr(0, b.size() - 1), format) < 0;
      const auto x = span_of(a), y = span_of(b);
      if (text_less(layout, x.data(), x.size(), y.data(), y.size()) != expected ||
          less_by_words(layout, a, b) != expected || words.less(entry(i), entry(j)) != expected ||
          less_by_merge_words(words, entry(i), entry(j)) != expected)
        FAIL('"' << a << "\" and \"" << b << '"');
      if (expected)
        check_telling_word(words, entry(i), entry(j), entry((7 * i + j) % records.size()));
    }
}

// Returns all strings of up to `longest` of the characters.
Strings all_texts(const std::string& characters, std::size_t longest) {
  Strings all{""};
  for (std::size_t from = 0, to = 1, length = 0; length < longest; ++length) {
    for (std::size_t i = from; i < to; ++i)
      for (const char c : characters) all.push_back(all[i] + c);
    from = to;
    to = all.size();
  }
  return all;
}

Strings with_end(Strings texts, char terminator = '\n') {
  for (std::string& text : texts) text += terminator;
  return texts;
}

std::string random_text(Random& random, const std::string& characters, std::size_t longest) {
  std::string text(below(random, longest + 1), ' ');
  for (char& c : text) c = characters[below(random, characters.size())];
  return text;
}

// The records found block by block, up to `room` at a time, and how the search ended.
struct Found {
  Strings records;
  std::optional<BadRecord> bad;
  std::size_t rest;
};
Found find_all(const TextLayout& layout, const std::string& text, bool at_end, std::size_t room) {
  Found found{};
  auto rest = span_of(text);
  for (;;) {
    std::vector<PrefixRef> entries(room);
    const Indexed indexed = index_records(layout, rest, at_end, entries);
    REQUIRE(indexed.records <= room);
    const std::byte* at = rest.data();
    for (const PrefixRef& entry : std::span(entries).first(indexed.records)) {
      REQUIRE(record_of(entry) == at);
      const std::uint64_t bytes = record_bytes(layout, entry);
      REQUIRE(bytes == record_bytes(layout, at));
      CHECK(entry.word == text_word(layout, at, bytes, 0));
      found.records.emplace_back(reinterpret_cast<const char*>(at), bytes);
      at += bytes;
    }
    REQUIRE(indexed.bytes == static_cast<std::uint64_t>(at - rest.data()));
    rest = rest.subspan(indexed.bytes);
    if (indexed.records < room) {
      found.bad = indexed.bad;
      found.rest = rest.size();
      return found;
    }
  }
}

std::string refusal(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("whole lines are ordered as their bytes are", "[text]") {
  Strings texts = all_texts({"\0Az\xff", 4}, 4);
  for (const std::size_t length : {6, 7, 8, 13, 14, 15, 21})
    for (const char* end : {"", "a", "b"}) {
      texts.push_back(std::string(length, 'a') + end);
      texts.push_back(std::string(length, '\0') + end);
    }
  for (const std::size_t length : {254, 255, 256, 300})  // longer than the words of a column
    for (const char* end : {"", "a", "bcdefghij"}) texts.push_back(std::string(length, 'a') + end);
  for (const char* keys : {"", "line", "line:desc", "line:nocase", "line:nocase:desc"})
    check_order(with_end(texts), [&] {
      TextFormat format = format_of(TextKind::lines, keys);
      if (format.keys.empty()) format.keys.push_back({});
      return format;
    }());
}

TEST_CASE("columns of lines are ordered by their types, directions and significance", "[text]") {
  Random random(3);
  const Strings numbers{"0",
                        "-0",
                        "1",
                        "-1",
                        "007",
                        "9223372036854775807",
                        "18446744073709551615",
                        "18446744073709551616",
                        "-9223372036854775808",
                        "-9223372036854775809",
                        " 5",
                        "5 ",
                        "+5",
                        "",
                        "x",
                        "1.5",
                        "-1.5",
                        "1e3",
                        "nan",
                        "inf",
                        "-inf",
                        "1e999",
                        "-",
                        " ",
                        "5x"};
  Strings records;
  for (int i = 0; i < 120; ++i) {
    std::string record;
    for (std::uint64_t column = below(random, 4); column > 0; --column) {
      record += below(random, 2) ? numbers[below(random, numbers.size())]
                                 : random_text(random, "aAbB", 9);
      if (column > 1) record += '|';
    }
    records.push_back(record);
  }
  for (const char* keys : {"2", "2:desc,1", "1:u64", "1:i64:desc,2:nocase", "1:f64,3", "3:f64:desc",
                           "2:nocase:desc,1:u64:desc,line", "1:i64,1:u64"}) {
    TextFormat format = format_of(TextKind::lines, keys, '|');
    format.bad_numbers = BadNumbers::last;
    check_order(with_end(records), format);
    format.terminator = '\0';
    check_order(with_end(records, '\0'), format);
  }
}

TEST_CASE("times, natural texts, decimals and sizes are ordered by their values", "[text]") {
  Random random(31);
  const auto fraction = [&] { return random_text(random, "0015", 3); };
  Strings records;
  for (int i = 0; i < 60; ++i) {
    const auto two = [&](std::uint64_t from, std::uint64_t count) {
      return fmt::format("{:02}", from + below(random, count));
    };
    std::string time = (below(random, 3) ? "2024-" : "0000-") + two(1, 3) + "-" + two(27, 4);
    if (below(random, 6) != 0)
      time += (below(random, 2) ? "T" : " ") + two(0, 3) + ":" + two(0, 2) + ":" + two(58, 2);
    if (time.size() > 10 && below(random, 2)) time += ".5" + fraction();
    if (time.size() > 10 && below(random, 2))
      time += Strings{"Z", "+01:00", "-0100", "+02:30"}[below(random, 4)];
    std::string natural = random_text(random, "a01-", 4) + random_text(random, "z019", 9);
    // Leading zeros decide, or what follows many equal bytes.
    if (below(random, 3) == 0)
      natural = Strings{"1", "01", "001"}[below(random, 3)] + std::string(20, '-') + natural;
    // Key words then begin within plain text, also within what an encoded NUL becomes.
    if (below(random, 3) == 0)
      natural.insert(0, Strings{"some/", "Some/Path/that/is/long/",
                                std::string("nul\0s\0", 6)}[below(random, 3)]);
    std::string decimal = Strings{"", "-", "+"}[below(random, 3)] + random_text(random, "0019", 4);
    if (below(random, 2)) decimal += "." + fraction();
    if (below(random, 9) == 0) decimal += std::string(150, '7');
    std::string human = decimal + Strings{"", "K", "k", "Mi", "GB", "x"}[below(random, 6)];
    records.push_back(time + '|' + natural + '|' + decimal + '|' + human);
  }
  records.push_back("");
  for (const char* keys : {"1:time", "1:time:desc,2", "2:natural", "2:natural:desc",
                           "2:natural:nocase", "3:decimal", "3:decimal:desc,1:time", "4:human",
                           "4:human:desc", "4:human,2:natural", "3:u64,3:decimal,2"}) {
    INFO(keys);
    TextFormat format = format_of(TextKind::lines, keys, '|');
    format.bad_numbers = BadNumbers::last;
    check_order(with_end(records), format);
    TextFormat csv = format_of(TextKind::csv, keys, '|');
    csv.bad_numbers = BadNumbers::last;
    Strings quoted;
    for (const std::string& record : records)
      quoted.push_back('"' + std::regex_replace(record, std::regex("\\|"), "\"|\"") + '"');
    check_order(with_end(quoted), csv);
  }
}

TEST_CASE("columns of CSV are ordered without their quotes", "[text]") {
  Random random(4);
  Strings records;
  for (const std::string& text : all_texts("a,\"\n", 6)) {
    const TextFormat format = format_of(TextKind::csv, "1");
    const std::string record = text + '\n';
    const TextEncoding encoding(format);
    // Skips texts that are not exactly one record; another test covers them.
    if (first_record_bytes(encoding.layout(), span_of(record)) == record.size() &&
        !has_stray_text(record, format) && below(random, 8) == 0)
      records.push_back(record);
  }
  for (int i = 0; i < 40; ++i) {
    const std::string quoted = '"' + random_text(random, "abcA\n,", 12) + "\"\"b\"";
    records.push_back(quoted + "," + std::to_string(below(random, 20)) + "\r\n");
    records.push_back("x\"y,\"" + std::to_string(below(random, 20)) + "\"\n");
  }
  REQUIRE(records.size() > 150);
  for (const char* keys : {"1", "2", "2:desc,1:nocase", "2:u64,1", "line"}) {
    TextFormat format = format_of(TextKind::csv, keys);
    format.bad_numbers = BadNumbers::last;
    check_order(records, format);
  }
}

TEST_CASE("columns are found in records of any length, in whatever order one asks", "[text]") {
  Random random(5);
  for (const TextKind kind : {TextKind::lines, TextKind::csv}) {
    const TextFormat format = format_of(kind, "1", ',');
    const TextEncoding encoding(format);
    const TextLayout layout = encoding.layout();
    for (std::uint64_t length = 0; length < 90; ++length) {
      for (int i = 0; i < 60; ++i) {
        // Few delimiters or many; few of them in quotes.
        std::string text = random_text(random, i % 2 != 0 ? "abcdefgh," : "a,,", length);
        text.resize(length, 'z');
        if (length > 3 && below(random, 3) == 0)
          for (int quotes = 0; quotes < 2; ++quotes) text[below(random, length)] = '"';
        if (length > 0 && below(random, 8) == 0) text.back() = '\r';
        // An allocation of exact size, so that a sanitizer detects reads past its end.
        const std::vector<char> record = [&] {
          std::vector<char> chars(text.begin(), text.end());
          chars.push_back('\n');
          return chars;
        }();
        const auto bytes = std::as_bytes(std::span(record));
        if (first_record_bytes(layout, bytes) != bytes.size()) continue;
        const Strings expected = columns_of(text, format);
        detail::Columns columns(layout, bytes.data(), bytes.size());
        for (int asked = 0; asked < 6; ++asked) {
          const std::uint64_t column = 1 + below(random, expected.size() + 1);
          const auto field = columns(static_cast<std::uint32_t>(column));
          std::string found;
          unsigned byte;
          for (detail::FieldBytes reader(field); reader.next(byte);)
            found += static_cast<char>(byte);
          CAPTURE(text, column);
          REQUIRE(field.there == (column <= expected.size()));
          REQUIRE(found == (field.there ? expected[column - 1] : ""));
        }
      }
    }
  }
}

TEST_CASE("pairs are ordered by their keys", "[text]") {
  Strings pairs, keys;
  for (const std::string& key : all_texts({"\0b\n", 3}, 3)) {
    keys.push_back(key);
    pairs.push_back(pair_of(key, std::string(pairs.size() % 5, 'v')));
  }
  const TextEncoding up(format_of(TextKind::pairs, "")),
      down(format_of(TextKind::pairs, "key:desc"));
  for (std::size_t i = 0; i < pairs.size(); ++i)
    for (std::size_t j = 0; j < pairs.size(); ++j) {
      CHECK(less_by_words(up.layout(), pairs[i], pairs[j]) == (keys[i] < keys[j]));
      CHECK(less_by_words(down.layout(), pairs[i], pairs[j]) == (keys[j] < keys[i]));
    }
}

TEST_CASE("every line is found, whatever the block and however few entries there are", "[text]") {
  Random random(5);
  for (const char terminator : {'\n', '\0'})
    for (int repetition = 0; repetition < 25; ++repetition) {
      std::string text;
      Strings lines;
      for (std::uint64_t count = below(random, 200); count > 0; --count) {
        std::string line = random_text(random, "ab,", below(random, 8) == 0 ? 200 : 12);
        if (count == 17) line.resize(70'000, 'x');
        lines.push_back(line + terminator);
        text += lines.back();
      }
      const std::string rest = random_text(random, "ab", 3);
      for (const char* keys : {"", "2:desc"})
        for (const std::size_t room : {1, 3, 63, 64, 100, 5000}) {
          TextFormat format = format_of(TextKind::lines, keys, ',');
          format.terminator = terminator;
          const TextEncoding encoding(format);
          const Found found = find_all(encoding.layout(), text + rest, false, room);
          REQUIRE(found.records == lines);
          REQUIRE(found.rest == rest.size());
        }
    }
}

TEST_CASE("a CSV record ends where no quote is open", "[text]") {
  const TextFormat format = format_of(TextKind::csv, "1");
  const TextEncoding encoding(format);
  for (const std::string& text : all_texts("a,\"\n", 7)) {
    const auto [records, rest] = records_of(text, format);
    const Found found = find_all(encoding.layout(), text, false, 3);
    if (has_stray_text(text, format)) {
      REQUIRE(found.bad);
      CHECK(found.bad->reason == BadRecord::Reason::stray_text);
      continue;
    }
    if (found.records != records || found.rest != rest.size()) FAIL('"' << text << '"');
    CHECK(!found.bad);
    if (!records_of(rest + "\n", format).first.empty()) continue;
    const Found ended = find_all(encoding.layout(), text, true, 3);
    REQUIRE(ended.bad);
    CHECK(ended.bad->reason == BadRecord::Reason::open_quote);
    CHECK(ended.bad->bytes == rest.size());
  }
}

TEST_CASE("escaped bytes of CSV stand for themselves", "[text]") {
  TextFormat format = format_of(TextKind::csv, "2");
  format.escape = '\\';
  const TextEncoding encoding(format);
  const Strings records{"a,\"a \\\"x, y\\\" z\",b\n", "a,b\\,c\\\nd\\\\,x\n", "a,\"x\"\"y\\\n\"\n",
                        "a,\\\"q\\\",z\n", "plain,columns of some length,x\n"};
  const Strings values{"a \"x, y\" z", "b,c\nd\\", "x\"y\n", "\"q\"", "columns of some length"};
  std::string text;
  for (const std::string& record : records) text += record;
  for (const std::size_t room : {1, 2, 10}) {
    const Found found = find_all(encoding.layout(), text, true, room);
    CHECK(!found.bad);
    CHECK(found.records == records);
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto bytes = span_of(records[i]);
    for (std::size_t end = 0; end < bytes.size(); ++end)
      CHECK(first_record_bytes(encoding.layout(), bytes.first(end)) == 0);
    const auto field = detail::Columns(encoding.layout(), bytes.data(), bytes.size())(2);
    std::string value;
    unsigned byte;
    for (detail::FieldBytes reader(field); reader.next(byte);) value += static_cast<char>(byte);
    CHECK(value == values[i]);
  }
  for (const char bad : {'"', ',', '\n', '\0', '\r'}) {
    format.escape = bad;
    CHECK(holds(refusal([&] { TextEncoding refused(format); }), "escape character"));
  }
}

TEST_CASE("parts hold whole records of every kind", "[text]") {
  constexpr std::uint64_t part_bytes = 100;
  Random random(6);
  const auto some = [&](const char* bytes) { return random_text(random, bytes, 30); };
  const auto cut = [&](TextKind kind, const char* keys, const auto& record) {
    TextFormat format = format_of(kind, keys);
    if (kind == TextKind::lines) format.delimiter = ',';
    if (kind == TextKind::csv) format.escape = '\\';
    const TextEncoding encoding(format);
    std::string text;
    std::set<std::size_t> ends;
    std::size_t longest = 0;
    for (int i = 0; i < 200; ++i) {
      text += i == 50 ? record(some("ab") + std::string(7 * part_bytes, 'x')) : record(some("ab"));
      longest = std::max(longest, text.size() - (ends.empty() ? 0 : *ends.rbegin()));
      ends.insert(text.size());
    }
    std::size_t end = 0;
    const auto parts = parts_of(encoding.layout(), span_of(text), part_bytes);
    CHECK(parts.size() > text.size() / part_bytes / 3);
    for (const auto part : parts) {
      REQUIRE(part.data() == span_of(text).data() + end);
      end += part.size();
      REQUIRE(ends.contains(end));
      REQUIRE(part.size() <= 2 * part_bytes + longest);
    }
    CHECK(end == text.size());
  };
  cut(TextKind::lines, "1", [](const std::string& value) { return value + "\n"; });
  cut(TextKind::csv, "1", [](const std::string& value) { return value + "\n"; });
  cut(TextKind::csv, "1", [&](const std::string& value) {
    return value + ",\"" + some("\n,") + "\"\"\n\"," + some("ab") + "\n";
  });
  cut(TextKind::csv, "1", [](const std::string& value) { return "a\\\n" + value + "\n"; });
  cut(TextKind::json_lines, "a",
      [](const std::string& value) { return "{\"a\":\"" + value + "\"}\n"; });
  cut(TextKind::pairs, "key", [&](const std::string& value) { return pair_of(value, some("\n")); });
}

TEST_CASE("pairs are found, and what is left of one says how long it is", "[text]") {
  const TextEncoding encoding(format_of(TextKind::pairs, ""));
  const Strings pairs{pair_of("", ""), pair_of("key", "value"),
                      pair_of(std::string(70'000, 'k'), "v"), pair_of("a", std::string(300, 'v'))};
  std::string text;
  for (const std::string& pair : pairs) text += pair;
  CHECK(find_all(encoding.layout(), text, true, 2).records == pairs);
  CHECK(!find_all(encoding.layout(), text, true, 2).bad);
  for (std::size_t cut = 0; cut < 400 && cut < text.size(); ++cut) {
    const std::string part = text.substr(0, cut);
    Strings whole;
    std::size_t bytes = 0;
    for (const std::string& pair : pairs) {
      if (bytes + pair.size() > cut) break;
      whole.push_back(pair);
      bytes += pair.size();
    }
    const Found open = find_all(encoding.layout(), part, false, 2);
    CHECK(open.records == whole);
    CHECK(!open.bad);
    const Found ended = find_all(encoding.layout(), part, true, 2);
    CHECK(ended.bad.has_value() == (bytes != cut));
    if (ended.bad) CHECK(ended.bad->reason == BadRecord::Reason::cut_off);
  }
}

TEST_CASE("records are counted as they are indexed", "[text]") {
  Random random(6);
  for (const TextKind kind : {TextKind::lines, TextKind::csv, TextKind::pairs})
    for (int round = 0; round < 400; ++round) {
      std::string text;
      for (std::size_t i = below(random, 200); i > 0; --i)
        text += kind == TextKind::pairs
                    ? pair_of(random_text(random, "ab", 9), random_text(random, "ab", 90))
                    : random_text(random, round % 2 == 0 ? "ab,\n" : "ab,\"\\\n", 40) + '\n';
      text.resize(text.size() - below(random, text.size() / 4 + 1));
      TextFormat format = format_of(kind, "");
      if (kind == TextKind::csv && round % 4 < 2) format.escape = '\\';
      const TextEncoding encoding(format);
      std::vector<PrefixRef> entries(1 + below(random, 300));
      const Indexed indexed = index_records(encoding.layout(), span_of(text), false, entries);
      const WholeRecords whole = count_records(encoding.layout(), span_of(text), entries.size());
      CHECK((whole.records == indexed.records && whole.bytes == indexed.bytes));
    }
}

TEST_CASE("a bad number stops the index at its record, unless it is ordered last", "[text]") {
  const std::string text = "1,1\n2,x\n3\n4,4\n";
  TextFormat format = format_of(TextKind::lines, "1,2:u64", ',');
  for (const BadNumbers what : {BadNumbers::error, BadNumbers::skip}) {
    format.bad_numbers = what;
    const TextEncoding encoding(format);
    const TextLayout layout = encoding.layout();
    std::vector<PrefixRef> entries(10);
    const auto bytes = span_of(text);
    const Indexed first = index_records(layout, bytes, true, entries);
    REQUIRE(first.bad);
    CHECK(first.records == 1);
    CHECK(first.bytes == 4);
    CHECK(first.bad->reason == BadRecord::Reason::no_number);
    CHECK(first.bad->bytes == 4);
    CHECK(
        refusal([&] {
          throw_bad_record("run.csv", {1, 2, 4}, layout, *first.bad, bytes.data() + 4);
        }) ==
        "run.csv: line 2 (byte 4): column 2, \"x\", is not a number that u64 holds; correct it, or "
        "say TextFormat::bad_numbers = skip or TextFormat::bad_numbers = last");
    const Indexed second = index_records(layout, bytes.subspan(8), true, entries);
    REQUIRE(second.bad);
    CHECK(second.records == 0);
    CHECK(second.bad->reason == BadRecord::Reason::no_column);
    CHECK(second.bad->bytes == 2);
    CHECK(holds(refusal([&] {
                  throw_bad_record("r", {2, 3, 8}, layout, *second.bad, bytes.data() + 8);
                }),
                "r: line 3 (byte 8): there is no column 2"));
    CHECK(index_records(layout, bytes.subspan(10), true, entries).records == 1);
  }
  format.bad_numbers = BadNumbers::last;
  CHECK(find_all(TextEncoding(format).layout(), text, true, 10).records.size() == 4);
}

TEST_CASE("what is wrong with a pair or a quote is said with its place", "[text]") {
  const auto message = [](TextKind kind, const std::string& text) {
    const TextEncoding encoding(format_of(kind, ""));
    std::vector<PrefixRef> entries(10);
    const Indexed indexed = index_records(encoding.layout(), span_of(text), true, entries);
    REQUIRE(indexed.bad);
    return refusal([&] {
      throw_bad_record("run", {indexed.records, {}, indexed.bytes}, encoding.layout(), *indexed.bad,
                       span_of(text).data() + indexed.bytes);
    });
  };
  const std::string cut =
      message(TextKind::pairs, pair_of("a", "b") + pair_of("a", "bc").substr(0, 9));
  CHECK(holds(
      cut, "run: record 1 (byte 10): a pair's lengths, 1 and 2 bytes, run past the end: 1 bytes"));
  CHECK(holds(message(TextKind::pairs, "abc"),
              "run: record 0 (byte 0): the file ends after 3 of the 8"));
  CHECK(holds(message(TextKind::csv, "a,b\nc,\"d\n"),
              "run: record 1 (byte 4): the last column begins"));
  const std::string stray = message(TextKind::csv, "a,b\nc,\"a \\\"x, y\\\" z\"\n");
  CHECK(holds(stray, "run: record 1 (byte 4): column 2 has text after its closing quote"));
  CHECK(holds(stray, "at byte 7 of the record"));
}

TEST_CASE("keys of text are columns, types and orders", "[text]") {
  const auto keys = parse_text_keys("2:u64:desc,name:nocase,line,1:f64:asc");
  REQUIRE(keys.size() == 4);
  CHECK(keys[0].column == 2);
  CHECK(keys[0].type == TextType::u64);
  CHECK(keys[0].descending);
  CHECK(keys[1].name == "name");
  CHECK(keys[1].nocase);
  CHECK((keys[2].column == 0 && keys[2].name.empty()));
  CHECK(!keys[3].descending);
  CHECK(parse_text_keys("").empty());
  for (const auto& [text, place, why] :
       {std::tuple{"0", "character 1", "from 1"},
        {"1,", "character 3", "from 1"},
        {"99999999999", "character 1", "from 1"},
        {"1,2:u32", "character 5", "u64 i64 f64 time natural decimal human"},
        {"1:u64:desc:asc", "character 12", "one direction"},
        {"1:u64:bytes", "character 7", "one type"},
        {"1:u64:nocase", "character 1", "upper and lower"}}) {
    const std::string message = refusal([&] { parse_text_keys(text); });
    INFO(text << " gives " << message);
    CHECK(holds(message, place));
    CHECK(holds(message, why));
  }
}

TEST_CASE("a header says which column a name is", "[text]") {
  const auto column = [](TextKind kind, const char* header, const char* key) {
    TextFormat format = format_of(kind, key, ';');
    format.header = true;
    return TextEncoding(format, header).columns()[0].column;
  };
  CHECK(column(TextKind::lines, "id;name;at", "id") == 1);
  CHECK(column(TextKind::lines, "id;name;at\n", "at") == 3);
  CHECK(column(TextKind::csv, "\xef\xbb\xbfid;\"the \"\"name\"\"\";at\r\n", "id") == 1);
  CHECK(column(TextKind::csv, "id;\"the \"\"name\"\"\";at\r\n", "the \"name\"") == 2);
  CHECK(column(TextKind::csv, "id;name;at\r\n", "at") == 3);
  CHECK(holds(refusal([&] { column(TextKind::csv, "id;name\n", "nam"); }), "no column \"nam\""));
}

TEST_CASE("formats that contradict themselves are refused", "[text]") {
  const auto refused = [](TextKind kind, const char* keys, std::optional<char> delimiter,
                          char terminator = '\n') {
    TextFormat format = format_of(kind, keys, delimiter);
    format.terminator = terminator;
    return refusal([&] { TextEncoding encoding(format); });
  };
  CHECK(holds(refused(TextKind::lines, "2", {}), "TextFormat::delimiter"));
  CHECK(holds(refused(TextKind::lines, "name", ','), "TextFormat::header"));
  CHECK(holds(refused(TextKind::lines, "1", '\0', '\0'), "another one"));
  CHECK(holds(refused(TextKind::csv, "1", {}, ','), "another one"));
  CHECK(holds(refused(TextKind::csv, "1", '"'), "quote"));
  CHECK(holds(refused(TextKind::csv, "1", {}, '"'), "quote"));
  TextFormat headless = format_of(TextKind::csv, "1");
  headless.first_header = true;
  CHECK(holds(refusal([&] { TextEncoding encoding(headless); }), "give the header"));
  CHECK(holds(refused(TextKind::pairs, "1", {}), "pairs are ordered"));
  CHECK(holds(refused(TextKind::pairs, "", ','), "no columns"));
  CHECK(refused(TextKind::csv, "2:u64:desc", {}).empty());
  CHECK(refused(TextKind::pairs, "key:desc", {}).empty());
}
