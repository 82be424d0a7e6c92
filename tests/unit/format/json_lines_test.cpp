// Finding, decoding and checking the fields of JSON Lines, which nlohmann-json checks in turn.
#include "format/json_lines.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "corank/text_field.hpp"
#include "format/framing.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

std::string text_of_field(const detail::TextField& field) {
  std::string text;
  unsigned byte;
  for (detail::FieldBytes bytes(field); bytes.next(byte);) text += static_cast<char>(byte);
  return text;
}

// Returns the decoded value of a field; "(none)" if there is none.
std::string value_of(const std::string& object, const std::string& field) {
  const auto finder = make_json_finder({field}, Setting::keys);
  const std::string line = object + '\n';
  const detail::TextField found = finder->find(span_of(line), 1);
  return found.there ? text_of_field(found) : "(none)";
}

std::string defect_of(const std::string& object) {
  const auto finder = make_json_finder({"a"}, Setting::keys);
  const std::string line = object + '\n';
  return finder->defect(span_of(line));
}

std::string refusal(const std::string& field) {
  try {
    make_json_finder({field}, Setting::keys);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("JSON Lines need simdjson", "[json]") {
  if (!reads_json_lines()) CHECK_THAT(refusal("a"), ContainsSubstring("simdjson"));
}

TEST_CASE("fields of JSON objects are found and decoded", "[json]") {
  if (!reads_json_lines()) return;
  CHECK(value_of(R"({"a":1,"b":"x"})", "a") == "1");
  CHECK(value_of(R"( { "a" : 1 , "b" : "x" } )", "b") == "x");
  CHECK(value_of(R"({"b":{"a":2},"a":-1.5e3 })", "a") == "-1.5e3");
  CHECK(value_of(R"({"a":true,"a":false})", "a") == "true");
  CHECK(value_of(R"({"a":null})", "a").empty());
  CHECK(value_of(R"({"a":""})", "a").empty());
  CHECK(value_of(R"({"b":1})", "a") == "(none)");
  CHECK(value_of("{}", "a") == "(none)");
  CHECK(value_of(R"({"a":{"b" : [1, "]"]} ,"c":0})", "a") == R"({"b" : [1, "]"]})");
  CHECK(value_of(R"({"b":"\"a\":1","c":"\\","a":2})", "a") == "2");
  CHECK(value_of(R"({"\u0061":3})", "a") == "3");
  CHECK(value_of(R"({"a/b":4,"a":{"b":5}})", "a/b") == "4");
  CHECK(value_of(R"({"a/b":4,"a":{"b":5}})", "/a/b") == "5");
  CHECK(value_of(R"({"a/b":{"~":6}})", "/a~1b/~0") == "6");
  CHECK(value_of(R"({"":{"":7}})", "//") == "7");
  CHECK(value_of(R"({"a":[1, [2, "x"] ,3]})", "/a/1/1") == "x");
  CHECK(value_of(R"({"a":{"0":"x"}})", "/a/0") == "x");
  for (const char* const path :
       {"/a/3", "/a/-", "/a/00", "/a/x", "/a/0/0", "/a/99999999999999999999"})
    CHECK(value_of(R"({"a":[1,2,3],"b":1})", path) == "(none)");
  CHECK(value_of(R"({"a":[]})", "/a/0") == "(none)");
  CHECK(value_of(R"({"a":"\b\f\n\r\t\"\\\/"})", "a") == "\b\f\n\r\t\"\\/");
  CHECK(value_of(R"({"a":"\u0041\u00e9\u20AC\ud834\udd1e|"})", "a") == "A\xc3\xa9€𝄞|");
  CHECK((value_of(R"({"a":"\u0000x"})", "a") == std::string("\0x", 2)));
}

TEST_CASE("fields after strings of any length, with an escape anywhere, are found", "[json]") {
  if (!reads_json_lines()) return;
  for (std::size_t length = 0; length < 24; ++length)
    for (std::size_t at = 0; at <= length; ++at)
      for (const char* const escaped : {"", "\"", "\\", "\"\\", "\\\"", "\xc2\xa2\xdc\xa3"}) {
        const std::string text = std::string(length, 'x').insert(at, escaped);
        const nlohmann::ordered_json object = {
            {text, 1}, {"b", {text, {{"c", text}}}}, {"a", text}};
        for (const int indent : {-1, 0}) {
          std::string line = object.dump(indent);
          std::ranges::replace(line, '\n', ' ');
          REQUIRE(value_of(line, "a") == text);
          REQUIRE(value_of(line, "/b/1/c") == text);
          REQUIRE(value_of(line, text) == "1");
        }
      }
}

TEST_CASE("a search in text that is cut stays within it", "[json]") {
  if (!reads_json_lines()) return;
  const std::string object = R"({"b\"" : [1.5, {"c":null}, "x\\"], "d":true, "a":"\u00e9"})";
  for (std::size_t size = 1; size < object.size(); ++size)
    for (const char* const field : {"a", "d", "/b\"/1/c", "/b\"/2"}) {
      const std::string value = value_of(object.substr(0, size), field);
      CHECK((value == "(none)" || value.size() <= size));
    }
  CHECK(value_of(object, "/b\"/2") == "x\\");
}

