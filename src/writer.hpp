// Where a merge's output goes, in order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "file.hpp"
#include "run.hpp"

namespace corank {

class Writer {
 public:
  // To `output` as merge() describes it. `is_input` tells which files are runs of the merge.
  Writer(const std::filesystem::path& output, bool overwrite,
         const std::function<bool(FileIdentity)>& is_input);
  // To a nameless file in `folder`, which becomes a run of the next pass.
  explicit Writer(const std::filesystem::path& folder);

  void write(std::span<const std::byte> bytes);
  std::uint64_t bytes() const { return bytes_; }

  void make_durable();
  // Puts the output, which must be durable, under its name.
  void commit();
  // What was written to a nameless file, as a run. The writer is empty after that.
  Run into_run(std::uint32_t record_bytes);

 private:
  const FileDescriptor& file() const { return atomic_ ? atomic_->descriptor() : file_; }

  std::filesystem::path path_;
  std::unique_ptr<AtomicFile> atomic_;
  FileDescriptor file_;
  std::uint64_t bytes_ = 0;
};

}  // namespace corank
