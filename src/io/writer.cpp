#include "io/writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "util/math.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

// Large enough for the full speed of a device.
constexpr std::size_t staging_bytes = 4 * MiB;
// Bytes whose writeback is started together.
constexpr std::uint64_t handed_over_at_once_bytes = 4 * MiB;
constexpr std::size_t staging_buffers = 2;  // one is filled while the other is written

constexpr std::size_t compared_block_bytes = std::size_t{256} << 10;

// Longest time that a stop request waits for a pipe.
constexpr std::chrono::milliseconds patience{100};

// Returns whether `path` is written to directly: a device or a pipe.
bool is_stream(const std::filesystem::path& path) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  return type == std::filesystem::file_type::character ||
         type == std::filesystem::file_type::block || type == std::filesystem::file_type::fifo;
}

// Opens a pipe or terminal anew if possible, as non-blocking, so that a stop request ends the wait
// for its reader. The inherited descriptor stays blocking, because its mode is shared with other
// processes.
FileDescriptor open_standard_output() {
  struct stat status {};
  unsigned number = 0;
  // The master of a pseudo-terminal, opened anew, is that of another one.
  const bool is_terminal =
      ::isatty(STDOUT_FILENO) != 0 && ::ioctl(STDOUT_FILENO, TIOCGPTN, &number) != 0;
  if (is_terminal || (::fstat(STDOUT_FILENO, &status) == 0 && S_ISFIFO(status.st_mode))) {
    FileDescriptor file(::open("/proc/self/fd/1", O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (file) return file;
  }
  return FileDescriptor(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
}

FileDescriptor open_stream(const std::filesystem::path& path, const std::stop_token& stop) {
  for (;;) {
    FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK));
    if (file) return file;
    if (errno != ENXIO && errno != EINTR) throw_file_error(path, "open");
    if (stop.stop_requested()) throw Interrupted();
    std::this_thread::sleep_for(patience);  // until a reader opens the pipe
  }
}

class PipeSink final : public ByteSink {
 public:
  PipeSink(std::filesystem::path path, FileDescriptor file, std::stop_token stop)
      : path_(std::move(path)), file_(std::move(file)), stop_(std::move(stop)) {
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) throw_file_error(path_, "write");
    is_stored_ = S_ISREG(status.st_mode) || S_ISBLK(status.st_mode);
    blocks_ = !is_stored_ && (::fcntl(file_.get(), F_GETFL) & O_NONBLOCK) == 0;
  }

  void write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      // If there is room, there is room for so many bytes.
      const std::size_t most =
          blocks_ ? std::min<std::size_t>(bytes.size(), PIPE_BUF) : bytes.size();
      if (blocks_) wait_for_room();
      const ssize_t put = ::write(file_.get(), bytes.data(), most);
      if (put >= 0)
        bytes = bytes.subspan(static_cast<std::size_t>(put));
      else if (errno == EAGAIN)
        wait_for_room();
      else if (errno != EINTR)
        throw_file_error(path_, "write");
    }
  }

  void commit() override {
    if (is_stored_ && ::fsync(file_.get()) != 0 && errno != EINVAL)
      throw_file_error(path_, "make durable");
  }

 private:
  void wait_for_room() const {
    struct pollfd room {
      file_.get(), POLLOUT, 0
    };
    for (int ready = 0; ready <= 0;) {
      ready = ::poll(&room, 1, static_cast<int>(patience.count()));
      if (stop_.stop_requested()) throw Interrupted();
    }
  }

  std::filesystem::path path_;
  FileDescriptor file_;
  std::stop_token stop_;
  bool is_stored_ = false;  // by a disk
  bool blocks_ = false;     // as others use its description, too, whose mode is not ours to change
};

}  // namespace

