// The golden matrix: merges and sorts of every format by every operation into every kind of output,
// whose bytes must never change. It calls the library alone, and so does not depend on the program.
//
// Usage: golden-test FILE [--update | --every N] [--backend cpu|cuda] [--threads N]
// Compares each case with its line in FILE, prints those that differ and exits with 1 if any does;
// with --update it rewrites FILE instead. Exits with 77 where --backend cuda finds no device. The
// goldens hold for both backends and any number of threads. A line of FILE is the case, the records
// of its runs, the records of its output, the bytes of each output file, and the XXH3 hash (128
// bits) of these files one after another; or the case, the records of its runs and the class of the
// error by which the library refuses it. Error texts are not part of it.
//
// The runs come from std::mt19937_64, whose sequence the C++ standard defines, and are sorted by
// std::stable_sort in orders that share no code with the library. The sorts read the same records
// before they were sorted, so that each must have the output of the merge.
#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "corank/merge.hpp"
#include "corank/sort.hpp"
#include "support/support.hpp"
#include "support/text_reference.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace corank;
using namespace corank::test;

namespace {

constexpr int skipped = 77;  // the exit status that CTest takes for "skipped"

// --- formats
// --------------------------------------------------------------------------------------

// Makes a variable-length record without its terminator. Records of equal rank have equal keys;
// `value` tells them apart.
using MakeRecord = std::string (*)(std::uint64_t rank, std::uint64_t value);

struct Format {
  const char* name;
  const char* schema;  // of fixed-size records; empty: `text` says what the records are
  const char* keys;
  std::uint64_t ranks;  // distinct first keys; few, so that keys repeat within runs and among them
  const char* reduce;
  const char* where;
  const char* select;
  const char* tombstone;
  std::string from, to;
  TextFormat text = {};
  const char* header = "";
  MakeRecord make = nullptr;
  bool on_cpu_only = false;  // whether no device compares the keys

