#include "io/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstdio>

#include "io/overwrite.hpp"
#include "util/digest.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

// Bytes synced per step; a stop request waits for one step.
constexpr std::uint64_t sync_step_bytes = 16 * MiB;

// Returns a hidden name beside the target.
std::string name_beside(const std::filesystem::path& target, const char* suffix) {
  return "." + shortened(target.filename().string(), 240) + suffix;
}

Error exists_already(const std::filesystem::path& target) {
  return Error(ErrorCode::exists, fmt::format("{}: exists already; use {} to replace it",
                                              target.string(), Setting::overwrite));
}

// Gives `file` the mode of `old` and, if permitted, its owner and group, so that a replaced file
// stays as private and as usable as before. Without the old owner or group, the mode bits that
// would give their rights to others are cleared.
void take_after(const FileDescriptor& file, const struct stat& old) {
  const bool owner = ::fchown(file.get(), old.st_uid, old.st_gid) == 0;
  const bool group = owner || ::fchown(file.get(), static_cast<uid_t>(-1), old.st_gid) == 0;
  // A file system without modes refuses; the new file is readable by its owner alone anyway.
  ::fchmod(file.get(), old.st_mode & (owner ? 07777u : group ? 0777u : 0707u));
}

// Returns whether nothing can be renamed over the file: a mount point, or one made immutable.
bool is_irreplaceable(const std::filesystem::path& path) {
  struct statx status {};
  return ::statx(AT_FDCWD, path.c_str(), 0, STATX_TYPE, &status) == 0 &&
         (status.stx_attributes &
          (STATX_ATTR_MOUNT_ROOT | STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND)) != 0;
}

// Returns whether the file system has no locks, so that a failed lock says nothing.
bool lacks_locks(int error) {
  return error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK || error == EINVAL;
}

// Returns whether the file was written to within the last minute.
bool is_fresh(const struct stat& status) {
  constexpr std::int64_t max_age_seconds = 60;
  return ::time(nullptr) - status.st_mtim.tv_sec < max_age_seconds;
}

struct FoundSidecar {
  bool exists = false;
  std::optional<Sidecar> content = {};  // nothing if it is damaged
};

FoundSidecar find_sidecar(const std::filesystem::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file && errno == ENOENT) return {};
  struct stat status {};
  if (file ? ::fstat(file.get(), &status) == 0 && !S_ISREG(status.st_mode) : errno == ELOOP)
    throw Error(path.string() + ": is in the way; remove it");
  if (!file) throw_file_error(path, "open");
  std::array<std::byte, 256> text;
  const std::size_t length = read_at(file, text, 0, path);
  return {true, parse_sidecar({reinterpret_cast<const char*>(text.data()), length})};
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path target, const Content& content,
                       const Settings& settings, const std::function<bool(FileIdentity)>& is_input)
    : target_(std::move(target)), settings_(settings), bytes_are_known_(!content.at_most) {
  struct stat status {};
  if (::stat(target_.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) throw Error(target_.string() + ": is a folder; name a file");
    if (!S_ISREG(status.st_mode))
      throw Error(target_.string() + ": is not a regular file; name another");
    if (!settings_.overwrite && !settings_.resume) throw exists_already(target_);
    // Replace the file that a symbolic link points to, not the link.
    std::error_code error;
    auto followed = std::filesystem::canonical(target_, error);
    if (error) throw_error("{}: cannot follow: {}", target_, error.message());
    target_ = std::move(followed);
    old_ = status;
  } else if (errno != ENOENT) {
    throw_file_error(target_, "get its status");
  } else if (::lstat(target_.c_str(), &status) == 0) {
    throw Error(target_.string() + ": is a link to nothing; remove it or make what it points to");
  }
  folder_ = target_.has_parent_path() ? target_.parent_path() : ".";
  temporary_ = folder_ / name_beside(target_, ".corank");
  sidecar_path_ = folder_ / name_beside(target_, ".corank-resume");
  if (::stat(sidecar_path_.c_str(), &status) == 0 && is_input(identity_of(status)))
    throw Error(sidecar_path_.string() +
                ": is the file of the output's state and also an input; rename it");
  if (old_ && is_irreplaceable(target_))
    open_to_overwrite();
  else
    open_temporary(is_input);
  if (is_overwriting()) return;
  try {
    find_partial_output(content, is_input);
  } catch (...) {
    if (!settings_.resume || found_bytes_ == 0) ::unlink(temporary_.c_str());
    throw;
  }
}

