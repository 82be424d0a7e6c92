#include "bench.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <optional>
#include <thread>

#include "command_line.hpp"
#include "corank/check.hpp"
#include "corank/key.hpp"
#include "corank/version.hpp"
#include "info.hpp"
#include "io/file.hpp"
#include "standard_streams.hpp"
#include "util/buffer_pool.hpp"
#include "util/system_limits.hpp"
#include "work_folder.hpp"

namespace corank {
namespace {

using Clock = std::chrono::steady_clock;
using Path = std::filesystem::path;
using Json = nlohmann::ordered_json;
using Strings = std::vector<std::string>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Each child process leads its own process group, to which this process forwards its signals.
volatile sig_atomic_t received_signal = 0;
volatile sig_atomic_t running_group = 0;

void pass_on(int number) {
  received_signal = number;
  if (running_group != 0) ::kill(-static_cast<pid_t>(running_group), number);
}

void stop_if_signalled() {
  if (received_signal != 0) throw Interrupted();
}

std::vector<Path> files_in(const Path& folder) {
  std::vector<Path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

std::uint64_t bytes_of(const std::vector<Path>& files) {
  std::uint64_t bytes = 0;
  for (const Path& file : files) bytes += std::filesystem::file_size(file);
  return bytes;
}

// Returns true if a file in `folder` contains data; reserved space does not count.
bool holds_data(const Path& folder) {
  std::error_code vanished;
  for (std::filesystem::recursive_directory_iterator entry(folder, vanished), end; entry != end;
       entry.increment(vanished)) {
    const FileDescriptor file(::open(entry->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (file && entry->is_regular_file(vanished) && ::lseek(file.get(), 0, SEEK_DATA) >= 0)
      return true;
  }
  return false;
}

struct Cost {
  double wall_seconds;
  double cpu_seconds;
  double peak_bytes;                         // maximum resident set
  std::optional<double> first_byte_seconds;  // empty if it fell between two polls
};

// Runs a program and measures it from its start; "corank" names this program. The first byte is
// awaited in the folder `output`.
Cost execute(const Strings& command, const Path& output) {
  std::vector<char*> argv;
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const FileDescriptor said(::memfd_create("said", MFD_CLOEXEC));
  if (!said) throw_file_error("memory", "make a file");

  stop_if_signalled();
  const auto start = Clock::now();
  const pid_t child = ::fork();
  if (child < 0) throw_file_error(command[0], "start");
  if (child == 0) {
    ::setpgid(0, 0);
    ::signal(SIGINT, SIG_DFL);
    ::signal(SIGTERM, SIG_DFL);
    ::dup2(said.get(), STDOUT_FILENO);
    ::dup2(said.get(), STDERR_FILENO);
    ::execvp(command[0] == "corank" ? "/proc/self/exe" : argv[0], argv.data());
    ::_exit(127);
  }
  ::setpgid(child, child);
  running_group = child;

  Cost cost{};
  int status = 0;
  struct rusage usage {};
  while (::wait4(child, &status, cost.first_byte_seconds ? 0 : WNOHANG, &usage) != child) {
    if (cost.first_byte_seconds) continue;
    if (holds_data(output))
      cost.first_byte_seconds = seconds_since(start);
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  running_group = 0;
  cost.wall_seconds = seconds_since(start);
  const auto in_seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  cost.cpu_seconds = in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime);
  cost.peak_bytes = static_cast<double>(usage.ru_maxrss) * 1024;
  stop_if_signalled();
  if (status != 0) {
    std::string text(1000, '\0');
    text.resize(read_at(said, std::as_writable_bytes(std::span(text)), 0, "its output"));
    while (text.ends_with('\n')) text.pop_back();
    throw Error(fmt::format("bench: {}: ended with {} {}: {}", fmt::join(command, " "),
                            WIFSIGNALED(status) ? "signal" : "code",
                            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), text));
  }
  return cost;
}

// Returns true if the shell command succeeds.
bool shell_says(const std::string& question) {
  return std::system(("(" + question + ") > /dev/null 2>&1").c_str()) == 0;
}

void sync_file_system(const Path& folder) {
  const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened || ::syncfs(opened.get()) != 0) throw_file_error(folder, "make durable");
}

void drop_from_cache(const std::vector<Path>& files) {
  for (const Path& file : files)
    ::posix_fadvise(open_to_read(file).get(), 0, 0, POSIX_FADV_DONTNEED);
}

double cached_share(const std::vector<Path>& files) {
  std::uint64_t pages = 0, cached = 0;
  for (const Path& path : files) {
    const std::uint64_t bytes = std::filesystem::file_size(path);
    if (bytes == 0) continue;
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, open_to_read(path).get(), 0);
    if (mapped == MAP_FAILED) throw_file_error(path, "map");
    std::vector<unsigned char> is_cached((bytes + page_bytes() - 1) / page_bytes());
    const int answer = ::mincore(mapped, bytes, is_cached.data());
    ::munmap(mapped, bytes);
    if (answer != 0) throw_file_error(path, "see what is cached");
    pages += is_cached.size();
    cached += static_cast<std::uint64_t>(
        std::ranges::count_if(is_cached, [](unsigned char page) { return page & 1; }));
  }
  return pages == 0 ? 1 : static_cast<double>(cached) / static_cast<double>(pages);
}

// Touches free memory in advance. A virtual machine returns free memory to its host, and to get it
// back costs more than a merge.
void touch_memory(std::uint64_t bytes) {
  const std::uint64_t free_bytes =
      static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) * page_bytes();
  bytes = std::min(bytes, free_bytes / 8 * 7);
  const std::uint64_t threads = processor_limit().value;
  const std::uint64_t share = round_up(bytes / threads + 1, page_bytes());
  BufferPool pool(share, threads, nullptr, BufferPool::Pages::huge);
  std::vector<Buffer> shares;
  for (unsigned i = 0; i < threads; ++i) shares.push_back(pool.lease());
  std::vector<std::jthread> workers;
  for (const Buffer& buffer : shares)
    workers.emplace_back(
        [memory = buffer.bytes()] { std::memset(memory.data(), 1, memory.size()); });
}

// Writes records as lines that GNU sort orders like the records: the normalised key, a blank and
// the other fields, all in hexadecimal.
class Lines {
 public:
  Lines(const Schema& schema, const std::vector<KeyField>& keys) : encoding_(schema, keys) {
    const std::vector<KeyField> key_fields = keys.empty() ? std::vector<KeyField>{{0}} : keys;
    for (std::uint32_t i = 0; i < schema.fields.size(); ++i) {
      const Field& field = schema.fields[i];
      if (std::ranges::count(key_fields, i, &KeyField::field))
        key_bytes_ += field.bytes;
      else
        others_.push_back(field);
    }
    line_bytes_ = 2 * key_bytes_ + 2;
    for (const Field& field : others_) line_bytes_ += 2 * field.bytes;
  }

