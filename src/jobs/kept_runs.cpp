#include "jobs/kept_runs.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include "io/sidecar.hpp"
#include "jobs/merge_output.hpp"
#include "jobs/scan.hpp"
#include "util/digest.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

constexpr std::size_t digest_digits = 16;

FileDescriptor open_to_write(const std::filesystem::path& path, int flags) {
  FileDescriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
  if (!file) throw_file_error(path, "write");
  return file;
}

std::string line_of(const KeptRun& run) {
  const std::string text =
      fmt::format("{} {} {} {} {} {} {}", run.inode, run.bytes, run.records, run.fingerprint,
                  run.end.input, run.end.offset, run.path.string());
  return fmt::format("{:016x} {}\n", digest(text), text);
}

std::optional<KeptRun> parse_line(const std::string& line) {
  KeptRun run;
  std::string path;
  if (line.size() <= digest_digits) return std::nullopt;
  std::istringstream in(line.substr(digest_digits));
  in >> run.inode >> run.bytes >> run.records >> run.fingerprint >> run.end.input >> run.end.offset;
  if (!in || in.get() != ' ' || !std::getline(in, path)) return std::nullopt;
  run.path = path;
  if (line_of(run) != line + "\n") return std::nullopt;
  return run;
}

// Returns whether the file is still what was written.
bool is_whole(const KeptRun& run) {
  struct stat status {};
  return run.inode != 0 && ::lstat(run.path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         status.st_ino == run.inode && static_cast<std::uint64_t>(status.st_size) == run.bytes;
}

// Returns whether the run holds the records that were written to it.
bool holds(const Run& run, const KeptRun& kept, const RecordFormat& format, FingerprintSum sum) {
  std::uint64_t fingerprint = 0;
  try {
    scan_blocks(run, format, [&](const ScannedBlock& block) {
      fingerprint +=
          rows_fingerprint(sum, format.keys().layout(), block.rows.data, block.rows.count);
    });
  } catch (const Interrupted&) {
    throw;
  } catch (const Error&) {
    return false;  // its bytes are not even records
  }
  return fingerprint == kept.fingerprint;
}

// Names of the list and of the one that replaces it, and how the name of each run begins.
struct Names {
  explicit Names(const std::filesystem::path& given_output) {
    const std::filesystem::path output = one_spelling(given_output);
    const std::string name = shortened(output.filename().string(), 200);
    // Outputs of the same name in other folders may share a folder for temporary files.
    run = fmt::format(".{}.corank-run-{:016x}-", name, digest(output.string()));
    list = output.parent_path() / fmt::format(".{}.corank-runs", name);
    new_list = list.string() + ".new";
  }
  std::filesystem::path list, new_list;
  std::string run;
};

bool is_file(const Destination& output) {
  return !output.sink && output.path != "-";
}

}  // namespace

KeptRuns::KeptRuns(const std::filesystem::path& output, std::uint64_t content)
    // Written bytes outlive their process in the page cache, but not a restart of the system.
    : title_(fmt::format("corank-runs-1 {:016x} {:016x}", content, this_boot())) {
  const Names names(output);
  run_name_ = names.run;
  list_ = names.list;
  new_list_ = names.new_list;
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(list_, unknown))) return;
  std::ifstream in(list_, std::ios::binary);
  if (in) read_list(std::string(std::istreambuf_iterator<char>(in), {}));
}

KeptRuns::~KeptRuns() {
  if (leave_) return;
  remove_runs();
  ::unlink(list_.c_str());
  ::unlink(new_list_.c_str());
}

void KeptRuns::read_list(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string line;
  std::getline(lines, line);
  has_others_ = line != title_;
  bool is_prefix = !has_others_;
  while (std::getline(lines, line)) {
    std::optional<KeptRun> run = parse_line(line);
    if (!run || !is_run(run->path)) break;
    files_.push_back(run->path);
    if (run->inode == 0) continue;  // it was only begun
    is_prefix = is_prefix && is_whole(*run);
    if (is_prefix) runs_.push_back(*std::move(run));
  }
  std::ranges::sort(files_);
  const auto repeated = std::ranges::unique(files_);
  files_.erase(repeated.begin(), repeated.end());
  if (has_others_) {
    remove_runs();
    files_.clear();
  }
}

// Only files that a sort made may be removed, whatever the list says.
bool KeptRuns::is_run(const std::filesystem::path& path) const {
  return path.filename().string().starts_with(run_name_);
}