TEST_CASE("JSON pointers are checked", "[json]") {
  if (!reads_json_lines()) return;
  for (const char* const wrong : {"/a~", "/a~2", "/~/b"})
    CHECK_THAT(refusal(wrong), ContainsSubstring("~0"));
  CHECK(refusal("a~").empty());
  TextFormat format;
  format.kind = TextKind::json_lines;
  format.keys = parse_text_keys("a,a:desc,/b/c");
  const TextEncoding encoding(format);
  CHECK(encoding.columns()[1].column == 1);
  CHECK(encoding.columns()[2].column == 2);
}

TEST_CASE("a line of JSON Lines is one object", "[json]") {
  if (!reads_json_lines()) return;
  for (const char* const object :
       {"{}", " {\"a\":1} \r", R"({"a":123456789012345678901234567890, "b":[-1e999,0.1E+4]})",
        R"({"x":"9e999999 \" 1e999","a":-123456789012345678901234567890.5})",
        R"({"a":"\ud834\udd1e"})"})
    CHECK(defect_of(object).empty());
  for (const char* const wrong : {"",
                                  " ",
                                  "{",
                                  "{}}",
                                  "{} {}",
                                  "{\"a\":01}",
                                  "{\"a\":1e}",
                                  "{\"a\":-}",
                                  "{\"a\":1.}",
                                  "{\"a\":1 2}",
                                  "{'a':1}",
                                  "{\"a\":\"\x01\"}",
                                  "{\"a\":\"\\ud800\"}",
                                  "{\"a\":\"\\x\"}",
                                  "{\"a\":\"\xff\"}",
                                  "{\"a\":nul}",
                                  "{\"a\":1,}",
                                  "{\"a\":[1,]}",
                                  "{a:1}",
                                  "\xef\xbb\xbf{}",
                                  "{\"a\":123456789012345678901234567890,}",
                                  "{\"a\":1e999x}"}) {
    INFO(wrong);
    CHECK_THAT(defect_of(wrong), ContainsSubstring("not valid JSON"));
  }
  for (const char* const other : {"1", "[{}]", "\"a\"", "null"})
    CHECK_THAT(defect_of(other), ContainsSubstring("not an object"));
}

TEST_CASE("any text is accepted as JSON exactly if another parser does", "[json]") {
  if (!reads_json_lines()) return;
  Random random(7);
  const std::string start = R"({"a":[1,-2.5e1,"x\n\u20ac"],"b":{"c":null,"d":true},"e":"€"})";
  const std::string letters = R"({}[]":,\u0e-+. tn1€)";
  const auto finder = make_json_finder({"a", "/b/c", "/a/2", "e"}, Setting::keys);
  for (int round = 0; round < 20'000; ++round) {
    std::string text = start;
    for (std::uint64_t changes = below(random, 4); changes > 0; --changes) {
      const std::size_t at = below(random, text.size());
      if (below(random, 2) == 0)
        text.erase(at, 1 + below(random, 3));
      else
        text.insert(at, 1, letters[below(random, letters.size())]);
    }
    INFO(text);
    const auto parsed = nlohmann::json::parse(text, nullptr, false);
    const std::string line = text + '\n';
    CHECK(finder->defect(span_of(line)).empty() == parsed.is_object());
    for (std::uint32_t column = 1; column <= 4; ++column) {
      const detail::TextField found = finder->find(span_of(line), column);  // stays in the line
      CHECK(found.at >= span_of(line).data());
      CHECK(found.at + found.bytes <= span_of(line).data() + line.size());
    }
    if (!parsed.is_object() || !parsed.contains("e") || !parsed["e"].is_string()) continue;
    if (text.find("\"e\"") != text.rfind("\"e\"")) continue;
    CHECK(text_of_field(finder->find(span_of(line), 4)) == parsed["e"].get<std::string>());
  }
}

TEST_CASE("a bound of JSON Lines is an object with its values", "[json]") {
  if (!reads_json_lines()) return;
  const auto finder = make_json_finder({"/b/c", "a", "/b/d/0"}, Setting::from);
  const std::string values[] = {"x\n\"\\", "€", ""};
  const std::string* const wanted[] = {&values[0], &values[1], &values[2]};
  const std::string line = finder->line_with(wanted, Setting::from);
  CHECK(nlohmann::json::parse(line) ==
        nlohmann::json{{"a", "€"}, {"b", {{"c", "x\n\"\\"}, {"d", {{"0", ""}}}}}});
  const std::string no_text = "\xff";
  const std::string* const wrong[] = {&no_text, &values[1], &values[2]};
  CHECK_THROWS_WITH(finder->line_with(wrong, Setting::from), ContainsSubstring("UTF-8"));
  const auto nested = make_json_finder({"/a/b", "a"}, Setting::from);
  CHECK_THROWS_WITH(nested->line_with(std::span(wanted).first(2), Setting::from),
                    ContainsSubstring("holds another"));
}
