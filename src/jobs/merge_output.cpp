#include "jobs/merge_output.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "corank/error.hpp"
#include "io/hole_puncher.hpp"
#include "plan/option_checks.hpp"
#include "util/digest.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

// Smaller files are better left in the page cache: to write past it costs more than it saves.
constexpr std::uint64_t min_direct_bytes = 64 * MiB;

// Min size of a partial output that an interrupted merge keeps without being told to; less is soon
// merged again.
constexpr std::uint64_t min_kept_bytes = 64 * MiB;

// Returns the folder of the output's file or files; nothing for other outputs.
std::optional<std::filesystem::path> folder_of(const Destination& output) {
  const std::filesystem::path& path = output.path;
  if (output.sink || path == "-") return std::nullopt;
  if (std::filesystem::is_directory(path)) return path;  // of parts
  if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path)) return std::nullopt;
  return path.has_parent_path() ? path.parent_path() : ".";
}

// Throws Error if the name of an output promises a format that is not written.
void refuse_unwritten_format(const std::filesystem::path& path) {
  static constexpr std::array<std::string_view, 20> suffixes{
      ".7z",  ".Z",   ".arrow", ".avro",   ".br",  ".feather", ".lzma", ".lzo",  ".orc", ".parquet",
      ".rar", ".tar", ".tbz2",  ".snappy", ".tgz", ".txz",     ".tzst", ".xlsx", ".zip", ".zstd"};
  if (std::ranges::find(suffixes, path.extension().native()) == suffixes.end()) return;
  throw_error(ErrorCode::options,
              "{}: files of the format that its suffix tells are not written; end the name in .gz, "
              ".zst, .bz2, .xz or .lz4, or say what compression it has, if any",
              path);
}

bool is_overwriting(const Writer& writer) {
  return writer.atomic() && writer.atomic()->is_overwriting();
}

void warn_overwriting(const Options& options, const std::filesystem::path& output) {
  warn(options.notice,
       "{}: no file can replace it, since it is a mount point or its folder forbids it: "
       "the finished output is copied into it, and a copy that is interrupted is incomplete",
       output);
}

std::optional<std::uint64_t> device_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return status.st_dev;
}

// Parts replace files one after another: a failure between would lose the records of an input that
// was replaced.
template <class IsInput>
void refuse_inputs_as_parts(std::span<const std::filesystem::path> parts, IsInput is_input) {
  for (const std::filesystem::path& part : parts) {
    struct stat status {};
    if (::stat(part.c_str(), &status) == 0 && is_input(identity_of(status)))
      throw_error("{}: is an input, too; write the parts into another folder", part);
  }
}

// Throws Error if the trace, which is written last, would replace an input or an output.
template <class IsInput>
void refuse_trace(const std::filesystem::path& trace,
                  std::span<const std::filesystem::path> outputs, IsInput is_input) {
  struct stat status {};
  const bool exists = ::stat(trace.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) return;  // such as a device
  const bool is_dangling = !exists && ::lstat(trace.c_str(), &status) == 0;
  if (is_dangling || (exists && is_input(identity_of(status))) ||
      std::ranges::find(outputs, one_spelling(trace), one_spelling) != outputs.end())
    throw_error(ErrorCode::options,
                "{}: is an input or output, or a link; name another file for the trace", trace);
}

}  // namespace

void warn_starting_over(const Options& options, const std::filesystem::path& output,
                        std::string_view why) {
  warn(options.notice, "{}: cannot resume the partial output, since {}; starting over", output,
       why);
}

MergeOutput::MergeOutput(const Destination& output, const Options& options,
                         const MergeFormat& format, Budget& budget)
    : options_(options),
      format_(format),
      output_(output),
      compression_(compression_of(options, output)),
      paths_{output.path} {
  if (!output.sink) check_path(output.path);
  if (compression_.codec != Codec::none) compressing_threads_ = budget.reserve(compression_);
  if (options.parts != 0 && output.sink)
    throw_error(ErrorCode::options, "{}: is a stream, not a folder; drop {}", output.path,
                Setting::parts);
  if (options.parts != 0)
    paths_ = parts_.emplace(output.path, options.parts, suffix_of(compression_.codec)).paths();
}