Writer::Writer(const Destination& output, const AtomicFile::Content& content,
               const AtomicFile::Settings& settings,
               const std::function<bool(FileIdentity)>& is_input, std::stop_token stop)
    : path_(output.path), sink_(output.sink), stop_(std::move(stop)) {
  const bool is_standard_output = !sink_ && path_ == "-";
  if (!sink_ && !is_standard_output && !is_stream(path_)) {
    atomic_ = std::make_unique<AtomicFile>(path_, content, settings, is_input);
    return;
  }
  if (settings.resume)
    throw Error(ErrorCode::options, path_.string() + ": is not a file that can be resumed; drop " +
                                        to_marker(Setting::resume));
  if (sink_) return;
  FileDescriptor file;
  if (is_standard_output) {
    path_ = "standard output";
    file = open_standard_output();
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) throw_file_error(path_, "write");
    if (S_ISREG(status.st_mode) && is_input(identity_of(status)))
      throw Error("standard output: is a run, too; write to another file");
  } else {
    file = open_stream(path_, stop_);
  }
  sink_ = std::make_shared<PipeSink>(path_, std::move(file), stop_);
}

Writer::Writer(FileDescriptor file, std::filesystem::path path)
    : path_(std::move(path)), file_(std::move(file)) {}

void Writer::resume_at(std::uint64_t kept_bytes, std::uint64_t from) {
  assert(bytes_ == 0 && !behind_ && !compressor_);
  assert(from <= kept_bytes && (kept_bytes == 0 || atomic_));
  if (atomic_) atomic_->keep(kept_bytes);
  bytes_ = handed_over_bytes_ = kept_bytes;
  compared_bytes_ = kept_bytes - from;
  if (compared_bytes_ != 0) kept_ = atomic_->open_kept();
}

void Writer::make_direct(std::uint64_t bytes, TraceRow row) {
  assert(!behind_);
  if (!atomic_ || atomic_->is_in_place()) return;
  staging_pool_ = std::make_unique<BufferPool>(staging_bytes, staging_buffers, nullptr,
                                               BufferPool::Pages::huge);
  staging_ = std::make_shared<Buffer>(staging_pool_->lease());
  // Direct I/O writes whole pages, so the first one begins with the kept bytes of that page.
  const std::size_t begun = bytes_ % page_bytes();
  if (read_at(file(), staging_->bytes().first(begun), bytes_ - begun, path_) != begun ||
      !corank::make_direct(file())) {
    staging_.reset();
    staging_pool_.reset();
    return;
  }
  staged_bytes_ = begun;
  atomic_->write_from(bytes_ - begun);
  // Reserve space without changing the file's size. File systems that cannot reserve do without.
  if (::fallocate(file().get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) != 0 &&
      errno == ENOSPC)
    throw_file_error(path_, fmt::format("reserve {} bytes", bytes));
  behind_ = std::make_unique<WriteBehind>(
      [path = path_, atomic = atomic_.get(), written = bytes_ - begun](auto pages) mutable {
        assert(pages.size() % page_bytes() == 0 && written % page_bytes() == 0);
        assert(reinterpret_cast<std::uintptr_t>(pages.data()) % page_bytes() == 0);
        write_all(atomic->descriptor(), pages, path);
        atomic->checkpoint(written += pages.size());
      },
      row);
}

void Writer::compress(const Compression& compression, unsigned threads, TraceRow row) {
  assert(!compressor_ && bytes_ == 0);
  compressor_ = std::make_unique<Compressor>(compression, threads, stop_, row);
}

void Writer::write(std::span<const std::byte> bytes, std::size_t free_before,
                   const WriteBehind::Owner& owner) {
  if (compared_bytes_ != 0) {
    bytes = compare(bytes);
    free_before = 0;
  }
  if (bytes.empty()) return;  // an empty checkpoint would delay the next one
  assert(!atomic_ || !atomic_->is_in_place());
  if (compressor_)
    compressor_->add(bytes, [this](auto compressed) { put(compressed); });
  else
    put(bytes, free_before, owner);
}

// Compares `bytes` with the kept bytes; returns the rest, which comes after them.
std::span<const std::byte> Writer::compare(std::span<const std::byte> bytes) {
  assert(kept_ && compared_bytes_ <= bytes_);
  std::vector<std::byte> kept(std::min(bytes.size(), compared_block_bytes));
  while (compared_bytes_ != 0 && !bytes.empty()) {
    const std::uint64_t count = std::min({bytes.size(), kept.size(), compared_bytes_});
    const auto block = std::span(kept).first(count);
    if (read_at(kept_, block, bytes_ - compared_bytes_, path_) != count ||
        std::memcmp(block.data(), bytes.data(), count) != 0)
      throw PartialOutputDiffers(path_);
    compared_bytes_ -= count;
    bytes = bytes.subspan(count);
  }
  return bytes;
}