  bool is_text() const { return *schema == '\0'; }
};

constexpr std::uint64_t many_ranks = 1000;

TextFormat text_format(TextKind kind, std::optional<char> delimiter = {}, bool has_header = false) {
  TextFormat format;
  format.kind = kind;
  format.delimiter = delimiter;
  format.header = has_header;
  format.bad_numbers = BadNumbers::last;
  return format;
}

// Returns the key of fixed-1000 as a bound names it.
std::string long_key(std::uint64_t rank) {
  return fmt::format("'{:040}'", rank);
}

const std::vector<Format> formats{
    {.name = "word-8",
     .schema = "key:u64",
     .keys = "key",
     .ranks = many_ranks,
     .reduce = "reduce:count(key)",
     .where = "key > 100 and not key == 500",
     .select = "key",
     .tombstone = "key=300",
     .from = "200",
     .to = "900"},
    {.name = "fixed-8",
     .schema = "key:i32,value:u32",
     .keys = "key",
     .ranks = many_ranks,
     .reduce = "reduce:sum(value)",
     .where = "value > 20000 or key < -200",
     .select = "value,key",
     .tombstone = "value=0",
     .from = "-300",
     .to = "200"},
    {.name = "fixed-16",
     .schema = "key:u64,value:u64",
     .keys = "key",
     .ranks = many_ranks,
     .reduce = "reduce:sum(value)",
     .where = "value > 20000 and not key == 500",
     .select = "value,key",
     .tombstone = "value=0",
     .from = "200",
     .to = "900"},
    {.name = "fixed-100",
     .schema = "a:f64be,b:i16,value:u64,c:f32,rest:bytes78",
     .keys = "a:desc,b",
     .ranks = 200,
     .reduce = "reduce:sum(value),max(c)",
     .where = "value > 20000 and a < 40",
     .select = "b,c,a",
     .tombstone = "value=0",
     .from = "30.5,0",
     .to = "-20"},
    {.name = "fixed-1000",
     .schema = "key:bytes40,value:i64,rest:bytes952",
     .keys = "key",
     .ranks = 20,
     .reduce = "reduce:sum(value)",
     .where = "value > 20000",
     .select = "key,value",
     .tombstone = "value=0",
     .from = long_key(4),
     .to = long_key(15)},
    {.name = "lines",
     .schema = "",
     .keys = "line",
     .ranks = many_ranks,
     .reduce = "",
     .where = "line > 'k2' and line != 'k500'",
     .select = "line",
     .tombstone = "line=k500",
     .from = "k3",
     .to = "k6",
     .make = [](std::uint64_t rank,
                std::uint64_t) { return fmt::format("k{}{}", rank, std::string(rank % 50, 'z')); }},
    {.name = "lines-by-column",
     .schema = "",
     .keys = "2:i64:desc,3:nocase",
     .ranks = many_ranks,
     .reduce = "",
     .where = "1:u64 > 20000 and 3 != 'Bb'",
     .select = "3,1",
     .tombstone = "1=0",
     .from = "200",
     .to = "-300",
     .text = text_format(TextKind::lines, '\t'),
     .make =
         [](std::uint64_t rank, std::uint64_t value) {
           constexpr const char* words[] = {"bb", "Bb", "b", "", "Z\xe9tendard"};
           return fmt::format("{}\t{}\t{}", value, static_cast<std::int64_t>(rank) - 500,
                              words[value % std::size(words)]);
         }},
    {.name = "csv",
     .schema = "",
     .keys = "amount:i64,name",
     .ranks = many_ranks,
     .reduce = "",
     .where = "id:u64 > 20000 and amount:i64 < 300",
     .select = "name,id",
     .tombstone = "id=0",
     .from = "-300",
     .to = "200",
     .text = text_format(TextKind::csv, {}, true),
     .header = "id,name,amount\n",
     .make =
         [](std::uint64_t rank, std::uint64_t value) {
           constexpr const char* names[] = {"plain", "\"a, comma\"", "\"a \"\"quote\"\"\"",
                                            "\"two\nlines\"", ""};
           return fmt::format("{},{},{}", value, names[value % std::size(names)],
                              static_cast<std::int64_t>(rank) - 500);
         }},
    {.name = "csv-by-float",
     .schema = "",
     .keys = "2:f64:desc",
     .ranks = many_ranks,
     .reduce = "",
     .where = "1:u64 > 20000 or 2:f64 < -20.5",
     .select = "2",
     .tombstone = "1=0",
     .from = "60.25",
     .to = "-5e1",
     .text = text_format(TextKind::csv, ';'),
     .make =
         [](std::uint64_t rank, std::uint64_t value) {
           const double number = (static_cast<double>(rank) - 500) / 4;
           return rank % 64 == 0 ? fmt::format("{};n/a", value)
                                 : fmt::format("{};{:.2f}", value, number);
         },
     .on_cpu_only = true},
    {.name = "pairs",
     .schema = "",
     .keys = "",
     .ranks = many_ranks,
     .reduce = "",
     .where = "value > '2' and key != 'k500'",
     .select = "value",
     .tombstone = "value=0",
     .from = "k3",
     .to = "k6",
     .text = text_format(TextKind::pairs),
     .make =
         [](std::uint64_t rank, std::uint64_t value) {
           return pair_of(fmt::format("k{}{}", rank, std::string(rank % 20, '\0')),
                          std::to_string(value));
         }},
};

// --- operations
// -----------------------------------------------------------------------------------

struct Operation {
  const char* name;
  void (*ask)(const Format& format, std::uint64_t records, Options& options);
  bool has_empty_run = true;  // without it all runs hold something
  bool is_sorted_by = false;  // whether there are sorts with it, too
};

void set_on_equal(const Format& format, Options& options, OnEqual on_equal) {
  options.query.on_equal = on_equal;
  if (on_equal != OnEqual::reduce || format.is_text()) return;
  parse_on_equal(format.reduce, options.query);
  options.query.overflow = Overflow::saturate;
}

template <OnEqual on_equal>
void ask_on_equal(const Format& format, std::uint64_t, Options& options) {
  set_on_equal(format, options, on_equal);
}

void ask_tombstone(const Format& format, std::uint64_t, Options& options) {
  options.query.on_equal = OnEqual::last;
  options.query.tombstone = parse_tombstone(format.tombstone);
}

void ask_where(const Format& format, std::uint64_t, Options& options) {
  options.query.where = parse_where(format.where);
}

void ask_where_and_select(const Format& format, std::uint64_t records, Options& options) {
  ask_where(format, records, options);
  options.query.select = parse_select(format.select);
}

void ask_limit(const Format&, std::uint64_t records, Options& options) {
  options.query.limit = records / 3;
}

void ask_range(const Format& format, std::uint64_t, Options& options) {
  options.query.from = parse_bound(Setting::from, format.from, options);
  options.query.to = parse_bound(Setting::to, format.to, options);
}

const Operation operations[] = {
    {"merge", ask_on_equal<OnEqual::keep>, true, true},
    {"first", ask_on_equal<OnEqual::first>, true, true},
    {"last", ask_on_equal<OnEqual::last>, true, true},
    {"error", ask_on_equal<OnEqual::error>},
    {"reduce", ask_on_equal<OnEqual::reduce>, true, true},
    {"union", ask_on_equal<OnEqual::unite>},
    {"intersect", ask_on_equal<OnEqual::intersect>, false},
    {"subtract", ask_on_equal<OnEqual::subtract>},
    {"tombstone", ask_tombstone},
    {"where", ask_where},
    {"where-select", ask_where_and_select, true, true},
    {"limit", ask_limit, true, true},
    {"from-to", ask_range, true, true},
};

// --- runs
// -----------------------------------------------------------------------------------------

struct Scale {
  const char* name;
  std::uint64_t runs;  // that hold something
  std::uint64_t run_bytes;
  std::uint64_t passes;
};

constexpr Scale scales[] = {{"k2", 2, 64 << 10, 1},
                            {"k7", 6, 64 << 10, 1},
                            {"large", 4, 512 << 10, 1},
                            {"two-passes", 12, 32 << 10, 2}};
// The runs of the sorts, which hold several times what the smallest budget sorts in memory.
constexpr Scale sort_scale{"sort", 3, 512 << 10, 1};

Options options_of(const Format& format) {
  Options options;
  options.overwrite = true;
  if (format.is_text()) {
    options.text = format.text;
    if (*format.keys) options.text->keys = parse_text_keys(format.keys);
  } else {
    options.record = Schema::parse(format.schema);
    options.keys = parse_keys(format.keys, options.record);
  }
  return options;
}

void store(std::span<std::byte> to, std::uint64_t number, bool big_endian) {
  for (std::size_t i = 0; i < to.size(); ++i, number = i < 8 ? number >> 8 : 0)
    to[big_endian ? to.size() - 1 - i : i] = static_cast<std::byte>(number);
}

std::uint64_t bits_of_float(double value, std::uint32_t bytes) {
  if (bytes == 8) return std::bit_cast<std::uint64_t>(value);
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));
}