  // A key longer than its words has a tail, which the lines would lack.
  bool possible() const { return !encoding_.has_tail(); }
  std::uint64_t line_bytes() const { return line_bytes_; }

  void write(const Path& run, const Path& text) const {
    std::ifstream in(run, std::ios::binary);
    std::ofstream out(text, std::ios::binary);
    const std::uint32_t record_bytes = encoding_.record_bytes();
    std::string records(std::max(1u, (1u << 20) / record_bytes) * record_bytes, '\0');
    std::string lines;
    while (in.read(records.data(), static_cast<std::streamsize>(records.size())),
           in.gcount() != 0) {
      lines.clear();
      for (std::size_t at = 0; at < static_cast<std::size_t>(in.gcount()); at += record_bytes)
        append(lines, reinterpret_cast<const std::byte*>(records.data()) + at);
      out << lines;
      stop_if_signalled();
    }
    if (!out.flush()) throw_file_error(text, "write");
  }

 private:
  void append(std::string& lines, const std::byte* record) const {
    Key<max_key_words> key = encode<max_key_words>(encoding_.layout(), record);
    for (std::uint64_t& word : key.word) word = __builtin_bswap64(word);
    append_digits(lines, reinterpret_cast<const std::byte*>(key.word), key_bytes_);
    lines += ' ';
    for (const Field& field : others_) append_digits(lines, record + field.offset, field.bytes);
    lines += '\n';
  }

  static void append_digits(std::string& to, const std::byte* bytes, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto byte = static_cast<unsigned char>(bytes[i]);
      to += "0123456789abcdef"[byte >> 4];
      to += "0123456789abcdef"[byte & 15];
    }
  }

