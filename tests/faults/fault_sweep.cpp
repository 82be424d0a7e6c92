// Fault sweep: merges and sorts whose system calls fail. First calls of each kind fail with each
// error, one fault a merge: the first ones all, later ones in part. Then several faults at random
// hit one merge.
//
// Every merge must either succeed with the right bytes or throw and keep the old output. It must
// leave no file open, and no file on disk except the partial output of --resume.
//
// Usage: fault-sweep [--count N] [--seed S] [--seconds T] [--folder DIR]
//
// The random part injects at least N faults, or as many as fit in T seconds; the first part always
// runs completely. Direct I/O needs a DIR on a disk, not on tmpfs. The linker's --wrap option
// replaces the library's calls, because the library has no hook for faults.
#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "corank/merge.hpp"
#include "corank/sort.hpp"
#include "io/sidecar.hpp"
#include "support/sources.hpp"
#include "support/support.hpp"

namespace {

// --- Fault injection -----------------------------------------------------------------------------

enum Kind : unsigned {
  call_open,
  call_mkostemp,
  call_read,
  call_write,
  call_fsync,
  call_fdatasync,
  call_sync_range,
  call_truncate,
  call_seek,
  call_rename,
  call_rename_new,
  call_lock,
  call_status,
  call_allocate,
  call_map,
  call_ring_open,
  call_ring_submit,
  call_ring_completion,
  call_new,
  kinds,
};
constexpr std::array<const char*, kinds> kind_names{"open",
                                                    "mkostemp",
                                                    "pread",
                                                    "write",
                                                    "fsync",
                                                    "fdatasync",
                                                    "sync_file_range",
                                                    "ftruncate",
                                                    "lseek",
                                                    "rename",
                                                    "renameat2",
                                                    "flock",
                                                    "fstat, stat",
                                                    "fallocate",
                                                    "mmap",
                                                    "io_uring_queue_init",
                                                    "io_uring_submit",
                                                    "a completed read",
                                                    "operator new"};

// How a call fails: an error number if positive, otherwise one of these.
constexpr int ends = -1;         // returns 0, as at the end of a file
constexpr int falls_short = -2;  // transfers only a part
constexpr int any_failure = -3;

struct Failure {
  int how;
  bool must_be_told;  // a merge that meets this fault must throw
};

const std::vector<Failure>& failures_of(unsigned kind) {
  static const std::array<std::vector<Failure>, kinds> all{{
      {{EMFILE, true}, {ENFILE, true}, {EACCES, true}, {ENOMEM, true}, {EIO, true}},
      {{EMFILE, true}, {ENOSPC, true}, {EACCES, true}},
      {{EIO, true}, {ENOMEM, true}, {ends, true}, {EINTR, false}, {falls_short, false}},
      {{EIO, true},
       {ENOSPC, true},
       {EDQUOT, true},
       {EFBIG, true},
       {EINTR, false},
       {falls_short, false}},
      {{EIO, true}, {ENOSPC, true}, {EDQUOT, true}, {EINTR, true}},
      {{EIO, true}, {ENOSPC, true}},
      {{EIO, false}, {ENOSPC, false}},  // the waiting call must report it
      {{EIO, true}, {EINTR, true}},
      {{EIO, true}},
      {{EIO, true}, {ENOSPC, true}, {EACCES, true}},
      {{EIO, true}, {EEXIST, true}, {EINVAL, false}},
      {{ENOLCK, false}, {ENOSYS, false}, {EINTR, true}},
      {{EIO, false}, {ENOMEM, false}},
      {{ENOSPC, true}, {EOPNOTSUPP, false}},
      {{ENOMEM, false}},
      {{ENOMEM, false}, {ENOSYS, false}},
      {{EINTR, false}, {EAGAIN, false}, {EBUSY, false}},
      {{EIO, true},
       {ENOMEM, true},
       {ends, true},
       {EINTR, false},
       {EAGAIN, false},
       {falls_short, false}},
      {{ENOMEM, false}},  // the caller does without this memory
  }};
  return all[kind];
}

struct Injector {
  std::atomic<bool> armed = false;
  // Single fault: call `number` of `kind` fails with `failure`.
  unsigned kind = kinds;
  std::uint64_t number = 0;
  Failure failure{};
  // Random faults: one call in `one_in` fails, chosen by `seed`. If 0, the single fault applies.
  std::uint64_t one_in = 0;
  std::uint64_t seed = 0;