// Fills one field; `number` is the rank of a key, else the record's value. Some float keys are
// infinite, NaN or a zero with a sign.
void fill_field(const Field& field, const Format& format, bool is_key, std::uint64_t number,
                std::span<std::byte> to) {
  const auto centred = static_cast<std::int64_t>(number - (is_key ? format.ranks / 2 : 0));
  switch (field.kind) {
    case FieldKind::unsigned_integer:
      return store(to, number, field.big_endian);
    case FieldKind::signed_integer:
      return store(to, static_cast<std::uint64_t>(centred), field.big_endian);
    case FieldKind::floating: {
      constexpr double special[] = {std::numeric_limits<double>::infinity(),
                                    std::numeric_limits<double>::quiet_NaN(), -0.0, 0.0};
      const double value = is_key && number < std::size(special) ? special[number]
                                                                 : static_cast<double>(centred) / 2;
      return store(to, bits_of_float(value, field.bytes), field.big_endian);
    }
    case FieldKind::bytes: {
      const std::string text = fmt::format("{:0{}}", number, field.bytes);
      std::memcpy(to.data(), text.data(), to.size());
    }
  }
}

class Runs {
 public:
  Runs(const Format& format, const Scale& scale, const TemporaryFolder& folder)
      : format_(format), options_(options_of(format)), random_(scale.runs) {
    for (std::uint64_t run = 0; run < scale.runs; ++run) {
      add(folder, format.is_text() ? text_run(scale.run_bytes, folder)
                                   : fixed_run(scale.run_bytes, folder));
      if (scale.runs == 2 || run != scale.runs / 2) continue;
      empty_ = paths_.size();
      add(folder, bytes_of_text(format.header));
    }
  }