void AtomicFile::open_to_overwrite() {
  overwritten_ = corank::open_to_overwrite(target_);
  if (settings_.resume)
    throw_error(ErrorCode::options,
                "{}: can only be overwritten, not resumed, since no file can replace it: it is a "
                "mount point, or its folder forbids it; drop {}",
                target_, Setting::resume);
  file_ = open_nameless(settings_.temporary_folder);
  temporary_.clear();
  sidecar_path_.clear();
}

void AtomicFile::open_temporary(const std::function<bool(FileIdentity)>& is_input) {
  constexpr int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  for (;;) {
    FileDescriptor file(::open(temporary_.c_str(), flags | O_CREAT | O_EXCL, old_ ? 0600 : 0666));
    const bool made = static_cast<bool>(file);
    if (!made && errno == EEXIST) {
      file = FileDescriptor(::open(temporary_.c_str(), flags));
      if (!file && errno == ENOENT) continue;
    }
    if (!file && old_ && (errno == EACCES || errno == EPERM || errno == EROFS))
      return open_to_overwrite();
    if (!file) throw_file_error(target_, "create its temporary file");
    const auto fail = [&](const char* what) {
      const int error = errno;
      if (made) ::unlink(temporary_.c_str());
      errno = error;
      throw_file_error(temporary_, what);
    };
    struct stat mine {};
    if (::fstat(file.get(), &mine) != 0) fail("get its status");
    if (!S_ISREG(mine.st_mode)) throw Error(temporary_.string() + ": is in the way; remove it");
    if (is_input(identity_of(mine)))
      throw Error(temporary_.string() +
                  ": is the temporary file of the output and also an input; rename it");
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK)
        throw Error(target_.string() + ": another merge is writing it; wait for that one");
      if (!lacks_locks(errno)) fail("lock");
      // Without locks, whoever made the file has it, as long as it is written to.
      if (!made && is_fresh(mine))
        throw_error(
            "{}: another merge may be writing it, since {} changed within the last minute and its "
            "file system has no locks; wait, or remove it",
            target_, temporary_);
    }
    // The previous holder of the lock may have renamed or removed the file meanwhile.
    struct stat named {};
    if (::stat(temporary_.c_str(), &named) != 0) {
      if (errno == ENOENT) continue;
      fail("get its status");
    }
    if (!(identity_of(named) == identity_of(mine))) continue;
    file_ = std::move(file);
    inode_ = mine.st_ino;
    found_bytes_ = static_cast<std::uint64_t>(mine.st_size);
    partial_modified_ns_ = modified_ns(mine);
    return;
  }
}

void AtomicFile::find_partial_output(const Content& content,
                                     const std::function<bool(FileIdentity)>& is_input) {
  sidecar_ = {content.digest, inode_, this_boot(), 0};

  const auto [exists, found] = find_sidecar(sidecar_path_);
  has_sidecar_ = exists;
  if (!found) {
    // A process may have ended between creating the sidecar and writing it.
    if (found_bytes_ > 0)
      why_not_resumable_ = exists ? "its state is damaged" : "it has no sidecar";
    return;
  }
  found_durable_bytes_ = found->durable_bytes;
  // The target was not a run of the stopped merge, so the digests cannot be compared: the target
  // may contain all of these runs already.
  if (old_ && found->inode == old_->st_ino && is_input(identity_of(*old_)))
    throw_error(
        "{}: is a run, and the whole output of a merge that was stopped at its last step; if the "
        "runs are to be merged into it again, remove {}",
        target_, sidecar_path_);
  if (found->content != content.digest) {
    why_not_resumable_ = "it is of other runs or other options";
  } else if (old_ && found->inode == old_->st_ino &&
             static_cast<std::uint64_t>(old_->st_size) ==
                 (content.at_most ? found->durable_bytes : content.bytes)) {
    if (settings_.resume) take_target();
  } else if (found->inode != inode_) {
    why_not_resumable_ = "its file was replaced";
  } else {
    // Written bytes outlive their process in the page cache, but not a restart of the system.
    const bool same_boot = found->boot != 0 && found->boot == sidecar_.boot;
    partial_bytes_ = std::min(same_boot ? found_bytes_ : found->durable_bytes, found_bytes_);
    if (partial_bytes_ > content.bytes) {
      why_not_resumable_ = "it is longer than the whole output";
      partial_bytes_ = 0;
    }
  }
  if (!settings_.resume) partial_bytes_ = 0;
}

