// Benchmarks merges of files: `corank merge` against its own copy and the usual alternatives.

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "bench_peers.hpp"
#include "tools/corank/work_folder.hpp"

namespace {

using namespace corank::bench;
using Path = std::filesystem::path;
using Paths = std::vector<Path>;

class File {
 public:
  File(const Path& path, int flags) : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    check(descriptor_ >= 0, path.string());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(descriptor_); }

  int descriptor() const { return descriptor_; }
  static void check(bool fine, const std::string& what) {
    if (!fine) throw std::system_error(errno, std::generic_category(), what);
  }

 private:
  int descriptor_;
};

// A mapped file of records; the constructor with `bytes` creates a file of that size.
template <class Record>
class Mapping {
 public:
  explicit Mapping(const Path& path) : Mapping(path, O_RDONLY, std::filesystem::file_size(path)) {}
  Mapping(const Path& path, std::uint64_t bytes)
      : Mapping(path, O_RDWR | O_CREAT | O_TRUNC, bytes) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (!records_.empty())
      ::munmap(const_cast<std::remove_const_t<Record>*>(records_.data()), records_.size_bytes());
  }

  std::span<Record> records() const { return records_; }
  void sync() const { File::check(::fsync(file_.descriptor()) == 0, "fsync"); }

 private:
  Mapping(const Path& path, int flags, std::uint64_t bytes) : file_(path, flags) {
    if (flags != O_RDONLY)
      File::check(::ftruncate(file_.descriptor(), static_cast<off_t>(bytes)) == 0, path.string());
    if (bytes == 0) return;
    const int protection = flags == O_RDONLY ? PROT_READ : PROT_READ | PROT_WRITE;
    void* at = ::mmap(nullptr, bytes, protection, MAP_SHARED, file_.descriptor(), 0);
    File::check(at != MAP_FAILED, path.string());
    records_ = {static_cast<Record*>(at), bytes / sizeof(Record)};
  }

  File file_;
  std::span<Record> records_;
};

// Reads a run in pieces large enough for the disk.
template <class Record>
class BufferedRun {
 public:
  explicit BufferedRun(const Path& path)
      : file_(path, O_RDONLY), buffer_(buffer_bytes / sizeof(Record)) {
    fill();
  }

  bool empty() const { return next_ == end_; }
  const Record& front() const { return buffer_[next_]; }
  void pop() {
    if (++next_ == end_) fill();
  }

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{256} << 10;

  void fill() {
    std::size_t bytes = 0;
    for (ssize_t got = 1; got > 0 && bytes < buffer_.size() * sizeof(Record);
         bytes += static_cast<std::size_t>(got)) {
      got = ::read(file_.descriptor(), reinterpret_cast<std::byte*>(buffer_.data()) + bytes,
                   buffer_.size() * sizeof(Record) - bytes);
      File::check(got >= 0, "read");
    }
    next_ = 0;
    end_ = bytes / sizeof(Record);
  }

  File file_;
  std::vector<Record> buffer_;
  std::size_t next_ = 0, end_ = 0;
};

template <class Record>
void merge_files_by_loser_tree(const Paths& paths, const Path& output) {
  std::vector<std::unique_ptr<BufferedRun<Record>>> runs;
  std::uint64_t left = 0;
  for (const Path& path : paths) {
    runs.push_back(std::make_unique<BufferedRun<Record>>(path));
    left += std::filesystem::file_size(path) / sizeof(Record);
  }
  LoserTree tree(runs.size(), [&](std::size_t i, std::size_t j) {
    const auto &a = *runs[i], &b = *runs[j];
    if (a.empty() || b.empty()) return b.empty() && (!a.empty() || i < j);
    return i < j ? !(b.front() < a.front()) : a.front() < b.front();
  });
  const File file(output, O_WRONLY | O_CREAT | O_TRUNC);
  std::vector<Record> buffer((std::size_t{4} << 20) / sizeof(Record));
  while (left > 0) {
    const std::size_t count = std::min<std::uint64_t>(left, buffer.size());
    for (std::size_t i = 0; i < count; ++i) {
      BufferedRun<Record>& run = *runs[tree.winner()];
      buffer[i] = run.front();
      run.pop();
      tree.replay();
    }
    for (std::size_t done = 0; done < count * sizeof(Record);) {
      const ssize_t put =
          ::write(file.descriptor(), reinterpret_cast<const std::byte*>(buffer.data()) + done,
                  count * sizeof(Record) - done);
      File::check(put > 0, "write");
      done += static_cast<std::size_t>(put);
    }
    left -= count;
  }
  File::check(::fsync(file.descriptor()) == 0, "fsync");
}

template <class Record>
void merge_files_by_gnu(const Paths& paths, const Path& output, unsigned threads) {
  std::vector<std::unique_ptr<Mapping<Record>>> mappings;
  Runs<Record> runs;
  std::uint64_t bytes = 0;
  for (const Path& path : paths) {
    mappings.push_back(std::make_unique<Mapping<Record>>(path));
    runs.push_back(mappings.back()->records());
    bytes += runs.back().size_bytes();
  }
  const Mapping<Record> out(output, bytes);
  merge_by_gnu(runs, out.records(), threads);
  out.sync();
}