  std::uint64_t records() const { return records_; }
  std::vector<std::filesystem::path> paths(bool with_empty) const {
    return without_empty(paths_, with_empty);
  }
  std::vector<Bytes> memory(bool with_empty) const { return without_empty(bytes_, with_empty); }
  // Returns all records in order, as a file.
  Bytes sorted() const {
    if (!format_.is_text()) return stably_sorted(options_.record, options_.keys, all_fixed_);
    Strings records = all_text_;
    sort_text(records);
    return text_of_records(records, false);
  }
  // Returns files of the records in the order in which they were made, one for each run that holds
  // something.
  const std::vector<std::filesystem::path>& unsorted_paths() const { return unsorted_paths_; }

 private:
  template <class T>
  std::vector<T> without_empty(std::vector<T> all, bool with_empty) const {
    if (!with_empty && empty_) all.erase(all.begin() + static_cast<std::ptrdiff_t>(*empty_));
    return all;
  }

  void add(const TemporaryFolder& folder, Bytes bytes) {
    paths_.push_back(folder / fmt::format("run-{}", paths_.size()));
    write_file(paths_.back(), bytes);
    bytes_.push_back(std::move(bytes));
  }

  void add_unsorted(const TemporaryFolder& folder, const Bytes& bytes) {
    unsorted_paths_.push_back(folder / fmt::format("unsorted-{}", unsorted_paths_.size()));
    write_file(unsorted_paths_.back(), bytes);
  }

  // Every tenth record has one of four keys, which become large groups; every fifth is a tombstone.
  std::uint64_t next_rank() {
    return below(random_, 10) == 0 ? below(random_, 4) : below(random_, format_.ranks);
  }
  std::uint64_t next_value() {
    ++records_;
    return records_ % 5 == 0 ? 0 : below(random_, 60'000);
  }

  Bytes fixed_run(std::uint64_t bytes, const TemporaryFolder& folder) {
    const Schema& schema = options_.record;
    Bytes records(bytes / schema.record_bytes * schema.record_bytes);
    for (std::size_t at = 0; at < records.size(); at += schema.record_bytes) {
      const std::uint64_t rank = next_rank(), value = next_value();
      for (std::uint32_t f = 0; f < schema.fields.size(); ++f) {
        const auto key = std::ranges::find(options_.keys, f, &KeyField::field);
        const bool is_key = key != options_.keys.end();
        const bool is_first = is_key && key == options_.keys.begin();
        const Field& field = schema.fields[f];
        // Later keys tell few records of equal first keys apart.
        fill_field(field, format_, is_key,
                   is_first ? rank
                   : is_key ? value % 3
                            : value,
                   std::span(records).subspan(at + field.offset, field.bytes));
      }
    }
    add_unsorted(folder, records);
    all_fixed_.insert(all_fixed_.end(), records.begin(), records.end());
    return stably_sorted(schema, options_.keys, records);
  }

  // Every other run of lines lacks its last terminator.
  Bytes text_run(std::uint64_t bytes, const TemporaryFolder& folder) {
    const bool is_pairs = format_.text.kind == TextKind::pairs;
    Strings records;
    for (std::uint64_t made = 0; made < bytes; made += records.back().size()) {
      const std::uint64_t rank = next_rank();
      records.push_back(format_.make(rank, next_value()));
    }
    add_unsorted(folder, text_of_records(records, !is_pairs && paths_.size() % 2 == 1));
    all_text_.insert(all_text_.end(), records.begin(), records.end());
    sort_text(records);
    return text_of_records(records, !is_pairs && paths_.size() % 2 == 1);
  }

  void sort_text(Strings& records) const {
    TextFormat order = *options_.text;
    const Strings names = columns_of(format_.header, text_format(TextKind::lines, ','));
    for (TextKey& key : order.keys)
      for (std::uint32_t i = 0; !key.name.empty() && i < names.size(); ++i)
        if (names[i].starts_with(key.name)) key.column = i + 1;
    std::ranges::stable_sort(records, [&](const std::string& a, const std::string& b) {
      return order.kind == TextKind::pairs ? key_of_pair(a) < key_of_pair(b)
                                           : compare_records(a, b, order) < 0;
    });
  }

  Bytes text_of_records(const Strings& records, bool lacks_end) const {
    const bool is_pairs = format_.text.kind == TextKind::pairs;
    std::string text = format_.header;
    for (const std::string& record : records) text += record + (is_pairs ? "" : "\n");
    if (lacks_end) text.pop_back();
    return bytes_of_text(text);
  }

  static std::string key_of_pair(const std::string& pair) {
    std::uint32_t key_bytes = 0;
    std::memcpy(&key_bytes, pair.data(), sizeof key_bytes);
    return pair.substr(8, key_bytes);
  }

  const Format& format_;
  Options options_;
  Random random_;
  std::uint64_t records_ = 0;
  std::vector<std::filesystem::path> paths_, unsorted_paths_;
  std::vector<Bytes> bytes_;
  std::optional<std::size_t> empty_;
  Bytes all_fixed_;  // the records of all runs, unsorted
  Strings all_text_;
};

// --- outputs
// --------------------------------------------------------------------------------------

struct Merged {
  Stats stats;
  std::vector<Bytes> files;
};

Bytes decompressed(const Bytes& compressed) {
  Bytes result;
  Bytes buffer(ZSTD_DStreamOutSize());
  const std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(),
                                                                        ZSTD_freeDCtx);
  ZSTD_inBuffer in{compressed.data(), compressed.size(), 0};
  std::size_t left = 0;
  while (in.pos < in.size) {
    ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
    left = ZSTD_decompressStream(context.get(), &out, &in);
    if (ZSTD_isError(left)) throw std::runtime_error(ZSTD_getErrorName(left));
    result.insert(result.end(), buffer.begin(),
                  buffer.begin() + static_cast<std::ptrdiff_t>(out.pos));
  }
  if (left != 0) throw std::runtime_error("the compressed output is cut off");
  return result;
}

