// Opens and drains input sources in tests.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "io/byte_source.hpp"
#include "support/support.hpp"

namespace corank::test {

struct SourceSettings {
  bool keep_open = true;
  bool decompress = true;
  std::stop_token stop = {};
};

inline InputStatus look_at(const std::filesystem::path& path, bool decompress = true) {
  return verify_input(path, open_input(path), decompress);
}

inline std::unique_ptr<ByteSource> open(const std::filesystem::path& path,
                                        const SourceSettings& settings = {}) {
  auto file = std::make_shared<const FileDescriptor>(open_input(path));
  const InputStatus status = verify_input(path, *file, settings.decompress);
  return open_source(path, settings.keep_open ? std::move(file) : nullptr, status,
                     settings.decompress, settings.stop);
}

// Reads the rest of the source in steps of several sizes.
inline Bytes drain(ByteSource& source) {
  Bytes all;
  for (const std::size_t step : {1, 3, 4096, 100'000})
    for (Bytes part(step);;) {
      const std::size_t got = read_all(source, part);
      all.insert(all.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(got));
      if (got < step) return all;
      if (step < 4096) break;
    }
  return all;
}

}  // namespace corank::test
