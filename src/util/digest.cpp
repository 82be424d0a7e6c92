#include "util/digest.hpp"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace corank {

std::uint64_t digest(std::string_view text) {
  return text.empty() ? 0 : XXH64(text.data(), text.size(), 0);
}

std::string shortened(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  const std::string end = fmt::format("~{:016x}", digest(text));
  return std::string(text.substr(0, max_bytes - end.size())) + end;
}

}  // namespace corank
