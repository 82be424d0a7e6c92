// Fixed-size records: fields at fixed offsets. The rows are the records.
#pragma once

#include <memory>
#include <vector>

#include "format/record_format.hpp"

namespace corank {

// Returns the format of records of `schema`, ordered by `keys`; see Options::keys. Throws Error if
// the schema has no fields or lacks a key.
std::unique_ptr<const RecordFormat> make_fixed_format(const Schema& schema,
                                                      const std::vector<KeyField>& keys);

}  // namespace corank
