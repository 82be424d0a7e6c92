// Converts values of fields in fixed-size records from text and to text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "corank/record.hpp"
#include "util/option_items.hpp"

namespace corank {

// Parses `item` into the bytes of `field` as records store them. Values of bytesN may be quoted;
// shorter ones are padded with NUL bytes. Throws Error, which marks the item in `whole`, the text
// of `option`.
std::vector<std::byte> parse_value(Setting option, std::string_view whole, const Item& item,
                                   const Field& field);

// Returns the value of the field in `record` as text.
std::string value_text(const Field& field, const std::byte* record);

}  // namespace corank
