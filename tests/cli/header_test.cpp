// Tests of headers on the command line, and of files that do not hold plain records.
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/codec.hpp"
#include "codec/decompressor.hpp"
#include "support/program.hpp"

using namespace corank;
using namespace corank::test;
using namespace std::string_literals;

namespace {

constexpr std::string_view codec_names[] = {"gzip", "zstd", "bzip2", "xz", "lz4"};

std::string record_of(std::uint64_t key, std::uint64_t value) {
  std::string record(16, '\0');
  std::memcpy(record.data(), &key, 8);
  std::memcpy(record.data() + 8, &value, 8);
  return record;
}

std::string records_of(std::initializer_list<std::uint64_t> keys, std::uint64_t value) {
  std::string records;
  for (const std::uint64_t key : keys) records += record_of(key, value);
  return records;
}

const Strings pairs_of_numbers{"-r", "key:u64,value:u64"};

class Files {
 public:
  explicit Files(const Strings& contents) {
    for (const std::string& content : contents) add("run" + std::to_string(paths.size()), content);
  }

  std::string add(const std::string& name, const std::string& content) {
    paths.push_back(folder / name);
    write_file(paths.back(), bytes_of_text(content));
    return paths.back();
  }
  // Compresses the files in place.
  void compress(std::string_view codec) {
    for (std::string& path : paths) {
      const Compression compression = Compression::parse(codec);
      const std::string to = path + std::string(suffix_of(compression.codec));
      write_file(to, frame_of(compression, read_file(path)));
      path = to;
    }
  }

  std::string output() const { return folder / "output"; }
  Result merge(const Strings& options) const {
    return run(Strings{"merge", "-f", "-o", output()} + options + paths);
  }
  std::string merged(const Strings& options) const {
    const Result result = merge(options);
    INFO(result.err);
    REQUIRE(result.code == 0);
    return text_of(output());
  }
  // Checks that the command fails with code 2 and an error that contains all of `parts`.
  void refuses(const Strings& options, const Strings& parts) const {
    std::filesystem::remove(output());
    const Result result = merge(options);
    CHECK(result.code == 2);
    for (const std::string& part : parts) {
      INFO(result.err << " lacks " << part);
      CHECK(holds(result.err, part));
    }
    CHECK(!std::filesystem::exists(output()));
  }

  TemporaryFolder folder;
  Strings paths;
};

}  // namespace

TEST_CASE("a header of bytes is kept once or dropped") {
  const Strings keep = pairs_of_numbers + Strings{"--skip-bytes", "21"};
  const std::string header = "a header of 21 bytes.";
  const std::string records = records_of({1}, 7) + records_of({2}, 8) + records_of({5, 9}, 7);
  Files files({header + records_of({1, 5, 9}, 7), header + records_of({2}, 8), "", header});
  for (const char* io : {"auto", "buffered", "direct", "mapped"})
    CHECK(files.merged(keep + Strings{"--io", io}) == header + records);
  CHECK(files.merged(keep + Strings{"--drop-header"}) == records);
  CHECK(files.merged(keep + Strings{"--from", "2", "--to", "9"}) ==
        header + records_of({2}, 8) + records_of({5}, 7));
  CHECK(files.merged(keep + Strings{"--copy-only"}) ==
        header + records_of({1, 5, 9}, 7) + records_of({2}, 8));
  const std::string parts = files.folder / "parts";
  CHECK(run(Strings{"merge", "-o", parts, "--parts", "2"} + keep + files.paths).code == 0);
  CHECK(text_of(parts + "/part-00000") + text_of(parts + "/part-00001") == header + records);
  CHECK(run(Strings{"check"} + keep + files.paths).code == 0);
  Environment setting;
  setting.in = header + records_of({1, 5, 9}, 7);
  CHECK(run(Strings{"merge", "-f", "-o", files.output()} + keep + Strings{"-", files.paths[1]},
            setting)
            .code == 0);
  CHECK(text_of(files.output()) == header + records);
  for (const std::string_view codec : codec_names) {
    Files compressed({header + records_of({1, 5, 9}, 7), header + records_of({2}, 8)});
    compressed.compress(codec);
    CHECK(compressed.merged(keep) == header + records);
    CHECK(run(Strings{"check"} + keep + compressed.paths).code == 0);
  }
}