struct Case {
  std::string schema;
  std::size_t k;
  unsigned threads;
};

volatile std::sig_atomic_t interrupted = 0;
void stop_if_interrupted() {
  if (interrupted) throw std::runtime_error("interrupted");
}

// Runs `work` in a child process, so that all contenders start equally. Returns its seconds.
double timed(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = ::fork();
  File::check(child >= 0, "fork");
  if (child == 0) {
    std::signal(SIGINT, SIG_DFL);
    try {
      work();
    } catch (const std::exception& error) {
      fmt::print(stderr, "bench-files: {}\n", error.what());
      std::fflush(stderr);
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  File::check(::waitpid(child, &status, 0) == child, "waitpid");
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  stop_if_interrupted();
  if (status != 0) throw std::runtime_error("a contender failed");
  return taken.count();
}

void execute(std::vector<std::string> command) {
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  File::check(false, command[0]);
}

// Touches memory in huge pages. A virtual machine may have returned memory to its host, which makes
// the next use slow.
void touch(std::uint64_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  File::check(at != MAP_FAILED, "mmap");
  ::madvise(at, bytes, MADV_HUGEPAGE);
  std::memset(at, 1, bytes);
  ::munmap(at, bytes);
}

std::uint64_t hash_of(const Path& path) {
  const Mapping<const std::byte> file(path);
  return XXH3_64bits(file.records().data(), file.records().size());
}

// Runs a program and returns the seconds that it prints as its last line.
double reported(const std::string& command) {
  const std::string text = output_of(command.c_str());
  try {
    return std::stod(text.substr(text.rfind('\n') + 1));
  } catch (const std::exception&) {
    throw std::runtime_error("failed: " + command);
  }
}

constexpr double longest_repeated = 30;  // seconds
// Contenders that are separate programs, for records of 16 and 100 bytes, if they were built.
const std::vector<std::string> peers{"stxxl", "rocksdb"};

bool is_peer(const std::string& contender) {
  return std::ranges::count(peers, contender) != 0;
}

Path beside() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

struct Settings {
  Path folder = ".", corank;
  std::uint64_t bytes = std::uint64_t{1} << 30;
  int repetitions = 5;
  std::vector<std::string> contenders{"copy-only", "corank", "gnu", "loser tree"};
};

using Seconds = std::map<std::string, std::vector<double>>;

template <class Record>
Seconds measure(const Case& c, const Settings& settings) {
  const corank::WorkFolder folder(settings.folder);
  timed([&] {
    execute({settings.corank, "gen", "-r", c.schema, "--records",
             fmt::to_string(settings.bytes / sizeof(Record)), "--runs", fmt::to_string(c.k), "-o",
             folder / "runs"});
  });
  Paths runs;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "runs"))
    runs.push_back(entry.path());
  std::ranges::sort(runs);
  ::sync();  // so that no write-back disturbs a measurement
  const Path out = folder / "out";

  const auto program = [&](const char* option) {
    std::vector<std::string> command{
        settings.corank,           "merge", "-q", "--backend", "cpu", "-r", c.schema, "-T",
        fmt::to_string(c.threads), "-o",    out};
    if (option) command.push_back(option);
    command.insert(command.end(), runs.begin(), runs.end());
    execute(command);
  };
  const auto in_child = [](auto work) { return [work] { return timed(work); }; };
  const std::string names = fmt::format("'{}/runs/'*", folder.path().string());
  const auto peer = [&](const std::string& name, const std::string& arguments) {
    // STXXL's threads would otherwise spin while they wait and take the cores from its readers.
    return [command = fmt::format("OMP_WAIT_POLICY=passive '{}/bench-{}' {}", beside().string(),
                                  name, arguments)] { return reported(command); };
  };
  const std::map<std::string, std::function<double()>> all{
      {"copy-only", in_child([&] { program("--copy-only"); })},
      {"corank", in_child([&] { program(nullptr); })},
      {"gnu", in_child([&] { merge_files_by_gnu<Record>(runs, out, c.threads); })},
      {"loser tree", in_child([&] { merge_files_by_loser_tree<Record>(runs, out); })},
      {"stxxl", peer("stxxl", fmt::format("{} '{}' '{}' {}", sizeof(Record), folder.path().string(),
                                          out.string(), names))},
      {"rocksdb", peer("rocksdb", fmt::format("{} {} '{}' {}", sizeof(Record), c.threads,
                                              folder.path().string(), names))},
  };
  Seconds seconds;
  std::map<std::string, std::uint64_t> hashes;
  for (int repetition = 0; repetition < settings.repetitions; ++repetition)
    for (const std::string& name : settings.contenders) {
      if (is_peer(name) && sizeof(Record) != 16 && sizeof(Record) != 100) continue;
      // Very slow contenders, such as databases, run once.
      if (repetition > 0 && seconds[name].front() > longest_repeated) continue;
      std::filesystem::remove(out);
      std::filesystem::remove_all(folder / "rocksdb");
      touch(settings.bytes + settings.bytes / 2);
      for (const Path& run : runs) hash_of(run);  // loads it into the page cache
      seconds[name].push_back(all.at(name)());
      stop_if_interrupted();
      if (repetition == 0 && name != "copy-only" && name != "rocksdb") hashes[name] = hash_of(out);
    }
  for (const auto& [name, hash] : hashes)
    if (hash != hashes.begin()->second)
      throw std::runtime_error(name + " and " + hashes.begin()->first + " merge differently");
  return seconds;
}

