// Tests of operators on fixed records: the CUDA backend against the CPU backend.
#include <string>
#include <vector>

#include "corank/merge.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

struct Files {
  Files(const char* schema, const char* by, std::uint64_t runs, std::uint64_t records,
        Values values, Random& random) {
    options.record = Schema::parse(schema);
    options.keys = parse_keys(by, options.record);
    options.overwrite = true;
    options.threads = 2;
    options.strict_backend = true;
    for (std::uint64_t run = 0; run < runs; ++run) {
      paths.push_back(folder / ("run" + std::to_string(run)));
      write_file(paths.back(),
                 stably_sorted(
                     options.record, options.keys,
                     random_records(options.record, below(random, records + 1), values, random)));
    }
  }

  // Merges on both backends; returns a description of the difference, or an empty string.
  std::string difference() {
    const auto merged_by = [&](BackendChoice backend, const char* output) {
      options.backend = backend;
      try {
        const Stats stats = merge(paths, folder / output, options);
        return stats.backend + (stats.verified ? "" : " not verified");
      } catch (const Error& error) {
        write_file(folder / output, {});
        return std::string(error.what());
      }
    };
    const std::string cpu = merged_by(BackendChoice::cpu, "expected");
    const std::string cuda = merged_by(BackendChoice::cuda, "output");
    if (cpu == "cpu" ? cuda != "cuda" : cuda != cpu) return cpu + " but " + cuda;
    return read_file(folder / "output") == read_file(folder / "expected") ? "" : "other bytes";
  }

  TemporaryFolder folder;
  std::vector<std::filesystem::path> paths;
  Options options;
};

void give_shape(Options& options, const char* on_equal, const char* where, const char* select) {
  options.query = {};
  parse_on_equal(on_equal, options.query);
  if (*where) options.query.where = parse_where(where);
  if (*select) options.query.select = parse_select(select);
}

void compare_shapes(std::uint64_t records, std::uint64_t memory_bytes, Random& random) {
  const char* schemas[] = {"k:u8,a:i16,b:u64be,c:f64,d:bytes5", "k:u16,a:u32,b:i64,c:u8,d:u8",
                           "k:bytes40,a:i8,b:u32,c:f32,d:u16"};
  for (const char* schema : schemas)
    for (const Values values : {Values::any, Values::few})
      for (const char* on_equal :
           {"keep", "first", "last", "error", "reduce:sum(a),min(b),max(c),last(d)",
            "reduce:count(b),max(a),first(c)", "reduce:sum(b),sum(c)"})
        for (const char* where : {"", "b > 100 and not a == 3"})
          for (const char* select : {"", "d,a,k"}) {
            Files files(schema, "k", 4, records, values, random);
            give_shape(files.options, on_equal, where, select);
            files.options.memory_bytes = memory_bytes;
            CAPTURE(schema, on_equal, where, select, static_cast<int>(values));
            for (const Overflow overflow : {Overflow::error, Overflow::saturate, Overflow::wrap}) {
              files.options.query.overflow = overflow;
              CHECK(files.difference() == "");
            }
            if (std::string_view(on_equal) == "last") {
              files.options.query.tombstone = parse_tombstone("a=0");
              CHECK(files.difference() == "");
            }
          }
}

}  // namespace

TEST_CASE("the CUDA backend shapes small units", "[gpu][sanitize][shape]") {
  Random random(81);
  Files files("k:u8,a:i16,b:u64be,d:bytes5", "k", 5, 700, Values::few, random);
  for (const char* on_equal : {"keep", "last", "reduce:sum(a),min(b),last(d)"}) {
    give_shape(files.options, on_equal, "b > 100 and not a == 3", "d,a,k");
    files.options.query.overflow = Overflow::wrap;
    CAPTURE(on_equal);
    CHECK(files.difference() == "");
  }
}

TEST_CASE("the CUDA backend shapes every kind of record", "[gpu][shape]") {
  Random random(82);
  compare_shapes(4'000, 8 << 20, random);
}

TEST_CASE("the CUDA backend shapes groups that cross many units", "[gpu][shape]") {
  Random random(83);
  compare_shapes(60'000, 1 << 20, random);
}