Merged into_file(const Runs& runs, bool with_empty, Options options,
                 const std::filesystem::path& output) {
  Merged merged{merge(runs.paths(with_empty), output, options), {}};
  merged.files.push_back(read_file(output));
  return merged;
}

std::vector<Bytes> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> parts(std::filesystem::directory_iterator(folder), {});
  std::ranges::sort(parts);
  std::vector<Bytes> files;
  for (const std::filesystem::path& part : parts) files.push_back(read_file(part));
  return files;
}

Merged into_parts(const Runs& runs, bool with_empty, Options options,
                  const std::filesystem::path& output) {
  options.parts = 3;
  Merged merged{merge(runs.paths(with_empty), output, options), {}};
  merged.files = files_in(output);
  return merged;
}

Merged into_memory(const Runs& runs, bool with_empty, Options options,
                   const std::filesystem::path&) {
  const std::vector<Bytes> held = runs.memory(with_empty);
  const std::vector<std::span<const std::byte>> inputs(held.begin(), held.end());
  std::size_t bytes = 0;
  for (const auto& input : inputs) bytes += input.size();
  Bytes output(bytes);
  Merged merged{merge(inputs, output, options), {}};
  output.resize(merged.stats.records_written *
                selected(options.record, options.query.select).record_bytes);
  merged.files.push_back(std::move(output));
  return merged;
}

Merged into_zstd(const Runs& runs, bool with_empty, Options options,
                 const std::filesystem::path& output) {
  options.compression = Compression::parse("zstd");
  Merged merged = into_file(runs, with_empty, options, output);
  merged.files.front() = decompressed(merged.files.front());
  return merged;
}

struct Output {
  const char* name;
  Merged (*merge)(const Runs& runs, bool with_empty, Options options,
                  const std::filesystem::path& output);
  bool has_passes = true;  // whether a small budget means several passes
};

constexpr Output outputs[] = {{"file", into_file},
                              {"parts", into_parts},
                              {"memory", into_memory, false},
                              {"zstd", into_zstd}};

// Ways to sort.

Merged sort_file(const Runs& runs, Options options, const std::filesystem::path& output) {
  Merged sorted{sort(runs.unsorted_paths(), output, options), {}};
  sorted.files.push_back(read_file(output));
  return sorted;
}