Compression compression_of(const Options& options, const Destination& output) {
  Compression compression = options.compression.value_or(Compression());
  if (!options.compression && options.parts == 0 && !output.sink) {
    refuse_unwritten_format(output.path);
    compression.codec = Compression::by_name(output.path.native());
  }
  if (compression.codec != Codec::none && options.resume)
    throw_error(ErrorCode::options,
                "{} is not possible with a compressed output; drop it, or do not compress",
                Setting::resume);
  return compression;
}

std::vector<std::filesystem::path> folders_for_passes(const Options& options,
                                                      const Destination& output) {
  if (!options.temporary_folders.empty()) return options.temporary_folders;
  const auto beside = folder_of(output);
  if (beside && ::access(beside->c_str(), W_OK) == 0) return {*beside};
  const char* const folder = std::getenv("TMPDIR");
  return {folder && *folder ? folder : "/tmp"};
}

void check_space(std::span<const std::filesystem::path> folders, const SpaceNeeds& needs,
                 const Destination& output) {
  for (const std::filesystem::path& folder : folders) {
    std::error_code error;
    if (!std::filesystem::is_directory(folder, error))
      throw_error("{}: is not a folder; name one for temporary files by {} or TMPDIR", folder,
                  Setting::temporary_folders);
    const std::uint64_t temporary_bytes = needs.temporary_bytes / folders.size();
    if (temporary_bytes == 0) continue;
    std::uint64_t needed = temporary_bytes;
    const auto beside = folder_of(output);
    if (beside && device_of(*beside) == device_of(folder))
      needed = needs.output_bytes +
               (has_holes(folder) ? std::min(temporary_bytes, needs.late_bytes) : temporary_bytes);
    const std::uint64_t available = std::filesystem::space(folder, error).available;
    if (!error && available < needed)
      throw_error(
          "{}: has room for {} bytes, and the sort needs {}, {} of them for temporary files; make "
          "room, name other folders by {}, or use a larger {}",
          folder, available, needed, temporary_bytes, Setting::temporary_folders, Setting::memory);
  }
}

bool wants_direct(const Options& options, std::uint64_t file_bytes) {
  return options.io == Io::direct ||
         (options.io == Io::automatic && file_bytes >= min_direct_bytes);
}

void MergeOutput::open(std::span<const Partition> partitions, std::span<const Run> runs,
                       const PassOperators& operators) {
  const std::uint64_t output_digest =
      digest(output_description(options_, compression_, format_, runs));
  const std::uint64_t added_bytes =
      options_.resume ? missing_terminators(runs, format_.input()) : 0;
  // A projected record has a delimiter for each column that it lacks, so the output may be longer
  // than runs that count bytes.
  const std::uint64_t max_growth =
      format_.counts_bytes() ? std::max<std::uint64_t>(options_.query.select.size(), 1) : 1;
  // The partitions of a sort, which all begin at 0, are known only when its runs are: until then,
  // the part's number and the number of parts tell where it begins.
  const bool are_known = partitions.size() < 2 || partitions[1].begin != 0;
  const bool may_be_shorter =
      !are_known || (operators && (!operators->keeps_count() || operators->output_bytes() == 0 ||
                                   options_.query.limit));
  const bool is_file = folder_of(output_).has_value();
  const AtomicFile::Settings settings{options_.overwrite, options_.resume,
                                      options_.checkpoint_interval,
                                      is_file ? folders_for_passes(options_, output_).front() : ""};
  const auto is_input = [runs](FileIdentity file) {
    return std::ranges::any_of(runs, [&](const Run& run) { return run.identity() == file; });
  };
  assert(writers_.empty());
  assert(partitions.size() == 1 || partitions.size() == paths_.size());
  is_filled_in_turn_ = partitions.size() != paths_.size();
  if (!options_.trace.empty())
    refuse_trace(options_.trace, std::span(paths_).first(output_.sink ? 0 : paths_.size()),
                 is_input);
  if (paths_.size() > 1) refuse_inputs_as_parts(paths_, is_input);
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    const auto [begin, end] = partitions[std::min(i, partitions.size() - 1)];
    const AtomicFile::Content content{
        digest(fmt::format("{:x} {} {} {} of {} {}", output_digest, begin, end, i, paths_.size(),
                           options_.parts_by_key)),
        (i == 0 ? format_.output_header().size() : 0) +
            (end - begin) * format_.output_bytes() * max_growth + added_bytes,
        may_be_shorter};
    writers_.emplace_back(parts_ ? Destination(paths_[i]) : output_, content, settings, is_input,
                          options_.stop);
    if (is_overwriting(writers_.back())) warn_overwriting(options_, writers_.back().path());
    if (i > 0 && options_.resume && writers_.front().atomic()->is_in_place())
      writers_.back().atomic()->take_forgotten_target(content);
    if (writers_.back().atomic()) writers_.back().atomic()->check_target();
  }
}

