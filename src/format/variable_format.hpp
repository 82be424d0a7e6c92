// Records of variable length: lines, CSV, pairs and JSON Lines. Rows are prefix references.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "format/record_format.hpp"

namespace corank {

// Returns the format; `columns_line` is as in make_format().
std::unique_ptr<const RecordFormat> make_variable_format(const TextFormat& format,
                                                         std::string_view columns_line);

// Returns the columns of the rows that groups of equal keys are resolved to, given those of a
// record or of a line of names: count() adds one.
std::string resolved_columns(const TextHeader& header, std::string_view columns,
                             const Query& query);

}  // namespace corank
