#include <algorithm>

#include "buffer.hpp"
#include "catch.hpp"
#include "mapping.hpp"
#include "support.hpp"

using namespace corank;
using namespace corank::test;

TEST_CASE("what a mapped file loses reads as zeros and is told") {
  const TemporaryFolder folder;
  Bytes bytes(1 << 20, std::byte{7});
  write_file(folder / "short", bytes);
  write_file(folder / "whole", bytes);
  MappedFiles files(2 * MappedFiles::room(bytes.size()));
  const std::byte* short_file =
      files.add(open_to_read(folder / "short"), bytes.size(), folder / "short");
  const std::byte* whole_file =
      files.add(open_to_read(folder / "whole"), bytes.size(), folder / "whole");
  CHECK(std::ranges::equal(std::span(short_file, bytes.size()), bytes));

  std::filesystem::resize_file(folder / "short", 100'000);
  const std::size_t lost = 500'000;
  CHECK(files.failed_at() == nullptr);
  CHECK(short_file[lost] == std::byte{0});
  CHECK(files.failed_at() == short_file + lost);
  CHECK(short_file[lost + 100'000] == std::byte{0});
  CHECK(files.failed_at() == short_file + lost);
  CHECK(short_file[99'999] == std::byte{7});
  CHECK(std::ranges::equal(std::span(whole_file, bytes.size()), bytes));

  // Nor does bringing it into memory stop anything.
  populate({short_file, bytes.size()});
  forget({whole_file, bytes.size()});
  CHECK(std::ranges::equal(std::span(whole_file, bytes.size()), bytes));
}

TEST_CASE("files of equal length are an odd number of pages apart") {
  const TemporaryFolder folder;
  for (const std::uint64_t bytes : {std::uint64_t{1} << 20, (std::uint64_t{1} << 20) + 1}) {
    write_file(folder / "file", Bytes(bytes));
    MappedFiles files(2 * MappedFiles::room(bytes));
    const std::byte* const first = files.add(open_to_read(folder / "file"), bytes, folder / "file");
    const std::byte* const second =
        files.add(open_to_read(folder / "file"), bytes, folder / "file");
    const auto apart = static_cast<std::uint64_t>(second - first);
    CHECK(apart >= bytes);
    CHECK(apart % page_bytes() == 0);
    CHECK(apart / page_bytes() % 2 == 1);
  }
}

TEST_CASE("areas of mapped files are told apart") {
  const TemporaryFolder folder;
  write_file(folder / "a", Bytes(10'000, std::byte{1}));
  write_file(folder / "b", Bytes(10'000, std::byte{2}));
  MappedFiles a(MappedFiles::room(10'000)), b(MappedFiles::room(10'000));
  a.add(open_to_read(folder / "a"), 10'000, folder / "a");
  const std::byte* of_b = b.add(open_to_read(folder / "b"), 10'000, folder / "b");
  std::filesystem::resize_file(folder / "b", 0);
  CHECK(of_b[5000] == std::byte{0});
  CHECK(b.failed_at() == of_b + 5000);
  CHECK(a.failed_at() == nullptr);
}

TEST_CASE("pages that were just written are cached") {
  const TemporaryFolder folder;
  write_file(folder / "file", Bytes(10'000));
  CHECK(is_cached(open_to_read(folder / "file"), 9'999));
}