TEST_CASE("bad input: headers of bytes that differ or are cut off") {
  const Strings keep = pairs_of_numbers + Strings{"--skip-bytes", "16"};
  const Files files({std::string(16, 'a') + record_of(1, 1), std::string(16, 'b')});
  files.refuses(keep, {files.paths[1], "first 16 bytes differ", files.paths[0], "--drop-header"});
  CHECK(files.merged(keep + Strings{"--drop-header"}) == record_of(1, 1));
  const Files cut({std::string(16, 'a'), "abc"});
  cut.refuses(keep, {cut.paths[1], "3 bytes", "--skip-bytes"});
  files.refuses(Strings{"--lines", "--skip-bytes", "3"}, {"--skip-bytes is for --record"});
  files.refuses(pairs_of_numbers + Strings{"--drop-header"}, {"--drop-header: no header"});
}

TEST_CASE("bad input: a record out of order after a header of bytes") {
  const Files files({std::string(5, 'a') + records_of({1, 3, 2}, 1)});
  const Result result = files.merge(pairs_of_numbers + Strings{"--skip-bytes", "5"});
  CHECK(result.code == 1);
  CHECK(holds(result.err, "record 2 (byte 37)"));
}

TEST_CASE("bad input: files of formats that hold no plain records") {
  const std::string zeros(320, '\0');
  const auto file = [&](std::string begin, const std::string& end = "") {
    std::string text = std::move(begin) + zeros;
    text.resize(zeros.size() - end.size());
    return text + end;
  };
  const std::string orc_end = "\x82\xf4\x03\x03ORC\x10";
  const std::pair<std::string, std::string> formats[] = {
      {file("\x93NUMPY\x01"), "NumPy"},
      {file("PAR1", "PAR1"), "Parquet"},
      {file({"ARROW1\0\0", 8}), "Arrow"},
      {file({"\xff\xff\xff\xff\xa8\0\0\0\x10\0\0\0\0\0\x0a\0\x0c\0", 18}), "Arrow IPC stream"},
      {file("ORC", orc_end), "ORC"},
      {file("Obj\x01\x04\x14"
            "avro.codec"),
       "Avro"},
      {file("SQLite format 3"), "SQLite"},
      {file(std::string(257, 'a') + std::string("ustar\0"
                                                "00",
                                                8)),
       "tar"},
      {file(std::string(257, 'a') + "ustar  "), "tar"},
      {file("BAM\x01"), "BAM"},
      {file("PK\x03\x04"), "ZIP"},
      {file({"]\0\0\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\0", 14}), "lzma"},
  };
  for (const auto& [content, name] : formats) {
    INFO(name);
    const Files files({zeros, content});
    files.refuses(pairs_of_numbers, {files.paths[1], name});
    files.refuses({"--lines"}, {files.paths[1], name});
    const Result sets =
        run(Strings{"union", "-o", files.output()} + pairs_of_numbers + files.paths);
    CHECK((sets.code == 2 && holds(sets.err, name)));
    const Result check = run(Strings{"check"} + pairs_of_numbers + Strings{files.paths[1]});
    CHECK((check.code == 2 && holds(check.err, name)));
    // An explicit option overrides the check.
    CHECK(files.merged(pairs_of_numbers + Strings{"--skip-bytes", "0", "--copy-only"}).size() ==
          2 * zeros.size());
  }
  Files bam({file("BAM\x01")});
  bam.compress("gzip");
  bam.refuses({"--lines"}, {"BAM"});
  Environment piped;
  piped.in = file("\x93NUMPY\x01");
  const auto refuses_piped = [&](const std::string& name) {
    const Result pipe =
        run(Strings{"merge", "-o", bam.output()} + pairs_of_numbers + Strings{"-"}, piped);
    INFO(pipe.err);
    CHECK((pipe.code == 2 && holds(pipe.err, "standard input: is " + name)));
  };
  refuses_piped("a NumPy array");
  const std::string orc_begins[] = {{"ORC\x11\0\0\n\x06\x12\x04\x08\x03P", 13},
                                    "ORC\n\x06\x12\x04\x08\x03P",
                                    {"ORC\x08\x03\x10\0", 7},
                                    {"ORC\x1c\0\0\xe3\x62", 8},                          // zlib
                                    {"ORC\x1c\0\0\x2d\x20\n\x07", 10},                   // snappy
                                    {"ORC\x30\0\0\x28\xb5\x2f\xfd", 10},                 // zstd
                                    {"ORC\0\0\x08plain bytes of one large chunk", 36}};  // no index
  for (const std::string& begin : orc_begins) {
    piped.in = file(begin);
    refuses_piped("an ORC file");
  }
  // The last bytes tell where the first ones do not.
  for (const std::size_t bytes : {0, 64, 1000, 3000000}) {
    piped.in = "ORC" + std::string(bytes, 'x') + orc_end;
    refuses_piped("an ORC file");
    piped.in = "PAR1" + std::string(bytes, 'x') + "PAR1";
    refuses_piped("a Parquet file");
  }
}

