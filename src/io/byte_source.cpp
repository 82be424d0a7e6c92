#include "io/byte_source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "io/codec.hpp"
#include "util/setting_format.hpp"

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
  if (::fstat(file.get(), &status) != 0) throw_file_error(path, "look at");
  if (S_ISDIR(status.st_mode))
    throw Error(path.string() + ": is a folder; name the run files in it");
  const bool is_stream =
      path == standard_input || S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode);
  if (!is_stream && !S_ISREG(status.st_mode))
    throw Error(path.string() + ": is neither a file nor a pipe; write it to a file first");
  return {{status.st_dev, status.st_ino},
          is_stream,
          is_stream ? 0 : static_cast<std::uint64_t>(status.st_size),
          modified_ns(status),
          Codec::none,
          0,
          default_max_decoder_bytes};
}

Codec codec_of(const std::filesystem::path& path, std::span<const std::byte> head) {
  const Codec named = Compression::by_name(path.native());
  const Codec codec = recognise(head, named);
  if (codec == Codec::none && named != Codec::none)
    throw Error(fmt::format(
        "{}: is named like a {} file but does not begin like one; get it anew or, if it is not "
        "compressed, use {}",
        path.string(), name_of(named), Setting::no_decompression));
  return codec;
}

class FileSource : public Source {
 public:
  FileSource(std::filesystem::path path, std::shared_ptr<const FileDescriptor> file,
             const InputStatus& status)
      : path_(std::move(path)), file_(std::move(file)), status_(status) {}

  std::optional<std::size_t> read(std::span<std::byte> into) override {
    if (file_) return read(*file_, into);
    const FileDescriptor file = open_to_read(path_);
    if (!(status_of(file, path_).identity == status_.identity))
      throw Error(path_.string() + ": was replaced while it was read; start again");
    return read(file, into);
  }

  std::uint64_t input_bytes() const override { return offset_; }

 private:
  std::optional<std::size_t> read(const FileDescriptor& file, std::span<std::byte> into) {
    const std::size_t got = read_at(file, into, offset_, path_);
    offset_ += got;
    if (got < into.size() && offset_ != status_.bytes)
      throw Error(
          fmt::format("{}: changed its size while it was read: it had {} bytes and now ends at "
                      "byte {}; start again when nothing writes to it",
                      path_.string(), status_.bytes, offset_));
    return got != 0 ? std::optional(got) : std::nullopt;
  }

  std::filesystem::path path_;
  std::shared_ptr<const FileDescriptor> file_;  // null: opened for each read
  InputStatus status_;
  std::uint64_t offset_ = 0;
};

class PipeSource : public Source {
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

  std::uint64_t input_bytes() const override { return offset_; }

 private:
  std::filesystem::path path_;
  std::shared_ptr<const FileDescriptor> file_;
  std::stop_token stop_;
  std::uint64_t offset_ = 0;
};

// Passes on the bytes of another source, decompressed if they are compressed.
class DecompressedSource : public Source {
 public:
  DecompressedSource(std::filesystem::path path, std::unique_ptr<Source> input,
                     std::uint64_t max_decoder_bytes)
      : path_(std::move(path)), input_(std::move(input)), max_decoder_bytes_(max_decoder_bytes) {}

  std::optional<std::size_t> read(std::span<std::byte> into) override {
    if (!begun_ && !begin()) return 0;
    const std::optional<std::size_t> got = decoder_ ? decode(into) : pass_on(into);
    if (!got) decoder_.reset();  // frees its memory early
    produced_ += got.value_or(0);
    return got;
  }

  std::uint64_t input_bytes() const override { return input_->input_bytes(); }

 private:
  // Returns false while too little has come from a pipe to tell the codec.
  bool begin() {
    while (left_.size() < recognised_bytes && !input_ended_)
      if (!read_more()) return false;
    codec_ = codec_of(path_, left_);
    decoder_ = make_decoder(codec_, max_decoder_bytes_);
    begun_ = true;
    return true;
  }

  // Adds to the unread bytes, which begin the block. Returns false if a pipe is empty.
  bool read_more() {
    block_.resize(block_bytes);
    const auto got = input_->read(std::span(block_).subspan(left_.size()));
    input_ended_ = !got;
    left_ = std::span(block_).first(left_.size() + got.value_or(0));
    return got != std::size_t{0};
  }

  std::optional<std::size_t> pass_on(std::span<std::byte> into) {
    if (left_.empty()) {
      block_ = {};
      return input_->read(into);
    }
    const std::size_t count = std::min(into.size(), left_.size());
    std::copy_n(left_.begin(), count, into.begin());
    left_ = left_.subspan(count);
    return count;
  }

