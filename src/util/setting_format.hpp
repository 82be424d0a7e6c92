// Makes fmt format a Setting as its marker.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "util/setting_text.hpp"

template <>
struct fmt::formatter<corank::Setting> : fmt::formatter<std::string_view> {
  auto format(corank::Setting setting, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(corank::to_marker(setting), context);
  }
};
