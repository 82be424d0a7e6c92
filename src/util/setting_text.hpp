// Markers by which the text of a Message refers to settings.
//
// A marker is a NUL byte, a byte for the setting, and a byte that says whether a value follows. No
// file name holds a NUL byte; text from records may, and passes through without_nul() first.
#pragma once

#include <string>
#include <string_view>

#include "corank/setting.hpp"

namespace corank {

// Returns the marker that a message shows as the setting's name.
std::string to_marker(Setting setting);

// Returns text that a message shows as the setting's name and value.
std::string setting_is(Setting setting, std::string_view value);

// Returns the text with its NUL bytes written as \0.
std::string without_nul(std::string_view text);

}  // namespace corank
