// Fuzzes the reading of JSON Lines. The input is the name of a field, a newline, and lines. A line
// must be a JSON object exactly if nlohmann-json reads it as one, and a field must be in its line.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "corank/text_field.hpp"
#include "format/json_lines.hpp"
#include "fuzz/target.hpp"

using namespace corank;

namespace {

// Returns whether the parsers may disagree: nlohmann-json skips byte order marks, ends at a NUL and
// refuses large exponents; simdjson refuses deep nesting.
bool is_special(const std::string& text) {
  return text.starts_with("\xef\xbb\xbf") || text.find('\0') != text.npos ||
         text.find_first_of("eE") != text.npos || text.size() > 300;
}

void check_line(const ColumnFinder& finder, const std::string& text) {
  std::vector<std::byte> line(text.size() + 1, std::byte{'\n'});  // AddressSanitizer sees its ends
  std::ranges::copy(std::as_bytes(std::span(text)), line.begin());
  const bool is_object = finder.defect(line).empty();
  if (!is_special(text))
    require(is_object == nlohmann::json::parse(text, nullptr, false).is_object());
  const detail::TextField field = finder.find(line, 1);
  require(field.at >= line.data() && field.at + field.bytes < line.data() + line.size());
  std::uint64_t decoded_bytes = 0;
  unsigned byte = 0;
  for (detail::FieldBytes bytes(field); bytes.next(byte);) require(byte < 256 && ++decoded_bytes);
  require(!is_object || decoded_bytes <= field.bytes);
}

}  // namespace

void corank::fuzz(std::span<const std::uint8_t> input) {
  if (!reads_json_lines()) return;
  const std::string text(input.begin(), input.end());
  const std::size_t end = std::min(text.find('\n'), text.size());
  if (end == 0) return;
  std::shared_ptr<const ColumnFinder> finder;
  try {
    finder = make_json_finder({text.substr(0, end)}, Setting::keys);
  } catch (const Error&) {
    return;
  }
  for (std::size_t at = end + 1; at < text.size();) {
    const std::size_t next = std::min(text.find('\n', at), text.size());
    check_line(*finder, text.substr(at, next - at));
    at = next + 1;
  }
}