  // True if the merge resumes: a fault may make it reject the partial output and start over.
  bool may_start_over = false;

  // False while the standard library lists folders, because std::filesystem aborts without memory.
  bool allocations_too = false;

  std::array<std::atomic<std::uint64_t>, kinds> calls{};
  std::array<std::atomic<std::uint64_t>, kinds> fired{};
  std::atomic<bool> must_be_told = false;

  void arm() {
    for (auto& count : calls) count = 0;
    for (auto& count : fired) count = 0;
    must_be_told = false;
    armed = true;
  }
};
Injector injector;

std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

// Returns how the current call of this kind fails; 0 if it succeeds. A merge may survive that the
// call fails with the error `survived`.
int failure_now(Kind kind, int survived = 0) {
  if (!injector.armed.load(std::memory_order_relaxed)) return 0;
  const std::uint64_t number = injector.calls[kind]++;
  Failure failure{};
  if (injector.one_in != 0) {
    const std::uint64_t dice = mixed(mixed(injector.seed ^ kind << 24) ^ number);
    // The calls that every merge begins with fail less often.
    const bool rare = kind == call_new || kind == call_status || kind == call_open;
    if (dice % (rare ? 16 * injector.one_in : injector.one_in) != 0) return 0;
    const auto& failures = failures_of(kind);
    // Mostly the errors that a merge survives, which are last in the list, so that merges get far.
    std::size_t first = 0;
    if ((dice >> 24) % 16 != 0 && !failures.back().must_be_told)
      while (failures[first].must_be_told) ++first;
    failure = failures[first + (dice >> 32) % (failures.size() - first)];
  } else {
    if (kind != injector.kind || number != injector.number) return 0;
    failure = injector.failure;
  }
  ++injector.fired[kind];
  if (failure.must_be_told && !(failure.how == ends && injector.may_start_over) &&
      survived != failure.how && survived != any_failure)
    injector.must_be_told = true;
  return failure.how;
}

bool fails(Kind kind, int survived = 0) {
  const int how = failure_now(kind, survived);
  if (how > 0) errno = how;
  return how > 0;
}

// Returns the size of a short read or write; direct I/O transfers whole pages.
std::size_t a_part_of(std::size_t count, int descriptor) {
  if (fcntl(descriptor, F_GETFL) & O_DIRECT) return count < 8192 ? count : count / 2 / 4096 * 4096;
  return (count + 1) / 2;
}

}  // namespace

extern "C" {

int __real_open(const char*, int, ...);
int __wrap_open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const bool is_nameless = (flags & O_TMPFILE) == O_TMPFILE;
  const bool has_mode = (flags & O_CREAT) != 0 || is_nameless;
  const mode_t mode = has_mode ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  // A file system without nameless files; temporary files then have names at first.
  if (is_nameless && injector.armed && injector.kind == call_mkostemp) {
    errno = EOPNOTSUPP;
    return -1;
  }
  // An output that no new file can replace is overwritten.
  return fails(call_open, flags & O_CREAT ? EACCES : 0) ? -1 : __real_open(path, flags, mode);
}

int __real_mkostemp(char*, int);
int __wrap_mkostemp(char* name, int flags) {
  return fails(call_mkostemp) ? -1 : __real_mkostemp(name, flags);
}

ssize_t __real_pread(int, void*, std::size_t, off_t);
ssize_t __wrap_pread(int file, void* into, std::size_t count, off_t offset) {
  const ssize_t got = __real_pread(file, into, count, offset);
  const int how = failure_now(call_read, got == 0 ? ends : 0);
  if (how > 0) return errno = how, -1;
  if (how == ends || got <= 0) return how == ends ? 0 : got;
  const auto bytes = static_cast<std::size_t>(got);
  return static_cast<ssize_t>(how == falls_short ? a_part_of(bytes, file) : bytes);
}

ssize_t __real_write(int, const void*, std::size_t);
ssize_t __wrap_write(int file, const void* from, std::size_t count) {
  const int how = failure_now(call_write);
  if (how > 0) return errno = how, -1;
  return __real_write(file, from, how == falls_short ? a_part_of(count, file) : count);
}

int __real_fsync(int);
int __wrap_fsync(int file) {
  return fails(call_fsync) ? -1 : __real_fsync(file);
}

int __real_fdatasync(int);
int __wrap_fdatasync(int file) {
  return fails(call_fdatasync) ? -1 : __real_fdatasync(file);
}

