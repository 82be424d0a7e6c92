#include "generate.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <exception>
#include <mutex>
#include <random>
#include <span>
#include <thread>

#include "corank/error.hpp"
#include "io/file.hpp"
#include "util/system_limits.hpp"

namespace corank {
namespace {

__extension__ using Wide = unsigned __int128;

// Returns floor(fraction * range / 2^64). Integer arithmetic gives the same result on every
// machine.
std::uint64_t scale(std::uint64_t fraction, std::uint64_t range) {
  return static_cast<std::uint64_t>((Wide{fraction} * range) >> 64);
}

// Distributes the bits of a sort value over the key fields, most significant first. Further bits
// are derived from the value alone, so that equal values give equal keys.
class KeyBits {
 public:
  explicit KeyBits(std::uint64_t value) : bits_(value), next_(value) {}

  std::uint64_t take(unsigned count) {
    if (count > left_) {
      next_ = (next_ ^ next_ >> 29) * 0xbf58476d1ce4e5b9u + 1;
      const std::uint64_t head = left_ == 0 ? 0 : bits_ >> (64 - left_);
      const unsigned missing = count - left_;
      bits_ = next_;
      left_ = 64;
      return (missing == 64 ? 0 : head << missing) | take(missing);
    }
    const std::uint64_t taken = bits_ >> (64 - count);
    bits_ = count == 64 ? 0 : bits_ << count;
    left_ -= count;
    return taken;
  }

 private:
  std::uint64_t bits_;
  std::uint64_t next_;
  unsigned left_ = 64;
};

void store(std::byte* at, std::uint64_t value, unsigned bytes, bool big_endian) {
  if (big_endian) value = __builtin_bswap64(value) >> (64 - 8 * bytes);
  std::memcpy(at, &value, bytes);  // little-endian, like the host
}

void store_key(std::byte* record, const Field& field, bool descending, KeyBits& bits) {
  std::byte* const at = record + field.offset;
  const auto take = [&](unsigned count) {
    const std::uint64_t mask = ~std::uint64_t{0} >> (64 - count);
    return bits.take(count) ^ (descending ? mask : 0);
  };
  switch (field.kind) {
    case FieldKind::unsigned_integer:
      store(at, take(8 * field.bytes), field.bytes, field.big_endian);
      break;
    case FieldKind::signed_integer:
      store(at, take(8 * field.bytes) ^ std::uint64_t{1} << (8 * field.bytes - 1), field.bytes,
            field.big_endian);
      break;
    case FieldKind::floating: {
      // Whole numbers that the type represents exactly.
      const unsigned digits = field.bytes == 8 ? 53 : 24;
      const auto number = static_cast<double>(static_cast<std::int64_t>(take(digits)) -
                                              (std::int64_t{1} << (digits - 1)));
      const std::uint64_t value = field.bytes == 8
                                      ? std::bit_cast<std::uint64_t>(number)
                                      : std::bit_cast<std::uint32_t>(static_cast<float>(number));
      store(at, value, field.bytes, field.big_endian);
      break;
    }
    case FieldKind::bytes:
      for (std::uint32_t i = 0; i < field.bytes; ++i) at[i] = static_cast<std::byte>(take(8));
  }
}

// Hexadecimal digits sort as the bits do.
void store_line(std::byte* at, std::uint32_t bytes, KeyBits& bits) {
  for (; bytes > 1; --bytes) *at++ = static_cast<std::byte>("0123456789abcdef"[bits.take(4)]);
  *at = std::byte{'\n'};
}

// Fills in the ascending sort values of a run, from record `first` on.
void fill_values(const GenerateOptions& options, std::uint32_t run, std::uint64_t run_records,
                 std::uint64_t first, std::span<std::uint64_t> values, std::mt19937_64& random) {
  constexpr std::uint64_t all = ~std::uint64_t{0};
  if (options.distribution == Distribution::equal) {
    std::ranges::fill(values, all / 3);
    return;
  }
  if (options.distribution == Distribution::interleaved) {
    const auto step = static_cast<std::uint64_t>(all / (Wide{options.records} + options.runs));
    for (std::uint64_t i = 0; i < values.size(); ++i)
      values[i] = ((first + i) * options.runs + run) * step;
    return;
  }
  // The values of a block stay within its share of the range, so that the blocks are sorted.
  const auto share = [&](std::uint64_t record) {
    return static_cast<std::uint64_t>(Wide{all} * record / run_records);
  };
  const std::uint64_t low = share(first);
  const std::uint64_t range = share(first + values.size()) - low;
  for (std::uint64_t& value : values) value = low + scale(random(), range);
  std::ranges::sort(values);
  if (options.distribution == Distribution::disjoint) {
    const std::uint64_t width = all / options.runs;
    for (std::uint64_t& value : values) value = run * width + scale(value, width);
  } else if (options.distribution == Distribution::zipf) {
    // Every power of two of ranks has the same share.
    constexpr unsigned powers = 20;
    for (std::uint64_t& value : values) {
      const std::uint64_t power = scale(value, powers);
      const std::uint64_t within = value * powers;  // the fraction, modulo 2^64
      const std::uint64_t rank =
          (std::uint64_t{1} << power) + scale(within, std::uint64_t{1} << power);
      value = rank << (64 - powers - 1);
    }
  }
}

// Write size that lets file systems use huge pages for the page cache.
constexpr std::uint64_t write_bytes = std::uint64_t{4} << 20;

std::uint32_t record_bytes_of(const GenerateOptions& options) {
  return options.line_bytes != 0 ? options.line_bytes : options.record.record_bytes;
}

// Throws Error if the file system of `folder` is known to lack the space for the records.
void check_room(const GenerateOptions& options, const std::filesystem::path& folder) {
  std::error_code unknown;
  const std::uint64_t room = std::filesystem::space(folder, unknown).available;
  if (unknown || options.records <= room / record_bytes_of(options)) return;
  throw Error(fmt::format(
      "{}: {} records of {} bytes are asked for, and {} bytes are free; free some space, name "
      "another folder by --output, or ask for less by --records",
      folder.string(), options.records, record_bytes_of(options), room));
}

std::uint64_t records_of_run(const GenerateOptions& options, std::uint32_t run) {
  const auto even_share = [](std::uint64_t records, std::uint32_t runs, std::uint32_t i) {
    return records / runs + (i < records % runs ? 1 : 0);
  };
  if (options.distribution != Distribution::lopsided || options.runs == 1)
    return even_share(options.records, options.runs, run);
  const std::uint64_t others = options.records / 100;
  return run == 0 ? options.records - others : even_share(others, options.runs - 1, run - 1);
}

void generate_run(const GenerateOptions& options, std::uint32_t run,
                  const std::filesystem::path& path) {
  const Schema& schema = options.record;
  const std::uint32_t record_bytes = record_bytes_of(options);
  const std::vector<KeyField> keys =
      options.keys.empty() ? std::vector<KeyField>{{0}} : options.keys;
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) throw_file_error(path, "create");

