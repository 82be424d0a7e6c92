// Gives the disk space of a temporary file back while the file is read, piece by piece.
//
// A background thread punches holes into the file; the file keeps its size, and the holes read as
// zeros. File systems without holes keep the space until the file is closed. One thread uses a
// puncher. Offsets and sizes are in bytes.
//
// Source: fallocate(2), FALLOC_FL_PUNCH_HOLE.
#pragma once

#include <cstdint>
#include <future>
#include <memory>

#include "io/file.hpp"

namespace corank {

class HolePuncher {
 public:
  // Punches from `begin` on, in pieces that suit a file of `file_bytes` bytes.
  HolePuncher(std::shared_ptr<const FileDescriptor> file, std::uint64_t begin,
              std::uint64_t file_bytes);

  // Gives back what is before `end`, once that is a whole piece. Nothing may read it any more.
  // Waits for the piece before, so that no more than one waits for the disk.
  void punch_before(std::uint64_t end);

  // Returns how much of a file of `file_bytes` bytes may be kept too long.
  static std::uint64_t max_late_bytes(std::uint64_t file_bytes) { return 2 * piece_of(file_bytes); }

 private:
  static std::uint64_t piece_of(std::uint64_t file_bytes);

  std::shared_ptr<const FileDescriptor> file_;
  std::uint64_t begin_;  // of what is not punched yet; a multiple of the page size
  std::uint64_t piece_bytes_;
  std::future<void> punching_;
};

// Returns whether the file system of a folder gives back the space of holes.
bool has_holes(const std::filesystem::path& folder);

}  // namespace corank
