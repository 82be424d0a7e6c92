// Values of fields, from text and to it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "corank/record.hpp"
#include "util/option_items.hpp"

namespace corank {

// As the field holds it: a number, or bytes, which may stand in quotes and are filled up by NUL
// bytes. Throws Error, which points into the `whole` text of the option.
std::vector<std::byte> parse_value(std::string_view option, std::string_view whole,
                                   const Item& item, const Field& field);

// The field of the record, in words.
std::string value_text(const Field& field, const std::byte* record);

}  // namespace corank