  KeyEncoding encoding_;
  std::uint32_t key_bytes_ = 0;
  std::vector<Field> others_;
  std::uint64_t line_bytes_ = 0;
};

struct Contender {
  std::string name;
  Strings command;
  std::uint64_t output_bytes;
  const std::vector<Path>& inputs;
  bool merges = false;  // whether the output holds the records of the runs in order
  std::vector<Cost> costs{};

  double median_of(double Cost::*member) const {
    std::vector<double> values;
    for (const Cost& cost : costs) values.push_back(cost.*member);
    return median(values);
  }
  std::optional<double> median_first_byte() const {
    std::vector<double> values;
    for (const Cost& cost : costs)
      if (cost.first_byte_seconds) values.push_back(*cost.first_byte_seconds);
    if (values.size() < costs.size()) return std::nullopt;
    return median(values);
  }
};

// One row of the matrix: all contenders process the same bytes in turn.
class Row {
 public:
  Row(const BenchOptions& options, const std::string& record, std::uint32_t runs,
      const std::string& distribution)
      : options_(options),
        record_(record),
        runs_(runs),
        distribution_(distribution),
        schema_(Schema::parse(record)),
        keys_(parse_keys(options.keys, schema_)),
        records_(std::max<std::uint64_t>(options.bytes / schema_.record_bytes, 1)),
        bytes_(records_ * schema_.record_bytes),
        lines_(schema_, keys_),
        folder_(options.folder) {
    check_options_.record = schema_;
    check_options_.keys = keys_;
    check_options_.checksum = true;
  }

  Json run() {
    check_room();
    generate();
    find_contenders();
    warm_up();
    for (unsigned i = 0; i < options_.repetitions; ++i)
      for (Contender& contender : contenders_) {
        contender.costs.push_back(measure(contender));
        if (i == 0 && contender.merges) check_output();
      }
    print();
    return result();
  }

 private:
  bool takes_part(const char* peer) const { return std::ranges::count(options_.peers, peer) != 0; }
  bool sorts() const { return takes_part("sort") && lines_.possible(); }
  std::uint64_t text_bytes() const { return records_ * lines_.line_bytes(); }

  void check_room() const {
    const std::uint64_t need = 2 * bytes_ + (sorts() ? 2 * text_bytes() : 0);
    const std::uint64_t room = std::filesystem::space(options_.folder).available;
    if (room < need + need / 32)
      throw Error(
          fmt::format("bench: {}: {} MiB are free and {} are needed; free some space, name "
                      "another folder by --in, or ask for less by --size or --peers",
                      options_.folder, room >> 20, (need + need / 32) >> 20));
  }

  Strings with_schema(Strings command) const {
    command.insert(command.end(), {"-r", record_});
    if (!options_.keys.empty()) command.insert(command.end(), {"-b", options_.keys});
    return command;
  }

  void generate() {
    Strings command = with_schema({"corank", "gen"});
    command.insert(command.end(),
                   {"--records", std::to_string(records_), "--runs", std::to_string(runs_),
                    "--distribution", distribution_, "-o", folder_ / "runs"});
    execute(command, folder_ / "nothing");
    inputs_ = files_in(folder_ / "runs");
    name(inputs_, folder_ / "names");
    for (const Path& run : inputs_) {
      stop_if_signalled();
      checksum_ += check(run, check_options_).checksum;
    }
    if (!sorts()) return;
    std::filesystem::create_directory(folder_ / "text");
    for (const Path& run : inputs_) lines_.write(run, folder_ / "text" / run.filename());
    texts_ = files_in(folder_ / "text");
    name(texts_, folder_ / "text-names");
  }

  static void name(const std::vector<Path>& files, const Path& list) {
    std::ofstream out(list);
    for (const Path& file : files) out << file.string() << '\0';
    if (!out.flush()) throw_file_error(list, "write");
  }