Merged sort_into_parts(const Runs& runs, Options options, const std::filesystem::path& output) {
  options.parts = 3;
  Merged sorted{sort(runs.unsorted_paths(), output, options), {}};
  sorted.files = files_in(output);
  return sorted;
}

Merged sort_compressed(const Runs& runs, Options options, const std::filesystem::path& output) {
  std::vector<std::filesystem::path> inputs;
  for (const std::filesystem::path& path : runs.unsorted_paths()) {
    const Bytes bytes = read_file(path);
    Bytes compressed(ZSTD_compressBound(bytes.size()));
    compressed.resize(
        ZSTD_compress(compressed.data(), compressed.size(), bytes.data(), bytes.size(), 1));
    inputs.push_back(path.string() + ".zst");
    write_file(inputs.back(), compressed);
  }
  Merged sorted{sort(inputs, output, options), {}};
  sorted.files.push_back(read_file(output));
  return sorted;
}

struct SortingWay {
  const char* name;
  Merged (*sort)(const Runs& runs, Options options, const std::filesystem::path& output);
};

constexpr SortingWay sorting_ways[] = {
    {"file", sort_file}, {"parts", sort_into_parts}, {"zst-input", sort_compressed}};

// --- cases
// ----------------------------------------------------------------------------------------

std::string class_of(const Error& error) {
  if (dynamic_cast<const OutOfOrder*>(&error)) return "OutOfOrder";
  if (dynamic_cast<const Corrupted*>(&error)) return "Corrupted";
  if (dynamic_cast<const Interrupted*>(&error)) return "Interrupted";
  return "Error";
}

Bytes joined(const std::vector<Bytes>& files) {
  Bytes all;
  for (const Bytes& file : files) all.insert(all.end(), file.begin(), file.end());
  return all;
}

std::string line_of(std::uint64_t records, const Merged& merged) {
  std::string sizes;
  for (const Bytes& file : merged.files)
    sizes += fmt::format("{}{}", sizes.empty() ? "" : "+", file.size());
  const Bytes all = joined(merged.files);
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return fmt::format("{} {} {} {:016x}{:016x}", records, merged.stats.records_written, sizes,
                     hash.high64, hash.low64);
}

// The lowest budget, in whole pages of 4 KiB, by which a merge takes no more than `passes` passes;
// 0 where none does, since the library refuses such a merge.
std::uint64_t min_budget(std::uint64_t passes, const std::function<Merged(std::uint64_t)>& merge) {
  const auto suffices = [&](std::uint64_t bytes) {
    try {
      return merge(bytes).stats.passes <= passes;
    } catch (const Error&) {
      return false;
    }
  };
  constexpr std::uint64_t page = 4096, max_budget = std::uint64_t{1} << 30;
  std::uint64_t high = 16 * page;
  while (!suffices(high))
    if ((high *= 2) > max_budget) return 0;
  std::uint64_t low = high / 2;
  while (high - low > page) {
    const std::uint64_t middle = low + (high - low) / 2 / page * page;
    (suffices(middle) ? high : low) = middle;
  }
  return high;
}

// Begins the line of a case that did not run as it must; such a line never becomes a golden.
constexpr std::string_view failed = "failed: ";

struct Settings {
  BackendChoice backend = BackendChoice::cpu;
  unsigned threads = 0;
  unsigned every = 1;  // run each `every`th group of cases only
};

class Matrix {
 public:
  explicit Matrix(const Settings& settings) : settings_(settings) {}

  // The line of each case without the case's name.
  std::map<std::string, std::string> run() {
    for (const Format& format : formats)
      for (const Scale& scale : scales) {
        const TemporaryFolder folder;
        std::optional<Runs> runs;
        for (const Output& output : outputs)
          if (is_next_chosen())
            run_operations(format, scale, made(runs, format, scale, folder), output, folder);
      }
    for (const Format& format : formats) {
      const TemporaryFolder folder;
      std::optional<Runs> runs;
      for (const SortingWay& way : sorting_ways)
        if (is_next_chosen())
          run_sorts(format, made(runs, format, sort_scale, folder), way, folder);
    }
    return std::move(lines_);
  }

 private:
  bool is_next_chosen() { return groups_++ % settings_.every == 0; }