void AtomicFile::take_target() {
  assert(old_ && file_);
  target_file_ = open_to_read(target_);
  partial_bytes_ = static_cast<std::uint64_t>(old_->st_size);
  in_place_ = true;
}

void AtomicFile::take_forgotten_target(const Content& content) {
  assert(settings_.resume);
  if (old_ && !has_sidecar_ && found_bytes_ == 0 &&
      (content.at_most || static_cast<std::uint64_t>(old_->st_size) == content.bytes))
    take_target();
}

void AtomicFile::check_target() const {
  if (old_ && !settings_.overwrite && !in_place_ && !has_sidecar_ && found_bytes_ == 0)
    throw exists_already(target_);
}

void AtomicFile::keep(std::uint64_t bytes) {
  assert(bytes <= partial_bytes_ && !checkpoint_.valid());
  if (in_place_ && bytes == partial_bytes_) return;
  in_place_ = false;
  if (old_ && !settings_.overwrite) {
    if (found_bytes_ > 0) leave();
    throw exists_already(target_);
  }
  if (is_overwriting()) return;
  if (old_) take_after(file_, *old_);
  // Truncate before writing the sidecar: a reader caps its durable_bytes at the file's size.
  if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0)
    throw_file_error(temporary_, "truncate");
  write_from(bytes);
  sidecar_.durable_bytes = std::min(found_durable_bytes_, bytes);
  // Sync a sidecar that lowers durable_bytes: after a power loss, the old one would vouch for bytes
  // that were overwritten.
  write_sidecar(found_durable_bytes_ > bytes);
}

void AtomicFile::write_from(std::uint64_t offset) {
  assert(file_ && !in_place_);
  if (::lseek(file_.get(), static_cast<off_t>(offset), SEEK_SET) < 0)
    throw_file_error(temporary_, "seek");
}

bool AtomicFile::leave() {
  leave_ = true;
  try {
    end_checkpoint();
  } catch (const Error&) {
    assert(unusable_);  // the system need not report lost bytes again
  }
  return !unusable_;
}

AtomicFile::~AtomicFile() {
  assert(!leave_ || !checkpoint_.valid());
  if (checkpoint_.valid()) checkpoint_.wait();
  if (leave_ && !unusable_) return;
  forget_sidecar();
  if (file_) ::unlink(temporary_.c_str());
}

void AtomicFile::checkpoint(std::uint64_t written_bytes) {
  using namespace std::chrono_literals;
  assert(file_ && !in_place_);
  if (is_overwriting()) return;
  if (checkpoint_.valid() && checkpoint_.wait_for(0s) != std::future_status::ready) return;
  end_checkpoint();
  assert(sidecar_.durable_bytes <= written_bytes);
  if (std::chrono::steady_clock::now() - checkpoint_ended_ < settings_.checkpoint_interval) return;
  checkpoint_ = std::async(std::launch::async, [this, written_bytes] {
    if (::fdatasync(file_.get()) != 0) throw_file_error(target_, "make durable");
    if (sidecar_.durable_bytes == 0) sync_folder(open_folder(), folder_);
    sidecar_.durable_bytes = written_bytes;
    write_sidecar(true);
  });
}

void AtomicFile::end_checkpoint() {
  if (!checkpoint_.valid()) return;
  unusable_ = true;
  checkpoint_.get();
  unusable_ = false;
  checkpoint_ended_ = std::chrono::steady_clock::now();
}