int __real_sync_file_range(int, off_t, off_t, unsigned);
int __wrap_sync_file_range(int file, off_t offset, off_t count, unsigned flags) {
  if (!fails(call_sync_range)) return __real_sync_file_range(file, offset, count, flags);
  if (flags & SYNC_FILE_RANGE_WAIT_AFTER) injector.must_be_told = true;
  return -1;
}

int __real_ftruncate(int, off_t);
int __wrap_ftruncate(int file, off_t bytes) {
  return fails(call_truncate) ? -1 : __real_ftruncate(file, bytes);
}

off_t __real_lseek(int, off_t, int);
off_t __wrap_lseek(int file, off_t offset, int whence) {
  return fails(call_seek) ? -1 : __real_lseek(file, offset, whence);
}

int __real_rename(const char*, const char*);
int __wrap_rename(const char* from, const char* to) {
  return fails(call_rename) ? -1 : __real_rename(from, to);
}

int __real_renameat2(int, const char*, int, const char*, unsigned);
int __wrap_renameat2(int from_folder, const char* from, int to_folder, const char* to,
                     unsigned flags) {
  return fails(call_rename_new) ? -1 : __real_renameat2(from_folder, from, to_folder, to, flags);
}

int __real_flock(int, int);
int __wrap_flock(int file, int operation) {
  return fails(call_lock) ? -1 : __real_flock(file, operation);
}

int __real_fstat(int, struct stat*);
int __wrap_fstat(int file, struct stat* status) {
  return fails(call_status) ? -1 : __real_fstat(file, status);
}

int __real_stat(const char*, struct stat*);
int __wrap_stat(const char* path, struct stat* status) {
  return fails(call_status) ? -1 : __real_stat(path, status);
}

int __real_fallocate(int, int, off_t, off_t);
int __wrap_fallocate(int file, int mode, off_t offset, off_t count) {
  // Space that is not given back is only held for longer.
  return fails(call_allocate, mode & FALLOC_FL_PUNCH_HOLE ? any_failure : 0)
             ? -1
             : __real_fallocate(file, mode, offset, count);
}

void* __real_mmap(void*, std::size_t, int, int, int, off_t);
void* __wrap_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  return fails(call_map) ? MAP_FAILED : __real_mmap(at, bytes, protection, flags, file, offset);
}

int __real_io_uring_queue_init(unsigned, io_uring*, unsigned);
int __wrap_io_uring_queue_init(unsigned entries, io_uring* ring, unsigned flags) {
  const int how = failure_now(call_ring_open);
  return how > 0 ? -how : __real_io_uring_queue_init(entries, ring, flags);
}

int __real_io_uring_submit_and_wait(io_uring*, unsigned);
int __wrap_io_uring_submit_and_wait(io_uring* ring, unsigned wait_for) {
  const int how = failure_now(call_ring_submit);
  if (how > 0) return -how;
  const int submitted = __real_io_uring_submit_and_wait(ring, wait_for);
  io_uring_cqe* entry = nullptr;
  if (io_uring_peek_cqe(ring, &entry) != 0 || entry->res <= 0) return submitted;
  const int result = failure_now(call_ring_completion);
  if (result > 0)
    entry->res = -result;
  else if (result == ends)
    entry->res = 0;
  else if (result == falls_short && entry->res >= 8192)
    entry->res = entry->res / 2 / 4096 * 4096;
  return submitted;
}
}

