// Compression formats of files.
#pragma once

#include <string_view>

namespace corank {

enum class Codec { none, gzip, zstd, bzip2, xz, lz4 };

struct Compression {
  Codec codec = Codec::none;
  int level = 0;  // 0: the default of the codec's own program

  // Parses "CODEC" or "CODEC:LEVEL", such as "gzip" or "zstd:7"; the codec may be "none". Throws
  // Error if the codec or the level does not exist.
  static Compression parse(std::string_view text);
  // Returns the codec for a file name's suffix: .gz .zst .bz2 .xz .lz4; none for any other.
  static Codec by_name(std::string_view name);
};

}  // namespace corank
