// Makes errors and warnings of text in the syntax of fmt, with settings and paths as arguments.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>

#include "corank/error.hpp"
#include "util/setting_text.hpp"

// Makes fmt format a Setting as its marker.
template <>
struct fmt::formatter<corank::Setting> : fmt::formatter<std::string_view> {
  auto format(corank::Setting setting, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(corank::to_marker(setting), context);
  }
};

template <>
struct fmt::formatter<std::filesystem::path> : fmt::formatter<std::string_view> {
  auto format(const std::filesystem::path& path, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(path.native(), context);
  }
};

namespace corank {

template <class... Args>
[[noreturn]] void throw_error(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
[[noreturn]] void throw_error(fmt::format_string<Args...> text, Args&&... args) {
  throw_error(ErrorCode::input, text, std::forward<Args>(args)...);
}

// Passes a warning to `notice`, which is Options::notice.
template <class... Args>
void warn(const std::function<void(const Message&)>& notice, fmt::format_string<Args...> text,
          Args&&... args) {
  if (notice) notice(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace corank