  std::optional<std::size_t> decode(std::span<std::byte> into) {
    std::size_t done = 0;
    while (done < into.size()) {
      if (left_.empty() && !holds_more_ && !input_ended_ && (done != 0 || !read_more()))
        return done;
      if (!in_frame_) skip_padding();
      if (!in_frame_ && left_.empty()) {
        if (!input_ended_) continue;
        if (done == 0) return std::nullopt;
        return done;
      }
      const bool at_end = left_.empty() && !holds_more_;
      Decoder::Step step{};
      try {
        step = decoder_->decode(left_, into.subspan(done));
      } catch (const CodecNeedsMemory&) {
        throw Error(ErrorCode::memory,
                    fmt::format("{}: its {} data need more memory to be decompressed than the "
                                "budget, {} bytes; use a "
                                "larger {}, or decompress it with the {} program first",
                                path_.string(), name_of(codec_), max_decoder_bytes_,
                                Setting::memory, name_of(codec_)));
      } catch (const CodecError& error) {
        fail(done, fmt::format("is damaged, {},", error.what()));
      }
      assert(step.consumed <= left_.size() && step.produced <= into.size() - done);
      left_ = left_.subspan(step.consumed);
      done += step.produced;
      in_frame_ = !step.frame_ended;
      holds_more_ = in_frame_ && done == into.size();
      if (at_end && in_frame_ && step.produced == 0) fail(done, "ends too early,");
    }
    return done;
  }

  // Skips zeros after the last frame, left by tapes and block copies. gzip and xz accept them, too.
  void skip_padding() {
    if (codec_ != Codec::gzip && codec_ != Codec::xz) return;
    const auto data = std::ranges::find_if(left_, [](std::byte b) { return b != std::byte{}; });
    left_ = left_.subspan(static_cast<std::size_t>(data - left_.begin()));
  }

  [[noreturn]] void fail(std::size_t done, const std::string& what) const {
    const std::uint64_t produced = produced_ + done;
    throw Error(fmt::format("{}: its {} data {} at byte {}, after {} bytes of what it holds; {}",
                            path_.string(), name_of(codec_), what,
                            input_->input_bytes() - left_.size(), produced,
                            produced != 0 ? "get it anew"
                                          : "get it anew or, if it is not compressed, use " +
                                                to_marker(Setting::no_decompression)));
  }

  std::filesystem::path path_;
  std::unique_ptr<Source> input_;
  std::uint64_t max_decoder_bytes_;
  bool begun_ = false;
  bool input_ended_ = false;
  Codec codec_ = Codec::none;
  std::unique_ptr<Decoder> decoder_;  // null: the input is not compressed
  std::vector<std::byte> block_;
  std::span<const std::byte> left_;  // unread rest of the block
  bool in_frame_ = false;
  bool holds_more_ = false;  // the decoder may produce more without new input
  std::uint64_t produced_ = 0;
};

}  // namespace

std::size_t read_all(Source& source, std::span<std::byte> into) {
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
                         bool decompress, std::uint64_t max_decoder_bytes) {
  InputStatus status = status_of(file, path);
  status.max_decoder_bytes = max_decoder_bytes;
  if (status.is_stream) return status;
  std::array<std::byte, head_bytes> room;
  // Files in /proc report a size of 0 but have content.
  if (status.bytes == 0 && read_at(file, room, 0, path) != 0)
    throw Error(path.string() + ": has a size of 0 and yet holds something; make a copy of it");
  if (!decompress) return status;
  const auto head = std::span(room).first(std::min<std::uint64_t>(room.size(), status.bytes));
  const std::size_t got = read_at(file, head, 0, path);
  if (got < head.size())
    throw Error(fmt::format(
        "{}: became shorter while it was opened: it had {} bytes and now ends at byte {}; start "
        "again when nothing writes to it",
        path.string(), status.bytes, got));
  status.codec = codec_of(path, head);
  if (status.codec != Codec::none)
    status.memory_bytes = decoder_bytes(status.codec, head, max_decoder_bytes) + block_bytes;
  return status;
}

std::unique_ptr<Source> open_source(const std::filesystem::path& path,
                                    std::shared_ptr<const FileDescriptor> file,
                                    const InputStatus& status, bool decompress,
                                    std::stop_token stop) {
  std::unique_ptr<Source> source;
  assert(file || !status.is_stream);  // a pipe cannot be opened anew
  if (status.is_stream)
    source = std::make_unique<PipeSource>(path, std::move(file), std::move(stop));
  else
    source = std::make_unique<FileSource>(path, std::move(file), status);
  if (!decompress) return source;
  return std::make_unique<DecompressedSource>(shown(path), std::move(source),
                                              status.max_decoder_bytes);
}

}  // namespace corank
