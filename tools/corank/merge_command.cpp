#include "merge_command.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <system_error>
#include <utility>

#include "arguments.hpp"
#include "check_command.hpp"
#include "codec/codec.hpp"
#include "command_line.hpp"
#include "corank/error.hpp"
#include "corank/sort.hpp"
#include "format/record_format.hpp"
#include "part_attempt.hpp"
#include "plan_command.hpp"
#include "progress_line.hpp"
#include "setting_flags.hpp"
#include "standard_streams.hpp"
#include "statistics.hpp"
#include "stop_on_signal.hpp"

namespace corank {
namespace {

// Returns the names in `file`, each ended by `end`, a newline or a NUL byte.
std::vector<std::string> names_from(const std::string& file, char end) {
  std::ifstream opened;
  if (file != "-") {
    opened.open(file, std::ios::binary);
    if (!opened) throw Error(file + ": cannot open the list of names; check its name");
  }
  std::istream& in = file == "-" ? std::cin : opened;
  std::vector<std::string> names;
  std::error_code ignored;  // such as of a name that is too long
  for (std::string name; std::getline(in, name, end);) {
    if (end == '\n' && name.ends_with('\r')) name.pop_back();
    if (name.empty())
      throw Error(fmt::format("{}: name {} is empty; separate names by one {}", file,
                              names.size() + 1, end == '\n' ? "newline" : "NUL byte"));
    if (end == '\0' && name.find('\n') != std::string::npos &&
        !std::filesystem::exists(name, ignored))
      throw Error(
          fmt::format("{}: name {} holds newlines, and no file has it; --files0-from takes "
                      "names that end with NUL bytes, --files-from takes lines",
                      file, names.size() + 1));
    if (name.find('\0') != std::string::npos)
      throw Error(
          fmt::format("{}: line {} holds a NUL byte; --files-from takes lines, "
                      "--files0-from takes names that end with NUL bytes",
                      file, names.size() + 1));
    names.push_back(name);
  }
  if (in.bad() || (file == "-" && std::ferror(stdin))) throw Error(file + ": cannot read");
  return names;
}

// Enlarges the kernel's table of open files while the process has one thread. Later, with several
// threads, the kernel would have to wait for all of them each time.
void make_room_for_files(std::size_t runs) {
  constexpr rlim_t others = 64;
  struct rlimit limit {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t last = std::min<rlim_t>(runs + others, limit.rlim_cur - 1);
  close(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, static_cast<int>(last)));
}

constexpr const char* sort_footer =
    "Records with equal keys keep the order of the files and, within a file, of its records.\n"
    "The order of the steps: --from and --to, --where, --on-equal, --tombstone and --having,\n"
    "--select, --limit.\n"
    "Examples:\n  corank sort -r key:u64,value:u64 -o sorted.bin data.bin\n"
    "  corank sort --lines -o sorted.txt -m 1G logs/*.txt.gz";

constexpr const char* plan_footer =
    "Example:\n  corank plan merge --lines --partitions 8 -o plan.json a.txt b.txt\n"
    "  corank merge --plan plan.json --partition 0\n  corank finish plan.json";

// Returns the end of the help text of a merge or set operation.
const char* footer(OnEqual on_equal) {
  switch (on_equal) {
    case OnEqual::unite:
      return "For each key, emits all records of the first run, then the last records of each\n"
             "later run in excess of the earlier maximum.\n"
             "Example:\n  corank union -r key:u64,value:u64 -o all.bin a.bin b.bin";
    case OnEqual::intersect:
      return "The output has as many records of a key as the run that has the fewest: the first\n"
             "ones of the first run.\n"
             "Example:\n  corank intersect -r key:u64,value:u64 -o both.bin a.bin b.bin";
    case OnEqual::subtract:
      return "The output has as many records of a key as the first run has more than all others\n"
             "together: the last ones of the first run.\n"
             "Example:\n  corank subtract -r key:u64,value:u64 -o rest.bin a.bin b.bin";
    default:
      return "Records with equal keys keep the order of the runs and, within a run, of the "
             "file.\n"
             "The order of the steps: --from and --to, --where, --on-equal, --tombstone and "
             "--having,\n--select, --limit.\n"
             "The last line of a run may lack its newline, and gets it.\n"
             "Examples:\n  corank merge -r key:u64,value:u64 -o merged.bin runs/run-*.bin\n"
             "  corank merge --csv --header -b city,population:u64:desc -o all.csv parts/*.csv";
  }
}

}  // namespace

MergeCommand::MergeCommand(CLI::App& app, const char* name, const char* description,
                           OnEqual on_equal, Verb verb)
    : command_(app.add_subcommand(name, description)),
      plans_(verb == Verb::plan || verb == Verb::plan_sort),
      sorts_(verb == Verb::sort || verb == Verb::plan_sort) {
  query_.query.on_equal = on_equal;
  record_.add_to(*command_);
  record_.add_text_to(*command_);
  add_input_options();
  add_output_options();
  if (on_equal == OnEqual::unite) {
    const OptionGroup group(*command_, "Duplicates");
    command_->add_flag_callback(
        "--distinct", [this] { query_.query.on_equal = OnEqual::first; },
        "Emit each key once: the first record of it");
  }
  query_.add_to(*command_);
  if (!plans_) {
    add_performance_options();
    add_diagnostics_options();
  }
  if (!is_set_operation(on_equal)) add_partition_options();
  command_
      ->add_option(sorts_ ? "FILE" : "RUN", runs_,
                   fmt::format("Files of records{}{}", sorts_ ? "" : " that are sorted by the keys",
                               is_set_operation(on_equal) || plans_ ? "" : " [standard input]"))
      ->type_name("");
  command_->footer(plans_ ? plan_footer : sorts_ ? sort_footer : footer(on_equal));
}

void MergeCommand::add_input_options() {
  const OptionGroup group(*command_, "Input");
  add_compressed_to(*command_, options_.decompress);
  CLI::Option* const lines =
      command_
          ->add_option("--files-from", files_from_,
                       "Read more names of files from FILE, one a line; - is standard input")
          ->type_name("FILE");
  command_
      ->add_option("--files0-from", files0_from_,
                   "Read more names of files from FILE, each ended by a NUL byte; - is standard "
                   "input")
      ->type_name("FILE")
      ->excludes(lines);
}

void MergeCommand::add_output_options() {
  const OptionGroup group(*command_, "Output");
  command_
      ->add_option("-o,--output", output_,
                   fmt::format("Write the {} records to FILE; - is standard output [-]",
                               sorts_ ? "sorted" : "merged"))
      ->type_name("FILE");
  if (sorts_ && !plans_)
    command_->add_flag("--check", checks_,
                       "Check the order of each file, as corank check does, and write nothing");
  if (plans_) {
    command_->get_option("--output")->required()->description("File of the plan");
    command_->add_option("--partitions", num_partitions_, "Number of partitions")
        ->required()
        ->transform(whole_number(1, 99'999))
        ->option_text("N");
  }
  command_->add_flag("-f,--force", options_.overwrite, "Replace an output that exists");
  command_->add_flag("--drop-header", options_.drop_header,
                     "Leave the files' header out of the output; --skip-bytes and --header-lines "
                     "then may differ between files");
  if (!plans_)
    command_->add_flag(
        "--resume", options_.resume,
        fmt::format("Resume an interrupted {} of the same {}; keep the partial output if it is "
                    "interrupted again or the disk is full",
                    sorts_ ? "sort" : "merge", sorts_ ? "files" : "runs"));
  if (!plans_) add_parts_option();
  CLI::Option* const by_key =
      command_->add_flag("--parts-by-key", options_.parts_by_key,
                         "Never split equal keys between parts, as fixed-size records and --limit "
                         "do otherwise");
  if (!plans_) by_key->needs(command_->get_option("--parts"));
  command_
      ->add_option("--compress", compress_,
                   fmt::format("How the {} compressed: none, gzip, zstd, bzip2, xz or lz4, also "
                               "with a level (zstd:7) [{}]",
                               plans_ ? "parts are" : "output is",
                               plans_ ? "none" : "by the end of its name: .gz .zst .bz2 .xz .lz4"))
      ->type_name("CODEC");
}

void MergeCommand::add_parts_option() {
  command_
      ->add_option(
          "--parts", options_.parts,
          "Write N files of about equal shares, part-00000 and so on, into the folder that -o "
          "names; with filters, --on-equal or lines, --limit is divided among the parts")
      ->transform(whole_number(1, 99'999))
      ->option_text("N");
}

void MergeCommand::add_partition_options() {
  const OptionGroup group(*command_, "Partitions");
  if (plans_) {
    if (sorts_) return;
    CLI::Option* const runs_of =
        command_
            ->add_option("--runs-of", runs_of_,
                         "Merge the runs of the sort that FILE plans, with its options")
            ->type_name("FILE");
    command_
        ->add_option("--output-folder", folder_,
                     "Folder of these runs [beside that plan: plan.parts for plan.json]")
        ->needs(runs_of)
        ->type_name("DIR");
    return;
  }
  CLI::Option* const plan =
      command_
          ->add_option(
              "--plan", plan_,
              fmt::format("Write a partition of the {} that FILE plans", sorts_ ? "sort" : "merge"))
          ->type_name("FILE");
  CLI::Option* const partition =
      command_
          ->add_option("--partition", partition_,
                       "Its number, from 0, or auto: as the scheduler numbers this task")
          ->needs(plan)
          ->option_text("N");
  plan->needs(partition);
  command_
      ->add_option("--output-folder", folder_,
                   "Folder of the parts [beside the plan: plan.parts for plan.json]")
      ->needs(plan)
      ->type_name("DIR");
}

void MergeCommand::add_performance_options() {
  const OptionGroup group(*command_, "Performance");
  command_->add_option("--backend", options_.backend, "What merges: auto, cpu or cuda [auto]")
      ->transform(one_of<BackendChoice>({{"auto", BackendChoice::automatic},
                                         {"cpu", BackendChoice::cpu},
                                         {"cuda", BackendChoice::cuda}}))
      ->option_text("BACKEND");
  command_
      ->add_option("--io", options_.io,
                   "How files are read and written: auto, buffered, direct (without the page "
                   "cache) or mapped (in place in the page cache) [auto]")
      ->transform(one_of<Io>({{"auto", Io::automatic},
                              {"buffered", Io::buffered},
                              {"direct", Io::direct},
                              {"mapped", Io::mapped}}))
      ->option_text("IO");
  command_->add_flag("--strict-backend", options_.strict_backend,
                     "Fail if the device fails, instead of merging on the CPU");
  command_
      ->add_option_function<std::vector<std::string>>(
          "--device",
          [this](const std::vector<std::string>& numbers) {
            // A device that is named is wanted: without it the merge fails.
            if (options_.backend == BackendChoice::automatic)
              options_.backend = BackendChoice::cuda;
            options_.devices.clear();
            if (numbers == std::vector<std::string>{"all"}) return;
            for (std::string number : numbers) {
              const std::string fault = whole_number(0, std::numeric_limits<int>::max())(number);
              if (!fault.empty()) throw CLI::ValidationError("--device", fault + ", nor all");
              options_.devices.push_back(std::stoi(number));
            }
          },
          "CUDA devices that share the work, by number, or all; implies --backend cuda")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->option_text("N,...");
  add_temporary_option();
  add_threads_to(*command_, options_.threads, "Threads");
  add_memory_to(*command_, options_.memory_bytes);
}

void MergeCommand::add_temporary_option() {
  command_
      ->add_option("--temp", temporary_folders_,
                   "Folder for temporary files; several, each after its own --temp, are used in "
                   "turn [the output's folder]")
      ->type_name("DIR")
      ->expected(1)
      ->allow_extra_args(false)  // else it would take the runs that follow
      ->take_all();
  if (sorts_)
    command_
        ->add_option("--compress-spill", compress_spill_,
                     "Compress temporary files by lz4 or zstd, also with a level (zstd:3)")
        ->type_name("CODEC");
}

void MergeCommand::add_diagnostics_options() {
  const OptionGroup group(*command_, "Diagnostics");
  command_->add_flag("--explain", explain_,
                     "Print what the merge would do, passes, buffers and backend, and do nothing");
  command_->add_flag("-q,--quiet", quiet_, "Show nothing but errors");
  CLI::Option* const progress = command_->add_flag(
      "--progress", progress_, "Show progress and a summary [if standard error is a terminal]");
  command_->add_flag("--no-progress", no_progress_, "Show neither on a terminal")
      ->excludes(progress);
  CLI::Option* const stats =
      command_
          ->add_option("--stats", stats_, "Write statistics as JSON to FILE; - is standard output")
          ->type_name("FILE");
  command_
      ->add_flag("--checksum", options_.checksum,
                 "Let the statistics hold the output's checksum, as check --checksum prints it")
      ->needs(stats);
  command_
      ->add_option("--trace", trace_,
                   "Write what happened when to FILE, in Chrome's trace-event format, which "
                   "Perfetto shows")
      ->type_name("FILE");
  if (!sorts_ && !is_set_operation(query_.query.on_equal))
    command_->add_flag("--copy-only", options_.copy_only,
                       "Copy the runs one after another instead of merging them, as a baseline");
  command_->add_flag_callback(
      "--no-verify", [this] { options_.verify = false; },
      "Do not prove that the output holds exactly the records of the runs, in order");
}

std::vector<std::string> MergeCommand::names_of_runs() const {
  std::vector<std::string> runs = runs_;
  const bool has_list = !files_from_.empty() || !files0_from_.empty();
  const std::string& list = list_of_runs();
  if (has_list)
    std::ranges::move(names_from(list, files_from_.empty() ? '\0' : '\n'),
                      std::back_inserter(runs));
  if (list == "-" && std::ranges::count(runs, "-") != 0)
    throw Error(ErrorCode::options,
                fmt::format("{}: standard input names the runs and can't be one, too; use a file",
                            files_from_.empty() ? "--files0-from" : "--files-from"));
  // One input is enough for a merge or a sort, as for sort(1), but not for a set operation.
  const bool takes_input = !has_list && !plans_ && !is_set_operation(query_.query.on_equal);
  if (runs.empty() && takes_input) {
    if (!quiet_) hint_at_standard_input(command_->get_name());
    runs.emplace_back("-");
  }
  if (runs.empty())
    throw Error(ErrorCode::options, fmt::format("{0}: no {1} are named; see corank {0} --help",
                                                full_name(*command_), sorts_ ? "files" : "runs"));
  return runs;
}

int MergeCommand::check(const std::vector<std::string>& files) {
  for (const CLI::Option* const option : command_->get_options()) {
    const std::string& group = option->get_group();
    const bool is_of_sort = group == "Output" || group == "Duplicates" || group == "Filtering" ||
                            (group == "Diagnostics" && option->get_name() != "--quiet" &&
                             !option->get_name().ends_with("progress"));
    if (option->count() != 0 && option->get_name() != "--check" && is_of_sort)
      throw Error(ErrorCode::options,
                  fmt::format("--check writes nothing; drop {}", option->get_name()));
  }
  Options options = record_.options();
  options.decompress = options_.decompress;
  options.threads = options_.threads;
  options.memory_bytes = options_.memory_bytes;
  if (!quiet_) options.notice = say_warning;
  return check_files(files, options);
}

Options MergeCommand::options() const {
  Options options = options_;
  Options format = record_.options();
  options.text = std::move(format.text);
  options.record = std::move(format.record);
  options.keys = std::move(format.keys);
  options.query = query_.parse(options);
  if (!compress_.empty()) options.compression = Compression::parse(compress_);
  return options;
}

int MergeCommand::run() {
  if (!plan_.empty()) return run_partition();
  const std::vector<std::string> names = names_of_runs();
  if (checks_) return check(names);
  options_ = options();
  if (output_ == "-" && stats_ == "-")
    throw Error(ErrorCode::options,
                "--output and --stats are both standard output; write one to a file");
  if (output_ == "-" && options_.parts != 0)
    throw Error(ErrorCode::options, "--output: parts are files, and - is none; name a folder");
  if (output_ == "-" && !explain_ && isatty(STDOUT_FILENO) != 0 &&
      make_format(options_)->traits().are_binary)
    throw Error(ErrorCode::options,
                "standard output is a terminal; name a file for these records by --output");
  const std::vector<std::filesystem::path> runs(names.begin(), names.end());
  check_reports(runs, options_.parts != 0 ? output_ : "");

  make_room_for_files(runs.size());
  const StopOnSignal signals;
  use_resources();
  options_.stop = signals.token();
  if (explain_) {
    fmt::print("{}", sorts_ ? explain_sort(runs, output_, options_)
                            : explain_merge(runs, output_, options_));
    return 0;
  }
  return execute(
      [&] { return sorts_ ? sort(runs, output_, options_) : merge(runs, output_, options_); });
}

void MergeCommand::use_resources() {
  options_.trace = trace_;
  if (!compress_spill_.empty())
    options_.temporary_compression = Compression::parse(compress_spill_);
  options_.temporary_folders.assign(temporary_folders_.begin(), temporary_folders_.end());
  if (!quiet_) options_.notice = say_warning;
}

int MergeCommand::execute(const std::function<Stats()>& work) {
  const bool shows_progress = !quiet_ && (progress_ || (!no_progress_ && isatty(STDERR_FILENO)));
  Stats stats;
  {
    ProgressLine line;
    if (shows_progress)
      options_.progress = [&line](const Progress& progress) { line.show(progress); };
    stats = work();
  }
  if (shows_progress && !logs_as_json()) say(summary_of(stats));
  if (!stats_.empty()) write_stats(stats, options_.checksum, stats_);
  return 0;
}

// Takes the records and the query from a plan; the resources are those of this command.
void MergeCommand::take_options(const Options& planned) {
  options_.text = planned.text;
  options_.record = planned.record;
  options_.keys = planned.keys;
  options_.query = planned.query;
  options_.drop_header = planned.drop_header;
  options_.decompress = planned.decompress;
  options_.parts_by_key = planned.parts_by_key;
  options_.compression = planned.compression.value_or(Compression{});
}

void MergeCommand::check_beside_plan() const {
  for (const CLI::Option* const option : command_->get_options()) {
    const std::string& name = option->get_name();
    const std::string& group = option->get_group();
    const bool is_of_output = name == "--force" || name == "--resume" ||
                              (plans_ && (name == "--output" || name == "--partitions"));
    if (option->count() != 0 && !is_of_output && group != "Partitions" && group != "Performance" &&
        group != "Diagnostics")
      throw Error(ErrorCode::options,
                  fmt::format("{}: the plan holds the runs and what is done with them; drop {}, "
                              "or plan again",
                              plans_ ? "--runs-of" : "--plan", name));
  }
}

int MergeCommand::run_partition() {
  check_beside_plan();
  for (const auto& [is_given, name] :
       {std::pair(explain_, "--explain"), {options_.copy_only, "--copy-only"}})
    if (is_given)
      throw Error(ErrorCode::options, fmt::format("--plan: {} is for whole merges; drop it", name));
  const PlanFile plan = read_plan(plan_);
  if (plan.partitions.sorts != sorts_)
    throw Error(fmt::format("{0}: is a plan of a {1}; write its parts by corank {1} --plan {0}",
                            plan_, sorts_ ? "merge" : "sort"));
  const std::size_t number = partition_number(partition_, plan.partitions.size());
  const std::filesystem::path folder = folder_of_parts(plan_, folder_);
  std::vector<std::filesystem::path> runs;
  for (const PartitionPlan::Input& run : plan.partitions.runs) runs.push_back(run.path);
  check_reports(runs, folder);
  take_options(options_of(plan));
  make_room_for_files(plan.partitions.runs.size());
  const StopOnSignal signals;
  use_resources();
  options_.stop = signals.token();
  options_.checksum = true;
  PartAttempt attempt(plan, number, folder, options_);
  if (attempt.is_done()) {
    if (!quiet_) say_warning(attempt.part().string() + ": is written already; nothing to do");
    return 0;
  }
  return execute([&] { return attempt.write(); });
}

void MergeCommand::check_reports(const std::vector<std::filesystem::path>& runs,
                                 const std::filesystem::path& parts_folder) const {
  namespace fs = std::filesystem;
  if (trace_ == "-") throw Error(ErrorCode::options, "--trace: - is not a file; name one");
  std::error_code error;
  for (const auto& [option, file] : {std::pair("--stats", &stats_), {"--trace", &trace_}}) {
    if (file->empty() || *file == "-") continue;
    const bool exists = fs::exists(*file, error);
    if (!exists && fs::is_symlink(*file, error))
      throw Error(ErrorCode::options, fmt::format("{} {}: is a link to nothing; remove it, or make "
                                                  "what it points to",
                                                  option, *file));
    if (exists && !fs::is_regular_file(*file, error)) continue;  // such as a device
    const auto is = [&](const fs::path& other) {
      return exists && fs::equivalent(*file, other, error);
    };
    const auto is_read = [&](const fs::path& other) {
      return is(other == "-" ? "/dev/stdin" : other);
    };
    const fs::path name = one_spelling(*file);
    const auto will_be = [&](const fs::path& other) {
      return !other.empty() && (is(other) || name == one_spelling(other));
    };
    const auto is_part = [&] {
      return !parts_folder.empty() && is_part_name(name.filename().string()) &&
             name.parent_path() == one_spelling(parts_folder);
    };
    const char* const what = std::ranges::any_of(runs, is_read)    ? "a run"
                             : will_be(plan_)                      ? "the plan"
                             : will_be(output_)                    ? "the output"
                             : output_ == "-" && is("/dev/stdout") ? "the output"
                             : is_part()                           ? "a part of the output"
                             : is_read(files_from_) || is_read(files0_from_) ? "the list of runs"
                             : file == &trace_ && will_be(stats_)            ? "the file of --stats"
                                                                             : nullptr;
    if (what)
      throw Error(ErrorCode::options,
                  fmt::format("{} {}: is {}, too; name another file", option, *file, what));
  }
}

}  // namespace corank
