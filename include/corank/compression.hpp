// In which format files are compressed.
#pragma once

#include <string_view>

namespace corank {

enum class Codec { none, gzip, zstd, bzip2, xz, lz4 };

struct Compression {
  Codec codec = Codec::none;
  int level = 0;  // 0: what the codec's own program takes

  // "zstd:7", "gzip", "none". Throws Error for a codec or a level that there is not.
  static Compression parse(std::string_view text);
  // By the end of a file's name: .gz .zst .bz2 .xz .lz4; none for every other.
  static Codec by_name(std::string_view name);
};

}  // namespace corank
