// Tests of mapped files: truncation, placement and residency.
#include "io/mapped_file.hpp"

#include <signal.h>

#include <algorithm>
#include <array>
#include <deque>
#include <span>
#include <vector>

#include "support/catch.hpp"
#include "support/support.hpp"
#include "util/buffer_pool.hpp"

using namespace corank;
using namespace corank::test;

namespace {

constexpr std::uint64_t huge_page = std::uint64_t{2} << 20;

// Returns true if the page is mapped.
bool is_present(const std::byte* at) {
  const std::filesystem::path pages = "/proc/self/pagemap";
  std::array<std::uint64_t, 1> page{};
  read_at(open_to_read(pages), std::as_writable_bytes(std::span(page)),
          reinterpret_cast<std::uintptr_t>(at) / page_bytes() * sizeof page, pages);
  return page[0] >> 63 != 0;
}

}  // namespace

TEST_CASE("what a mapped file loses reads as zeros and is told") {
  const TemporaryFolder folder;
  Bytes bytes(1 << 20, std::byte{7});
  write_file(folder / "short", bytes);
  write_file(folder / "whole", bytes);
  MappedFiles files(std::vector<std::uint64_t>(2, bytes.size()), 0);
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

  // Neither populating nor releasing the pages fails on a truncated file.
  populate({short_file, bytes.size()});
  const std::span whole(whole_file, bytes.size());
  forget(whole, {whole, page_bytes()});
  CHECK(std::ranges::equal(std::span(whole_file, bytes.size()), bytes));
}

TEST_CASE("files of equal length are an odd number of pages apart") {
  const TemporaryFolder folder;
  for (const std::uint64_t bytes : {std::uint64_t{1} << 20, (std::uint64_t{1} << 20) + 1}) {
    write_file(folder / "file", Bytes(bytes));
    MappedFiles files(std::vector<std::uint64_t>(2, bytes), 0);
    const std::byte* const first = files.add(open_to_read(folder / "file"), bytes, folder / "file");
    const std::byte* const second =
        files.add(open_to_read(folder / "file"), bytes, folder / "file");
    const auto apart = static_cast<std::uint64_t>(second - first);
    CHECK(apart >= bytes);
    CHECK(apart % page_bytes() == 0);
    CHECK(apart / page_bytes() % 2 == 1);
  }
}

TEST_CASE("a few large files begin where huge pages do") {
  constexpr std::uint64_t bytes = (std::uint64_t{4} << 20) + 1;
  const TemporaryFolder folder;
  write_file(folder / "file", Bytes(bytes));
  const auto is_aligned = [](const std::byte* at) {
    return reinterpret_cast<std::uintptr_t>(at) % huge_page == 0;
  };
  const auto count_aligned = [&](std::size_t files, std::uint64_t resident_bytes) {
    MappedFiles area(std::vector<std::uint64_t>(files, bytes), resident_bytes);
    const std::byte* end = nullptr;
    std::size_t aligned = 0;
    for (std::size_t i = 0; i < files; ++i) {
      const std::byte* const at = area.add(open_to_read(folder / "file"), bytes, folder / "file");
      CHECK(at >= end);
      CHECK(at[bytes - 1] == std::byte{0});
      aligned += is_aligned(at);
      end = at + bytes;
    }
    return aligned;
  };
  CHECK(count_aligned(2, 4 * huge_page) == 2);
  CHECK(count_aligned(2, 4 * huge_page - 1) < 2);
  CHECK(count_aligned(65, 1000 * huge_page) < 65);
}

TEST_CASE("mapped bytes leave in huge pages, and the last with the rest") {
  constexpr std::uint64_t bytes = 5 * huge_page / 2;
  const TemporaryFolder folder;
  write_file(folder / "file", Bytes(bytes));
  MappedFiles files(std::vector<std::uint64_t>{bytes}, 2 * huge_page);
  const std::span all(files.add(open_to_read(folder / "file"), bytes, folder / "file"), bytes);
  const std::uint64_t middle = huge_page + huge_page / 2;
  const MappedRange part{all, files.page_bytes(bytes)};
  populate(all);
  CHECK(is_present(all.data()));
  forget(all.first(huge_page / 2), part);
  CHECK(is_present(all.data()));
  forget(all.first(middle), part);
  CHECK_FALSE(is_present(all.data()));
  CHECK_FALSE(is_present(all.data() + huge_page - 1));
  CHECK(is_present(all.data() + huge_page));
  forget(all.subspan(middle), part);
  CHECK_FALSE(is_present(all.data() + huge_page));
  CHECK_FALSE(is_present(all.data() + bytes - 1));
}

TEST_CASE("areas of mapped files are told apart") {
  const TemporaryFolder folder;
  write_file(folder / "a", Bytes(10'000, std::byte{1}));
  write_file(folder / "b", Bytes(10'000, std::byte{2}));
  const std::vector<std::uint64_t> sizes{10'000};
  MappedFiles a(sizes, 0), b(sizes, 0);
  a.add(open_to_read(folder / "a"), 10'000, folder / "a");
  const std::byte* of_b = b.add(open_to_read(folder / "b"), 10'000, folder / "b");
  std::filesystem::resize_file(folder / "b", 0);
  CHECK(of_b[5000] == std::byte{0});
  CHECK(b.failed_at() == of_b + 5000);
  CHECK(a.failed_at() == nullptr);
}

TEST_CASE("any number of areas can be mapped, and each tells its own failure") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "file";
  const std::uint64_t bytes = 2 * page_bytes();
  write_file(file, Bytes(bytes, std::byte{7}));
  std::deque<MappedFiles> areas;
  std::vector<const std::byte*> starts;
  while (areas.size() < 1000) {
    areas.emplace_back(std::span(&bytes, 1), 0);
    starts.push_back(areas.back().add(open_to_read(file), bytes, file));
  }
  std::filesystem::resize_file(file, page_bytes());
  for (std::size_t i = 0; i < areas.size(); i += 333) {
    const std::byte* const lost = starts[i] + page_bytes();
    CHECK(areas[i].failed_at() == nullptr);
    CHECK(*lost == std::byte{0});
    CHECK(areas[i].failed_at() == lost);
  }
  CHECK(areas[1].failed_at() == nullptr);
}

TEST_CASE("pages that were just written are cached") {
  const TemporaryFolder folder;
  write_file(folder / "file", Bytes(10'000));
  CHECK(is_cached(open_to_read(folder / "file"), 9'999));
}

TEST_CASE("the handler of bus errors is there only while files are mapped") {
  const auto handler = [] {
    struct sigaction action {};
    ::sigaction(SIGBUS, nullptr, &action);
    return action.sa_sigaction;
  };
  const auto before = handler();
  {
    const MappedFiles first({}, 1 << 20);
    const auto ours = handler();
    CHECK(ours != before);
    { const MappedFiles second({}, 1 << 20); }
    CHECK(handler() == ours);
  }
  CHECK(handler() == before);
}