void* operator new(std::size_t bytes) {
  if (!injector.allocations_too || failure_now(call_new) == 0)
    if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return injector.allocations_too && failure_now(call_new) != 0 ? nullptr : std::malloc(bytes);
}
// Not inlined: inlined without its operator new, GCC would warn of a mismatched pair.
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace {

using namespace corank;
using namespace corank::test;

// --- Merges under test ---------------------------------------------------------------------------

enum class Content { records, reduced, compressed, lines, unsorted, unsorted_lines };

// Describes a kind of merge and the files that it finds.
struct Shape {
  const char* name;
  Io io;
  int runs;
  unsigned parts;
  std::uint64_t memory_bytes;
  bool old_output;
  bool resume;
  bool to_pipe;
  Content content = Content::records;
};
constexpr Shape shapes[] = {
    {"a new file", Io::buffered, 5, 0, 1 << 20, false, false, false},
    {"a file replaced, mapped runs", Io::mapped, 5, 0, 1 << 20, true, false, false},
    {"a file replaced, direct", Io::direct, 4, 0, 2 << 20, true, false, false},
    {"three parts", Io::buffered, 4, 3, 3 << 20, false, false, false},
    {"several passes", Io::buffered, 60, 0, 500'000, true, false, false},
    {"resumed", Io::buffered, 5, 0, 1 << 20, true, true, false},
    {"resumed, direct", Io::direct, 4, 0, 2 << 20, false, true, false},
    {"resumed parts", Io::automatic, 4, 2, 3 << 20, false, true, false},
    {"a pipe", Io::buffered, 5, 0, 1 << 20, false, false, true},
    {"reduced", Io::buffered, 5, 0, 1 << 20, true, false, false, Content::reduced},
    {"reduced, mapped runs", Io::mapped, 5, 0, 1 << 20, false, false, false, Content::reduced},
    {"reduced, resumed", Io::buffered, 2, 0, 1 << 20, true, true, false, Content::reduced},
    {"reduced, resumed parts", Io::direct, 2, 2, 3 << 20, false, true, false, Content::reduced},
    {"lines", Io::buffered, 5, 0, 2 << 20, false, false, false, Content::lines},
    {"lines, direct", Io::direct, 5, 0, 2 << 20, true, false, false, Content::lines},
    {"lines resumed", Io::buffered, 4, 0, 2 << 20, true, true, false, Content::lines},
    {"sorted, spilled", Io::buffered, 3, 0, 1 << 20, true, false, false, Content::unsorted},
    {"sorted in memory", Io::mapped, 3, 0, 4 << 20, false, false, false, Content::unsorted},
    {"sorted into parts", Io::buffered, 3, 2, 1 << 20, false, false, false, Content::unsorted},
    {"sorted lines, spilled", Io::buffered, 3, 0, 2 << 20, true, false, false,
     Content::unsorted_lines},
    {"compressed", Io::buffered, 3, 0, 32 << 20, true, false, false, Content::compressed},
};

[[noreturn]] void give_up(const std::string& what);

class Scene {
 public:
  Scene(const Shape& shape, const std::filesystem::path& root) : shape_(shape), folder_(root) {
    std::filesystem::create_directories(folder_ / "out");
    options_.backend = BackendChoice::cpu;
    options_.threads = 2;
    options_.io = shape.io;
    options_.memory_bytes = shape.memory_bytes;
    options_.parts = shape.parts;
    options_.overwrite = shape.old_output;
    options_.checksum = true;
    options_.checkpoint_interval = std::chrono::milliseconds(0);
    if (shape.content == Content::lines || shape.content == Content::unsorted_lines)
      make_lines();
    else
      make_records();
    output_ = folder_ / "out" / "output";
    to_ = output_;
    for (unsigned part = 0; part < std::max(shape.parts, 1u); ++part) {
      const std::size_t parts = std::max(shape.parts, 1u), records = merged_.size() / 6;
      const auto at = [&](std::size_t i) {
        return i == parts ? merged_.end()
                          : merged_.begin() + static_cast<std::ptrdiff_t>(records * i / parts * 6);
      };
      const std::string name = "part-0000" + std::to_string(part);
      files_.push_back({shape.parts ? output_ / name : output_, Bytes(at(part), at(part + 1)), {}});
    }
    if (shape.content == Content::compressed ||
        (shape.parts != 0 && shape.content == Content::reduced))
      learn_files();
    if (shape.resume) learn_sidecars();
  }

  // Merges once under the injector's faults and checks the result. Returns true if the merge
  // succeeded.
  bool merge() {
    set_stage();
    const std::size_t open_before = open_files();
    injector.may_start_over = shape_.resume;
    injector.allocations_too = shape_.parts == 0;
    injector.arm();
    bool succeeded = false;
    std::string failure;
    try {
      call();
      succeeded = true;
    } catch (const std::exception& error) {
      injector.armed = false;
      failure = error.what();
    }
    injector.armed = false;
    std::uint64_t fired = 0;
    for (const auto& count : injector.fired) fired += count;
    if (!succeeded && fired == 0) give_up("failed without a fault: " + failure);
    if (succeeded && injector.must_be_told) give_up("a fault that must be told was not");
    if (fired == 0 && (resumed_bytes_ > 0) != shape_.resume) give_up("began at the wrong place");
    check_closed(open_before, failure);
    if (shape_.to_pipe)
      check_pipe(succeeded);
    else
      check_files(succeeded, failure);
    return succeeded;
  }

  const Shape& shape() const { return shape_; }

 private:
  struct File {
    std::filesystem::path path;
    Bytes content;
    Sidecar sidecar;
    std::filesystem::path beside(const char* suffix) const {
      return path.parent_path() / ("." + path.filename().string() + suffix);
    }
  };

  void make_records() {
    Random random(41);
    options_.record = Schema::parse("a:u16,p:u32");
    const auto keys = parse_keys("a", options_.record);
    const bool is_sorted = shape_.content != Content::unsorted;
    const unsigned records = is_sorted ? 6000 : 90'000;
    Bytes all;
    for (int i = 0; i < shape_.runs; ++i) {
      const Bytes run = random_records(
          options_.record, records / static_cast<unsigned>(shape_.runs), Values::any, random);
      add_run(is_sorted ? stably_sorted(options_.record, keys, run) : run, all);
    }
    merged_ = stably_sorted(options_.record, keys, all);
    if (shape_.content == Content::compressed) {
      options_.decompress = true;
      options_.compression = {.codec = Codec::zstd};
    }
    if (shape_.content != Content::reduced) return;
    options_.query.where = parse_where("a > 6000");
    parse_on_equal("reduce:max(p)", options_.query);
    // Among records with equal keys, the one with the maximum `p` is the last.
    const auto both = parse_keys("a,p", options_.record);
    const Bytes sorted = stably_sorted(options_.record, both, merged_);
    merged_.clear();
    for (std::size_t at = 0; at < sorted.size(); at += 6) {
      std::uint16_t key = 0;
      std::memcpy(&key, &sorted[at], 2);
      if (key <= 6000) continue;
      if (at + 6 == sorted.size() || std::memcmp(&sorted[at], &sorted[at + 6], 2) != 0)
        merged_.insert(merged_.end(), &sorted[at], &sorted[at] + 6);
    }
  }

  void make_lines() {
    Random random(42);
    options_.text.emplace();
    std::vector<std::string> all;
    const auto bytes_of = [](const std::vector<std::string>& lines) {
      Bytes bytes;
      for (const std::string& line : lines)
        for (const char c : line + '\n') bytes.push_back(static_cast<std::byte>(c));
      return bytes;
    };
    const bool is_sorted = shape_.content == Content::lines;
    const unsigned num_lines = is_sorted ? 8000 : 80'000;
    for (int i = 0; i < shape_.runs; ++i) {
      std::vector<std::string> lines(num_lines / static_cast<unsigned>(shape_.runs));
      for (std::string& line : lines) line = std::to_string(random()).substr(below(random, 10));
      if (is_sorted) std::ranges::sort(lines);
      all.insert(all.end(), lines.begin(), lines.end());
      Bytes unused;
      add_run(bytes_of(lines), unused);
    }
    std::ranges::sort(all);
    merged_ = bytes_of(all);
  }

  void add_run(const Bytes& run, Bytes& all) {
    const bool is_packed = shape_.content == Content::compressed;
    runs_.push_back(folder_ / ("run" + std::to_string(runs_.size())));
    write_file(runs_.back(), is_packed ? frame_of({.codec = Codec::zstd}, run) : run);
    all.insert(all.end(), run.begin(), run.end());
  }

  // Size of the partial output of each file, in bytes.
  static constexpr std::uint64_t left_bytes = 5'000;

  void call() {
    const bool is_unsorted =
        shape_.content == Content::unsorted || shape_.content == Content::unsorted_lines;
    const Stats stats =
        is_unsorted ? corank::sort(runs_, to_, options_) : corank::merge(runs_, to_, options_);
    resumed_bytes_ = stats.resumed_bytes;
  }

  // Operators move the part boundaries to group boundaries, and compressed bytes are the codec's,
  // so a merge without faults supplies the files.
  void learn_files() {
    call();
    Bytes all;
    for (File& file : files_) {
      file.content = read_file(file.path);
      const Bytes records = drain(*test::open(file.path));
      all.insert(all.end(), records.begin(), records.end());
    }
    if (all != merged_) give_up("the files are not the whole");
    std::filesystem::remove_all(output_);
  }

  // Records the sidecar that an interrupted merge writes beside each file.
  void learn_sidecars() {
    const auto handler = ::signal(SIGXFSZ, SIG_IGN);
    struct rlimit old {};
    ::getrlimit(RLIMIT_FSIZE, &old);
    const struct rlimit small { left_bytes, old.rlim_max };
    options_.resume = true;
    ::setrlimit(RLIMIT_FSIZE, &small);
    try {
      call();
    } catch (const Error&) {
    }
    ::setrlimit(RLIMIT_FSIZE, &old);
    ::signal(SIGXFSZ, handler);
    for (File& file : files_) {
      const Bytes text = read_file(file.beside(".corank-resume"));
      file.sidecar =
          parse_sidecar({reinterpret_cast<const char*>(text.data()), text.size()}).value();
    }
  }

  void set_stage() {
    std::filesystem::remove_all(folder_ / "out");
    std::filesystem::create_directory(folder_ / "out");
    if (shape_.parts) std::filesystem::create_directory(output_);
    to_ = output_;
    for (const File& file : files_) {
      if (shape_.old_output) write_file(file.path, old_content());
      if (!shape_.resume) continue;
      write_file(file.beside(".corank"),
                 Bytes(file.content.begin(),
                       file.content.begin() + static_cast<std::ptrdiff_t>(left_bytes)));
      struct stat status {};
      ::__real_stat(file.beside(".corank").c_str(), &status);
      Sidecar sidecar = file.sidecar;
      sidecar.inode = status.st_ino;
      const std::string text = sidecar_text(sidecar);
      const auto* begin = reinterpret_cast<const std::byte*>(text.data());
      write_file(file.beside(".corank-resume"), Bytes(begin, begin + text.size()));
    }
    if (shape_.to_pipe) {
      if (::pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) != 0) give_up("no pipe to be had");
      to_ = "/proc/self/fd/" + std::to_string(pipe_[1]);
    }
  }

  static Bytes old_content() { return Bytes(17, std::byte{42}); }

  void check_closed(std::size_t open_before, const std::string& failure) const {
    if (open_files() <= open_before) return;
    std::string names;
    for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      names += ' ' + std::filesystem::read_symlink(file, gone).string();
    }
    give_up("left a file open of" + names + " after: " + failure);
  }
  static std::size_t open_files() {
    return static_cast<std::size_t>(
        std::ranges::distance(std::filesystem::directory_iterator("/proc/self/fd")));
  }

  void check_pipe(bool succeeded) {
    ::close(pipe_[1]);
    Bytes got(merged_.size() + 1);
    std::size_t length = 0;
    for (ssize_t more; (more = ::read(pipe_[0], got.data() + length, got.size() - length)) > 0;)
      length += static_cast<std::size_t>(more);
    ::close(pipe_[0]);
    if (succeeded && length != merged_.size()) give_up("the pipe holds less than the output");
    if (length > merged_.size() ||
        !std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(length),
                    merged_.begin()))
      give_up("the pipe holds wrong bytes");
  }

  void check_files(bool succeeded, const std::string& failure) {
    std::size_t known = 0;
    bool resumable = false;
    for (const File& file : files_) {
      const bool exists = std::filesystem::exists(file.path);
      known += exists;
      const bool whole = exists && read_file(file.path) == file.content;
      if (succeeded && !whole) give_up("succeeded with wrong bytes");
      if (!whole && shape_.old_output && !(exists && read_file(file.path) == old_content()))
        give_up("damaged the old output after: " + failure);
      if (!whole && !shape_.old_output && exists) give_up("wrong bytes under the output's name");
      for (const char* suffix : {".corank", ".corank-resume"})
        if (shape_.resume && !succeeded && std::filesystem::exists(file.beside(suffix))) {
          resumable = true;
          ++known;
        }
    }
    const auto folder = shape_.parts ? output_ : folder_ / "out";
    if (static_cast<std::size_t>(
            std::ranges::distance(std::filesystem::directory_iterator(folder))) != known)
      give_up("left a file behind after: " + failure);
    if (!resumable) return;
    try {
      call();
    } catch (const std::exception& error) {
      give_up(fmt::format("cannot go on after \"{}\": {}", failure, error.what()));
    }
    for (const File& file : files_)
      if (read_file(file.path) != file.content) give_up("went on with wrong bytes");
  }

  Shape shape_;
  std::filesystem::path folder_;
  Options options_;
  std::vector<std::filesystem::path> runs_;
  std::filesystem::path output_;
  std::filesystem::path to_;
  std::vector<File> files_;
  Bytes merged_;
  std::uint64_t resumed_bytes_ = 0;
  int pipe_[2]{};
};

