// Lines and CSV: records that a terminator ends and delimiters divide into columns.
#pragma once

#include <memory>
#include <string_view>

#include "format/record_format.hpp"

namespace corank {

// Returns the format of lines or CSV; `columns_line` is as in make_format().
std::unique_ptr<const RecordFormat> make_delimited_format(const TextFormat& format,
                                                          std::string_view columns_line);

}  // namespace corank