void AtomicFile::make_durable(std::uint64_t written_bytes, std::stop_token stop) {
  if (is_overwriting()) return;  // commit() does it
  end_checkpoint();
  assert(sidecar_.durable_bytes <= written_bytes);
  constexpr unsigned write_and_wait =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  for (std::uint64_t at = 0; at < written_bytes; at += sync_step_bytes) {
    if (stop.stop_requested()) throw Interrupted();
    if (::sync_file_range(descriptor().get(), static_cast<off_t>(at), sync_step_bytes,
                          write_and_wait) == 0)
      continue;
    if (errno == ENOSYS || errno == EINVAL || errno == ESPIPE) break;  // not supported here
    unusable_ = true;
    throw_file_error(target_, "make durable");
  }
  if (::fsync(descriptor().get()) != 0) {
    unusable_ = true;
    throw_file_error(target_, "make durable");
  }
  if (bytes_are_known_ || in_place_) return;
  // Record the final size, by which a later process recognises the renamed output.
  sidecar_.durable_bytes = written_bytes;
  write_sidecar(true);
}

void AtomicFile::commit() {
  assert(file_ && !checkpoint_.valid() && !unusable_);
  if (is_overwriting()) return overwrite(overwritten_, file_, target_);
  // Open the folder before the rename, because opening can fail.
  const FileDescriptor folder = open_folder();
  if (in_place_) {
    ::unlink(temporary_.c_str());
  } else {
    rename_to_target();
    if (is_overwriting()) {
      overwrite(overwritten_, file_, target_);
      ::unlink(temporary_.c_str());
    }
  }
  file_ = FileDescriptor();
  try {
    sync_folder(folder, folder_);
  } catch (const FileError& error) {
    throw_error(
        ErrorCode::system,
        "{}; the output {} is in place and whole, but a power failure may undo its new name",
        error.what(), target_);
  }
}

// Renames the file, or opens a target to be overwritten: a mount point, or another user's file in a
// folder where only owners replace files.
void AtomicFile::rename_to_target() {
  int renamed = settings_.overwrite ? ::rename(temporary_.c_str(), target_.c_str())
                                    : ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD,
                                                  target_.c_str(), RENAME_NOREPLACE);
  // Not every file system or sandbox supports RENAME_NOREPLACE.
  struct stat status {};
  if (renamed != 0 && !settings_.overwrite && (errno == EINVAL || errno == ENOSYS)) {
    if (::lstat(target_.c_str(), &status) == 0)
      errno = EEXIST;
    else
      renamed = ::rename(temporary_.c_str(), target_.c_str());
  }
  if (renamed == 0) return;
  if (errno == EEXIST)
    throw_error(ErrorCode::exists, "{}: appeared meanwhile; use {} to replace it", target_,
                Setting::overwrite);
  if ((errno != EBUSY && errno != EPERM) || !old_)
    throw_file_error(target_, "rename the finished file");
  overwritten_ = corank::open_to_overwrite(target_);
}

void AtomicFile::forget_sidecar() {
  // The lock goes with the temporary name: if there is such a file again, the next merge writes it,
  // and its sidecar.
  if (!file_ && ::access(temporary_.c_str(), F_OK) == 0) return;
  ::unlink(sidecar_path_.c_str());
}

void AtomicFile::write_sidecar(bool durable) {
  const FileDescriptor file(
      ::open(sidecar_path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!file) throw_file_error(sidecar_path_, "write");
  struct stat status {};
  if (::fstat(file.get(), &status) == 0 && (status.st_mode & 0600) != 0600)
    ::fchmod(file.get(), (status.st_mode & 0777) | 0600);  // whatever the umask: it is opened again
  const std::string text = sidecar_text(sidecar_);
  // Overwrite in place with one write: a disk writes so few bytes whole or not at all.
  write_all(file, std::as_bytes(std::span(text)), sidecar_path_);
  if (::ftruncate(file.get(), static_cast<off_t>(text.size())) != 0 ||
      (durable && ::fdatasync(file.get()) != 0))
    throw_file_error(sidecar_path_, "write");
}

FileDescriptor AtomicFile::open_folder() const {
  FileDescriptor folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) throw_file_error(folder_, "open");
  return folder;
}

void sync_folder(const FileDescriptor& folder, const std::filesystem::path& path) {
  // Some file systems cannot sync a folder and return EINVAL.
  if (::fsync(folder.get()) != 0 && errno != EINVAL)
    throw_file_error(path, "make the new name durable");
}

}  // namespace corank