  void find_contenders() {
    const Path names = folder_ / "names";
    Strings merge = with_schema({"corank", "merge", "--quiet"});
    merge.insert(merge.end(), {"--files0-from", names, "-o", output()});
    merge.insert(merge.end(), options_.merge_arguments.begin(), options_.merge_arguments.end());
    add_merge_and_copy("", merge);
    if (options_.parts != 0) {
      merge.insert(merge.end(), {"--parts", std::to_string(options_.parts)});
      add_merge_and_copy(fmt::format(", {} parts", options_.parts), merge);
    }
    // Durable as the others' output is.
    if (takes_part("cat") && shell_says("command -v xargs && command -v cat && command -v sync"))
      contenders_.push_back(
          {"cat, sync",
           {"sh", "-c", R"(xargs -0 cat -- < "$1" > "$2" && sync "$2")", "sh", names, output()},
           bytes_,
           inputs_});
    if (sorts() && shell_says("sort --version | grep -q GNU")) {
      const std::size_t at_once = std::clamp<std::size_t>(runs_, 2, descriptor_limit() - 16);
      contenders_.push_back(
          {fmt::format("sort -m, sync: lines of {} bytes", lines_.line_bytes()),
           {"sh", "-c",
            R"(LC_ALL=C sort -m -s -k1,1 --batch-size="$3" -T "$4" --files0-from="$1" -o "$2" )"
            R"(&& sync "$2")",
            "sh", folder_ / "text-names", output(), std::to_string(at_once), options_.folder},
           text_bytes(),
           texts_});
    }
  }

  void add_merge_and_copy(const std::string& into, const Strings& merge) {
    Strings copy = merge;
    copy.push_back("--copy-only");
    contenders_.push_back({"copy-only" + into, copy, bytes_, inputs_});
    contenders_.push_back({"merge" + into, merge, bytes_, inputs_, true});
  }

  Path output() const { return folder_ / "out" / "merged"; }

  // Runs a merge that is not timed, because the first one loads the device's driver. Its own
  // statistics are kept.
  void warm_up() {
    clear_output();
    Strings command = contenders_[1].command;
    command.insert(command.end(), {"--stats", folder_ / "stats"});
    execute(command, folder_ / "nothing");
    stats_ = Json::parse(std::ifstream(folder_ / "stats"));
    sync_file_system(options_.folder);
    cached_share_ = 1;
    if (options_.cold) drop_from_cache(inputs_);
    cached_share_ = cached_share(inputs_);
    if (options_.cold && cached_share_ > 0.01)
      throw Error(
          fmt::format("bench: --cold: {:.0f} % of the runs stay in the page cache; name a "
                      "folder on a disk by --in",
                      100 * cached_share_));
  }

  void clear_output() const {
    std::filesystem::remove_all(folder_ / "out");
    std::filesystem::create_directory(folder_ / "out");
  }

  Cost measure(const Contender& contender) const {
    clear_output();
    sync_file_system(options_.folder);
    if (options_.cold) drop_from_cache(contender.inputs);
    touch_memory(contender.output_bytes + (options_.cold ? bytes_of(contender.inputs) : 0) +
                 stats_["memory_peak_bytes"].get<std::uint64_t>());
    const Cost cost = execute(contender.command, folder_ / "out");
    const std::uint64_t written = bytes_of(files_in(folder_ / "out"));
    if (written != contender.output_bytes)
      throw Error(fmt::format("bench: {} wrote {} bytes instead of {}", contender.name, written,
                              contender.output_bytes));
    return cost;
  }

  void check_output() const {
    std::uint64_t sum = 0;
    std::ofstream seams(folder_ / "seams", std::ios::binary);
    for (const Path& file : files_in(folder_ / "out")) {
      sum += check(file, check_options_).checksum;
      copy_ends(file, seams);
    }
    if (!seams.flush()) throw_file_error(folder_ / "seams", "write");
    check(folder_ / "seams", check_options_);
    if (sum != checksum_) throw Error("bench: the merged records are not those of the runs");
  }

  // Copies the first and last records of a part; if these are sorted, so are the parts.
  void copy_ends(const Path& file, std::ofstream& to) const {
    const std::uint64_t bytes = std::filesystem::file_size(file);
    if (bytes == 0) return;
    std::string record(schema_.record_bytes, '\0');
    std::ifstream in(file, std::ios::binary);
    for (const std::uint64_t at : {std::uint64_t{0}, bytes - record.size()}) {
      in.seekg(static_cast<std::streamoff>(at));
      in.read(record.data(), static_cast<std::streamsize>(record.size()));
      to << record;
    }
  }

