#include "util/digest.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace corank {

std::uint64_t digest(std::string_view text) {
  return text.empty() ? 0 : XXH64(text.data(), text.size(), 0);
}

}  // namespace corank
