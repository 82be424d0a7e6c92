#include "part_attempt.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "codec/codec.hpp"
#include "corank/error.hpp"

namespace corank {
namespace {

namespace fs = std::filesystem;

// Returns the names of the part under all compressions, which share the record.
std::vector<fs::path> parts_of_record(const fs::path& record) {
  std::vector<fs::path> parts;
  for (const std::string_view suffix : all_suffixes())
    parts.push_back(fs::path(record).replace_extension(suffix));
  return parts;
}

// A part that replaced a run of its plan would leave other parts without it.
void refuse_runs(const PlanFile& plan, const PartNames& names) {
  std::vector<fs::path> replaced = parts_of_record(names.record);
  replaced.push_back(names.record);
  for (const PartitionPlan::Input& run : plan.partitions.runs)
    for (const fs::path& file : replaced) {
      std::error_code error;
      if (fs::equivalent(file, run.path, error))
        throw Error(file.string() +
                    ": is a run of the plan; write the parts into another --output-folder");
    }
}

// Returns whether there is a part, and a record of it from this plan.
bool has_record(const PartNames& names, const PlanFile& plan, std::size_t partition) {
  if (!fs::exists(names.part) || !fs::exists(names.record)) return false;
  const PartRecord record = read_record(names.record);
  return record.plan == plan.digest && record.partition == partition;
}

// Returns also whether the part has the size that the record says.
bool is_written(const PartNames& names, const PlanFile& plan, std::size_t partition) {
  std::error_code error;
  return has_record(names, plan, partition) &&
         fs::file_size(names.part, error) == read_record(names.record).bytes && !error;
}

// Makes the folder that attempts share, and locks it for one of them.
FileDescriptor lock_folder(const fs::path& folder) {
  for (;;) {
    fs::create_directories(folder);
    FileDescriptor locked(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!locked && errno != ENOENT)
      throw fs::filesystem_error("cannot open", folder, {errno, std::generic_category()});
    // Without locks, that of the output must do.
    if (locked && ::flock(locked.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw Error(folder.string() + ": another merge is writing this part; wait for that one");
    // The previous holder of the lock may have removed the folder meanwhile.
    struct stat mine {
    }, named{};
    if (locked && ::fstat(locked.get(), &mine) == 0 && ::stat(folder.c_str(), &named) == 0 &&
        mine.st_ino == named.st_ino)
      return locked;
  }
}

}  // namespace

PartAttempt::PartAttempt(const PlanFile& plan, std::size_t partition, const fs::path& folder,
                         const Options& options)
    : plan_(plan),
      partition_(partition),
      options_(options),
      names_(part_names(folder, partition, options.compression.value_or(Compression{}).codec)) {
  refuse_runs(plan, names_);
  is_done_ = is_there();
  if (is_done_) return;
  own_folder_ = folder / fmt::format(".{}.{}", names_.record.stem().string(),
                                     options.resume ? "resume" : attempt_name());
  if (options.resume) {
    lock_ = lock_folder(own_folder_);
    is_done_ = is_there();
    if (is_done_) return;
  } else {
    fs::create_directories(own_folder_);
  }
  own_names_ =
      part_names(own_folder_, partition, options.compression.value_or(Compression{}).codec);
  // An attempt may have been killed after the part was whole. A damaged record proves nothing.
  try {
    is_done_ = has_record(own_names_, plan, partition);
  } catch (const Error&) {
    is_done_ = false;
  }
  if (is_done_)
    publish();
  else
    fs::remove(own_names_.part);
}

bool PartAttempt::is_there() const {
  if (options_.overwrite) return false;
  // A record alone is left by an attempt that was killed. Others may be of a part that is
  // compressed in another way, or no records at all.
  const auto is_part = [](const fs::path& part) { return fs::exists(part); };
  const bool is_taken = fs::exists(names_.record) &&
                        read_record(names_.record).plan != plan_.digest &&
                        std::ranges::any_of(parts_of_record(names_.record), is_part);
  if (!fs::exists(names_.part) && !is_taken) return false;
  if (is_written(names_, plan_, partition_)) return true;
  throw Error(ErrorCode::exists,
              fmt::format("{}: exists already, but is of another plan, is not whole, or has no "
                          "record; use --force to replace it, or another --output-folder",
                          names_.part.string()));
}

PartAttempt::~PartAttempt() {
  if (own_folder_.empty()) return;
  std::error_code ignored;
  if (options_.resume)
    fs::remove(own_folder_, ignored);  // fails if it is not empty
  else
    fs::remove_all(own_folder_, ignored);
}

Stats PartAttempt::write() {
  Options options = options_;
  options.overwrite = true;  // of the attempt's own file
  Stats stats = write_partition(plan_.partitions, partition_, own_names_.part, options,
                                [&](const Stats& merged) {
                                  PartRecord record{.plan = plan_.digest,
                                                    .partition = partition_,
                                                    .records_read = merged.records,
                                                    .records_skipped = merged.records_skipped};
                                  record.content.records = merged.records_written;
                                  record.content.checksum = merged.checksum;
                                  write_record(record, own_names_.record);
                                });
  publish();
  return stats;
}

// They must not get the record of this plan, should this attempt be killed.
void PartAttempt::remove_parts_of_other_plans() const {
  try {
    if (has_record(names_, plan_, partition_)) return;
  } catch (const Error&) {  // the record is damaged
  }
  for (const fs::path& part : parts_of_record(names_.record)) fs::remove(part);
}

void PartAttempt::publish() {
  try {
    PartRecord record = read_record(own_names_.record);
    const PartContent keys =
        read_part_keys(plan_.partitions, partition_, own_names_.part, options_);
    record.bytes = fs::file_size(own_names_.part);
    record.content.first_key = keys.first_key;
    record.content.last_key = keys.last_key;
    record.content.header_bytes = keys.header_bytes;
    if (is_there()) {  // by another attempt, meanwhile
      fs::remove(own_names_.part);
      fs::remove(own_names_.record);
      return;
    }
    // The new record is written before the old part is removed. The attempt's own record stays for
    // the next one that resumes, until the part has its name.
    const fs::path whole_record = own_folder_ / "record";
    write_record(record, whole_record);
    remove_parts_of_other_plans();
    // The record precedes the part, so that a part without a record is never this program's.
    rename_file(whole_record, names_.record);
    rename_file(own_names_.part, names_.part);
  } catch (const std::exception&) {
    // Another attempt that resumes may have given the same file its name meanwhile.
    if (fs::exists(own_names_.part) || !is_written(names_, plan_, partition_)) throw;
  }
  make_name_durable(names_.part);
  fs::remove(own_names_.record);
}

}  // namespace corank
