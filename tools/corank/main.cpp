// The command-line program: parses the commands, runs them and reports errors and statistics.
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "bench.hpp"
#include "command_line.hpp"
#include "corank/check.hpp"
#include "corank/merge.hpp"
#include "corank/version.hpp"
#include "generate.hpp"
#include "info.hpp"
#include "query_arguments.hpp"
#include "record_arguments.hpp"
#include "setting_flags.hpp"
#include "standard_streams.hpp"

namespace {

using corank::Error;

enum ExitCode { done = 0, out_of_order = 1, failed = 2 };

// Prints a message as one line, even if a file name contains control characters.
int report(std::string_view message, int code) {
  std::string line;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      line += fmt::format("\\x{:02x}", byte);
    else
      line += c;
  }
  corank::say(fmt::format("corank: {}\n", line));
  return code;
}

int report(const Error& error, int code) {
  return report(error.worded(corank::flag_of), code);
}

int report(const Error& error) {
  return report(error, error.code() == corank::ErrorCode::out_of_order ? out_of_order : failed);
}

// Shows progress in one line of a terminal, which it overwrites.
class ProgressLine {
 public:
  void show(const corank::Progress& progress) {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const auto done = static_cast<double>(progress.bytes_done);
    const auto total = static_cast<double>(progress.bytes_total);
    const double rate = done / seconds;
    shown_ = true;
    if (progress.bytes_total == 0) {
      corank::say(fmt::format("\r{:.0f} MB  {:.0f} MB/s\x1b[K", done * 1e-6, rate * 1e-6));
      return;
    }
    const auto left = static_cast<unsigned>((total - done) / rate + 0.5);
    corank::say(fmt::format("\r{:5.1f}%  {:.0f} of {:.0f} MB  {:.0f} MB/s  {}:{:02} left\x1b[K",
                            100 * done / total, done * 1e-6, total * 1e-6, rate * 1e-6, left / 60,
                            left % 60));
  }
  ~ProgressLine() {
    if (shown_) corank::say("\r\x1b[K");
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool shown_ = false;
};

// Turns the first SIGHUP, SIGINT or SIGTERM into a stop request; the second one ends the process
// immediately.
class StopOnSignal {
 public:
  StopOnSignal() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int number : {SIGHUP, SIGINT, SIGTERM}) {
      struct sigaction action {};
      sigaction(number, nullptr, &action);
      if (action.sa_handler != SIG_IGN) sigaddset(&signals, number);  // ignored under nohup and &
    }
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::thread([signals] {
      int number = 0;
      sigwait(&signals, &number);
      received_ = number;
      source_.request_stop();
      sigwait(&signals, &number);
      _exit(128 + number);
    }).detach();
  }
  std::stop_token token() const { return source_.get_token(); }
  int exit_code() const { return 128 + received_; }

 private:
  // Never destroyed, because the thread may outlive main() and static destructors.
  static inline std::stop_source& source_ = *new std::stop_source;
  static inline std::atomic<int> received_ = 0;
};

std::vector<std::filesystem::path> names_from(const std::string& file) {
  std::ifstream opened;
  if (file != "-") {
    opened.open(file, std::ios::binary);
    if (!opened) throw Error(file + ": cannot open; check the name after --files0-from");
  }
  std::istream& in = file == "-" ? std::cin : opened;
  std::vector<std::filesystem::path> names;
  for (std::string name; std::getline(in, name, '\0');) {
    if (name.empty())
      throw Error(
          fmt::format("{}: name {} is empty; separate names by one NUL byte", file, names.size()));
    names.emplace_back(name);
  }
  if (in.bad()) throw Error(file + ": cannot read");
  return names;
}

std::string hexadecimal(std::uint64_t checksum) {
  return fmt::format("{:016x}", checksum);
}

// Describes the stage that limits the speed of the merge.
std::string bound_of(const corank::Stats& stats) {
  if (stats.bound.what.empty()) return "nothing";
  return fmt::format("{}: {:.2f} GB/s of {:.2f}", stats.bound.what,
                     stats.bound.bytes_per_second * 1e-9,
                     stats.bound.ceiling_bytes_per_second * 1e-9);
}