  const std::uint64_t run_records = records_of_run(options, run);
  const std::uint64_t block_records = std::clamp<std::uint64_t>((4u << 20) / record_bytes, 1, 4096);
  std::seed_seq seed{static_cast<std::uint32_t>(options.seed),
                     static_cast<std::uint32_t>(options.seed >> 32), run};
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> values(block_records);
  std::vector<std::byte> unwritten(write_bytes + block_records * record_bytes +
                                   sizeof(std::uint64_t));
  std::uint64_t unwritten_bytes = 0;
  for (std::uint64_t first = 0; first < run_records; first += block_records) {
    const std::uint64_t count = std::min(block_records, run_records - first);
    fill_values(options, run, run_records, first, std::span(values).first(count), random);
    const std::uint64_t bytes = count * record_bytes;
    std::byte* const block = unwritten.data() + unwritten_bytes;
    for (std::uint64_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
      const std::uint64_t noise = random();
      std::memcpy(block + at, &noise, sizeof noise);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      KeyBits bits(values[i]);
      if (options.line_bytes != 0) {
        store_line(block + i * record_bytes, record_bytes, bits);
        continue;
      }
      for (const KeyField& key : keys)
        store_key(block + i * schema.record_bytes, schema.fields[key.field], key.descending, bits);
    }
    unwritten_bytes += bytes;
    const std::uint64_t whole = unwritten_bytes - unwritten_bytes % write_bytes;
    if (whole == 0) continue;
    write_all(file, {unwritten.data(), whole}, path);
    unwritten_bytes -= whole;
    std::copy_n(unwritten.data() + whole, unwritten_bytes, unwritten.data());
  }
  write_all(file, {unwritten.data(), unwritten_bytes}, path);
}

}  // namespace

void generate(const GenerateOptions& options, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  check_room(options, folder);
  std::atomic<std::uint32_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < processor_limit().value; ++i)
    threads.emplace_back([&] {
      try {
        for (std::uint32_t run; (run = next++) < options.runs;)
          generate_run(
              options, run,
              folder / fmt::format("run-{:05}.{}", run, options.line_bytes != 0 ? "txt" : "bin"));
      } catch (...) {
        next = options.runs;
        std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    });
  threads.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace corank