  // Makes the runs for the first group that is chosen.
  static const Runs& made(std::optional<Runs>& runs, const Format& format, const Scale& scale,
                          const TemporaryFolder& folder) {
    if (!runs) runs.emplace(format, scale, folder);
    return *runs;
  }

  Options options_for(const Format& format) const {
    Options options = options_of(format);
    options.threads = settings_.threads;
    options.backend = format.on_cpu_only ? BackendChoice::cpu : settings_.backend;
    options.strict_backend = true;
    return options;
  }

  void run_operations(const Format& format, const Scale& scale, const Runs& runs,
                      const Output& output, const TemporaryFolder& folder) {
    const auto merge = [&](const Operation& operation, std::uint64_t memory_bytes) {
      Options options = options_for(format);
      options.memory_bytes = memory_bytes;
      operation.ask(format, runs.records(), options);
      const std::filesystem::path path = folder / "output";
      std::filesystem::remove_all(path);
      Merged merged = output.merge(runs, operation.has_empty_run, options, path);
      if (merged.stats.backend != (options.backend == BackendChoice::cuda ? "cuda" : "cpu"))
        throw std::logic_error("another backend merged: " + merged.stats.backend);
      return merged;
    };
    const std::uint64_t passes = output.has_passes ? scale.passes : 1;
    const auto budget_of = [&](const Operation& operation) {
      if (passes == 1) return std::uint64_t{0};
      return min_budget(passes, [&](std::uint64_t bytes) { return merge(operation, bytes); });
    };
    const std::uint64_t budget = budget_of(operations[0]);
    for (const Operation& operation : operations) {
      std::string& line =
          lines_[fmt::format("{}.{}.{}.{}", format.name, scale.name, operation.name, output.name)];
      try {
        Merged merged = merge(operation, budget);
        // A limit may fill the parts in turn, and so spend the whole budget on each.
        if (merged.stats.passes != passes) merged = merge(operation, budget_of(operation));
        if (merged.stats.passes != passes)
          throw std::logic_error(
              fmt::format("took {} passes instead of {}", merged.stats.passes, passes));
        line = line_of(runs.records(), merged);
      } catch (const Error& error) {
        line = fmt::format("{} refused {}", runs.records(), class_of(error));
      } catch (const std::exception& error) {
        line = std::string(failed) + error.what();
      }
    }
  }

  // Sorts the records of `runs` in memory and by the smallest budget, which must have the output of
  // their merges.
  void run_sorts(const Format& format, const Runs& runs, const SortingWay& way,
                 const TemporaryFolder& folder) {
    const std::filesystem::path path = folder / "output";
    const auto sort = [&](const Operation& operation, std::uint64_t memory_bytes) {
      Options options = options_for(format);
      // The smallest budget grows with the threads, and where parts of distinct keys are cut
      // depends on what it sorts in memory.
      options.threads = 2;
      options.memory_bytes = memory_bytes;
      operation.ask(format, runs.records(), options);
      std::filesystem::remove_all(path);
      return way.sort(runs, options, path);
    };
    constexpr auto any = std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t budget =
        min_budget(any, [&](std::uint64_t bytes) { return sort(operations[0], bytes); });
    for (const Operation& operation : operations) {
      if (!operation.is_sorted_by) continue;
      for (const bool spills : {false, true})
        lines_[fmt::format("{}.{}.{}.{}", format.name, spills ? "sort-spilled" : "sort",
                           operation.name, way.name)] =
            line_of_sort(format, runs, operation, spills,
                         [&] { return sort(operation, spills ? budget : 0); });
    }
  }

  std::string line_of_sort(const Format& format, const Runs& runs, const Operation& operation,
                           bool spills, const std::function<Merged()>& sort) const {
    try {
      const Merged sorted = sort();
      if ((sorted.stats.passes > 1) != spills)
        throw std::logic_error(fmt::format("took {} passes", sorted.stats.passes));
      const TemporaryFolder folder;
      Options options = options_for(format);
      operation.ask(format, runs.records(), options);
      const Merged merged = into_file(runs, operation.has_empty_run, options, folder / "merged");
      if (joined(sorted.files) != merged.files.front())
        throw std::logic_error("differs from the merge of the sorted runs");
      if (&operation == operations && merged.files.front() != runs.sorted())
        throw std::logic_error("differs from std::stable_sort");
      return line_of(runs.records(), sorted);
    } catch (const Error& error) {
      return fmt::format("{} refused {}", runs.records(), class_of(error));
    } catch (const std::exception& error) {
      return std::string(failed) + error.what();
    }
  }