void write_stats(const corank::Stats& stats, bool checksum, const std::string& file) {
  nlohmann::ordered_json json = {
      {"records", stats.records},
      {"records_skipped", stats.records_skipped},
      {"records_written", stats.records_written},
      {"records_replaced", stats.records_replaced},
      {"records_deleted", stats.records_deleted},
      {"bytes_read", stats.bytes_read},
      {"bytes_written", stats.bytes_written},
      {"output_bytes", stats.output_bytes},
      {"resumed_bytes", stats.resumed_bytes},
      {"passes", stats.passes},
      {"units", stats.units},
      {"seconds", stats.seconds},
      {"pipeline_seconds", stats.pipeline_seconds},
      {"busy_seconds",
       {{"read", stats.busy.read},
        {"cut", stats.busy.cut},
        {"merge", stats.busy.merge},
        {"write", stats.busy.write},
        {"compress", stats.busy.compress},
        {"verify", stats.busy.verify}}},
      {"wait_seconds",
       {{"read_for_cut", stats.waits.read_for_cut},
        {"cut_for_read", stats.waits.cut_for_read},
        {"cut_for_merge", stats.waits.cut_for_merge},
        {"merge_for_cut", stats.waits.merge_for_cut},
        {"merge_for_write", stats.waits.merge_for_write},
        {"write_for_merge", stats.waits.write_for_merge},
        {"write_for_compress", stats.waits.write_for_compress}}},
      {"bound", bound_of(stats)},
      {"io", stats.io},
      {"backend", stats.backend},
      {"backend_reason", stats.backend_reason},
      {"device", stats.device},
      {"memory_peak_bytes", stats.memory_peak_bytes},
      {"units_redone_on_cpu", stats.units_redone_on_cpu},
      {"device_fault", stats.device_fault},
      {"verified", stats.verified},
  };
  if (checksum) json["checksum"] = hexadecimal(stats.checksum);
  const std::string text = json.dump(2) + '\n';
  constexpr std::string_view failure = ": cannot write the statistics; the merge itself is done";
  if (file == "-") {
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
      throw Error(fmt::format("standard output{}", failure));
  } else if (!(std::ofstream(file) << text).flush()) {
    throw Error(fmt::format("{}{}", file, failure));
  }
}

