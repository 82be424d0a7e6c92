#include "io/mapped_file.hpp"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "corank/error.hpp"
#include "util/buffer_pool.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"

namespace corank {

struct MappedArea {
  std::atomic<bool> taken = true;
  std::atomic<std::uintptr_t> begin = 0;
  std::atomic<std::uintptr_t> end = 0;
  std::atomic<std::uintptr_t> failed_at = 0;
  MappedArea* next = nullptr;
};

namespace {

// A list that only grows, because a signal handler must not lock. Areas are used again.
std::atomic<MappedArea*> areas = nullptr;

MappedArea& take_area() {
  for (MappedArea* area = areas; area; area = area->next)
    if (!area->taken.exchange(true)) return *area;
  auto* const area = new MappedArea;
  area->next = areas;
  while (!areas.compare_exchange_weak(area->next, area)) continue;
  return *area;
}

// Files are aligned to huge pages, which map faster if the page cache has them. But then all files
// share sets of the L1 cache and the TLB, so only this many files are aligned. Tuned by merges of
// cached files; see docs/tuning.md.
constexpr std::uint64_t huge_page_bytes = 2 * MiB;
constexpr std::uint64_t max_huge_paged_files = 64;

struct sigaction previous_action;

void read_as_zeros(int number, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (MappedArea* area = areas; area; area = area->next) {
    if (address < area->begin || address >= area->end) continue;
    std::uintptr_t none = 0;
    area->failed_at.compare_exchange_strong(none, address);
    const int error = errno;
    const std::size_t page = page_bytes();
    void* const at = reinterpret_cast<void*>(address - address % page);
    const bool mended =
        ::mmap(at, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
    errno = error;
    if (mended) return;
  }
  if (previous_action.sa_flags & SA_SIGINFO)
    previous_action.sa_sigaction(number, info, context);
  else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN)
    previous_action.sa_handler(number);
  else
    ::signal(number, SIG_DFL);  // the instruction runs again and ends the process
}

// Guards the handler: users of it, and whether it is installed.
std::mutex handler_mutex;
unsigned num_handler_users = 0;
bool is_handler_installed = false;

// Returns the whole pages that hold `bytes`.
std::span<std::byte> pages_around(std::span<const std::byte> bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t first = begin - begin % page_bytes();
  return {reinterpret_cast<std::byte*>(first),
          round_up(begin + bytes.size(), page_bytes()) - first};
}

}  // namespace

BusErrorHandling::BusErrorHandling() {
  page_bytes();  // initialised before the handler needs it
  const std::lock_guard lock(handler_mutex);
  if (num_handler_users++ != 0 || is_handler_installed) return;
  struct sigaction action {};
  action.sa_sigaction = read_as_zeros;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, &previous_action);
  is_handler_installed = true;
}

BusErrorHandling::~BusErrorHandling() {
  const std::lock_guard lock(handler_mutex);
  if (--num_handler_users != 0) return;
  // A handler that was installed later may call this one, which then stays.
  struct sigaction current {};
  ::sigaction(SIGBUS, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) == 0 || current.sa_sigaction != read_as_zeros) return;
  ::sigaction(SIGBUS, &previous_action, nullptr);
  is_handler_installed = false;
}

std::uint64_t MappedFiles::page_bytes(std::uint64_t bytes) const {
  return may_be_huge_ && bytes >= huge_page_bytes ? huge_page_bytes : corank::page_bytes();
}

std::uint64_t MappedFiles::room(std::uint64_t bytes) const {
  const std::uint64_t page = corank::page_bytes(), whole = round_up(bytes, page);
  // Small-paged files take an odd number of pages. Runs often have equal sizes, a power of two, and
  // their pages would otherwise share a few sets of the TLB.
  return page_bytes(bytes) != page ? whole + huge_page_bytes : whole | page;
}

MappedFiles::MappedFiles(std::span<const std::uint64_t> file_bytes, std::uint64_t resident_bytes)
    : may_be_huge_(file_bytes.size() <=
                   std::min(max_huge_paged_files, resident_bytes / (2 * huge_page_bytes))),
      area_(take_area()) {
  std::uint64_t bytes = corank::page_bytes();  // reads just past the last record find zeros
  for (const std::uint64_t file : file_bytes) bytes += room(file);
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    area_.taken = false;
    throw_error(ErrorCode::memory, "cannot map {} bytes of runs: {}; use {}", bytes,
                std::strerror(error), setting_is(Setting::io, "buffered"));
  }
  memory_ = {static_cast<std::byte*>(memory), bytes};
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  area_.failed_at = 0;
  area_.begin = begin;
  area_.end = begin + bytes;
}

MappedFiles::~MappedFiles() {
  area_.end = 0;
  area_.begin = 0;
  ::munmap(memory_.data(), memory_.size());
  area_.taken = false;
}

const std::byte* MappedFiles::add(const FileDescriptor& file, std::uint64_t bytes,
                                  const std::filesystem::path& path) {
  std::byte* at = memory_.data() + used_bytes_;
  at += -reinterpret_cast<std::uintptr_t>(at) % page_bytes(bytes);
  assert(at + bytes <= memory_.data() + used_bytes_ + room(bytes));
  assert(at + bytes + corank::page_bytes() <= memory_.data() + memory_.size());
  if (bytes != 0 &&
      ::mmap(at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file.get(), 0) == MAP_FAILED)
    throw_file_error(path, "map");
  used_bytes_ += room(bytes);
  return at;
}

const std::byte* MappedFiles::failed_at() const {
  return reinterpret_cast<const std::byte*>(area_.failed_at.load());
}

void populate(std::span<const std::byte> mapped) {
  // The kernel maps cached pages around a page that is read. MADV_POPULATE_READ would be slower,
  // because it checks every page again.
  constexpr std::size_t mapped_around_bytes = std::size_t{64} << 10;
  const auto pages = pages_around(mapped);
  for (std::size_t at = 0; at < pages.size(); at += mapped_around_bytes)
    [[maybe_unused]] const std::byte read = static_cast<const volatile std::byte&>(pages[at]);
}

void forget(std::span<const std::byte> mapped, const MappedRange& part) {
  assert(std::has_single_bit(part.page_bytes));
  assert(part.bytes.data() <= mapped.data());
  assert(mapped.data() + mapped.size() <= part.bytes.data() + part.bytes.size());
  const auto page_of = [&](const std::byte* at) {
    return at - reinterpret_cast<std::uintptr_t>(at) % part.page_bytes;
  };
  const std::byte* const end = mapped.data() + mapped.size();
  const std::byte* const from = std::max(page_of(mapped.data()), part.bytes.data());
  const std::byte* const to = end == part.bytes.data() + part.bytes.size() ? end : page_of(end);
  if (from >= to) return;
  const auto pages = pages_around({from, to});
  ::madvise(pages.data(), pages.size(), MADV_DONTNEED);
}

bool is_cached(const FileDescriptor& file, std::uint64_t offset) {
  const std::size_t page = page_bytes();
  void* const mapped = ::mmap(nullptr, page, PROT_READ, MAP_SHARED, file.get(),
                              static_cast<off_t>(offset - offset % page));
  if (mapped == MAP_FAILED) return false;
  unsigned char resident = 0;
  const int answer = ::mincore(mapped, page, &resident);
  ::munmap(mapped, page);
  return answer == 0 && (resident & 1);
}

}  // namespace corank
