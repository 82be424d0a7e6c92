// Tests of all implementations that find the ends of lines and of CSV records.
#include "util/record_ends.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/support.hpp"
#include "support/text_reference.hpp"

using namespace corank;
using namespace corank::test;

namespace {

using Offsets = std::vector<std::uint32_t>;

TEST_CASE("all ways to find ends find them all") {
  Random random(6);
  const auto find_all_ends = [](FindEnds* find, const std::string& text, std::size_t room) {
    Offsets all, ends(min_ends_room + room);
    for (std::size_t at = 0; at < text.size();) {
      std::size_t scanned = 0;
      const std::size_t count =
          find(std::as_bytes(std::span(text)).subspan(at), '\n', ends, scanned);
      for (std::size_t i = 0; i < count; ++i)
        all.push_back(static_cast<std::uint32_t>(at) + ends[i]);
      REQUIRE(scanned != 0);
      at += scanned;
    }
    return all;
  };
  for (int repetition = 0; repetition < 2000; ++repetition) {
    std::string text(below(random, 301), ' ');
    for (char& c : text) c = "\na\x8a"[below(random, 3)];
    Offsets expected;
    for (std::uint32_t at = 0; at < text.size(); ++at)
      if (text[at] == '\n') expected.push_back(at);
    const std::size_t room = below(random, 100);
    for (const EndFinder& find : end_finders())
      REQUIRE(find_all_ends(find.lines, text, room) == expected);
  }
}

// Returns CSV of random columns; of `faults`, one column in that many breaks the rules or is legal
// but rare.
std::string random_csv(Random& random, std::uint64_t faults) {
  const std::vector<std::string> legal{"",        "a",           "abcdefghijklmnop", "\"\"",
                                       "\"a,b\"", "\"\n\"",      "\"\"\"\"",         "\"a\"\"b\"",
                                       "a\rb",    "\"x\r\n,y\"", "\"\"\",\"\"\n\""};
  const std::vector<std::string> odd{"a\"b",   "\"a\" ", "\"a\"\rb", "\"a\"x", "\"a\"\r",
                                     " \"a\"", "\"",     "a\\b",     "\"\\\"", "\"a\"\r\r"};
  std::string text;
  for (std::uint64_t columns = below(random, 150); columns != 0; --columns) {
    const bool is_odd = faults != 0 && below(random, faults) == 0;
    const auto& from = is_odd ? odd : legal;
    text += from[below(random, from.size())];
    text += std::vector<std::string>{",", ",", "\n", "\r\n"}[below(random, 4)];
  }
  return text;
}

// Returns the ends of the records before the first one that has text after a closing quote.
Offsets csv_ends_of(const std::string& text) {
  TextFormat format;
  format.kind = TextKind::csv;
  Offsets ends;
  std::uint32_t end = 0;
  for (const std::string& record : records_of(text, format).first) {
    if (has_stray_text(record, format)) break;
    end += static_cast<std::uint32_t>(record.size());
    ends.push_back(end - 1);
  }
  return ends;
}

Offsets found_ends(FindCsvEnds* find, const std::string& text, char escape, std::size_t room) {
  Offsets ends(min_ends_room + room);
  ends.resize(find({',', '\n', escape}, std::as_bytes(std::span(text)), ends));
  return ends;
}

TEST_CASE("no way to find ends of CSV finds a wrong one") {
  Random random(7);
  for (int repetition = 0; repetition < 5000; ++repetition) {
    const std::string text = random_csv(random, 1 + below(random, 300));
    for (const char escape : {'\0', '\\'}) {
      // The model knows no escapes, and the search stops before them.
      const std::string known = escape != 0 ? text.substr(0, text.find(escape)) : text;
      const Offsets expected = csv_ends_of(known);
      for (const EndFinder& find : end_finders()) {
        const Offsets found = found_ends(find.csv, text, escape, below(random, 200));
        INFO(text);
        REQUIRE(found.size() <= expected.size());
        REQUIRE(std::equal(found.begin(), found.end(), expected.begin()));
      }
    }
  }
}

TEST_CASE("the ends of CSV without faults are found block by block") {
  if (end_finders().size() == 1) return;  // the portable one stops at quotes
  Random random(8);
  for (int repetition = 0; repetition < 1000; ++repetition) {
    const std::string text = random_csv(random, 0);
    Offsets expected = csv_ends_of(text);
    std::erase_if(expected, [&](std::uint32_t end) { return end >= text.size() / 64 * 64; });
    REQUIRE(found_ends(end_finders().front().csv, text, '\\', text.size()) == expected);
  }
}

}  // namespace
