// A file that appears under its name only when it is whole and durable.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <stop_token>
#include <string>

#include "io/file.hpp"
#include "io/sidecar.hpp"

namespace corank {

// It is written under a temporary name beside the target and renamed. The temporary name depends on
// the target alone, so that what a killed process left behind is gone on with or replaced by the
// next; a sidecar tells what it is.
class AtomicFile {
 public:
  // What the file will hold.
  struct Content {
    std::uint64_t digest = 0;  // of all that it is made from
    std::uint64_t bytes = 0;
    bool at_most = false;  // whether it may turn out to be fewer
  };
  struct Settings {
    bool overwrite = false;
    bool resume = false;
    std::chrono::milliseconds checkpoint_interval{};
  };

  // Throws Error where the target exists and may not be replaced, where another process is writing
  // it, where `is_input` holds for the temporary file or the sidecar, or where it does for a target
  // that a stopped process had put in its place already, and is to be gone on with.
  AtomicFile(std::filesystem::path target, const Content& content, const Settings& settings,
             const std::function<bool(FileIdentity)>& is_input);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const FileDescriptor& descriptor() const { return in_place_ ? target_file_ : file_; }

  // How much of the content a stopped process left, to be gone on from: 0 without Settings::resume.
  // All of it where that process had renamed the file already, which is then no longer written.
  std::uint64_t left_bytes() const { return left_bytes_; }
  bool is_in_place() const { return in_place_; }
  // Why left_bytes() is 0 although there is a file; empty if there is none.
  const std::string& why_not_resumable() const { return why_nothing_left_; }

  // For a part of an output whose first part is in place: without a sidecar this one is so, too,
  // since sidecars go when all parts are in place, and the first part's goes last.
  void take_forgotten_target(const Content& content);

  // Truncates the file to its first `bytes`, at most left_bytes(). Must precede all writing.
  void keep(std::uint64_t bytes);
  // To read what is kept, however the file is written.
  FileDescriptor open_kept() const { return open_to_read(temporary_); }

  // What is written next stands at `offset`.
  void write_from(std::uint64_t offset);

  // Makes what was written durable in the background, if that is due. An error is thrown by a later
  // call.
  void checkpoint(std::uint64_t written_bytes);
  // Throws Interrupted if asked to stop. An error is final: the file is of no use any more.
  void make_durable(std::uint64_t written_bytes, std::stop_token stop);
  // Puts what make_durable() left in place of the target, of which it takes mode and owner.
  void commit();
  // Nothing is to be gone on with: every file of the merge is in place.
  void forget_sidecar();
  // The destructor leaves what a later process can go on with.
  void leave() { leave_ = true; }

 private:
  void open_temporary(const std::function<bool(FileIdentity)>& is_input);
  void find_partial_output(const Content& content,
                           const std::function<bool(FileIdentity)>& is_input);
  void take_target();
  void write_sidecar(bool durable);
  void end_checkpoint();
  FileDescriptor open_folder() const;
  void sync_folder(const FileDescriptor& folder) const;

  std::filesystem::path target_;
  std::filesystem::path folder_;  // where the target and the other two are
  std::filesystem::path temporary_;
  std::filesystem::path sidecar_path_;
  Settings settings_;
  std::optional<struct stat> old_;  // what the target was at the start
  FileDescriptor file_;
  FileDescriptor target_file_;  // open where the target is what is left
  ino_t inode_ = 0;
  std::uint64_t left_bytes_ = 0;
  std::uint64_t found_bytes_ = 0;
  std::uint64_t found_durable_bytes_ = 0;
  std::string why_nothing_left_;
  bool has_sidecar_ = false;
  bool in_place_ = false;
  bool bytes_are_known_;
  bool leave_ = false;
  bool unusable_ = false;
  Sidecar sidecar_;  // of the checkpoint, while there is one
  std::chrono::steady_clock::time_point checkpoint_ended_ = std::chrono::steady_clock::now();
  std::future<void> checkpoint_;
};

}  // namespace corank
