#include "util/setting_text.hpp"

#include <array>
#include <optional>
#include <utility>

#include "corank/error.hpp"

namespace corank {
namespace {

// Names in the order of Setting.
constexpr std::array<std::string_view, static_cast<std::size_t>(Setting::backend) + 1> names{
    "Options::record",
    "keys",  // Options::keys or TextFormat::keys
    "TextKind::lines",
    "TextFormat::delimiter",
    "TextFormat::escape",
    "TextFormat::header",
    "TextFormat::header_lines",
    "TextFormat::comment",
    "Schema::header_bytes",
    "Options::drop_header",
    "TextFormat::bad_numbers",
    "TextFormat::ragged",
    "Options::decompress = false",
    "Query::on_equal",
    "Query::overflow",
    "Query::tombstone",
    "Query::where",
    "Query::having",
    "Query::select",
    "Query::from",
    "Query::to",
    "Query::limit",
    "Options::copy_only",
    "Options::overwrite",
    "Options::resume",
    "Options::parts",
    "Options::temporary_folders",
    "Options::temporary_compression",
    "Options::memory_bytes",
    "Options::io",
    "Options::backend",
};
static_assert(!names.back().empty());

constexpr std::size_t marker_bytes = 3;
// Not a character of UTF-8 text after a NUL byte.
constexpr unsigned char first_setting = 0x80;
constexpr char without_value = '\0', with_value = '=';

struct Marker {
  Setting setting;
  bool has_value;
};

// Returns the marker at the start of the text, if there is a valid one.
std::optional<Marker> marker_at(std::string_view text) {
  if (text.size() < marker_bytes || text[0] != '\0') return std::nullopt;
  const std::size_t setting = static_cast<unsigned char>(text[1]) - std::size_t{first_setting};
  if (setting >= names.size() || (text[2] != without_value && text[2] != with_value))
    return std::nullopt;
  return Marker{static_cast<Setting>(setting), text[2] == with_value};
}

std::string marker_of(Setting setting, char end) {
  return {'\0', static_cast<char>(first_setting + static_cast<unsigned char>(setting)), end};
}

// Calls on_text(character) and on_marker(marker) for the parts of a message in order.
template <class OnText, class OnMarker>
void for_each_part(std::string_view marked, OnText on_text, OnMarker on_marker) {
  for (std::size_t at = 0; at < marked.size();) {
    if (const auto marker = marker_at(marked.substr(at))) {
      on_marker(*marker);
      at += marker_bytes;
    } else {
      on_text(marked[at++]);
    }
  }
}

}  // namespace

std::string to_marker(Setting setting) {
  return marker_of(setting, without_value);
}

std::string setting_is(Setting setting, std::string_view value) {
  return marker_of(setting, with_value).append(value);
}

std::string without_nul(std::string_view text) {
  std::string result;
  for (const char c : text)
    if (c == '\0')
      result += "\\0";
    else
      result += c;
  return result;
}

std::string Message::worded(std::string_view (*name)(Setting),
                            std::string_view before_value) const {
  std::string text;
  for_each_part(
      marked_, [&](char c) { text += c; },
      [&](Marker marker) {
        text += name(marker.setting);
        if (marker.has_value) text += before_value;
      });
  return text;
}

std::string Message::text() const {
  return worded([](Setting setting) { return names[static_cast<std::size_t>(setting)]; }, " = ");
}

std::vector<Setting> Message::settings() const {
  std::vector<Setting> found;
  for_each_part(
      marked_, [](char) {}, [&](Marker marker) { found.push_back(marker.setting); });
  return found;
}

OutOfOrder::OutOfOrder(std::filesystem::path file, std::uint64_t record, std::uint64_t byte)
    : OutOfOrder(std::move(file), record, byte,
                 "record " + std::to_string(record) + " (byte " + std::to_string(byte) + ")") {}

OutOfOrder::OutOfOrder(std::filesystem::path file, std::uint64_t record, std::uint64_t byte,
                       const std::string& place, const std::string& details)
    : Error(ErrorCode::out_of_order, file.string() + ": " + place + " is out of order" + details +
                                         "; sort this run by the same keys, or correct " +
                                         to_marker(Setting::keys)),
      file_(std::move(file)),
      record_(record),
      byte_(byte) {}

Corrupted::Corrupted(const std::string& what)
    : Error(ErrorCode::corrupted,
            "wrong bytes were found by the self-verification: " + what +
                "; nothing was replaced and the runs are as they were; try again, and check the "
                "memory and the disks of this machine") {}

Interrupted::Interrupted()
    : Error(ErrorCode::interrupted, Message("interrupted; the output is unchanged")) {}

}  // namespace corank
