#include "io/byte_source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/iostreams/categories.hpp>
#include <boost/iostreams/read.hpp>
#include <cassert>
#include <cerrno>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "codec/codec.hpp"
#include "codec/decompressor.hpp"
#include "codec/parallel_decompressor.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

constexpr const char* standard_input = "-";

// Bytes of compressed data per read.
constexpr std::size_t block_bytes = std::size_t{128} << 10;
// Enough for the header of any codec.
constexpr std::size_t head_bytes = 2048;

// Longest wait for a pipe before the caller may do something else.
constexpr int patience_ms = 20;

std::filesystem::path shown(const std::filesystem::path& path) {
  return path == standard_input ? "standard input" : path;
}

InputStatus status_of(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_file_error(path, "get its status");
  if (S_ISDIR(status.st_mode))
    throw Error(path == standard_input ? "standard input: cannot read: it is closed, or a folder"
                                       : path.string() + ": is a folder; name the run files in it");
  const bool is_pipe =
      path == standard_input || S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode);
  // The null device is an empty file; others may have no end.
  const bool is_null = S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3);
  if (!is_pipe && !S_ISREG(status.st_mode) && !is_null)
    throw Error(path.string() + ": is neither a file nor a pipe; write it to a file first");
  return {.identity = identity_of(status),
          .is_pipe = is_pipe,
          .bytes = is_pipe ? 0 : static_cast<std::uint64_t>(status.st_size),
          .modified_ns = modified_ns(status)};
}

// Returns the codec of an input that begins with `head`. `named` is the codec that the input is
// named after.
Codec codec_of(const std::filesystem::path& path, Codec named, std::span<const std::byte> head) {
  const Codec codec = recognise(head, named);
  if (codec == Codec::none && named != Codec::none)
    throw_error(
        "{}: is named like a {} file but does not begin like one; get it anew or, if it is not "
        "compressed, use {}",
        path, name_of(named), Setting::no_decompression);
  return codec;
}

// Returns how many threads decompress the file, within `limits`, if a decoder takes
// `decoder_bytes`: several if it consists of many frames.
unsigned decoder_threads(const std::filesystem::path& path, const FileDescriptor& file,
                         const InputStatus& status, std::uint64_t decoder_bytes,
                         const DecompressionLimits& limits) {
  unsigned threads = std::min(limits.max_threads, ParallelDecompressor::max_threads);
  while (threads > 1 &&
         ParallelDecompressor::memory_bytes(threads, decoder_bytes) > limits.max_parallel_bytes)
    --threads;
  if (threads < 2) return 1;
  std::vector<std::byte> begin(
      std::min<std::uint64_t>(status.bytes, ParallelDecompressor::max_piece_bytes));
  begin.resize(read_at(file, begin, 0, path));
  return find_frame(status.codec, begin, 1) ? threads : 1;
}

class FileSource : public ByteSource {
 public:
  FileSource(std::filesystem::path path, std::shared_ptr<const FileDescriptor> file,
             const InputStatus& status)
      : path_(std::move(path)), file_(std::move(file)), status_(status) {}

  std::optional<std::size_t> read(std::span<std::byte> into) override {
    return file_ ? read(*file_, into) : read(reopen(path_, status_.identity), into);
  }

 private:
  std::optional<std::size_t> read(const FileDescriptor& file, std::span<std::byte> into) {
    const std::size_t got = read_at(file, into, offset_, path_);
    offset_ += got;
    if (got < into.size() && offset_ != status_.bytes)
      throw_error(
          "{}: changed its size while it was read: it had {} bytes and now ends at byte {}; start "
          "again when nothing writes to it",
          path_, status_.bytes, offset_);
    return got != 0 ? std::optional(got) : std::nullopt;
  }

  std::filesystem::path path_;
  std::shared_ptr<const FileDescriptor> file_;  // null: opened for each read
  InputStatus status_;
  std::uint64_t offset_ = 0;
};

class PipeSource : public ByteSource {
 public:
  PipeSource(const std::filesystem::path& path, std::shared_ptr<const FileDescriptor> file,
             std::stop_token stop)
      : path_(shown(path)), file_(std::move(file)), stop_(std::move(stop)) {}

  std::optional<std::size_t> read(std::span<std::byte> into) override {
    assert(!into.empty());  // it would look like the end
    // A named pipe without a writer reads as ended; poll() waits for the writer.
    struct pollfd data {
      file_->get(), POLLIN, 0
    };
    const int ready = ::poll(&data, 1, patience_ms);
    if (stop_.stop_requested()) throw Interrupted();
    if (ready == 0) return 0;
    const ssize_t got = ready < 0 ? -1 : ::read(file_->get(), into.data(), into.size());
    if (got == 0) return std::nullopt;
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
    if (got < 0) throw_file_error(path_, fmt::format("read at byte {}", offset_));
    offset_ += static_cast<std::uint64_t>(got);
    return static_cast<std::size_t>(got);
  }