void KeptRuns::remove_runs() const {
  for (const std::filesystem::path& file : files_) ::unlink(file.c_str());
}

std::vector<Run> KeptRuns::open(const MergeFormat& format, const Options& options,
                                FingerprintSum sum) {
  std::vector<Run> opened;
  for (const KeptRun& kept : runs_) {
    Run run(open_to_read(kept.path), kept.path, format.record_bytes(),
            kept.bytes / format.record_bytes());
    run.stop_on(options.stop);
    if (sum && !holds(run, kept, format.input(), sum)) {
      warn_starting_over(options, kept.path, "it does not hold what was written to it");
      break;
    }
    run.set_fingerprint(kept.fingerprint);
    opened.push_back(std::move(run));
  }
  runs_.resize(opened.size());
  write_list();
  return opened;
}

// Replaces the list at once, so that a kill loses no line. Files that are no whole runs stay in it,
// so that they are removed at the end.
void KeptRuns::write_list() {
  std::string text = title_ + "\n";
  for (const std::filesystem::path& file : files_) text += line_of({.path = file});
  for (const KeptRun& run : runs_) text += line_of(run);
  write_all(open_to_write(new_list_, O_TRUNC), std::as_bytes(std::span(text)), new_list_);
  if (::rename(new_list_.c_str(), list_.c_str()) != 0) throw_file_error(list_, "write");
}

void KeptRuns::append(const KeptRun& run) {
  const std::string line = line_of(run);
  write_all(open_to_write(list_, O_APPEND), std::as_bytes(std::span(line)), list_);
}

FileDescriptor KeptRuns::create(const std::filesystem::path& folder) {
  KeptRun run;
  run.path = std::filesystem::absolute(folder) / fmt::format("{}{}", run_name_, runs_.size());
  if (run.path.native().find('\n') != std::string::npos)  // which ends a line of the list
    throw_error(ErrorCode::options, "{}: its name holds a newline, which is not possible with {}",
                run.path, Setting::resume);
  append(run);
  files_.push_back(run.path);
  return open_to_write(run.path, O_TRUNC);
}

void KeptRuns::add(KeptRun run) {
  struct stat status {};
  run.path = files_.back();
  if (::stat(run.path.c_str(), &status) != 0) throw_file_error(run.path, "get its status");
  run.inode = status.st_ino;
  run.bytes = static_cast<std::uint64_t>(status.st_size);
  append(run);
  runs_.push_back(std::move(run));
}

std::unique_ptr<KeptRuns> find_kept_runs(const Destination& output, const MergeFormat& format,
                                         const Options& options, FingerprintSum sum,
                                         std::span<const Run> inputs) {
  if (!is_file(output)) return nullptr;
  // The runs of a sort into parts hold all records; see MergeFormat::load_operators().
  // Sums are of use only to processes that compute them alike. Implementations differ for records
  // as long as the example, though some agree for shorter ones.
  constexpr std::array<std::byte, 256> example{};
  const std::string content =
      fmt::format("{:x} {} {}", sum ? sum(example, example.size()) : 0, options.parts > 1,
                  output_description(options, compression_of(options, output), format, inputs));
  auto kept = std::make_unique<KeptRuns>(output.path, digest(content));
  if (!options.resume) return nullptr;
  if (kept->has_others())
    warn_starting_over(options, output.path,
                       "the temporary files are of other inputs or options, or older than the "
                       "last start of this machine");
  return kept;
}

void remove_kept_runs(const Destination& output) {
  if (is_file(output)) KeptRuns(output.path, 0);
}

void refuse_kept_inputs(const Destination& output, std::span<const Run> inputs) {
  if (!is_file(output)) return;
  const Names names(output.path);
  for (const Run& input : inputs) {
    const std::filesystem::path path = one_spelling(input.path());
    if (path == names.list || path == names.new_list ||
        path.filename().string().starts_with(names.run))
      throw_error(
          "{}: is what a stopped sort to {} left, which a sort or merge to it removes; rename it, "
          "or write to another file",
          input.path(), output.path);
  }
}

std::vector<Run> after(const InputPosition& end, std::vector<Run> inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Run& input = inputs[i];
    const std::uint64_t done = i < end.input ? input.records()
                               : i == end.input
                                   ? (end.offset - input.offset()) / input.record_bytes()
                                   : 0;
    input = input.subspan(done, input.records() - done);
  }
  return inputs;
}

}  // namespace corank