Resumed MergeOutput::resume(std::span<Partition> partitions, std::span<const Run> runs,
                            const PassOperators& operators) {
  assert(partitions.size() <= writers_.size());
  Resumed resumed;
  for (std::size_t i = 0; i < partitions.size(); ++i)
    resume_file(writers_[i], partitions[i], i == 0 ? std::string_view(format_.output_header()) : "",
                runs, operators, resumed);
  return resumed;
}

void MergeOutput::resume_file(Writer& writer, Partition& partition, std::string_view output_header,
                              std::span<const Run> runs, const PassOperators& operators,
                              Resumed& resumed) {
  const AtomicFile* const file = writer.atomic();
  if (!file || !options_.resume) return writer.resume_at(0, 0);
  const OutputOrigin origin{options_, format_, output_header, operators};
  const std::optional<Resumption> found = find_resumption(*file, origin, runs, partition);
  std::string reason(found ? file->why_not_resumable() : output_differs);
  for (const Run& run : runs)
    if (!reason.empty() && run.modified_ns() > file->partial_modified_ns())
      reason = fmt::format("{} was written to since", run.path().string());
  if (!reason.empty()) warn_starting_over(options_, writer.path(), reason);
  if (!found) return writer.resume_at(0, 0);
  assert(found->merged_bytes <= found->kept_bytes && found->kept_bytes <= file->partial_bytes());
  partition.begin = std::max(partition.begin, found->rank);
  resumed.cut = found->cut;
  resumed.kept_bytes += found->kept_bytes;
  resumed.remerged_bytes += found->kept_bytes - found->merged_bytes;
  const ScanResult kept = count_left(*file, writer.path(), origin, found->merged_bytes);
  resumed.records += kept.records;
  resumed.checksum += kept.checksum;
  writer.resume_at(found->kept_bytes, found->merged_bytes);
}

void MergeOutput::prepare(std::uint64_t file_bytes, bool reserve, Trace* trace) {
  const bool is_direct = !is_filled_in_turn_ && wants_direct(options_, file_bytes);
  for (std::size_t i = 0; i < writers_.size(); ++i) {
    const TraceRow row{trace, "write", static_cast<unsigned>(i)};
    const bool compresses = compression_.codec != Codec::none;
    if (compresses) writers_[i].compress(compression_, compressing_threads_, row);
    if (is_direct) writers_[i].make_direct(reserve && !compresses ? file_bytes : 0, row);
  }
}

void MergeOutput::write_header() {
  // A resumed output has it already.
  if (writers_.front().bytes() == 0)
    writers_.front().write(std::as_bytes(std::span(format_.output_header())));
}

std::uint64_t MergeOutput::commit() {
  std::uint64_t bytes = 0;
  for (Writer& writer : writers_) {
    const bool was_told = is_overwriting(writer);
    writer.commit();
    if (!was_told && is_overwriting(writer)) warn_overwriting(options_, writer.path());
    bytes += writer.bytes();
  }
  for (std::size_t i = writers_.size(); i-- > 0;)
    if (writers_[i].atomic()) writers_[i].atomic()->forget_sidecar();
  return bytes;
}

bool MergeOutput::is_worth_resuming() const {
  std::uint64_t bytes = 0;
  for (const Writer& writer : writers_) {
    if (!writer.atomic() || is_overwriting(writer)) return false;
    bytes += writer.bytes();
  }
  return bytes >= min_kept_bytes && compression_.codec == Codec::none && !format_.has_streams() &&
         can_resume(options_, format_.input().traits());
}

void MergeOutput::leave_for_resume() {
  bool is_kept = false;
  for (const Writer& writer : writers_) {
    assert(writer.atomic());  // other outputs cannot be resumed
    is_kept |= writer.atomic()->leave();
  }
  if (is_kept)
    warn(options_.notice,
         "{}: what was written is kept; with {} the same command goes on from there", output_.path,
         Setting::resume);
}

}  // namespace corank