 private:
  std::filesystem::path path_;
  std::shared_ptr<const FileDescriptor> file_;
  std::stop_token stop_;
  std::uint64_t offset_ = 0;
};

// A source that the caller of the library gave.
class GivenSource final : public ByteSource {
 public:
  GivenSource(NamedSource given, std::stop_token stop)
      : given_(std::move(given)), stop_(std::move(stop)) {}

  std::optional<std::size_t> read(std::span<std::byte> into) override {
    if (stop_.stop_requested()) throw Interrupted();
    std::optional<std::size_t> got;
    try {
      got = given_.bytes->read(into);
      if (got > into.size()) throw std::length_error("it says that it read more than it was asked");
    } catch (...) {
      rethrow_stream_error(given_.name, fmt::format("read at byte {}", offset_));
    }
    offset_ += got.value_or(0);
    return got;
  }

 private:
  NamedSource given_;
  std::stop_token stop_;
  std::uint64_t offset_ = 0;
};

// Keeps the last bytes of a source, by which the end of BGZF is recognised.
class LastBytes {
 public:
  void add(std::span<const std::byte> bytes) {
    bytes = bytes.last(std::min(bytes.size(), bgzf_end.size()));
    last_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    last_.erase(0, last_.size() - std::min(last_.size(), bgzf_end.size()));
  }
  bool are_bgzf_end() const { return last_ == bgzf_end; }

 private:
  std::string last_;
};

// Reads a source as a device of Boost.Iostreams, one block for each read of the filter above it.
struct BlockDevice {
  using char_type = char;
  using category = boost::iostreams::source_tag;

  // Returns -1 at the end, and 0 if reading more would have to wait.
  std::streamsize read(char* bytes, std::streamsize count) {
    if (has_read) return 0;
    const auto into = std::as_writable_bytes(std::span(bytes, static_cast<std::size_t>(count)));
    const std::optional<std::size_t> got = read(into);
    has_read = got != std::size_t{0};
    return got ? static_cast<std::streamsize>(*got) : -1;
  }
  std::optional<std::size_t> read(std::span<std::byte> into) {
    if (head.empty()) return take(into);
    const auto count = static_cast<std::ptrdiff_t>(std::min(into.size(), head.size()));
    std::copy_n(head.begin(), count, into.begin());
    head.erase(head.begin(), head.begin() + count);
    return count;
  }

  // Reads from the source, whatever was read already. A terminal has no end that lasts, so it is
  // not read after its end.
  std::optional<std::size_t> take(std::span<std::byte> into) {
    if (has_ended) return std::nullopt;
    const std::optional<std::size_t> got = source->read(into);
    has_ended = !got;
    last.add(into.first(got.value_or(0)));
    return got;
  }

  std::unique_ptr<ByteSource> source;
  std::vector<std::byte> head = {};  // bytes that were read already
  LastBytes last = {};
  bool has_ended = false;
  bool has_read = false;
};

// Passes on the bytes of another source, decompressed if they are compressed.
class DecompressedSource final : public ByteSource {
 public:
  DecompressedSource(std::filesystem::path path, Codec named, std::unique_ptr<ByteSource> input,
                     InputStatus status, std::stop_token stop)
      : path_(std::move(path)),
        named_(named),
        input_{std::move(input)},
        status_(std::move(status)),
        stop_(std::move(stop)) {}

  std::optional<std::size_t> read(std::span<std::byte> into) override {
    assert(!into.empty());
    if (!is_begun_ && !begin()) return 0;
    if (parallel_) return read_in_parallel(into);
    if (!decompressor_) return input_.read(into);
    std::streamsize got = 0;
    do {
      input_.has_read = false;
      got = decompressor_->read(input_, reinterpret_cast<char*>(into.data()),
                                static_cast<std::streamsize>(into.size()));
    } while (got == 0 && input_.has_read);
    if (got >= 0) return got;
    decompressor_.reset();  // frees its memory early
    if (is_bgzf_ && status_.lacks_bgzf_end) *status_.lacks_bgzf_end = !input_.last.are_bgzf_end();
    return std::nullopt;
  }

 private:
  std::optional<std::size_t> read_in_parallel(std::span<std::byte> into) {
    const std::size_t got = parallel_->read(
        [this](std::span<std::byte> block) { return input_.read(block).value_or(0); }, into);
    return got != 0 ? std::optional(got) : std::nullopt;
  }

