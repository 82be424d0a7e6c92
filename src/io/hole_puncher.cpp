#include "io/hole_puncher.hpp"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "util/buffer_pool.hpp"
#include "util/math.hpp"

namespace corank {
namespace {

// Bounds of a piece. A hole costs a system call, which on some disks waits for the device.
constexpr std::uint64_t min_piece_bytes = MiB;
constexpr std::uint64_t max_piece_bytes = 64 * MiB;
constexpr std::uint64_t max_pieces = 64;  // of a file whose pieces are smaller than the bound

bool punch(const FileDescriptor& file, std::uint64_t begin, std::uint64_t bytes) {
  return ::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     static_cast<off_t>(begin), static_cast<off_t>(bytes)) == 0;
}

}  // namespace

HolePuncher::HolePuncher(std::shared_ptr<const FileDescriptor> file, std::uint64_t begin,
                         std::uint64_t file_bytes)
    : file_(std::move(file)),
      begin_(round_up(begin, page_bytes())),
      piece_bytes_(piece_of(file_bytes)) {}

std::uint64_t HolePuncher::piece_of(std::uint64_t file_bytes) {
  return std::clamp(round_up(file_bytes / max_pieces, page_bytes()), min_piece_bytes,
                    max_piece_bytes);
}

void HolePuncher::punch_before(std::uint64_t end) {
  end -= end % page_bytes();
  if (end < begin_ + piece_bytes_) return;
  if (punching_.valid()) punching_.get();
  const std::uint64_t begin = std::exchange(begin_, end);
  punching_ = std::async(std::launch::async,
                         [file = file_, begin, end] { punch(*file, begin, end - begin); });
}

bool has_holes(const std::filesystem::path& folder) {
  return punch(open_nameless(folder), 0, page_bytes());
}

}  // namespace corank
