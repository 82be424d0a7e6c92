// A file that appears under its name only when it is whole and durable.
//
// `AtomicFile` writes a hidden temporary file beside the target; commit() renames it. An existing
// target that no file can replace is overwritten by commit() instead. One thread at a time uses it;
// checkpoints sync in the background. Sizes and offsets are in bytes. Failures are thrown as Error.
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

// The temporary name depends on the target alone, so that the next process finds the partial output
// of a killed one, and resumes or replaces it. A sidecar file describes the partial output.
class AtomicFile {
 public:
  // Describes the file when it is whole.
  struct Content {
    std::uint64_t digest = 0;  // identifies the inputs and options that make it
    std::uint64_t bytes = 0;
    bool at_most = false;  // `bytes` is only an upper bound
  };
  struct Settings {
    bool overwrite = false;
    bool resume = false;
    std::chrono::milliseconds checkpoint_interval{};
    std::filesystem::path temporary_folder = {};  // of the file if the target is overwritten
  };

  // Throws Error if the target exists and may not be replaced, if another process is writing it, or
  // if `is_input` holds for the temporary file or the sidecar. A target that a stopped merge had
  // already renamed must not be an input either.
  AtomicFile(std::filesystem::path target, const Content& content, const Settings& settings,
             const std::function<bool(FileIdentity)>& is_input);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Returns the temporary file, or the target while is_in_place().
  const FileDescriptor& descriptor() const { return in_place_ ? target_file_ : file_; }

  // Returns the size of the partial output that can be resumed; 0 without Settings::resume.
  // If the stopped process had renamed the file already, it is whole, and is_in_place() holds.
  std::uint64_t partial_bytes() const { return partial_bytes_; }
  // True if the target is already the whole output, which then is not written again.
  bool is_in_place() const { return in_place_; }
  // True if the target is overwritten, because no file can replace it: it is a mount point, or its
  // folder forbids it. Such a file cannot be resumed.
  bool is_overwriting() const { return static_cast<bool>(overwritten_); }
  // Returns when the partial output was last written to, in nanoseconds since 1970.
  std::int64_t partial_modified_ns() const { return partial_modified_ns_; }
  // Explains why a partial output cannot be resumed; empty if it can be, or if there is none.
  const std::string& why_not_resumable() const { return why_not_resumable_; }

  // Accepts a target without a sidecar as the whole output. To be called for a part if the first
  // part is in place: sidecars are removed once all parts are, the first part's sidecar last.
  void take_forgotten_target(const Content& content);

  // Throws Error if the target must not be replaced, and cannot be the whole output.
  void check_target() const;
  // Truncates the file to `bytes`, at most partial_bytes(). Must precede all writing.
  void keep(std::uint64_t bytes);
  // Opens the kept bytes for reading through the page cache, even if the file uses direct I/O.
  FileDescriptor open_kept() const { return open_to_read(temporary_); }

  // Sets the file offset of the next write.
  void write_from(std::uint64_t offset);

  // Makes the first `written_bytes` durable in the background if a checkpoint is due. A later call
  // throws its error.
  void checkpoint(std::uint64_t written_bytes);
  // Makes the whole file durable. Throws Interrupted if `stop` is requested. After any other error
  // the file is unusable.
  void make_durable(std::uint64_t written_bytes, std::stop_token stop);
  // Renames the file, which must be durable, to the target. A replaced target passes on its mode
  // and, if permitted, its owner. A target that turns out to be irreplaceable is overwritten.
  void commit();
  // Removes the sidecar, unless it is another's. To be called when every file of the merge is in
  // place.
  void forget_sidecar();
  // Makes the destructor keep the partial output and its sidecar for a later process. Waits for a
  // checkpoint. Returns false if the partial output is unusable, and will be removed all the same.
  bool leave();

 private:
  void open_temporary(const std::function<bool(FileIdentity)>& is_input);
  void open_to_overwrite();
  void rename_to_target();
  void find_partial_output(const Content& content,
                           const std::function<bool(FileIdentity)>& is_input);
  void take_target();
  void write_sidecar(bool durable);
  void end_checkpoint();
  FileDescriptor open_folder() const;

  std::filesystem::path target_;
  std::filesystem::path folder_;  // of the target, the temporary file and the sidecar
  std::filesystem::path temporary_;
  std::filesystem::path sidecar_path_;
  Settings settings_;
  std::optional<struct stat> old_;  // status of the target at the start, if it existed
  FileDescriptor file_;
  FileDescriptor target_file_;  // open if the target is the whole output
  FileDescriptor overwritten_;  // the target, open if it is overwritten
  ino_t inode_ = 0;             // of the temporary file
  std::uint64_t partial_bytes_ = 0;
  std::uint64_t found_bytes_ = 0;  // size of the temporary file at the start
  std::int64_t partial_modified_ns_ = 0;
  std::uint64_t found_durable_bytes_ = 0;  // according to its sidecar
  std::string why_not_resumable_;
  bool has_sidecar_ = false;
  bool in_place_ = false;
  bool bytes_are_known_;
  bool leave_ = false;
  bool unusable_ = false;
  Sidecar sidecar_;  // belongs to the checkpoint thread while one runs
  std::chrono::steady_clock::time_point checkpoint_ended_ = std::chrono::steady_clock::now();
  std::future<void> checkpoint_;
};

// Makes new names in the folder durable. `path` is for errors.
void sync_folder(const FileDescriptor& folder, const std::filesystem::path& path);

}  // namespace corank