TEST_CASE("records that begin like another format by chance are merged") {
  for (const std::string begin : {"PAR1 gene", "ORCA", "ORC\nS", "Obj\x01", "]\0\0 and more"}) {
    const Files files({begin + std::string(23, 'x') + "\n"});
    CHECK(files.merged({"--lines"}) == text_of(files.paths[0]));
  }
  Environment piped;
  for (const std::string& text : {"ORC\n"s, "ORC\nORC\n"s, "ORC\t7\nPAR1\n"s,
                                  "ORCHID\nPAR1\nPAR1\n"s, "ORC\xc3\xa9\nORC\xc3\xa9\n"s}) {
    const Files files({text});
    CHECK(files.merged({"--lines"}) == text);
    piped.in = text;
    CHECK(run({"merge", "--lines", "-f", "-o", files.output(), "-"}, piped).code == 0);
    CHECK(text_of(files.output()) == text);
  }
  const std::string padded = "ORC\0\0\0\0\1"s + "ORCAB\0\0\2"s;
  const Files records({padded});
  piped.in = padded;
  CHECK(run({"merge", "-r", "key:bytes7,n:u8", "-f", "-o", records.output(), "-"}, piped).code ==
        0);
  // Magic numbers are recognised only at the start of a file.
  const Files files({std::string(16, '\0') + "\x93NUMPY" + std::string(10, '\0')});
  CHECK(files.merged({"-r", "a:bytes16"}).size() == 32);
}

TEST_CASE("comment lines, header lines and a header are kept once", "[text]") {
  const Strings vcf{"--lines", "-t", "\\t", "--comment", "##", "--header", "-b", "CHROM,POS:u64"};
  const std::string head = "##version\n##contig 1\nCHROM\tPOS\n";
  Files files({head + "1\t7\n2\t5\n", "", head + "1\t30\n2\t4", head, "##version\n##contig 1"});
  const std::string records = "1\t7\n1\t30\n2\t4\n2\t5\n";
  CHECK(files.merged(vcf) == head + records);
  CHECK(files.merge(vcf).err.empty());
  CHECK(files.merged(vcf + Strings{"--drop-header"}) == records);
  CHECK(files.merged(vcf + Strings{"--select", "POS"}) ==
        "##version\n##contig 1\nPOS\n7\n30\n4\n5\n");
  CHECK(run(Strings{"check"} + vcf + files.paths).code == 0);
  const Strings lines{"--csv", "--header-lines", "2", "--header", "-b", "POS:u64"};
  CHECK(Files({"a\n\"b\nPOS\n4\n", "a\n\"b\nPOS\n3\n"}).merged(lines) == "a\n\"b\nPOS\n3\n4\n");
  CHECK(Files({"#1\nb\n4\n", "#1\nb\n3\n"})
            .merged({"--lines", "--comment", "#", "--header-lines", "1"}) == "#1\nb\n3\n4\n");
  // Only lines at the start of a file are comments.
  CHECK(Files({"5\n#\n", "4\n"}).merge({"--lines", "--comment", "#"}).code == 1);
  const std::string parts = files.folder / "parts";
  CHECK(run(Strings{"merge", "-o", parts, "--parts", "2"} + vcf + files.paths).code == 0);
  CHECK(text_of(parts + "/part-00000") + text_of(parts + "/part-00001") == head + records);
  Environment setting;
  setting.in = text_of(files.paths[0]);
  CHECK(run(Strings{"merge", "-f", "-o", files.output()} + vcf + Strings{"-", files.paths[2]},
            setting)
            .code == 0);
  CHECK(text_of(files.output()) == head + records);
  for (const std::string_view codec : codec_names) {
    Files compressed({text_of(files.paths[0]), text_of(files.paths[2])});
    compressed.compress(codec);
    CHECK(compressed.merged(vcf) == head + records);
    CHECK(run(Strings{"check"} + vcf + compressed.paths).code == 0);
  }
}

