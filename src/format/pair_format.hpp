// Key-value pairs: two lengths, the key, the value.
#pragma once

#include <memory>

#include "format/record_format.hpp"

namespace corank {

std::unique_ptr<const RecordFormat> make_pair_format(const TextFormat& format);

}  // namespace corank
