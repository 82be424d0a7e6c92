// Merges files with STXXL, a C++ library for external memory, and prints the seconds that it took.
// STXXL's runs are its own blocks, so the files are first converted, which is not timed.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <stxxl/io>
#include <stxxl/stream>
#include <stxxl/vector>
#include <vector>

namespace {

struct Integer {
  typedef unsigned long long Key;
  Key key;
  char payload[8];
  static Integer bound(bool greatest) {
    Integer record = {greatest ? std::numeric_limits<Key>::max() : 0, {}};
    return record;
  }
  bool operator<(const Integer& other) const { return key < other.key; }
};

struct Text {
  unsigned char key[10];
  char payload[90];
  static Text bound(bool greatest) {
    Text record;
    std::memset(&record, greatest ? 0xff : 0, sizeof record);
    return record;
  }
  bool operator<(const Text& other) const { return std::memcmp(key, other.key, sizeof key) < 0; }
};

template <class Record>
struct Less {
  bool operator()(const Record& a, const Record& b) const { return a < b; }
  Record min_value() const { return Record::bound(false); }
  Record max_value() const { return Record::bound(true); }
};

template <class Record>
void merge(const std::vector<std::string>& runs, const std::string& output) {
  const unsigned block_bytes = 256 << 10;
  const std::size_t memory_bytes = std::size_t{1} << 30;
  typedef stxxl::stream::runs_creator<stxxl::stream::from_sorted_sequences<Record>, Less<Record>,
                                      block_bytes>
      Creator;
  Creator creator(Less<Record>(), memory_bytes);
  std::vector<Record> buffer((std::size_t{4} << 20) / sizeof(Record));
  std::size_t records = 0;
  for (const std::string& run : runs) {
    std::ifstream file(run, std::ios::binary);
    for (;;) {
      file.read(reinterpret_cast<char*>(buffer.data()),
                static_cast<std::streamsize>(buffer.size() * sizeof(Record)));
      const std::size_t count = static_cast<std::size_t>(file.gcount()) / sizeof(Record);
      for (std::size_t i = 0; i < count; ++i) creator.push(buffer[i]);
      records += count;
      if (count < buffer.size()) break;
    }
    creator.finish();
  }
  auto sorted = creator.result();
  const auto start = std::chrono::steady_clock::now();
  {
    stxxl::syscall_file file(
        output, stxxl::file::CREAT | stxxl::file::RDWR | stxxl::file::TRUNC | stxxl::file::SYNC);
    typedef typename stxxl::VECTOR_GENERATOR<Record, 4, 8, 16384 * sizeof(Record)>::result Vector;
    Vector out(&file, records);
    stxxl::stream::runs_merger<typename Creator::sorted_runs_type, Less<Record> > merger(
        sorted, Less<Record>(), memory_bytes);
    stxxl::stream::materialize(merger, out.begin(), out.end());
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::printf("%.6f\n", taken.count());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: bench-stxxl RECORD_BYTES FOLDER OUTPUT RUN...\n");
    return 2;
  }
  // STXXL writes log files to the current folder by default.
  ::setenv("STXXLLOGFILE", "/dev/null", 1);
  ::setenv("STXXLERRLOGFILE", "/dev/null", 1);
  try {
    const std::vector<std::string> runs(argv + 4, argv + argc);
    std::uintmax_t bytes = 0;
    for (const std::string& run : runs) bytes += std::filesystem::file_size(run) + (1 << 20);
    stxxl::config::get_instance()->add_disk(
        stxxl::disk_config(std::string(argv[2]) + "/stxxl", bytes, "syscall unlink"));
    if (std::atoi(argv[1]) == 16)
      merge<Integer>(runs, argv[3]);
    else if (std::atoi(argv[1]) == 100)
      merge<Text>(runs, argv[3]);
    else
      throw std::runtime_error("records are of 16 or 100 bytes");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-stxxl: %s\n", error.what());
    return 2;
  }
}