void Writer::put(std::span<const std::byte> bytes, std::size_t free_before,
                 const WriteBehind::Owner& owner) {
  if (sink_) write_to_sink(bytes);
  bytes_ += bytes.size();
  if (sink_) return;
  if (is_direct()) return write_pages(bytes, free_before, owner);
  write_all(file(), bytes, path_);
  // Start writeback now, so that the final fsync has little left to wait for.
  if (bytes_ - handed_over_bytes_ >= handed_over_at_once_bytes) {
    ::sync_file_range(file().get(), static_cast<off_t>(handed_over_bytes_),
                      static_cast<off_t>(bytes_ - handed_over_bytes_), SYNC_FILE_RANGE_WRITE);
    handed_over_bytes_ = bytes_;
  }
  if (atomic_) atomic_->checkpoint(bytes_);
}

void Writer::write_pages(std::span<const std::byte> bytes, std::size_t free_before,
                         const WriteBehind::Owner& owner) {
  const std::size_t begun = staged_bytes_ % page_bytes();
  // `bytes_` counts these bytes already; all pages before the staged bytes are queued.
  assert((bytes_ - bytes.size()) % page_bytes() == begun);
  assert(staged_bytes_ < staging_->bytes().size());
  if (begun != 0 && begun <= free_before &&
      reinterpret_cast<std::uintptr_t>(bytes.data()) % page_bytes() == begun) {
    // Move the staged bytes of the shared page in front of `bytes`. The caller lends this memory by
    // `free_before`, so it is writable, and holds nothing that is still needed.
    staged_bytes_ -= begun;
    auto* const page = const_cast<std::byte*>(bytes.data()) - begun;
    assert(reinterpret_cast<std::uintptr_t>(page) % page_bytes() == 0);
    assert(staged_bytes_ % page_bytes() == 0);
    std::copy_n(staging_->bytes().data() + staged_bytes_, begun, page);
    if (staged_bytes_ != 0) write_staged();
    bytes = {page, begun + bytes.size()};
  }
  while (!bytes.empty()) {
    const bool at_page = reinterpret_cast<std::uintptr_t>(bytes.data()) % page_bytes() == 0;
    if (staged_bytes_ == 0 && at_page && bytes.size() >= page_bytes()) {
      const std::size_t whole = bytes.size() - bytes.size() % page_bytes();
      behind_->add(bytes.first(whole), owner);
      if (!owner) behind_->finish();
      bytes = bytes.subspan(whole);
    } else {
      const auto free = staging_->bytes().subspan(staged_bytes_);
      const std::size_t count = std::min(bytes.size(), free.size());
      std::ranges::copy(bytes.first(count), free.begin());
      staged_bytes_ += count;
      bytes = bytes.subspan(count);
      if (count == free.size()) write_staged();
    }
  }
}

void Writer::write_staged() {
  assert(staged_bytes_ != 0 && staged_bytes_ % page_bytes() == 0);
  behind_->add(staging_->bytes().first(std::exchange(staged_bytes_, 0)), staging_);
  staging_ = std::make_shared<Buffer>(staging_pool_->lease());
}

void Writer::write_to_sink(std::span<const std::byte> bytes) {
  try {
    sink_->write(bytes);
  } catch (...) {
    rethrow_stream_error(path_.native(), fmt::format("write at byte {}", bytes_));
  }
}

void Writer::drain() {
  if (behind_) behind_->finish();
}

void Writer::abandon() {
  if (behind_) behind_->abandon();
}

void Writer::make_durable() {
  if (compared_bytes_ != 0) throw PartialOutputDiffers(path_);
  if (compressor_) compressor_->finish([this](auto compressed) { put(compressed); });
  if (behind_) {
    drain();
    make_buffered(file());  // the last page may be partial
    assert(staged_bytes_ % page_bytes() == bytes_ % page_bytes());
    write_all(file(), staging_->bytes().first(std::exchange(staged_bytes_, 0)), path_);
  }
  if (atomic_) atomic_->make_durable(bytes_, stop_);
}

void Writer::commit() {
  if (atomic_) atomic_->commit();
  if (!sink_) return;
  try {
    sink_->commit();
  } catch (...) {
    rethrow_stream_error(path_.native(), "close");
  }
}

}  // namespace corank
