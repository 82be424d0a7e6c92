// What stands beside an unfinished output, so that a later merge can go on with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace corank {

struct Sidecar {
  std::uint64_t content = 0;        // digest of what the file is to hold, when it is whole
  std::uint64_t inode = 0;          // of the file that it speaks of
  std::uint64_t boot = 0;           // of the system's start that wrote it; 0 where that is unknown
  std::uint64_t durable_bytes = 0;  // of the file: they survive a loss of power

  bool operator==(const Sidecar&) const = default;
};

// One line, short enough that a disk writes all of it or nothing.
std::string sidecar_text(const Sidecar& sidecar);

// None unless `text` is what sidecar_text() makes, to the byte.
std::optional<Sidecar> parse_sidecar(std::string_view text);

// Tells one start of the operating system from another; 0 where it does not say.
std::uint64_t this_boot();

}  // namespace corank