TEST_CASE("headers of text that differ are told", "[text]") {
  const Files comments({"#a\n1\n", "#b\n0\n"});
  const Result kept = comments.merge({"--lines", "--comment", "#"});
  CHECK(kept.code == 0);
  CHECK(holds(kept.err, comments.paths[1] + ": its lines that begin with # differ"));
  CHECK(text_of(comments.output()) == "#a\n0\n1\n");
  const Files lines({"a\n1\n", "b\n0\n"});
  lines.refuses({"--lines", "--header-lines", "1"}, {lines.paths[1], "header lines differ"});
  CHECK(lines.merged({"--lines", "--header-lines", "1", "--drop-header"}) == "0\n1\n");
  lines.refuses({"--lines", "--header-lines", "3"}, {"ends within its 3 header lines"});
}

TEST_CASE("a bad line is named by its number in the file, whatever precedes it", "[text]") {
  const Files files({"#a\n#b\nid\n1\nx\n"});
  files.refuses({"--lines", "--comment", "#", "--header", "-b", "line:u64"},
                {"line 5 (byte 11)", "--bad skip"});
  const Files out_of_order({"#a\n#b\n1\n3\n2\n"});
  CHECK(holds(out_of_order.merge({"--lines", "--comment", "#"}).err, "line 5 (byte 10)"));
}

TEST_CASE("nobody is told to skip the first record of a file", "[text]") {
  const Files files({"##a\n1\t5\n", "##a\n1\t6\n"});
  const Strings options{"--lines", "-t", "\\t", "-b", "2:u64"};
  files.refuses(options, {"there is no column 2", "--comment PREFIX", "--header"});
  CHECK(!holds(files.merge(options).err, "--bad"));
}

