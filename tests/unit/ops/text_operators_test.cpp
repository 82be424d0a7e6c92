// Tests of operators on lines, CSV and pairs: duplicates, ranges and limits, against
// std::stable_sort and a simple loop.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "corank/merge.hpp"
#include "kernels/backend/cuda_backend.hpp"
#include "ops/boundary_merge.hpp"
#include "ops/operator_chain.hpp"
#include "ops/unit_operators.hpp"
#include "plan/option_checks.hpp"
#include "plan/pass_planner.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "support/text_reference.hpp"
#include "verify/fingerprint.hpp"

using namespace corank;
using namespace corank::test;

namespace {

std::string random_text(Random& random, std::uint64_t most, const std::string& alphabet) {
  std::string text(below(random, most + 1), ' ');
  for (char& c : text) c = alphabet[below(random, alphabet.size())];
  return text;
}

std::uint64_t sum_of(const Strings& records) {
  std::uint64_t sum = 0;
  for (const std::string& record : records)
    sum += fingerprint_of(reinterpret_cast<const std::byte*>(record.data()), record.size());
  return sum;
}

struct TextCase {
  const char* name;
  TextFormat format;
  std::uint64_t different;  // number of distinct values of a key column
};

TextFormat format_of(TextKind kind, const std::string& keys) {
  TextFormat format;
  format.kind = kind;
  if (!keys.empty()) format.keys = parse_text_keys(keys);
  if (kind != TextKind::pairs && !keys.empty()) format.delimiter = ',';
  return format;
}

std::vector<TextCase> text_cases() {
  std::vector<TextCase> all;
  for (const std::uint64_t different : {1, 3, 40, 100'000}) {
    all.push_back({"lines", format_of(TextKind::lines, ""), different});
    all.push_back({"columns", format_of(TextKind::lines, "2:u64,1:desc"), different});
    all.push_back({"CSV", format_of(TextKind::csv, "1,2:i64:desc"), different});
    all.push_back({"pairs", format_of(TextKind::pairs, ""), different});
  }
  return all;
}

// Returns a distinct record, unless the whole line is the key. Some records exceed a small unit.
std::string random_record(Random& random, const TextCase& of, std::uint64_t number) {
  const std::string name = random_text(random, std::min<std::uint64_t>(of.different, 3), "ab");
  const std::string value = std::to_string(below(random, of.different));
  const std::string rest =
      std::to_string(number) +
      std::string(below(random, 200) == 0 ? below(random, 60'000) : below(random, 20), 'r');
  switch (of.format.kind) {
    case TextKind::pairs: {
      const std::string key = name + value;
      const std::uint32_t lengths[] = {static_cast<std::uint32_t>(key.size()),
                                       static_cast<std::uint32_t>(rest.size())};
      return std::string(reinterpret_cast<const char*>(lengths), sizeof lengths) + key + rest;
    }
    case TextKind::csv:
      return (below(random, 2) ? '"' + name + '"' : name) + ',' + value + ",\"" + rest + "\n\"\n";
    default:
      break;
  }
  return of.format.keys.empty() ? name + value + '\n' : name + ',' + value + ',' + rest + '\n';
}

// Returns the part of a record that the reference compares: a pair's key, or the line without its
// end.
std::string without_framing(const TextFormat& format, const std::string& record) {
  if (format.kind != TextKind::pairs) return record.substr(0, record.size() - 1);
  std::uint32_t key = 0;
  std::memcpy(&key, record.data(), sizeof key);
  return record.substr(8, key);
}

int compare(TextFormat format, const std::string& a, const std::string& b) {
  if (format.keys.empty()) format.keys.resize(1);
  return compare_records(without_framing(format, a), without_framing(format, b), format);
}

// Returns the output for the sorted records; empty if duplicates are an error and one precedes the
// limit.
std::optional<Strings> reduced(const TextFormat& format, const Strings& sorted, OnEqual on_equal,
                               std::uint64_t limit) {
  Strings out;
  bool fails = false;
  for (const std::string& record : sorted) {
    const bool equal =
        on_equal != OnEqual::keep && !out.empty() && compare(format, out.back(), record) == 0;
    if (equal && on_equal == OnEqual::error) {
      fails = true;
      break;
    }
    if (equal && on_equal == OnEqual::last) out.back() = record;
    if (!equal) out.push_back(record);
  }
  if (fails && limit > out.size()) return std::nullopt;
  out.resize(std::min<std::uint64_t>(out.size(), limit));
  return out;
}

std::string joined(const Strings& records) {
  std::string text;
  for (const std::string& record : records) text += record;
  return text;
}

// Holds sorted runs in files and the stable merge of their records.
class Runs {
 public:
  Runs(const TextCase& of, std::uint64_t runs, std::uint64_t records, Random& random) {
    options.text = of.format;
    options.overwrite = true;
    options.backend = BackendChoice::cpu;
    options.threads = 2;
    const auto less = [&](const std::string& a, const std::string& b) {
      return compare(of.format, a, b) < 0;
    };
    for (std::uint64_t run = 0; run < runs; ++run) {
      Strings of_run(below(random, records + 1));
      for (std::string& record : of_run) record = random_record(random, of, ++number_);
      std::ranges::stable_sort(of_run, less);
      paths.push_back(folder / ("run" + std::to_string(run)));
      write_file(paths.back(), bytes_of_text(joined(of_run)));
      sorted.insert(sorted.end(), of_run.begin(), of_run.end());
      of_runs.push_back(std::move(of_run));
    }
    std::ranges::stable_sort(sorted, less);
  }

  std::string merged() {
    stats = merge(paths, folder / "output", options);
    return text_of(read_file(folder / "output"));
  }

  // Merges with the current options on all backends and compares the output.
  void check(const std::optional<Strings>& expected) {
    for (const BackendChoice backend : {BackendChoice::cpu, BackendChoice::cuda}) {
      if (backend == BackendChoice::cuda && !find_cuda_device(0).usable) continue;
      options.backend = backend;
      if (!expected) {
        std::string what;
        try {
          merged();
        } catch (const Error& error) {
          what = error.what();
        }
        CHECK(what.find("have the same key") != what.npos);
        continue;
      }
      CHECK((merged() == joined(*expected)));
      CHECK(stats.records_written == expected->size());
      CHECK(stats.verified);
    }
  }

  TemporaryFolder folder;
  std::vector<std::filesystem::path> paths;
  Strings sorted;
  std::vector<Strings> of_runs;
  Options options;
  Stats stats;

 private:
  std::uint64_t number_ = 0;
};

// Returns the raw columns of a record, quotes included, without its end.
Strings raw_columns(const std::string& record) {
  const std::size_t first = record.find(',');
  const std::size_t second = record.find(',', first + 1);
  const std::string last = record.substr(second + 1, record.size() - second - 2);
  return {record.substr(0, first), record.substr(first + 1, second - first - 1), last};
}

// Folds the standard library's set operation over the runs from left to right.
Strings of_set(const TextFormat& format, OnEqual operation, std::vector<Strings> runs) {
  const auto less = [&](const std::string& a, const std::string& b) {
    return compare(format, a, b) < 0;
  };
  Strings result = runs.front();
  for (const Strings& run : std::span(runs).subspan(1)) {
    Strings next;
    const auto to = std::back_inserter(next);
    if (operation == OnEqual::unite)
      std::ranges::set_union(result, run, to, less);
    else if (operation == OnEqual::intersect)
      std::ranges::set_intersection(result, run, to, less);
    else
      std::ranges::set_difference(result, run, to, less);
    result = std::move(next);
  }
  return result;
}

constexpr OnEqual text_policies[] = {OnEqual::keep, OnEqual::first, OnEqual::last, OnEqual::error};
constexpr std::uint64_t no_limit = ~std::uint64_t{0};

}  // namespace

TEST_CASE("of lines CSV and pairs with equal keys one stays", "[text][shape]") {
  Random random(71);
  for (const TextCase& of : text_cases())
    for (const std::uint64_t runs : {1u, 4u, 30u}) {
      CAPTURE(of.name, of.different, runs);
      Runs test(of, runs, 1'500 / runs, random);
      for (const OnEqual on_equal : text_policies) {
        CAPTURE(static_cast<int>(on_equal));
        test.options.query.on_equal = on_equal;
        // Small units, so that groups span many of them.
        test.options.memory_bytes = below(random, 2) ? std::uint64_t{4} << 20 : 0;
        test.options.io = below(random, 2) ? Io::buffered : Io::mapped;
        test.options.threads = 1 + static_cast<unsigned>(below(random, 4));
        test.check(reduced(of.format, test.sorted, on_equal, no_limit));
        const std::uint64_t limit = below(random, test.sorted.size() + 2);
        test.options.query.limit = limit;
        test.check(reduced(of.format, test.sorted, on_equal, limit));
        test.options.query.limit.reset();
        if (of.format.keys.empty()) continue;
        const auto all = reduced(of.format, test.sorted, on_equal, no_limit);
        if (all) {
          // Groups are resolved before --having is applied.
          test.options.query.having = parse_where("2 != '1' and 2 != '0'", Setting::having);
          Strings chosen = *all;
          std::erase_if(chosen, [&](const std::string& record) {
            const std::string value = columns_of(record, of.format)[1];
            return value == "0" || value == "1";
          });
          test.check(chosen);
          CHECK(test.stats.records_deleted == all->size() - chosen.size());
          CHECK(test.stats.records_replaced == test.sorted.size() - all->size());
          test.options.query.having = {};
        }
        if (of.format.keys.empty() || on_equal == OnEqual::keep || on_equal == OnEqual::error)
          continue;
        test.options.query.tombstone = ColumnValue{parse_text_keys("2").front(), "1"};
        Strings kept = *reduced(of.format, test.sorted, on_equal, no_limit);
        std::erase_if(kept, [&](const std::string& record) {
          return columns_of(record, of.format)[1] == "1";
        });
        test.check(kept);
        test.options.query.tombstone.reset();
      }
    }
}

TEST_CASE("set operations on lines CSV and pairs count as the standard library does",
          "[text][shape]") {
  Random random(78);
  const auto limited = [](Strings records, std::uint64_t limit) {
    records.resize(std::min<std::uint64_t>(records.size(), limit));
    return records;
  };
  for (const TextCase& of : text_cases())
    for (const std::uint64_t runs : {1u, 2u, 3u, 20u}) {
      if (exhaustive_step > 1 && runs % 2 != 0) continue;
      Runs test(of, runs, 1'200 / runs, random);
      for (const OnEqual operation : set_operations) {
        CAPTURE(of.name, of.different, runs, static_cast<int>(operation));
        test.options.query.on_equal = operation;
        test.options.memory_bytes = below(random, 2) ? std::uint64_t{4} << 20 : 0;
        test.options.io = below(random, 2) ? Io::buffered : Io::mapped;
        test.options.threads = 1 + static_cast<unsigned>(below(random, 4));
        const Strings whole = of_set(of.format, operation, test.of_runs);
        test.check(whole);
        const std::uint64_t limit = below(random, whole.size() + 2);
        test.options.query.limit = limit;
        test.check(limited(whole, limit));
        test.options.query.limit.reset();
        if (of.format.keys.empty()) continue;
        // `where` and `select` name other columns than the key.
        test.options.query.where = parse_where("3 != '' and not 2 == '1'");
        test.options.query.select = parse_select("3,2");
        std::vector<Strings> chosen = test.of_runs;
        for (Strings& run : chosen)
          std::erase_if(run, [&](const std::string& record) {
            return columns_of(record, of.format)[1] == "1";
          });
        Strings selected = of_set(of.format, operation, chosen);
        for (std::string& record : selected) {
          const Strings raw = raw_columns(record);
          record = raw[2] + ',' + raw[1] + '\n';
        }
        test.check(selected);
        test.options.query.where = {};
        test.options.query.select.clear();
        test.options.query.having = parse_where("2 != '1'", Setting::having);
        Strings having = whole;
        std::erase_if(having, [&](const std::string& record) {
          return columns_of(record, of.format)[1] == "1";
        });
        test.check(having);
        CHECK(test.stats.records_deleted == whole.size() - having.size());
        test.options.query.having = {};
      }
    }
}

TEST_CASE("set operations on lines take several passes and write parts", "[text][shape]") {
  Random random(79);
  for (const std::uint64_t different : {2, 40})
    for (const OnEqual operation : set_operations) {
      CAPTURE(different, static_cast<int>(operation));
      Runs test({"columns", format_of(TextKind::lines, "1,2:u64"), different}, 60, 100, random);
      // Shortens the subtrahends, so that the output is not empty.
      if (operation == OnEqual::subtract)
        for (std::size_t run = 1; run < 60; ++run) {
          test.of_runs[run].resize(std::min<std::size_t>(test.of_runs[run].size(), 1));
          write_file(test.paths[run], bytes_of_text(joined(test.of_runs[run])));
        }
      const Strings whole = of_set(*test.options.text, operation, test.of_runs);
      CHECK((operation == OnEqual::intersect || !whole.empty()));
      test.options.query.on_equal = operation;
      test.options.memory_bytes = 2 * min_memory(0);
      CHECK((test.merged() == joined(whole)));
      CHECK(test.stats.passes > 1);
      CHECK(test.stats.records_written == whole.size());
      for (const std::uint64_t memory_bytes : {std::uint64_t{0}, 6 * min_memory(0)}) {
        test.options.memory_bytes = memory_bytes;
        test.options.parts = 3;
        const TemporaryFolder parts;
        const Stats stats = merge(test.paths, parts.path(), test.options);
        CHECK((stats.passes > 1) == (memory_bytes != 0));
        std::string all;
        for (const std::string& name : parts.names()) all += text_of(read_file(parts / name));
        CHECK((all == joined(whole)));
        test.options.parts = 0;
      }
    }
}

TEST_CASE("large groups of lines in set operations reach across tiles", "[text][shape]") {
  // Short lines, so that a unit has several tiles and most groups span several blocks.
  const TemporaryFolder folder;
  TextFormat format = format_of(TextKind::lines, "2:u64");
  for (const int different : {1, 5, 15'000}) {
    constexpr int runs = 3, lines = exhaustive_step > 1 ? 50'000 : 150'000;
    std::vector<Strings> all(runs);
    std::vector<std::filesystem::path> paths;
    for (int run = 0; run < runs; ++run) {
      // The first run has the most records of each key.
      const int of_key = lines / different / (run + 1);
      for (int key = 0; key < different; ++key)
        for (int i = 0; i < of_key; ++i)
          all[static_cast<std::size_t>(run)].push_back(
              std::string(1, static_cast<char>('a' + run)) + std::to_string(i) + ',' +
              std::to_string(key) + '\n');
      paths.push_back(folder / ("run" + std::to_string(run)));
      write_file(paths.back(), bytes_of_text(joined(all[static_cast<std::size_t>(run)])));
    }
    Options options;
    options.text = format;
    options.overwrite = true;
    options.backend = BackendChoice::cpu;
    options.threads = 8;
    for (const OnEqual operation : set_operations) {
      CAPTURE(different, static_cast<int>(operation));
      options.query.on_equal = operation;
      CHECK(merge(paths, folder / "output", options).verified);
      CHECK((text_of(read_file(folder / "output")) == joined(of_set(format, operation, all))));
    }
  }
}

TEST_CASE("equal lines of large units are dropped by several threads", "[text][shape]") {
  // Short lines, so that a unit has several tiles.
  const TemporaryFolder folder;
  for (const int different : {5, 50'000}) {
    constexpr int runs = 3, lines = 300'000;
    std::vector<std::filesystem::path> paths;
    std::string first, last;
    for (int run = 0; run < runs; ++run) {
      std::string text;
      const int of_key = lines / different;
      for (int key = 0; key < different; ++key) {
        const std::string rest = "," + std::to_string(key) + "\n";
        for (int i = 0; i < of_key; ++i)
          text += (run == 0 && i == 0                   ? "F"
                   : run == runs - 1 && i == of_key - 1 ? "L"
                                                        : "x") +
                  rest;
        if (run == 0) first += "F" + rest, last += "L" + rest;
      }
      paths.push_back(folder / ("run" + std::to_string(run)));
      write_file(paths.back(), bytes_of_text(text));
    }
    Options options;
    options.text = format_of(TextKind::lines, "2:u64");
    options.overwrite = true;
    options.backend = BackendChoice::cpu;
    options.threads = 8;
    for (const OnEqual on_equal : {OnEqual::first, OnEqual::last}) {
      options.query.on_equal = on_equal;
      CHECK(merge(paths, folder / "output", options).verified);
      CHECK((text_of(read_file(folder / "output")) == (on_equal == OnEqual::first ? first : last)));
    }
  }
}

TEST_CASE("equal keys of several passes and of parts are reduced once", "[text][shape]") {
  Random random(73);
  Runs test({"columns", format_of(TextKind::lines, "1,2:u64"), 3}, 60, 100, random);
  for (const OnEqual on_equal : {OnEqual::first, OnEqual::last}) {
    const std::string expected =
        joined(*reduced(*test.options.text, test.sorted, on_equal, no_limit));
    test.options.query.on_equal = on_equal;
    test.options.memory_bytes = 2 * min_memory(0);
    CHECK((test.merged() == expected));
    CHECK(test.stats.passes > 1);
    test.options.memory_bytes = 0;
    test.options.parts = 3;
    const TemporaryFolder parts;
    merge(test.paths, parts.path(), test.options);
    std::string all;
    for (const std::string& name : parts.names()) all += text_of(read_file(parts / name));
    CHECK((all == expected));
    // With a limit, the parts are filled one after another.
    for (const std::uint64_t limit : {0, 2, 8, 1'000}) {
      test.options.query.limit = limit;
      const TemporaryFolder limited;
      const Stats stats = merge(test.paths, limited.path(), test.options);
      const Strings first = *reduced(*test.options.text, test.sorted, on_equal, limit);
      CHECK(stats.records_written == first.size());
      for (std::uint64_t part = 0; part < 3; ++part) {
        const auto at = [&](std::uint64_t end) {
          return first.begin() + static_cast<std::ptrdiff_t>(
                                     std::min<std::uint64_t>(limit * end / 3, first.size()));
        };
        CHECK((text_of(read_file(limited / ("part-0000" + std::to_string(part)))) ==
               joined({at(part), at(part + 1)})));
      }
    }
    test.options.query.limit.reset();
    test.options.parts = 0;
  }
}

TEST_CASE("what stands between two keys goes out", "[text][shape]") {
  Random random(74);
  for (const TextCase& of : text_cases())
    for (int round = 0; round < 3; ++round) {
      CAPTURE(of.name, of.different, round);
      Runs test(of, 5, 300, random);
      if (test.sorted.empty()) continue;
      // The values of all keys or, if there are several keys, of the first ones.
      const auto values_of = [&](const std::string& record) {
        const Strings columns = columns_of(record, of.format);
        return of.format.keys.empty()          ? Strings{without_framing(of.format, record)}
               : of.format.keys[0].column == 2 ? Strings{columns[1], columns[0]}
                                               : Strings{columns[0], columns[1]};
      };
      Strings from = values_of(test.sorted[below(random, test.sorted.size())]);
      Strings to = values_of(test.sorted[below(random, test.sorted.size())]);
      if (round == 1 && from.size() > 1) from.pop_back();
      if (round == 2 && to.size() > 1) to.pop_back();
      // Compares as many keys as the bound has.
      const auto before = [&](const std::string& record, const Strings& bound) {
        TextFormat format = of.format;
        if (!format.keys.empty()) format.keys.resize(bound.size());
        std::string other = bound[0];
        if (format.kind == TextKind::pairs) {
          const std::uint32_t lengths[] = {static_cast<std::uint32_t>(other.size()), 0};
          other = std::string(reinterpret_cast<const char*>(lengths), sizeof lengths) + other;
        } else {
          const std::string second = bound.size() > 1 ? bound[1] : "";
          if (!format.keys.empty())
            other = format.keys[0].column == 2 ? second + ',' + bound[0] : bound[0] + ',' + second;
          other += '\n';
        }
        return compare(format, record, other) < 0;
      };
      Strings expected;
      for (const std::string& record : test.sorted)
        if (!before(record, from) && before(record, to)) expected.push_back(record);
      test.options.query.from = from;
      test.options.query.to = to;
      for (const Io io : {Io::buffered, Io::mapped}) {
        test.options.io = io;
        CHECK((test.merged() == joined(expected)));
        CHECK(test.stats.verified);
      }
      test.options.query.on_equal = OnEqual::last;
      test.check(reduced(of.format, expected, OnEqual::last, no_limit));
    }
}

TEST_CASE("conditions choose lines CSV and pairs", "[text][shape]") {
  Random random(76);
  struct Choice {
    const char* text;
    bool (*fulfils)(const std::string& whole, const Strings& columns);
  };
  static const auto number = [](const std::string& text) { return std::stoull(text); };
  const std::vector<Choice> of_columns{
      {"2:u64 >= 20", [](const auto&, const auto& of) { return number(of[1]) >= 20; }},
      {"2:i64<2 or 2:f64 > 30.5",
       [](const auto&, const auto& of) { return number(of[1]) < 2 || number(of[1]) > 30; }},
      {"1 == 'a' or not 2:u64 < 3",
       [](const auto&, const auto& of) { return of[0] == "a" || number(of[1]) >= 3; }},
      {"(1:nocase == 'AB' or 1 <= \"\") and 2 != '0'",
       [](const auto&, const auto& of) {
         return (of[0] == "ab" || of[0].empty()) && of[1] != "0";
       }},
      {"line > 'b'", [](const auto& whole, const auto&) { return whole > "b"; }},
      // A value that is not a number is neither less nor greater than one.
      {"3:u64 > 18446744073709551615", [](const auto&, const auto&) { return false; }},
      {"not 3:u64 <= 18446744073709551615",
       [](const auto&, const auto& of) {
         return of[2].find_first_not_of("0123456789") != std::string::npos;
       }},
  };
  const std::vector<Choice> of_strings{
      {"line >= 'a2' and line != 'b1'",
       [](const auto& whole, const auto&) { return whole >= "a2" && whole != "b1"; }},
      {"not line:nocase < 'B'", [](const auto& whole, const auto&) { return whole >= "b"; }},
  };
  for (const TextCase& of : text_cases())
    for (Choice choice : of.format.keys.empty() ? of_strings : of_columns) {
      std::string text = choice.text;
      if (of.format.kind == TextKind::pairs)
        for (std::size_t at; (at = text.find("line")) != text.npos;) text.replace(at, 4, "key");
      CAPTURE(of.name, of.different, text);
      Runs test(of, 6, 200, random);
      test.options.query.where = parse_where(text);
      Strings kept;
      for (const std::string& record : test.sorted) {
        const std::string whole = without_framing(of.format, record);
        if (choice.fulfils(whole,
                           of.format.keys.empty() ? Strings{} : columns_of(whole, of.format)))
          kept.push_back(record);
      }
      test.options.memory_bytes = below(random, 2) ? std::uint64_t{4} << 20 : 0;
      test.check(kept);
      const std::uint64_t limit = below(random, kept.size() + 2);
      test.options.query.limit = limit;
      test.options.query.on_equal = OnEqual::last;
      test.check(reduced(of.format, kept, OnEqual::last, limit));
    }
}

TEST_CASE("of lines and CSV columns are selected", "[text][shape]") {
  Random random(77);
  const std::vector<std::pair<const char*, std::vector<std::size_t>>> selections{
      {"2", {1}}, {"3,1", {2, 0}}, {"2,3,1", {1, 2, 0}}};
  for (const TextCase& of : text_cases()) {
    if (of.format.keys.empty()) continue;
    for (const auto& [text, columns] : selections) {
      CAPTURE(of.name, of.different, text);
      Runs test(of, 6, 200, random);
      test.options.query.select = parse_select(text);
      const auto selected = [&, &chosen = columns](const Strings& records) {
        Strings out;
        for (const std::string& record : records) {
          const Strings raw = raw_columns(record);
          std::string& line = out.emplace_back();
          for (std::size_t i = 0; i < chosen.size(); ++i) line += (i ? "," : "") + raw[chosen[i]];
          line += '\n';
        }
        return out;
      };
      test.options.memory_bytes = below(random, 2) ? std::uint64_t{4} << 20 : 0;
      test.options.checksum = true;
      test.check(selected(test.sorted));
      test.options.query.limit = below(random, test.sorted.size() + 2);
      test.options.query.on_equal = below(random, 2) ? OnEqual::last : OnEqual::first;
      test.options.query.where = parse_where("2:u64 >= 2");
      test.options.query.tombstone = parse_tombstone("1=a");
      Strings kept = test.sorted;
      std::erase_if(kept, [&](const std::string& record) {
        return std::stoull(columns_of(record, of.format)[1]) < 2;
      });
      kept = *reduced(of.format, kept, test.options.query.on_equal, no_limit);
      std::erase_if(
          kept, [&](const std::string& record) { return columns_of(record, of.format)[0] == "a"; });
      kept.resize(std::min<std::uint64_t>(kept.size(), *test.options.query.limit));
      test.check(selected(kept));
    }
  }
}

TEST_CASE("columns that a record lacks are selected as empty", "[text][shape]") {
  Random random(83);
  for (const TextKind kind : {TextKind::lines, TextKind::csv})
    for (const int runs : {1, 5}) {
      // Records are short, so that the projection lengthens many of them.
      const TextFormat format = format_of(kind, "1");
      Runs test({"ragged", format, 1}, 0, 0, random);
      const auto add = [&](Strings run) {
        test.paths.push_back(test.folder / ("run" + std::to_string(test.paths.size())));
        write_file(test.paths.back(), bytes_of_text(joined(run)));
        test.sorted.insert(test.sorted.end(), run.begin(), run.end());
        test.of_runs.push_back(std::move(run));
      };
      const auto less = [&](const std::string& a, const std::string& b) {
        return compare(format, a, b) < 0;
      };
      add({",,,,,x\n"});
      for (int i = 0; i < runs; ++i) {
        Strings run(3'000);
        for (std::string& record : run) {
          record = random_text(random, 2, "ab");
          for (std::uint64_t columns = below(random, 6); columns > 0; --columns)
            record += ',' + random_text(random, 1, "xy");
          record += '\n';
        }
        std::ranges::stable_sort(run, less);
        add(std::move(run));
      }
      std::ranges::stable_sort(test.sorted, less);
      test.options.query.select = parse_select("6,5,2,4,1");
      const auto selected = [&](Strings records) {
        for (std::string& record : records) {
          Strings columns = columns_of(without_framing(format, record), format);
          columns.resize(6);
          record = columns[5] + ',' + columns[4] + ',' + columns[1] + ',' + columns[3] + ',' +
                   columns[0] + '\n';
        }
        return records;
      };
      for (const std::uint64_t memory_bytes : {0, 4 << 20}) {
        test.options.memory_bytes = memory_bytes;
        test.options.io = memory_bytes == 0 ? Io::mapped : Io::buffered;
        for (const OnEqual on_equal : text_policies) {
          if (on_equal == OnEqual::error) continue;
          test.options.query.on_equal = on_equal;
          test.check(selected(*reduced(format, test.sorted, on_equal, no_limit)));
          test.options.query.limit = 1'777;
          test.check(selected(*reduced(format, test.sorted, on_equal, 1'777)));
          test.options.query.limit.reset();
        }
        for (const OnEqual operation : set_operations) {
          test.options.query.on_equal = operation;
          test.check(selected(of_set(format, operation, test.of_runs)));
        }
        test.options.query.on_equal = OnEqual::keep;
      }
    }
}

TEST_CASE("queries that are filled by hand mean what their parsers would have made",
          "[text][shape]") {
  const TemporaryFolder folder;
  write_file(folder / "run", bytes_of_text("k,v\na,3\na,7\n"));
  const std::vector<std::filesystem::path> runs{folder / "run"};
  Options options;
  options.overwrite = true;
  options.text.emplace();
  options.text->kind = TextKind::csv;
  options.text->header = true;
  options.text->keys = parse_text_keys("k");
  const auto merged = [&] {
    merge(runs, folder / "out", options);
    return text_of(folder / "out");
  };
  // A later policy replaces the reductions of an earlier one.
  parse_on_equal("reduce:count()", options.query);
  CHECK(merged() == "k,v,count\na,3,2\n");
  parse_on_equal("first", options.query);
  CHECK(merged() == "k,v\na,3\n");
  options.query.reductions = {{.operation = Reduction::Operation::count, .column = {}}};
  CHECK(merged() == "k,v\na,3\n");
  // Conditions and reductions have no direction.
  parse_on_equal("reduce:max(v:u64)", options.query);
  options.query.reductions.front().column->descending = true;
  CHECK(merged() == "k,v\na,7\n");
  parse_on_equal("keep", options.query);
  options.query.where = parse_where("v:u64 < 5");
  options.query.where.steps.front().with.column.descending = true;
  CHECK(merged() == "k,v\na,3\n");
}

TEST_CASE("conditions and selections of text that make no sense are refused", "[text][shape]") {
  for (const char* text :
       {"", "2", "2 >", "2:u64 > ", "1,2 == 'a'", "1:desc == 'a'", "1 == 'a", "1 = 'a'",
        "1 == '\\q'", "(1 == 'a'", "1 == 'a' 2 == 'b'", "0 == 'a'", "1:u65 > 2"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH(parse_where(text), StartsWith("Query::where"));
  }
  for (const char* text : {"", "1:u64", "0", "1,", "1,2:desc"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH(parse_select(text), StartsWith("Query::select"));
  }
  const auto refuses = [](TextKind kind, const char* where, const char* select, const char* why) {
    CAPTURE(where, select);
    TextFormat format;
    format.kind = kind;
    if (kind != TextKind::pairs) format.delimiter = ',';
    Options options;
    options.text = format;
    Query query;
    if (*where) query.where = parse_where(where);
    if (*select) query.select = parse_select(select);
    CHECK_THROWS_WITH(OperatorChain(*make_format(options), {}, query, true, 1),
                      ContainsSubstring(why));
  };
  refuses(TextKind::lines, "2 > 5", "", "text in quotes");
  refuses(TextKind::lines, "2:u64 > 'x'", "", "not a number");
  refuses(TextKind::lines, "2 == 'a,b'", "", "delimiter");
  refuses(TextKind::lines, "4294967295 == 'a'", "", "no column 4294967295");
  refuses(TextKind::csv, "name == 'a'", "", "TextFormat::header");
  refuses(TextKind::pairs, "2 == 'a'", "", "Query::where");
  refuses(TextKind::lines, "", "1,2,1", "named twice");
  Options pairs;
  pairs.text.emplace().kind = TextKind::pairs;
  pairs.query.select = parse_select("1");
  CHECK_THROWS_WITH(check_options(pairs, make_format(pairs)->traits(), 1),
                    ContainsSubstring("can be copied"));
  refuses(TextKind::lines, "", "line", "whole line");
}

TEST_CASE("lines outside a range and behind a limit are not read", "[text][shape]") {
  const TemporaryFolder folder;
  std::vector<std::filesystem::path> paths;
  for (const char* name : {"a", "b"}) {
    std::string text;
    for (int i = 0; i < 500'000; ++i) text += std::to_string(1'000'000 + i) + name + '\n';
    paths.push_back(folder / name);
    write_file(paths.back(), bytes_of_text(text));
  }
  Options options;
  options.text.emplace();
  options.backend = BackendChoice::cpu;
  options.overwrite = true;
  options.query.from = {"1300000b"};
  options.query.to = {"1300002"};
  Stats stats = merge(paths, folder / "output", options);
  CHECK(text_of(read_file(folder / "output")) == "1300000b\n1300001a\n1300001b\n");
  CHECK(stats.bytes_read == 27);
  options.query.from.clear();
  options.query.to.clear();
  options.query.limit = 3;
  options.memory_bytes = 4 << 20;  // bounds the read-ahead of a slow merge
  stats = merge(paths, folder / "output", options);
  CHECK(text_of(read_file(folder / "output")) == "1000000a\n1000000b\n1000001a\n");
  CHECK(stats.records_written == 3);
  CHECK(stats.bytes_read < 4 << 20);
}

TEST_CASE("units that were merged elsewhere are shaped where they stand", "[text][shape]") {
  Random random(75);
  for (const TextCase& of : text_cases())
    for (const OnEqual on_equal : text_policies) {
      CAPTURE(of.name, of.different, static_cast<int>(on_equal));
      Strings sorted(exhaustive_step > 1 ? 400 : 2'000);
      for (std::string& record : sorted) record = random_record(random, of, 0);
      std::ranges::stable_sort(sorted, [&](const std::string& a, const std::string& b) {
        return compare(of.format, a, b) < 0;
      });
      Query query;
      query.on_equal = on_equal;
      if (on_equal == OnEqual::keep || below(random, 2)) query.limit = below(random, 2'500);
      const bool chooses = !of.format.keys.empty() && below(random, 2);
      const bool selects = !of.format.keys.empty() && below(random, 2);
      if (chooses) query.where = parse_where("2:u64 != 1");
      // Selected columns that no record has make records longer than their place.
      const bool lengthens = selects && below(random, 2);
      if (selects) query.select = parse_select(lengthens ? "3,1,9,8,7,6" : "3,1");
      Options options;
      options.text = of.format;
      const auto format = make_format(options);
      const OperatorChain shape(*format, {}, query, true, 1);
      BoundaryMerge joiner(shape, query.limit.value_or(no_limit), portable_fingerprint);
      std::string out;
      const auto take = [&](const MergedUnit& unit) {
        for (const auto piece : unit.pieces) out += text_of(piece);
      };
      std::uint64_t read = 0;
      bool failed = false;
      for (std::size_t first = 0, end; first < sorted.size() && !joiner.done() && !failed;
           first = end) {
        end = std::min(first + 1 + below(random, below(random, 4) == 0 ? 900 : 4), sorted.size());
        Bytes unit = bytes_of_text(joined({sorted.begin() + static_cast<std::ptrdiff_t>(first),
                                           sorted.begin() + static_cast<std::ptrdiff_t>(end)}));
        read += sum_of({sorted.begin() + static_cast<std::ptrdiff_t>(first),
                        sorted.begin() + static_cast<std::ptrdiff_t>(end)});
        MergedUnit shaped = apply_to_unit(shape, WorkUnit(), unit, portable_fingerprint);
        try {
          joiner.join(shaped);
        } catch (const EqualKeys&) {
          failed = true;
        }
        take(shaped);
      }
      MergedUnit last;
      if (!failed) joiner.finish(last);
      take(last);
      if (chooses)
        std::erase_if(sorted, [&](const std::string& record) {
          return columns_of(record, of.format)[1] == "1";
        });
      auto expected = reduced(of.format, sorted, on_equal, query.limit.value_or(no_limit));
      CHECK(failed == !expected);
      if (!expected) continue;
      if (selects)
        for (std::string& record : *expected) {
          const Strings raw = raw_columns(record);
          record = raw[2] + ',' + raw[0] + (lengthens ? ",,,," : "") + '\n';
        }
      CHECK((out == joined(*expected)));
      CHECK(joiner.records() == expected->size());
      if (!joiner.done()) CHECK(read - joiner.left_out() == sum_of(*expected));
    }
}

TEST_CASE("set operations on units that were merged elsewhere", "[text][shape]") {
  Random random(80);
  for (const TextCase& of : text_cases())
    for (const OnEqual operation : set_operations) {
      CAPTURE(of.name, of.different, static_cast<int>(operation));
      constexpr std::size_t runs = 3;
      std::vector<Strings> of_runs(runs, Strings(exhaustive_step > 1 ? 200 : 700));
      const auto less = [&](const std::string& a, const std::string& b) {
        return compare(of.format, a, b) < 0;
      };
      std::uint64_t number = 0;
      for (Strings& run : of_runs) {
        for (std::string& record : run) record = random_record(random, of, ++number);
        std::ranges::stable_sort(run, less);
      }
      Strings expected = of_set(of.format, operation, of_runs);
      // The run whose records are kept is merged last; see SetOperation.
      if (operation != OnEqual::unite) std::ranges::rotate(of_runs, of_runs.begin() + 1);

      const TextEncoding text(of.format);
      std::vector<std::vector<PrefixRef>> entries(runs);
      std::vector<std::pair<std::string, std::size_t>> merged;
      for (std::size_t run = 0; run < runs; ++run)
        for (const std::string& record : of_runs[run]) {
          const auto* const at = reinterpret_cast<const std::byte*>(record.data());
          entries[run].push_back(
              make_entry(text_word(text.layout(), at, record.size(), 0), at, record.size()));
          merged.emplace_back(record, run);
        }
      std::ranges::stable_sort(merged, less, &std::pair<std::string, std::size_t>::first);

      Query query;
      query.on_equal = operation;
      if (!of.format.keys.empty()) {
        query.having = parse_where("2:u64 != 1", Setting::having);
        query.select = parse_select("3,1,9,8,7,6");
        std::erase_if(expected, [&](const std::string& record) {
          return columns_of(record, of.format)[1] == "1";
        });
        for (std::string& record : expected) {
          const Strings raw = raw_columns(record);
          record = raw[2] + ',' + raw[0] + ",,,,\n";
        }
      }
      Options options;
      options.text = of.format;
      const auto format = make_format(options);
      const OperatorChain shape(*format, {}, query, true, runs);
      BoundaryMerge joiner(shape, no_limit, portable_fingerprint);
      std::string out;
      std::size_t taken[runs] = {};
      Strings read;
      for (std::size_t first = 0, end; first < merged.size(); first = end) {
        end = std::min(first + 1 + below(random, below(random, 3) == 0 ? 900 : 4), merged.size());
        std::string bytes;
        std::size_t counts[runs] = {};
        for (std::size_t i = first; i < end; ++i) {
          bytes += merged[i].first;
          read.push_back(merged[i].first);
          ++counts[merged[i].second];
        }
        WorkUnit unit;
        for (std::uint32_t run = 0; run < runs; ++run) {
          if (counts[run] == 0) continue;
          auto chunk = std::make_shared<Chunk>();
          chunk->run = run;
          chunk->in_place = reinterpret_cast<const std::byte*>(entries[run].data());
          unit.segments.push_back({chunk, taken[run], counts[run]});
          taken[run] += counts[run];
        }
        Bytes place = bytes_of_text(bytes);
        MergedUnit shaped = apply_to_unit(shape, unit, place, portable_fingerprint);
        joiner.join(shaped);
        for (const auto piece : shaped.pieces) out += text_of(piece);
      }
      CHECK((out == joined(expected)));
      CHECK(joiner.records() == expected.size());
      CHECK(sum_of(read) - joiner.left_out() == sum_of(expected));
    }
}

TEST_CASE("shaped units that are out of order are found", "[text][shape]") {
  Options options;
  options.text = format_of(TextKind::lines, "");
  const auto format = make_format(options);
  for (const OnEqual on_equal : {OnEqual::keep, OnEqual::first}) {
    Query query;
    query.on_equal = on_equal;
    query.limit = 100;
    const OperatorChain shape(*format, {}, query, true, 1);
    Bytes descending = bytes_of_text("a\nc\nb\n");
    CHECK_THROWS_AS(apply_to_unit(shape, WorkUnit(), descending, portable_fingerprint), Corrupted);
    BoundaryMerge joiner(shape, no_limit, nullptr);
    for (const char* unit : {"c\nd\n", "b\ne\n"}) {
      Bytes bytes = bytes_of_text(unit);
      MergedUnit shaped = apply_to_unit(shape, WorkUnit(), bytes, portable_fingerprint);
      if (*unit == 'c')
        joiner.join(shaped);
      else
        CHECK_THROWS_AS(joiner.join(shaped), Corrupted);
    }
  }
}
