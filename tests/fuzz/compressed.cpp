// Fuzzes decompression and compression. Decompressing any input must yield bytes or an Error that
// names the file, within a memory limit. Compressing any bytes and decompressing them must restore
// them.

#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "codec/codec.hpp"
#include "codec/decompressor.hpp"
#include "fuzz/target.hpp"
#include "io/byte_source.hpp"

using namespace corank;

namespace {

// Limit on the decompressed bytes: a few input bytes can expand without end.
constexpr std::size_t max_bytes = std::size_t{8} << 20;

struct Content {
  std::vector<std::byte> bytes;
  bool whole = false;
};

Content read(std::span<const std::byte> file_bytes, std::size_t step) {
  const std::filesystem::path path = "fuzzed";
  const auto file =
      std::make_shared<const FileDescriptor>(open_nameless(std::filesystem::temp_directory_path()));
  write_all(*file, file_bytes, path);
  Content content;
  std::vector<std::byte> part(step);
  try {
    const auto source = open_source(path, file, verify_input(path, *file, true), true, {});
    while (content.bytes.size() < max_bytes) {
      const std::size_t got = read_all(*source, part);
      content.bytes.insert(content.bytes.end(), part.begin(),
                           part.begin() + static_cast<std::ptrdiff_t>(got));
      content.whole = got < part.size();
      if (content.whole) break;
    }
  } catch (const Error& error) {
    require(std::strncmp(error.what(), "fuzzed: ", 8) == 0);
  }
  return content;
}

}  // namespace

void corank::fuzz(std::span<const std::uint8_t> input) {
  if (input.empty()) return;
  const auto bytes = std::as_bytes(input.subspan(1));
  const std::size_t step = std::size_t{1} << input[0] % 18;

  const Content content = read(bytes, step);
  const Content again = read(bytes, 4096);
  require(content.whole == again.whole);
  require(!content.whole || content.bytes == again.bytes);
  if (content.whole && recognise(bytes) == Codec::none)
    require(content.bytes == std::vector(bytes.begin(), bytes.end()));

  constexpr Codec codecs[] = {Codec::gzip, Codec::zstd, Codec::bzip2, Codec::lz4};
  const auto encoder = make_encoder({codecs[input[0] / 18 % 4], 1});
  std::vector<std::byte> frame(encoder.bound(bytes.size()));
  frame.resize(encoder.encode(bytes, frame));
  const Content back = read(frame, step);
  require(back.whole && back.bytes == std::vector(bytes.begin(), bytes.end()));
}