TEST_CASE("a header that is taken for a record is told, and the other way round", "[text]") {
  const auto told = [](const Files& files, const Strings& options) {
    return holds(files.merge(options).err, "looks like a header");
  };
  const Strings csv{"--csv"};
  // The record is in order, but the second column holds a number in all other records.
  const Files cities({"City,n\nOslo,4\n", "City,n\nRome,5\n"});
  CHECK(told(cities, csv));
  CHECK(!told(cities, csv + Strings{"--header"}));
  CHECK(!told(cities, csv + Strings{"-q"}));
  CHECK(told(Files({"City,n\nOslo,4\n"}), csv));
  CHECK(!told(Files({"City,n,1\nOslo,4,1\n"}), csv));
  // Programs that number records give that column an empty name.
  for (const std::string name : {"", "\"\""}) {
    CHECK(told(Files({name + ",x\n1,5\n"}), csv));
    CHECK(!told(Files({name + ",5\n1,x\n"}), csv));
    CHECK(!told(Files({"City," + name + ",n,1\nOslo,x,4,1\n"}), csv));
  }
  CHECK(!told(Files({"City,n\nOslo,x\n"}), csv));
  CHECK(!told(Files({"Bonn,n\nOslo,4\n", "City,n\nRome,5\n"}), csv));
  CHECK(!told(Files({"Bonn,1\nOslo,4\n", "Bonn,1\nRome,5\n"}), csv));
  CHECK(!told(Files({"Bonn,x\nOslo,y\n", "Bonn,x\nRome,z\n"}), csv));
  CHECK(told(cities, csv + Strings{"-b", "2:u64", "--bad", "skip"}));
  CHECK(told(cities, csv + Strings{"-b", "2:u64", "--bad", "last", "--limit", "1"}));
  const Result out_of_order = Files({"id,n\n1,4\n", "id,n\n2,5\n"}).merge(csv);
  CHECK(out_of_order.code == 1);
  CHECK(holds(out_of_order.err, "line 2"));
  CHECK(holds(out_of_order.err, "say --header"));

  // Sorts, too, would put the header among the records.
  const Files unsorted({"City,n\nOslo,4\nBonn,3\n", "City,n\nAhlen,5\n"});
  CHECK(holds(run(Strings{"sort", "--csv"} + unsorted.paths).err, "looks like a header"));
  CHECK(run(Strings{"sort", "--csv", "--header"} + unsorted.paths).err.empty());

  const auto doubts = [](const Files& files, const char* keys) {
    const bool checked =
        holds(run(Strings{"check", "--csv", "--header", "-b", keys} + files.paths).err,
              files.paths[0] + ": the header, ");
    CHECK(checked ==
          holds(files.merge({"--csv", "--header", "-b", keys}).err, "leave out --header"));
    return checked;
  };
  CHECK(doubts(Files({"1,Oslo\n2,Rome\n"}), "1:u64"));
  CHECK(!doubts(Files({"id,Oslo\n2,Rome\n"}), "1:u64"));
  CHECK(!doubts(Files({"2019,2020\n2,3\n"}), "\"2019\":u64"));
  CHECK(doubts(Files({"2024-01-01,a\n2024-01-02,b\n"}), "1:time"));
  CHECK(!doubts(Files({"day,a\n2024-01-02,b\n"}), "1:time"));
  CHECK(!doubts(Files({"name,a\nx9,b\n"}), "1:natural"));

  // A key of text parses whatever it is, but names do not look like the values below them.
  for (const char* record : {"alice,30\nbob,5\n", "alice,1.5,7\nbob,x,5\n", "a,2021\nb,1999\n",
                             "id-00017,x\nid-00018,y\n", "a,2024-01-01\nb,2024-01-02\n",
                             "a,30,55,60\nb,2,2,2\n", "a,\"4\"\nb,\"5\"\n"})
    CHECK(doubts(Files({record}), "1"));
  for (const char* named :
       {"name,2019\na,5\n", "name,2019,2020\na,5,6\n", "name,0\na,5\n", "0,1,2\n5,6,7\n",
        "name,10,20,30\na,1,1,1\n", "name,q1\na,b1\n", "name,nan\na,nan\n", "name,7\na,x\n",
        "name,7\n", "name\n", "", "name,1990,2000\na,5,6\n"})
    CHECK(!doubts(Files({named}), "1"));
  // A line that begins several files is a header.
  CHECK(Files({"a,30\na,40\n", "a,30\nb,5\n"}).merge({"--csv", "--header", "-b", "1"}).err.empty());
  Environment piped;
  piped.in = "alice,30\nbob,5\n";
  CHECK(holds(run({"merge", "--csv", "--header", "-b", "1", "-"}, piped).err,
              "standard input: the header, \"alice,30\", looks like a record: it has 30 where the "
              "next line has 5"));
  const Files one_header({"alice,30\nbob,5\n", "carl,6\n"});
  CHECK(holds(one_header.merge({"--csv", "--header=first"}).err, "looks like a record"));
  CHECK(told(Files({"City,n\nOslo,4\n", "City,n\nRome,5\n"}), csv + Strings{"-b", "1:natural"}));
}

TEST_CASE("a BGZF file without its last block is told") {
  const std::string data{
      "\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0\x20\0\x01\x02\0\xfd\xff"
      "1\n"
      "\x53\xfc\x51\x67\x02\0\0\0",
      33};
  Files files({});
  files.add("a.gz", data);
  INFO(files.merge({"--lines"}).err);
  CHECK(holds(files.merge({"--lines"}).err, "empty block that BGZF files end with"));
  Files whole({});
  whole.add("a.gz", data + std::string(bgzf_end));
  CHECK(whole.merged({"--lines"}) == "1\n");
  CHECK(whole.merge({"--lines"}).err.empty());
  // A pipe is told, too, once it has ended.
  Environment piped;
  for (const Strings& command : {Strings{"merge", "--lines"},
                                 {"sort", "--lines"},
                                 {"check", "--lines"},
                                 {"sort", "--lines", "--limit", "1"}}) {
    piped.in = data;
    const Result cut = run(command, piped);
    CHECK(cut.code == 0);
    CHECK(holds(cut.err, "standard input: lacks the empty block"));
    piped.in = data + std::string(bgzf_end);
    CHECK(run(command, piped).err.empty());
  }
}