  // Returns false while too little has come from a pipe to tell the codec.
  bool begin() {
    std::vector<std::byte>& head = input_.head;
    while (head.size() < bgzf_head_bytes && !input_.has_ended) {
      const std::size_t had = head.size();
      head.resize(head_bytes);
      const std::optional<std::size_t> got = input_.take(std::span(head).subspan(had));
      head.resize(had + got.value_or(0));
      if (got == std::size_t{0}) return false;
    }
    const Codec codec = codec_of(path_, named_, head);
    is_bgzf_ = codec == Codec::gzip && is_bgzf(head);
    if (codec != Codec::none && status_.decoder_threads > 1)
      parallel_.emplace(path_.string(), codec, status_.max_decoder_bytes, status_.decoder_threads,
                        stop_);
    else if (codec != Codec::none)
      decompressor_.emplace(block_bytes, path_.string(), codec, status_.max_decoder_bytes);
    is_begun_ = true;
    return true;
  }

  std::filesystem::path path_;
  Codec named_;
  BlockDevice input_;
  InputStatus status_;
  std::stop_token stop_;
  bool is_begun_ = false, is_bgzf_ = false;
  std::optional<Decompressor> decompressor_;  // both null: the input is not compressed
  std::optional<ParallelDecompressor> parallel_;
};

}  // namespace

std::size_t read_all(ByteSource& source, std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const std::optional<std::size_t> got = source.read(into.subspan(done));
    if (!got) break;
    assert(*got <= into.size() - done);
    done += *got;
  }
  return done;
}

FileDescriptor open_input(const std::filesystem::path& path) {
  if (path != standard_input) return open_to_read(path);
  FileDescriptor file(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
  if (!file) throw_file_error(shown(path), "read");
  return file;
}

InputStatus verify_input(const std::filesystem::path& path, const FileDescriptor& file,
                         bool decompress, const DecompressionLimits& limits) {
  InputStatus status = status_of(file, path);
  status.max_decoder_bytes = limits.max_decoder_bytes;
  if (status.is_pipe) {
    status.lacks_bgzf_end = std::make_shared<std::atomic<bool>>(false);
    return status;
  }
  std::array<std::byte, head_bytes> room;
  // Files in /proc report a size of 0 but have content.
  if (status.bytes == 0 && read_at(file, room, 0, path) != 0)
    throw Error(path.string() + ": has a size of 0 and yet holds something; make a copy of it");
  if (!decompress) return status;
  const auto head = std::span(room).first(std::min<std::uint64_t>(room.size(), status.bytes));
  const std::size_t got = read_at(file, head, 0, path);
  if (got < head.size())
    throw_error(
        "{}: became shorter while it was opened: it had {} bytes and now ends at byte {}; start "
        "again when nothing writes to it",
        path, status.bytes, got);
  status.codec = codec_of(path, Compression::by_name(path.native()), head);
  if (status.codec == Codec::none) return status;
  status.memory_bytes = decoder_bytes(status.codec, head, limits.max_decoder_bytes) + block_bytes;
  status.decoder_threads = decoder_threads(path, file, status, status.memory_bytes, limits);
  if (status.decoder_threads > 1)
    status.memory_bytes +=
        ParallelDecompressor::memory_bytes(status.decoder_threads, status.memory_bytes);
  return status;
}

std::unique_ptr<ByteSource> open_source(const std::filesystem::path& path,
                                        std::shared_ptr<const FileDescriptor> file,
                                        const InputStatus& status, bool decompress,
                                        std::stop_token stop) {
  std::unique_ptr<ByteSource> source;
  assert(file || !status.is_pipe);  // a pipe cannot be opened anew
  if (status.is_pipe)
    source = std::make_unique<PipeSource>(path, std::move(file), stop);
  else
    source = std::make_unique<FileSource>(path, std::move(file), status);
  if (!decompress) return source;
  return std::make_unique<DecompressedSource>(shown(path), Compression::by_name(path.native()),
                                              std::move(source), status, std::move(stop));
}

std::unique_ptr<ByteSource> open_source(const NamedSource& given, bool decompress,
                                        std::uint64_t max_decoder_bytes, std::stop_token stop) {
  auto source = std::make_unique<GivenSource>(given, stop);
  if (!decompress) return source;
  return std::make_unique<DecompressedSource>(
      given.name, Codec::none, std::move(source),
      InputStatus{.is_pipe = true, .max_decoder_bytes = max_decoder_bytes}, std::move(stop));
}

}  // namespace corank
