// JSON Lines: lines that hold one JSON object each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "corank/text_layout.hpp"

namespace corank {

// Returns whether the program was built with simdjson, so that it reads JSON Lines.
bool reads_json_lines();

// Returns the finder of these fields, which are named as in TextKey; column i + 1 is fields[i].
//
// A column is the text of a string, decoded to UTF-8, or the JSON text of another value. null is
// empty. If a name occurs twice in an object, the first one counts. A line has a defect unless it
// is one JSON object and else blank; numbers may have any size.
//
// Throws Error, which names `option`, if a field is not a JSON pointer but begins as one, or if
// !reads_json_lines().
std::shared_ptr<const ColumnFinder> make_json_finder(const std::vector<std::string>& fields,
                                                     Setting option);

}  // namespace corank