Seconds measure(std::uint32_t record_bytes, std::size_t k, unsigned threads,
                const Settings& settings) {
  switch (record_bytes) {
    case 8:
      return measure<IntegerRecord<8>>({"key:u64", k, threads}, settings);
    case 16:
      return measure<IntegerRecord<16>>({"key:u64,value:u64", k, threads}, settings);
    case 100:
      return measure<TextRecord<100>>({"key:bytes10,value:bytes90", k, threads}, settings);
    case 1000:
      return measure<TextRecord<1000>>({"key:bytes10,value:bytes990", k, threads}, settings);
    default:
      throw std::runtime_error("records are of 8, 16, 100 or 1000 bytes");
  }
}

int run(int argc, char** argv) {
  CLI::App app(
      "Merges of files: corank beside its own copy and beside others. All put out the same.");
  Settings settings;
  settings.corank = beside() / "corank";
  for (const std::string& peer : peers)
    if (std::filesystem::exists(beside() / ("bench-" + peer))) settings.contenders.push_back(peer);
  std::vector<std::uint32_t> record_bytes{16, 100};
  std::vector<std::size_t> ks{16, 256};
  std::vector<unsigned> threads{2};
  std::string output;
  app.add_option("--in", settings.folder, "where runs and output go: three times the bytes");
  app.add_option("--corank", settings.corank, "the program; without it, the one beside this one");
  app.add_option("--record", record_bytes, "bytes of a record: 8, 16, 100, 1000")->delimiter(',');
  app.add_option("-k", ks, "numbers of runs")->delimiter(',');
  app.add_option("--threads", threads, "numbers of threads")->delimiter(',');
  app.add_option("--contender", settings.contenders, "who takes part")->delimiter(',');
  app.add_option("--bytes", settings.bytes, "of all runs together")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--repetitions", settings.repetitions, "of each case; medians are shown");
  app.add_option("-o,--output", output, "write OUTPUT.md and OUTPUT.json");
  CLI11_PARSE(app, argc, argv);
  // On an interrupt, exceptions unwind and remove the files of the benchmark.
  std::signal(SIGINT, [](int) { interrupted = 1; });

  nlohmann::ordered_json report = begin_report(settings.bytes, settings.repetitions);
  std::string table = fmt::format(
      "# Merging files\n\n{}, {}, commit {}; {} MiB in all, in the page cache, medians of {} "
      "interleaved repetitions, each a process of its own that ends with the output written "
      "(fsync): MB/s of input and, in brackets, the ratio to `corank merge --copy-only`. `gnu`: "
      "`__gnu_parallel::stable_multiway_merge` over mapped files. `loser tree`: one thread, "
      "buffers "
      "of 256 KiB a run. `stxxl`: its runs merger, from blocks of its own. `rocksdb`: a manual "
      "compaction of uncompressed tables. What takes over {} s is measured once. Written by "
      "`bench-files -o`.\n\n| bytes | k | threads |",
      report["machine"].get<std::string>(), report["date"].get<std::string>(),
      report["commit"].get<std::string>(), settings.bytes >> 20, settings.repetitions,
      longest_repeated);
  for (const std::string& name : settings.contenders) table += fmt::format(" {} |", name);
  table += "\n|---|---|---|";
  for (std::size_t i = 0; i < settings.contenders.size(); ++i) table += "---|";
  table += '\n';
  fmt::print("{}", table);
  for (const std::uint32_t size : record_bytes)
    for (const std::size_t k : ks)
      for (const unsigned t : threads) {
        const Seconds seconds = measure(size, k, t, settings);
        nlohmann::ordered_json row{{"record_bytes", size}, {"k", k}, {"threads", t}};
        std::string line = fmt::format("| {} | {} | {} |", size, k, t);
        for (const std::string& name : settings.contenders) {
          if (!seconds.contains(name)) {
            line += " |";
            continue;
          }
          const double taken = median(seconds.at(name));
          row["seconds"][name] = seconds.at(name);
          line += fmt::format(" {:.0f}", static_cast<double>(settings.bytes) / taken / 1e6);
          if (seconds.contains("copy-only") && name != "copy-only")
            line += fmt::format(" ({:.2f})", median(seconds.at("copy-only")) / taken);
          line += " |";
        }
        add_case(output, table, report, line, row);
      }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return report_errors("bench-files", [&] { return run(argc, argv); });
}