  Settings settings_;
  std::map<std::string, std::string> lines_;
  std::uint64_t groups_ = 0;  // so far, in the order in which they run
};

// --- goldens
// --------------------------------------------------------------------------------------

std::map<std::string, std::string> read_goldens(const std::string& file) {
  std::map<std::string, std::string> goldens;
  std::istringstream in(text_of(std::filesystem::path(file)));
  for (std::string line; std::getline(in, line);) {
    const std::size_t blank = line.find(' ');
    if (blank == std::string::npos ||
        !goldens.emplace(line.substr(0, blank), line.substr(blank + 1)).second)
      throw std::runtime_error(
          fmt::format("{}: line is malformed or repeats a case: {}", file, line));
  }
  return goldens;
}

void write_goldens(const std::string& file, const std::map<std::string, std::string>& lines) {
  std::string text;
  for (const auto& [name, line] : lines)
    if (!line.starts_with(failed)) text += fmt::format("{} {}\n", name, line);
  write_file(file, bytes_of_text(text));
}

// Prints what differs, cases of one side included; returns whether nothing does.
bool compare(const std::map<std::string, std::string>& goldens,
             const std::map<std::string, std::string>& lines) {
  std::map<std::string, std::string> all = goldens;
  all.insert(lines.begin(), lines.end());
  std::uint64_t passed = 0;
  for (const auto& [name, unused] : all) {
    const auto golden = goldens.find(name), line = lines.find(name);
    const bool is_equal =
        golden != goldens.end() && line != lines.end() && golden->second == line->second;
    passed += is_equal;
    if (is_equal) continue;
    fmt::print("{}\n  golden: {}\n  now:    {}\n", name,
               golden == goldens.end() ? "not in the file" : golden->second,
               line == lines.end() ? "not run" : line->second);
  }
  fmt::print("{} passed, {} failed\n", passed, all.size() - passed);
  return passed == all.size();
}

// Why nothing can be merged on a device here; empty where it can.
std::string missing_device() {
  Options options;
  options.record = Schema::parse("key:u64");
  options.backend = BackendChoice::cuda;
  Bytes run(8), output(8);
  const std::span<const std::byte> runs[] = {run};
  try {
    merge(runs, output, options);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string file;
  bool updates = false, is_usage_wrong = false;
  Settings settings;
  const Strings arguments(argv + 1, argv + argc);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::string value = i + 1 < arguments.size() ? arguments[i + 1] : "";
    const bool is_backend = argument == "--backend" && (value == "cpu" || value == "cuda");
    const bool is_every = argument == "--every" && std::atoi(value.c_str()) > 0;
    const bool is_threads = argument == "--threads" && std::atoi(value.c_str()) > 0;
    if (is_backend) settings.backend = value == "cuda" ? BackendChoice::cuda : BackendChoice::cpu;
    if (is_threads) settings.threads = static_cast<unsigned>(std::atoi(value.c_str()));
    if (is_every) settings.every = static_cast<unsigned>(std::atoi(value.c_str()));
    if (is_backend || is_threads || is_every)
      ++i;
    else if (argument == "--update")
      updates = true;
    else if (file.empty() && !argument.starts_with("-"))
      file = argument;
    else
      is_usage_wrong = true;
  }
  if (file.empty() || is_usage_wrong || (updates && settings.every != 1)) {
    fmt::print(stderr,
               "usage: golden-test FILE [--update | --every N] [--backend cpu|cuda] "
               "[--threads N]\n");
    return 2;
  }
  if (settings.backend == BackendChoice::cuda)
    if (const std::string reason = missing_device(); !reason.empty()) {
      fmt::print("skipped: {}\n", reason);
      return skipped;
    }
  const auto lines = Matrix(settings).run();
  if (updates) write_goldens(file, lines);
  auto goldens = read_goldens(file);
  if (settings.every != 1)
    std::erase_if(goldens, [&](const auto& golden) { return !lines.contains(golden.first); });
  return compare(goldens, lines) ? 0 : 1;
}
