// Tests of `corank info`: its report on files of records and of text.
#include <nlohmann/json.hpp>
#include <string>

#include "support/program.hpp"

using namespace corank;
using namespace corank::test;

namespace {

std::string file_of(const TemporaryFolder& folder, const std::string& name,
                    const std::string& text) {
  write_file(folder / name, bytes_of_text(text));
  return folder / name;
}

std::string said(const Strings& options, const Environment& setting = {}) {
  Strings all{"info"};
  all.insert(all.end(), options.begin(), options.end());
  const Result result = run(all, setting);
  INFO(result.err);
  CHECK(result.code == 0);
  return result.out;
}

}  // namespace

TEST_CASE("info shows what files of records hold") {
  const TemporaryFolder folder;
  const std::string some = file_of(folder, "some", "a1a2b1c1c2c3");
  const std::string odd = file_of(folder, "odd", "b1a1a2c1b1");
  const std::string none = file_of(folder, "none", "");
  CHECK(said({"-r", "k:bytes1,n:bytes1", some, odd, none}) ==
        some +
            "\n  size:       12 bytes\n  records:    6\n"
            "  first key:  k='a'\n  last key:   k='c'\n"
            "  order:      in order\n"
            "  duplicates: 3 records have the key of the one before\n" +
            odd +
            "\n  size:       10 bytes\n  records:    5\n"
            "  first key:  k='b'\n  last key:   k='b'\n"
            "  order:      record 1 (byte 2) sorts before its predecessor\n"
            "  duplicates: 1 records have the key of the one before\n" +
            none + "\n  size:       0 bytes\n  records:    0\n");
  CHECK(holds(said({"-r", "k:bytes1,n:u8", "-b", "k:desc,n", odd}),
              "first key:  k='b', n=49\n  last key:   k='b', n=49\n"
              "  order:      record 3 (byte 6)"));
}

TEST_CASE("info shows what files of text hold") {
  const TemporaryFolder folder;
  const std::string csv = file_of(folder, "csv", "id,name\n7,\"a,b\"\n8,\n8,c\n10,d");
  CHECK(said({"--csv", "--header", "-b", "id:u64,name", csv}) ==
        csv +
            "\n  size:       27 bytes\n  records:    4\n"
            "  first key:  id=7, name=\"a,b\"\n  last key:   id=10, name=d\n"
            "  order:      in order\n"
            "  duplicates: 0 records have the key of the one before\n");
  CHECK(holds(said({"--csv", "--header", "-b", "id", csv}),
              "order:      record 3 (byte 23) sorts before its predecessor\n"
              "  duplicates: 1 records"));
  const std::string lines = file_of(folder, "lines", "b\n\tx\n" + std::string(100, 'y') + "\n");
  const std::string shown = said({"--lines", lines});
  CHECK(holds(shown, "first key:  line=b\n"));
  CHECK(holds(shown, "last key:   line=" + std::string(80, 'y') + "… (100 bytes)\n"));
  CHECK(holds(shown, "record 1 (byte 2)"));
  CHECK(holds(said({"--lines", "-t", ",", "-b", "1:u64", "--bad", "skip", csv}),
              "records:    4\n  skipped:    1, as --bad"));
  const std::string pairs =
      file_of(folder, "pairs", std::string("\1\0\0\0\2\0\0\0kvv\1\0\0\0\0\0\0\0l", 20));
  CHECK(holds(said({"--kv", pairs}), "records:    2\n  first key:  key=k\n  last key:   key=l\n"));
}

TEST_CASE("info shows compressed files and pipes") {
  const TemporaryFolder folder;
  const std::string lines = file_of(folder, "lines", std::string(5000, 'a') + "\nb\n");
  const std::string packed = folder / "packed.zst";
  REQUIRE(run({"merge", "--lines", "-o", packed, lines}).code == 0);
  const auto json = nlohmann::json::parse(said({"--json", "--lines", packed, lines}));
  CHECK(json[0]["file"] == packed);
  CHECK(json[0]["codec"] == "zstd");
  CHECK(json[0]["bytes"] == 5003);
  CHECK(json[0]["file_bytes"] == std::filesystem::file_size(packed));
  CHECK(json[0]["records"] == 2);
  CHECK(json[1]["codec"] == "none");
  CHECK(json[1]["in_order"] == true);
  CHECK(holds(said({"--lines", packed}), "bytes, zstd; decompressed 5003 bytes, "));
  CHECK(holds(said({"--lines", "--compressed", "none", packed}),
              "size:       " + std::to_string(std::filesystem::file_size(packed)) + " bytes\n"));
  CHECK(holds(said({"--lines", "-"}, {.in = "x\nx\n"}), "records:    2\n"));
}

TEST_CASE("bad input: info guesses nothing") {
  const TemporaryFolder folder;
  const std::string file = file_of(folder, "file", "abc");
  const auto check_refusal = [&](const Strings& options, const Strings& parts) {
    const Result result = run(options);
    INFO(result.err);
    CHECK(result.code == 2);
    for (const std::string& part : parts) CHECK(holds(result.err, part));
  };
  check_refusal({"info", file}, {"say what the files hold"});
  check_refusal({"info", "-r", "k:u16", file}, {file, "3"});
  check_refusal({"info", "--lines", folder / "missing"}, {"missing"});
  check_refusal({"info", "--lines", "--in", folder.path(), file}, {"--in"});
}

TEST_CASE("bad input: a file that cannot be read keeps info from no other") {
  const TemporaryFolder folder;
  const std::string missing = folder / "missing", file = file_of(folder, "file", "a\n");
  const Result shown = run({"info", "--lines", missing, file});
  CHECK(shown.code == 2);
  CHECK(shown.err.starts_with("corank: " + missing));
  CHECK(holds(shown.out, file + "\n  size:       2 bytes\n"));
  const Result as_json = run({"info", "--lines", "--json", missing, file});
  CHECK(as_json.code == 2);
  const auto json = nlohmann::json::parse(as_json.out);
  REQUIRE(json.size() == 2);
  CHECK(holds(json[0]["error"], missing));
  CHECK(json[1]["records"] == 1);
}
