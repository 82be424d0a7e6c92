// Sidecar file: describes the partial output beside it, so that a later merge can resume it.
//
// It is one line of text that ends with its own digest, so that damage is detected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace corank {

struct Sidecar {
  std::uint64_t content = 0;        // digest of the inputs and options of the whole output
  std::uint64_t inode = 0;          // of the partial output
  std::uint64_t boot = 0;           // this_boot() of the process that wrote it
  std::uint64_t durable_bytes = 0;  // of the output that survive a power loss

  bool operator==(const Sidecar&) const = default;
};

// Formats a sidecar as one line, short enough for a disk to write whole or not at all.
std::string sidecar_text(const Sidecar& sidecar);

// Parses a sidecar; returns nothing unless `text` is exactly what sidecar_text() writes.
std::optional<Sidecar> parse_sidecar(std::string_view text);

// Returns a number that identifies this start of the operating system; 0 if unknown.
std::uint64_t this_boot();

}  // namespace corank