class MergeCommand {
 public:
  // Adds a command: the set operation `on_equal`, or a merge if it is `keep`.
  MergeCommand(CLI::App& app, const char* name, const char* description,
               corank::OnEqual on_equal = corank::OnEqual::keep) {
    const bool merges = on_equal == corank::OnEqual::keep;
    command_ = app.add_subcommand(name, description);
    record_.add_to(*command_);
    record_.add_text_to(*command_);
    query_.query.on_equal = on_equal;
    query_.add_to(*command_);
    command_
        ->add_option("-o,--output", output_, "Where the merged records go; - is standard output")
        ->required()
        ->type_name("FILE");
    command_->add_flag("-f,--force", options_.overwrite, "Replace an output that exists");
    command_->add_flag("--drop-header", options_.drop_header,
                       "Leave the files' header out of the output; --skip-bytes and --header-lines "
                       "then may differ between files");
    command_->add_flag("--resume", options_.resume,
                       "Go on with what a stopped merge of the same runs left; stopped again, or "
                       "where the disk is full, keep it for the next");
    command_
        ->add_option(
            "--parts", options_.parts,
            "Write N files of equally many records, part-00000 and so on, side by side into "
            "the folder that -o names; a --limit of what is chosen or combined, or of lines, is "
            "shared out among them")
        ->transform(corank::whole_number(1, 99'999))
        ->option_text("N");
    command_
        ->add_option(
            "--compress", compress_,
            "How the output is compressed: none, gzip, zstd, bzip2, xz or lz4, also with a "
            "level (zstd:7); without it, by the end of its name: .gz .zst .bz2 .xz .lz4")
        ->type_name("CODEC");
    corank::add_compressed_to(*command_, options_.decompress);
    command_->add_option("--backend", options_.backend, "What merges: auto, cpu or cuda")
        ->transform(
            corank::one_of<corank::BackendChoice>({{"auto", corank::BackendChoice::automatic},
                                                   {"cpu", corank::BackendChoice::cpu},
                                                   {"cuda", corank::BackendChoice::cuda}}))
        ->option_text("BACKEND");
    command_
        ->add_option("--io", options_.io,
                     "How files are read and written: auto, buffered, direct (past the page cache) "
                     "or mapped (in place in the page cache)")
        ->transform(corank::one_of<corank::Io>({{"auto", corank::Io::automatic},
                                                {"buffered", corank::Io::buffered},
                                                {"direct", corank::Io::direct},
                                                {"mapped", corank::Io::mapped}}))
        ->option_text("IO");
    command_->add_flag("--strict-backend", options_.strict_backend,
                       "Fail where the device fails, instead of going on with the CPU");
    command_->add_option("--device", options_.device, "Number of the CUDA device")
        ->transform(corank::whole_number(0, std::numeric_limits<int>::max()))
        ->option_text("N");
    command_->add_option("-T,--threads", options_.threads, "Threads; without it, all cores")
        ->transform(corank::whole_number(1, 4096))
        ->option_text("N");
    command_
        ->add_option("-m,--memory", options_.memory_bytes,
                     "Budget for buffers in bytes, or with K, M, G; without it, a quarter of the "
                     "memory, at most 4G")
        ->transform(corank::size_in_bytes())
        ->option_text("SIZE");
    command_
        ->add_option("--files0-from", files_from_,
                     "Read more names of runs, each ended by a NUL byte, from FILE; - is standard "
                     "input")
        ->type_name("FILE");
    command_->add_flag("-q,--quiet", quiet_, "Show nothing but errors");
    CLI::Option* const progress = command_->add_flag(
        "--progress", progress_, "Show progress even where standard error is no terminal");
    command_->add_flag("--no-progress", no_progress_, "Show no progress on a terminal either")
        ->excludes(progress);
    CLI::Option* const stats =
        command_
            ->add_option("--stats", stats_,
                         "Write statistics as JSON to FILE; - is standard output")
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
    if (merges)
      command_->add_flag(
          "--copy-only", options_.copy_only,
          "Copy the runs one after another instead of merging them: the ruler for what "
          "a merge costs");
    command_->add_flag(
        "!--no-verify", options_.verify,
        "Do not prove that the output holds exactly the records of the runs, in order");
    command_->add_option("RUN", runs_, "Files of records that are sorted by the keys")
        ->type_name("");
    command_->footer(footer(on_equal));
  }

  bool chosen() const { return command_->parsed(); }

  int run() {
    options_.text = record_.text();
    if (!options_.text) {
      options_.record = record_.schema();
      options_.keys = record_.keys(options_.record);
    }
    options_.query = options_.text ? query_.parse_for_text(*options_.text)
                                   : query_.parse(options_.record, options_.keys);
    if (!compress_.empty()) options_.compression = corank::Compression::parse(compress_);
    if (output_ == "-" && stats_ == "-")
      throw Error("--output and --stats are both standard output; write one to a file");
    if (output_ == "-" && options_.parts != 0)
      throw Error("--output: parts are files, and - is none; name a folder");
    if (trace_ == "-") throw Error("--trace: - is no file; name one");
    std::vector<std::filesystem::path> runs(runs_.begin(), runs_.end());
    if (!files_from_.empty()) std::ranges::move(names_from(files_from_), std::back_inserter(runs));
    if (files_from_ == "-" && std::ranges::count(runs, "-") != 0)
      throw Error("--files0-from: standard input names the runs and can't be one, too; use a file");
    if (runs.empty())
      throw Error(
          fmt::format("{0}: no runs are named; see corank {0} --help", command_->get_name()));
    check_reports(runs);

    make_room_for_files(runs.size());
    const StopOnSignal signals;
    options_.stop = signals.token();
    options_.trace = trace_;
    if (!quiet_)
      options_.notice = [](const corank::Message& warning) {
        corank::say(fmt::format("corank: {}\n", warning.worded(corank::flag_of)));
      };
    corank::Stats stats;
    {
      ProgressLine line;
      if (!quiet_ && (progress_ || (!no_progress_ && isatty(STDERR_FILENO))))
        options_.progress = [&line](const corank::Progress& progress) { line.show(progress); };
      try {
        stats = corank::merge(runs, output_, options_);
      } catch (const corank::Interrupted& interrupted) {
        return report(interrupted, signals.exit_code());
      }
    }
    if (!stats_.empty()) write_stats(stats, options_.checksum, stats_);
    return done;
  }

 private:
  static const char* footer(corank::OnEqual on_equal) {
    switch (on_equal) {
      case corank::OnEqual::unite:
        return "Of equal keys as many records go out as the run has that has the most: of each "
               "run\n"
               "those that are more than any run before it has, its last.\n"
               "Example:\n  corank union -r key:u64,value:u64 -o all.bin a.bin b.bin";
      case corank::OnEqual::intersect:
        return "Of equal keys as many records of the first run go out as the run has that has the\n"
               "fewest, the first of them.\n"
               "Example:\n  corank intersect -r key:u64,value:u64 -o both.bin a.bin b.bin";
      case corank::OnEqual::subtract:
        return "Of equal keys as many records of the first run go out as it has more than all the\n"
               "others together, the last of them.\n"
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

  // The reports replace existing files, so they must not name a run or the output.
  void check_reports(const std::vector<std::filesystem::path>& runs) const {
    namespace fs = std::filesystem;
    std::error_code error;
    const auto whole = [&](const fs::path& path) {
      return fs::weakly_canonical(fs::absolute(path, error), error);
    };
    for (const auto& [option, file] : {std::pair("--stats", &stats_), {"--trace", &trace_}}) {
      if (file->empty() || *file == "-") continue;
      const bool exists = fs::exists(*file, error);
      if (exists && !fs::is_regular_file(*file, error)) continue;  // such as a device
      const auto is = [&](const fs::path& other) {
        return exists && fs::equivalent(*file, other, error);
      };
      const auto will_be = [&](const fs::path& other) {
        return !other.empty() && (is(other) || whole(*file) == whole(other));
      };
      const char* const what = std::ranges::any_of(runs, is)        ? "a run"
                               : will_be(output_)                   ? "the output"
                               : is(files_from_)                    ? "the list of runs"
                               : file == &trace_ && will_be(stats_) ? "the file of --stats"
                                                                    : nullptr;
      if (what)
        throw Error(fmt::format("{} {}: is {}, too; name another file", option, *file, what));
    }
  }

  // Enlarges the kernel's table of open files while the process has one thread. Later, with several
  // threads, the kernel would have to wait for all of them each time.
  static void make_room_for_files(std::size_t runs) {
    constexpr rlim_t others = 64;
    struct rlimit limit {};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t last = std::min<rlim_t>(runs + others, limit.rlim_cur - 1);
    close(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, static_cast<int>(last)));
  }

  CLI::App* command_;
  corank::RecordArguments record_;
  corank::ShapingArguments query_;
  corank::Options options_;
  std::string output_;
  std::string compress_;
  std::vector<std::string> runs_;
  std::string files_from_;
  std::string stats_;
  std::string trace_;
  bool quiet_ = false;
  bool progress_ = false;
  bool no_progress_ = false;
};

class CheckCommand {
 public:
  explicit CheckCommand(CLI::App& app) {
    command_ = app.add_subcommand("check", "Verify the order of files of records");
    record_.add_to(*command_);
    record_.add_text_to(*command_);
    command_->add_flag("--checksum", checksum_,
                       "Print records, checksum and name of each file, and of all together");
    corank::add_compressed_to(*command_, decompress_);
    command_->add_option("FILE", files_, "Files of records")->required()->type_name("");
    command_->footer(
        "The checksum depends neither on the order of the records nor on how they are spread over\n"
        "files: the total over the runs equals the output's.\n"
        "Example:\n  corank check -r key:u64,value:u64 --checksum merged.bin");
  }

  bool chosen() const { return command_->parsed(); }

  int run() {
    const auto text = record_.text();
    const corank::Schema schema = text ? corank::Schema() : record_.schema();
    const auto keys = text ? std::vector<corank::KeyField>() : record_.keys(schema);
    corank::CheckResult total;
    int code = done;
    for (const std::string& file : files_) {
      try {
        const corank::CheckResult result =
            text ? corank::check(file, *text, checksum_, decompress_)
                 : corank::check(file, schema, keys, checksum_, decompress_);
        total.records += result.records;
        total.checksum += result.checksum;
        if (checksum_) print(result, file);
      } catch (const Error& error) {
        code = std::max(code, report(error));
      }
    }
    if (checksum_ && code == done) print(total, "total");
    return code;
  }

 private:
  static void print(const corank::CheckResult& result, const std::string& name) {
    fmt::print("{} {} {}\n", result.records, hexadecimal(result.checksum), name);
  }

  CLI::App* command_;
  corank::RecordArguments record_;
  std::vector<std::string> files_;
  bool decompress_ = true;
  bool checksum_ = false;
};

class GenerateCommand {
 public:
  explicit GenerateCommand(CLI::App& app) {
    using corank::Distribution;
    command_ = app.add_subcommand("gen", "Generate sorted runs");
    record_.add_to(*command_);
    command_->get_option("--record")->required(false);
    command_
        ->add_option("--lines", options_.line_bytes,
                     "Lines of BYTES bytes, the newline among them, in place of --record")
        ->transform(corank::whole_number(1, 1 << 20))
        ->excludes("--record")
        ->excludes("--by")
        ->option_text("BYTES");
    command_->add_option("--records", options_.records, "Records of all runs together")
        ->required()
        ->transform(corank::whole_number(0))
        ->option_text("N");
    command_->add_option("--runs", options_.runs, "Number of runs")
        ->required()
        ->transform(corank::whole_number(1, 10'000'000))
        ->option_text("K");
    command_
        ->add_option("--seed", options_.seed, "The same seed gives the same bytes; 1 without it")
        ->transform(corank::whole_number(0))
        ->option_text("S");
    command_
        ->add_option("--distribution", options_.distribution,
                     "Of the keys: uniform, equal, disjoint, zipf, interleaved or lopsided")
        ->transform(corank::one_of<Distribution>({{"uniform", Distribution::uniform},
                                                  {"equal", Distribution::equal},
                                                  {"disjoint", Distribution::disjoint},
                                                  {"zipf", Distribution::zipf},
                                                  {"interleaved", Distribution::interleaved},
                                                  {"lopsided", Distribution::lopsided}}))
        ->option_text("D");
    command_
        ->add_option("-o,--output", folder_,
                     "Folder for run-00000.bin, or of lines run-00000.txt, and so on")
        ->required()
        ->type_name("DIR");
    command_->footer(
        "Example:\n  corank gen -r key:u64,value:u64 --records 1000000 --runs 16 -o runs");
  }

  bool chosen() const { return command_->parsed(); }

  int run() {
    if (options_.line_bytes == 0) {
      if (command_->count("--record") == 0)
        throw Error("say what the runs are to hold by one of --record SCHEMA and --lines BYTES");
      options_.record = record_.schema();
      options_.keys = record_.keys(options_.record);
    }
    corank::generate(options_, folder_);
    return done;
  }

 private:
  CLI::App* command_;
  corank::RecordArguments record_;
  corank::GenerateOptions options_;
  std::string folder_;
};

int run(int argc, char** argv) {
  CLI::App app("Merges sorted runs, of fixed-size records or of text, that are larger than memory.",
               "corank");
  app.set_version_flag("--version", std::string("corank ") + corank::version);
  app.require_subcommand(1);
  using corank::OnEqual;
  MergeCommand merge(app, "merge", "Merge sorted runs into one sorted file");
  MergeCommand unite(app, "union", "What any of the runs has, as a sorted file", OnEqual::unite);
  MergeCommand intersect(app, "intersect", "What all of the runs have, as a sorted file",
                         OnEqual::intersect);
  MergeCommand subtract(app, "subtract",
                        "What the first of the runs has and no other, as a sorted file",
                        OnEqual::subtract);
  CheckCommand check(app);
  GenerateCommand generate(app);
  corank::InfoCommand info(app);
  corank::BenchCommand bench(app);
  try {
    app.parse(corank::reversed_arguments(app, argc, argv));
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const std::string what = app.get_subcommands().empty()
                                 ? "say what to do: merge, union, intersect, subtract, check, gen, "
                                   "info or bench"
                                 : error.what();
    return report(Error(what + "; see corank --help"), failed);
  }
  for (const CLI::App* const command : app.get_subcommands()) corank::require_values(*command);
  for (MergeCommand* const command : {&merge, &unite, &intersect, &subtract})
    if (command->chosen()) return command->run();
  if (check.chosen()) return check.run();
  if (generate.chosen()) return generate.run();
  if (bench.chosen()) return bench.run();
  return info.run([](const Error& error) { return report(error, failed); });
}

}  // namespace

int main(int argc, char** argv) {
  corank::fill_closed_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // makes exceeding `ulimit -f` an error
  // Under `ulimit -v`, the C library's per-thread arenas would take the address space that stacks
  // need.
  struct rlimit addresses {};
  if (::getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
    ::mallopt(M_ARENA_MAX, 1);
  try {
    const int code = run(argc, argv);
    corank::finish_printing();
    return code;
  } catch (const Error& error) {
    return report(error);
  } catch (const std::filesystem::filesystem_error& error) {
    return report(Error(fmt::format("{}: {}; check the name", error.path1().string(),
                                    error.code().message())),
                  failed);
  } catch (const std::bad_alloc&) {
    return report(
        Error("the system gives no more memory; try a smaller --memory or fewer --threads, "
              "or raise the limit (ulimit -v)"),
        failed);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again)
      return report(error.what(), failed);
    return report(Error("the system gives no more threads, or no memory for them; try fewer "
                        "--threads, or raise the limits (ulimit -u, ulimit -v)"),
                  failed);
  } catch (const std::exception& error) {
    return report(error.what(), failed);
  }
}
