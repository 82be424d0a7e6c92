// Tests of giving back the space of a file while it is read.
#include "io/hole_puncher.hpp"

#include <sys/stat.h>

#include <algorithm>

#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

TEST_CASE("holes take the read part of a file, and nothing else", "[files]") {
  const TemporaryFolder folder;
  if (!has_holes(folder.path())) return;  // the file system has none
  constexpr std::uint64_t piece_bytes = 1 << 20, bytes = 8 * piece_bytes;
  constexpr std::uint64_t begin = 5000, end = begin + 2 * piece_bytes + 3000;
  const Bytes content(bytes, std::byte{7});
  const auto file = std::make_shared<const FileDescriptor>(open_nameless(folder.path()));
  write_all(*file, content, folder.path());
  const auto blocks = [&] {
    struct stat status {};
    REQUIRE(::fstat(file->get(), &status) == 0);
    CHECK(static_cast<std::uint64_t>(status.st_size) == bytes);
    return status.st_blocks;
  };
  const auto before = blocks();
  {
    HolePuncher puncher(file, begin, bytes);
    puncher.punch_before(begin + piece_bytes / 2);
    puncher.punch_before(end);
    puncher.punch_before(end + piece_bytes / 2);
  }
  CHECK(blocks() < before);
  Bytes left(bytes);
  CHECK(read_at(*file, left, 0, folder.path()) == bytes);
  // The pages that the ends of the hole share with other bytes stay.
  const auto is_kept = [](std::byte byte) { return byte == std::byte{7}; };
  CHECK(std::all_of(left.begin(), left.begin() + 8192, is_kept));
  CHECK(std::none_of(left.begin() + 8192, left.begin() + end - end % 4096, is_kept));
  CHECK(std::all_of(left.begin() + end - end % 4096, left.end(), is_kept));
}