// --- Sweep ---------------------------------------------------------------------------------------

std::atomic<const char*> current = "";

std::string describe() {
  if (injector.one_in != 0)
    return fmt::format("{}: one call in {} fails, seed {}", current.load(), injector.one_in,
                       injector.seed);
  return fmt::format("{}: {} number {} fails by {}", current.load(),
                     injector.kind < kinds ? kind_names[injector.kind] : "nothing", injector.number,
                     injector.failure.how);
}

void give_up(const std::string& what) {
  fmt::print(stderr, "{}: {}\n", describe(), what);
  std::_Exit(1);
}

std::atomic<std::uint64_t> merges_done = 0;

// Aborts if a merge hangs; each merge normally takes milliseconds.
void watch() {
  std::uint64_t seen = 0;
  for (int waited = 0;; ++waited) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    if (merges_done != seen) waited = 0;
    seen = merges_done;
    if (waited < 120) continue;
    fmt::print(stderr, "{}: hangs\n", describe());
    std::abort();
  }
}

struct Totals {
  std::uint64_t faults = 0;
  std::uint64_t merges = 0;
  std::uint64_t succeeded = 0;
  std::array<std::uint64_t, kinds> of_kind{};

  // Returns the number of faults that the merge met.
  std::uint64_t merge(Scene& scene) {
    current = scene.shape().name;
    const bool success = scene.merge();
    ++merges_done;
    std::uint64_t fired = 0;
    for (unsigned kind = 0; kind < kinds; ++kind) {
      of_kind[kind] += injector.fired[kind];
      fired += injector.fired[kind];
    }
    faults += fired;
    ++merges;
    succeeded += success;
    return fired;
  }
};

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t count = 0;
  std::uint64_t seed = 1;
  double max_seconds = 1e9;
  std::filesystem::path folder = std::filesystem::temp_directory_path();
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = i + 1 < argc ? argv[i] : "";
    if (option == "--count") {
      count = std::stoull(argv[i + 1]);
    } else if (option == "--seed") {
      seed = std::stoull(argv[i + 1]);
    } else if (option == "--seconds") {
      max_seconds = std::stod(argv[i + 1]);
    } else if (option == "--folder") {
      folder = argv[i + 1];
    } else {
      fmt::print(stderr, "usage: {} [--count N] [--seed S] [--seconds T] [--folder DIR]\n",
                 argv[0]);
      return 2;
    }
  }
  folder /= fmt::format("corank-faults-{}", ::getpid());
  std::set_terminate([] { give_up("terminated"); });
  std::thread(watch).detach();
  const auto start = std::chrono::steady_clock::now();

  std::vector<Scene> scenes;
  for (std::size_t i = 0; i < std::size(shapes); ++i)
    scenes.emplace_back(shapes[i], folder / std::to_string(i));
  Totals totals;
  for (Scene& scene : scenes) {
    for (unsigned kind = 0; kind < kinds; ++kind) {
      injector.kind = kind;
      injector.number = std::numeric_limits<std::uint64_t>::max();
      if (totals.merge(scene) != 0) give_up("a fault nobody asked for");
      const std::uint64_t calls = injector.calls[kind];
      for (const Failure& failure : failures_of(kind)) {
        injector.failure = failure;
        // A merge makes hundreds of calls of a kind, alike but for the first ones.
        constexpr std::uint64_t share = exhaustive_step > 1 ? 4 : 16;
        for (injector.number = 0; injector.number < calls;
             injector.number += 1 + injector.number / share)
          totals.merge(scene);
      }
    }
  }
  fmt::print("calls of each kind by each error: {} faults in {} merges\n", totals.faults,
             totals.merges);
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  Random random(seed);
  while (totals.faults < count && elapsed() < max_seconds) {
    injector.seed = random();
    injector.one_in = std::uint64_t{1} << (1 + injector.seed % 6);
    totals.merge(scenes[below(random, scenes.size())]);
  }
  std::filesystem::remove_all(folder);
  fmt::print("{} faults in {} merges, of which {} succeeded all the same, in {:.0f} s (seed {})\n",
             totals.faults, totals.merges, totals.succeeded, elapsed(), seed);
  for (unsigned kind = 0; kind < kinds; ++kind)
    fmt::print("{:>10} {}\n", totals.of_kind[kind], kind_names[kind]);
  fmt::print("no wrong byte, no damaged output, nothing left, no hang\n");
}
