// How the program names the library's settings to its users.
#pragma once

#include <string_view>

#include "corank/setting.hpp"

namespace corank {

// Returns the flag for a setting, for Message::worded().
std::string_view flag_of(Setting setting);

}  // namespace corank
