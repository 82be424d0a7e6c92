// Groups of inputs that a sort reads at the same time.
#include "plan/input_groups.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "format/fixed_format.hpp"
#include "format/variable_format.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

std::unique_ptr<const RecordFormat> lines() {
  return make_variable_format({}, {});
}

std::unique_ptr<const RecordFormat> csv() {
  TextFormat format;
  format.kind = TextKind::csv;
  format.delimiter = ',';
  return make_variable_format(format, {});
}

// Runs in memory, of bytes.
struct Inputs {
  explicit Inputs(std::initializer_list<std::uint64_t> sizes) {
    for (const std::uint64_t bytes : sizes)
      runs.emplace_back(std::span(memory).first(bytes), "run", 1);
  }
  std::vector<std::uint64_t> groups(std::uint64_t count) const {
    std::vector<std::uint64_t> sizes;
    auto next = runs.begin();
    for (const std::vector<Run>& group : group_inputs(runs, *csv(), count)) {
      for (const Run& run : group) CHECK(run.bytes() == next++->bytes());
      sizes.push_back(group.size());
    }
    CHECK(next == runs.end());
    return sizes;
  }

  Bytes memory = Bytes(1000);
  std::vector<Run> runs;
};

}  // namespace

TEST_CASE("groups of inputs have about the same bytes, and none is empty", "[sort]") {
  using Sizes = std::vector<std::uint64_t>;
  CHECK(Inputs{}.groups(1) == Sizes{0});
  CHECK(Inputs{5, 5, 5}.groups(1) == Sizes{3});
  CHECK(Inputs{5, 5, 5}.groups(3) == Sizes{1, 1, 1});
  CHECK(Inputs{5, 5, 5, 5, 5, 5}.groups(3) == Sizes{2, 2, 2});
  CHECK(Inputs{100, 1, 1, 1}.groups(2) == Sizes{1, 3});
  CHECK(Inputs{1, 1, 1, 100}.groups(2) == Sizes{3, 1});
  CHECK(Inputs{100, 100, 1, 1}.groups(4) == Sizes{1, 1, 1, 1});
  CHECK(Inputs{0, 0, 0, 0}.groups(2) == Sizes{1, 3});
  CHECK(Inputs{10, 20, 30, 40, 50}.groups(2) == Sizes{3, 2});
}

TEST_CASE("lines are cut into groups of about the same bytes", "[sort]") {
  const TemporaryFolder folder;
  std::vector<Run> runs;
  const auto groups = [&](std::initializer_list<std::string> texts, std::uint64_t count) {
    runs.clear();
    for (const std::string& text : texts) {
      const auto path = folder / std::to_string(runs.size());
      write_file(path, bytes_of_text(text));
      runs.emplace_back(path, 1, Run::Opening{});
    }
    std::vector<std::vector<std::string>> made;
    for (const std::vector<Run>& inputs : group_inputs(runs, *lines(), count)) {
      auto& group = made.emplace_back();
      for (const Run& input : inputs) {
        Bytes bytes(input.bytes());
        input.read(0, input.records(), bytes);
        group.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
    }
    return made;
  };
  using Groups = std::vector<std::vector<std::string>>;
  CHECK(groups({"a\nb\nc\nd\n"}, 1) == Groups{{"a\nb\nc\nd\n"}});
  CHECK(groups({"a\nb\nc\nd\n"}, 2) == Groups{{"a\nb\n"}, {"c\nd\n"}});
  CHECK(groups({"a\nb\nc\nd\ne"}, 3) == Groups{{"a\nb\n"}, {"c\n"}, {"d\ne"}});
  CHECK(groups({"a\nb\n", "", "c\nd\n"}, 2) == Groups{{"a\nb\n"}, {"c\nd\n"}});
  CHECK(groups({"a\nb\nc\n", "d\n"}, 2) == Groups{{"a\nb\n"}, {"c\n", "d\n"}});
  CHECK(groups({"a long line\n"}, 3) == Groups{{"a long line\n"}, {""}, {""}});
  CHECK(groups({"a\na long line"}, 2) == Groups{{"a\na long line"}, {""}});
}

TEST_CASE("a sort reads as many groups of inputs as its threads have use for", "[sort]") {
  const TemporaryFolder folder;
  std::vector<Run> runs;
  const auto add = [&](const std::string& name, const std::string& bytes) {
    write_file(folder / name, bytes_of_text(bytes));
    runs.emplace_back(folder / name, 1, Run::Opening{.decompress = true});
  };
  const std::string gzip("\x1f\x8b\x08\0", 4);
  for (const std::string name : {"a.gz", "b.gz", "c.gz"}) add(name, gzip);
  CHECK(useful_groups(runs, *csv(), 16) == 3);
  CHECK(useful_groups(runs, *csv(), 4) == 2);
  CHECK(useful_groups(runs, *csv(), 3) == 1);
  CHECK(useful_groups({}, *csv(), 16) == 1);
  add("plain", "line\n");
  CHECK(useful_groups(runs, *csv(), 16) == 4);
  CHECK(useful_groups(std::span(runs).last(1), *csv(), 16) == 1);
  while (runs.size() < 40) add(std::to_string(runs.size()) + ".gz", gzip);
  CHECK(useful_groups(runs, *csv(), 32) == 16);
  CHECK(useful_groups(runs, *csv(), 128) == 40);

  runs.clear();
  for (const std::string name : {"a", "b", "c"}) add(name, "line\n");
  CHECK(useful_groups(runs, *csv(), 16) == 3);
  CHECK(useful_groups(runs, *csv(), 8) == 2);
  CHECK(useful_groups(runs, *csv(), 7) == 1);
  CHECK(useful_groups(runs, *lines(), 16) == 1);  // which are cut, if they are large
  add("large", std::string(std::size_t{33} << 20, '\n'));
  CHECK(useful_groups(runs, *lines(), 16) == 2);
  CHECK(useful_groups(runs, *make_fixed_format(Schema::parse("key:u8"), {}), 16) == 1);
}
