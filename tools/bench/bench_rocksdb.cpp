// Merges files by a RocksDB compaction and prints the seconds that it took. Each file is first
// converted to a table, which is not timed. RocksDB checksums its tables; compression is off.

#include <fmt/format.h>
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/sst_file_writer.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void check(const rocksdb::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

void merge(std::size_t record_bytes, int threads, const std::string& folder,
           const std::vector<std::string>& runs) {
  if (record_bytes != 16 && record_bytes != 100)
    throw std::runtime_error("records are of 16 or 100 bytes");
  rocksdb::Options options;
  options.create_if_missing = true;
  options.compression = rocksdb::kNoCompression;
  options.disable_auto_compactions = true;
  options.max_open_files = -1;
  options.num_levels = 2;  // two levels, so that every record is merged once
  options.IncreaseParallelism(threads);
  rocksdb::DB* opened = nullptr;
  check(rocksdb::DB::Open(options, folder + "/rocksdb", &opened));
  const std::unique_ptr<rocksdb::DB> db(opened);

  std::uint64_t records = 0;
  std::vector<char> buffer((std::size_t{4} << 20) / record_bytes * record_bytes);
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::string table = folder + "/rocksdb-table";
    rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), options);
    check(writer.Open(table));
    std::ifstream file(runs[r], std::ios::binary);
    for (std::size_t got = buffer.size(); got == buffer.size();) {
      file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
      got = static_cast<std::size_t>(file.gcount());
      for (std::size_t at = 0; at < got; at += record_bytes, ++records) {
        // RocksDB orders keys by their bytes, but integers in the files are little-endian.
        const std::size_t key_bytes = record_bytes == 16 ? 8 : 10;
        std::string key(buffer.data() + at, key_bytes);
        if (record_bytes == 16) std::reverse(key.begin(), key.end());
        check(writer.Put(key, {buffer.data() + at + key_bytes, record_bytes - key_bytes}));
      }
    }
    check(writer.Finish());
    rocksdb::IngestExternalFileOptions ingest;
    ingest.move_files = true;
    check(db->IngestExternalFile({table}, ingest));
  }

  const auto start = std::chrono::steady_clock::now();
  rocksdb::CompactRangeOptions compact;
  compact.max_subcompactions = static_cast<std::uint32_t>(threads);
  check(db->CompactRange(compact, nullptr, nullptr));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;

  std::uint64_t merged = 0;
  const std::unique_ptr<rocksdb::Iterator> all(db->NewIterator(rocksdb::ReadOptions()));
  for (all->SeekToFirst(); all->Valid(); all->Next()) ++merged;
  if (merged != records)
    throw std::runtime_error(fmt::format("{} records became {}", records, merged));
  fmt::print("{:.6f}\n", taken.count());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: bench-rocksdb RECORD_BYTES THREADS FOLDER RUN...\n");
    return 2;
  }
  try {
    merge(std::strtoul(argv[1], nullptr, 10), std::atoi(argv[2]), argv[3], {argv + 4, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-rocksdb: %s\n", error.what());
    return 2;
  }
}