  double ratio(const Contender& contender, double Cost::*member) const {
    return contender.median_of(member) / contenders_[0].median_of(member);
  }

  void print() const {
    const std::string cache =
        options_.cold ? "cold" : fmt::format("{:.0f} % in the page cache", 100 * cached_share_);
    fmt::print("\n{}: {} runs, {}, {:.3f} GiB, {}\n", record_, runs_, distribution_,
               static_cast<double>(bytes_) / (1u << 30), cache);
    fmt::print("merged by {}, {}; medians of {}; the merged records were checked\n",
               stats_.value("backend", "?"), stats_.value("device", "?"), options_.repetitions);
    fmt::print("{:34} {:>9} {:>6} {:>9} {:>6} {:>7} {:>10} {:>8}\n", "", "wall s", "ratio", "CPU s",
               "ratio", "GB/s", "1st byte s", "MiB");
    for (const Contender& contender : contenders_) {
      const double wall = contender.median_of(&Cost::wall_seconds);
      const auto first = contender.median_first_byte();
      fmt::print("{:34} {:9.3f} {:6.2f} {:9.3f} {:6.2f} {:7.2f} {:>10} {:8.0f}\n", contender.name,
                 wall, ratio(contender, &Cost::wall_seconds),
                 contender.median_of(&Cost::cpu_seconds), ratio(contender, &Cost::cpu_seconds),
                 static_cast<double>(bytes_) / wall * 1e-9,
                 first ? fmt::format("{:.3f}", *first) : "-",
                 contender.median_of(&Cost::peak_bytes) / (1u << 20));
    }
    if (takes_part("sort") && !sorts()) fmt::print("no sort -m: the key is longer than 32 bytes\n");
    finish_printing();
  }

  Json result() const {
    Json row = {{"record", record_},
                {"record_bytes", schema_.record_bytes},
                {"by", options_.keys},
                {"runs", runs_},
                {"distribution", distribution_},
                {"records", records_},
                {"bytes", bytes_},
                {"cold", options_.cold},
                {"cached_share", cached_share_},
                {"merge_stats", stats_}};
    for (const Contender& contender : contenders_) {
      Json entry = {{"name", contender.name},
                    {"output_bytes", contender.output_bytes},
                    {"wall_ratio", ratio(contender, &Cost::wall_seconds)},
                    {"cpu_ratio", ratio(contender, &Cost::cpu_seconds)}};
      for (const Cost& cost : contender.costs) {
        entry["wall_seconds"].push_back(cost.wall_seconds);
        entry["cpu_seconds"].push_back(cost.cpu_seconds);
        entry["peak_bytes"].push_back(cost.peak_bytes);
        entry["first_byte_seconds"].push_back(
            cost.first_byte_seconds ? Json(*cost.first_byte_seconds) : Json());
      }
      row["contenders"].push_back(std::move(entry));
    }
    return row;
  }

  const BenchOptions& options_;
  const std::string record_;
  const std::uint32_t runs_;
  const std::string distribution_;
  const Schema schema_;
  const std::vector<KeyField> keys_;
  Options check_options_;
  const std::uint64_t records_;
  const std::uint64_t bytes_;
  const Lines lines_;
  const WorkFolder folder_;
  std::vector<Path> inputs_, texts_;
  std::uint64_t checksum_ = 0;
  std::vector<Contender> contenders_;
  Json stats_;
  double cached_share_ = 0;
};

}  // namespace

BenchCommand::BenchCommand(CLI::App& app) {
  command_ = app.add_subcommand("bench", "Measure merges against copies of the same bytes");
  command_->add_option("--size", options_.bytes, "Bytes of the runs of a row, or with K, M, G; 1G")
      ->transform(size_in_bytes())
      ->option_text("SIZE");
  command_->add_option("--in", options_.folder, "Folder to work in [this one]")
      ->check(CLI::ExistingDirectory)
      ->option_text("FOLDER");
  command_
      ->add_option("-r,--record", options_.records,
                   "Fields of a record; may be given several times [16 and 100 bytes]")
      ->allow_extra_args(false)
      ->option_text("SCHEMA");
  command_->add_option("-b,--by", options_.keys, "Keys [the first field]")->option_text("KEYS");
  command_->add_option("-k,--runs", options_.runs, "Numbers of runs [2,16,256]")
      ->delimiter(',')
      ->transform(whole_number(1, 1'000'000))
      ->option_text("K,...");
  command_
      ->add_option("--distribution", options_.distributions,
                   "Of the keys: uniform, equal, disjoint, lopsided, zipf, interleaved "
                   "[the first four]")
      ->delimiter(',')
      ->check(CLI::IsMember({"uniform", "equal", "disjoint", "lopsided", "zipf", "interleaved"}))
      ->option_text("D,...");
  command_->add_option("--repeat", options_.repetitions, "Repetitions [5]")
      ->transform(whole_number(1, 1000))
      ->option_text("N");
  command_
      ->add_option("--parts", options_.parts,
                   "Measure merge and copy into N part files, too, beside those into one file")
      ->transform(whole_number(1, 99'999))
      ->option_text("N");
  command_
      ->add_option("--peers", options_.peers,
                   "Others to measure, where they are installed: cat, sort or none [both]")
      ->delimiter(',')
      ->check(CLI::IsMember({"cat", "sort", "none"}))
      ->option_text("P,...");
  command_->add_flag("--cold", options_.cold, "Drop the runs from the page cache before each time");
  command_->add_option("--json", options_.json, "Write everything measured to FILE")
      ->option_text("FILE");
  command_->add_option("--commit", options_.commit, "What was built, for the JSON")
      ->option_text("LABEL");
  constexpr char group[] = "Passed on to merge";
  const auto passed_on = [&](const char* option, std::string& value, const char* text) {
    command_->add_option(option, value, "")->option_text(text)->group(group);
  };
  passed_on("--backend", backend_, "BACKEND");
  passed_on("--device", device_, "N");
  passed_on("-T,--threads", threads_, "N");
  passed_on("-m,--memory", memory_, "SIZE");
  passed_on("--io", io_, "IO");
  command_->footer(
      "For each record, number of runs and distribution: generates the runs, then lets merge\n"
      "--copy-only (the baseline), merge, cat and GNU sort -m (the same records as text lines)\n"
      "take turns, each in a process of its own, and prints medians and their ratios to the\n"
      "baseline.\n"
      "GB/s are the runs' bytes by wall time; the first byte is looked for every millisecond.\n"
      "Example:\n  corank bench --size 1G --in /data -k 16,256 --json bench.json");
}

int BenchCommand::run() {
  for (const auto& [option, value] : {std::pair{"--backend", &backend_},
                                      {"--device", &device_},
                                      {"--threads", &threads_},
                                      {"--memory", &memory_},
                                      {"--io", &io_}})
    if (!value->empty())
      options_.merge_arguments.insert(options_.merge_arguments.end(), {option, *value});

  struct sigaction action {};
  action.sa_handler = pass_on;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // A closed pipe is an error here, so that cleanup runs before the signal ends the program.
  if (::signal(SIGPIPE, pass_on) == SIG_IGN) ::signal(SIGPIPE, SIG_IGN);
  struct rlimit files {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);

  Json rows = Json::array();
  try {
    for (const std::string& record : options_.records)
      for (const std::uint32_t runs : options_.runs)
        for (const std::string& distribution : options_.distributions)
          rows.push_back(Row(options_, record, runs, distribution).run());
  } catch (const Interrupted&) {
    say("corank: interrupted; nothing is left of what was measured with\n");
  } catch (const Error&) {
    if (received_signal != SIGPIPE) throw;
    ::signal(SIGPIPE, SIG_DFL);
    ::raise(SIGPIPE);
  }
  const int code = received_signal != 0 ? 128 + received_signal : 0;
  if (options_.json.empty()) return code;
  // Last, because the device's driver makes this process large and its children slow to start.
  const Json json = {
      {"version", version},
      {"commit", options_.commit},
      {"date", fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)))},
      {"machine", describe_machine()},
      {"folder", options_.folder},
      {"repetitions", options_.repetitions},
      {"parts", options_.parts},
      {"merge_arguments", options_.merge_arguments},
      {"rows", std::move(rows)},
  };
  std::ofstream out(options_.json);
  if (!(out << json.dump(2) << '\n').flush()) throw_file_error(options_.json, "write");
  return code;
}

}  // namespace corank
