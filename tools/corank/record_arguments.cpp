#include "record_arguments.hpp"

#include <fmt/format.h>

#include <string_view>

#include "command_line.hpp"
#include "corank/error.hpp"

namespace corank {
namespace {

// Parses a character: one byte, or the escape \t or \0 for a byte that is hard to pass through a
// shell.
char character_of(std::string_view option, const std::string& text) {
  if (text == "\\t") return '\t';
  if (text == "\\0") return '\0';
  if (text.size() == 1) return text[0];
  throw Error(ErrorCode::options,
              fmt::format("{} \"{}\": is not one byte; give one byte, \\t for a tab or \\0 for NUL",
                          option, text));
}

}  // namespace

void RecordArguments::add_to(CLI::App& command) {
  const OptionGroup input(command, "Input");
  record_option_ =
      command
          .add_option("-r,--record", record_,
                      "Fields of a record in order: name:type,… Types: u8 u16 u32 u64 i8 i16 i32 "
                      "i64 f32 f64 (little-endian; u32be is big-endian), bytesN")
          ->required()
          ->type_name("SCHEMA");
  const OptionGroup keys(command, "Keys");
  command.add_option("-b,--by", by_, "Keys: field[:asc|:desc],… [the first field]")
      ->type_name("KEYS");
}

void RecordArguments::add_text_to(CLI::App& command) {
  const OptionGroup input(command, "Input");
  record_option_->required(false);
  command.get_option("--by")->description(
      "Keys: field[:asc|:desc],… [the first field]. Of text: column[:TYPE][:desc][:nocase],… [the "
      "whole line], with TYPE bytes, u64, i64, f64, time, natural, decimal or human; a column is "
      "its number from 1, its name in the header, or line; of JSON, a field or a JSON pointer such "
      "as /user/id");
  command.add_flag("--lines", lines_, "Records are lines of text");
  command.add_flag("-z,--zero-terminated", zero_ended_,
                   "A NUL byte ends each of the lines, and not a newline");
  command.add_flag("--csv", csv_, "Records are lines of CSV, whose columns may be in quotes");
  command
      .add_option("-t,--delimiter", delimiter_,
                  "What ends a column: a byte, or \\t or \\0 [a comma for --csv]")
      ->type_name("C");
  command
      .add_option("--escape", escape_,
                  "Take the byte after C for itself in CSV, in quotes and outside: \\ for MySQL's "
                  "files [a quote in quotes is doubled]")
      ->type_name("C");
  command.add_flag("--header", header_,
                   "Each file begins with the same line of column names, which the output keeps "
                   "once; with =first, only the first file has it");
  add_header_to(command);
  command
      .add_option("--ragged", ragged_,
                  "empty: columns that a record lacks are empty, also those of the first record; "
                  "error: fewer columns than the header or first record is an error [empty after "
                  "the first record]")
      ->check(CLI::IsMember({"empty", "error"}))
      ->option_text("HOW");
  command.add_flag("--jsonl", json_lines_,
                   "Records are lines, each of which holds a JSON object (JSON Lines, NDJSON)");
  command.add_flag("--kv", pairs_,
                   "Records are pairs: u32 bytes of the key, u32 bytes of the value, both "
                   "little-endian, key, value");
  const OptionGroup keys(command, "Keys");
  command
      .add_option(
          "--bad", bad_numbers_,
          "How to treat a key that its type does not hold: error, skip (the record is left out and "
          "counted), or order it first or last [error]")
      ->check(CLI::IsMember({"error", "skip", "first", "last"}))
      ->option_text("WHAT");
}

void RecordArguments::add_header_to(CLI::App& command) {
  constexpr std::uint64_t max_header_bytes = std::uint64_t{16} << 20;
  command
      .add_option("--skip-bytes", skip_bytes_,
                  "Each file of --record begins with the same header of N bytes, which the output "
                  "keeps once; with 0 a file may begin like a file of another format")
      ->transform(whole_number(0, max_header_bytes))
      ->option_text("N");
  command
      .add_option("--header-lines", header_lines_,
                  "Each file begins with the same N lines, before the one of --header, which the "
                  "output keeps once")
      ->transform(whole_number(1, 1'000'000))
      ->option_text("N");
  command
      .add_option(
          "--comment", comment_,
          "The lines at the start of each file that begin with PREFIX (##) are not records; "
          "the output keeps those of the first file")
      ->type_name("PREFIX");
}

Schema RecordArguments::schema() const {
  Schema schema = Schema::parse(record_);
  schema.header_bytes = skip_bytes_;
  return schema;
}

void add_threads_to(CLI::App& command, unsigned& threads, const std::string& what) {
  command.add_option("-T,--threads", threads, what + " [all cores that this process may use]")
      ->transform(whole_number(1, 4096))
      ->option_text("N");
}

void add_compressed_to(CLI::App& command, bool& decompress) {
  command
      .add_option("--compressed", decompress,
                  "auto: what begins as a gzip, zstd, bzip2, xz or lz4 file does is decompressed; "
                  "none: files are what they are [auto]")
      ->transform(one_of<bool>({{"auto", true}, {"none", false}}))
      ->option_text("WHICH");
}

void add_memory_to(CLI::App& command, std::uint64_t& bytes) {
  command
      .add_option("-m,--memory", bytes,
                  "Budget for buffers in bytes, or with K, M, G, T [a quarter of the memory]")
      ->transform(size_in_bytes())
      ->option_text("SIZE");
}

Options RecordArguments::options() const {
  Options options;
  options.text = text();
  if (options.text) return options;
  options.record = schema();
  options.keys = keys(options.record);
  return options;
}

// Returns the format of records of variable length; nothing if records have a fixed size.
std::optional<TextFormat> RecordArguments::text() const {
  const int num_formats = !record_.empty() + lines_ + csv_ + pairs_ + json_lines_;
  if (num_formats != 1)
    throw Error(ErrorCode::options,
                fmt::format("{} one of --record SCHEMA, --lines, --csv, --jsonl and --kv",
                            num_formats == 0 ? "say what the files hold by"
                                             : "more than one format is given; say just"));
  const std::pair<const char*, bool> given[] = {{"--delimiter", delimiter_.has_value()},
                                                {"--header", !header_.empty()},
                                                {"--header-lines", header_lines_ != 0},
                                                {"--comment", !comment_.empty()},
                                                {"--ragged", !ragged_.empty()}};
  for (const auto& [option, is_given] : given)
    if (is_given && !lines_ && !csv_)
      throw Error(ErrorCode::options,
                  fmt::format("{} is for --lines and --csv; leave it out", option));
  if (!bad_numbers_.empty() && !lines_ && !csv_ && !json_lines_)
    throw Error(ErrorCode::options, "--bad is for --lines, --csv and --jsonl; leave it out");
  if (skip_bytes_ && record_.empty())
    throw Error(ErrorCode::options,
                "--skip-bytes is for --record; of text say --header-lines or --comment");
  if (escape_ && !csv_) throw Error(ErrorCode::options, "--escape is for --csv; leave it out");
  if (zero_ended_ && !lines_)
    throw Error(ErrorCode::options, "--zero-terminated is for --lines; leave it out");
  if (!record_.empty()) return std::nullopt;

  TextFormat format;
  format.kind = lines_   ? TextKind::lines
                : csv_   ? TextKind::csv
                : pairs_ ? TextKind::pairs
                         : TextKind::json_lines;
  if (zero_ended_) format.terminator = '\0';
  if (delimiter_) format.delimiter = character_of("--delimiter", *delimiter_);
  if (escape_) format.escape = character_of("--escape", *escape_);
  if (!header_.empty() && header_ != "true" && header_ != "first")
    throw Error(
        ErrorCode::options,
        fmt::format("--header={}: say --header, or --header=first if only the first file has "
                    "it",
                    header_));
  format.header = !header_.empty();
  format.first_header = header_ == "first";
  format.header_lines = header_lines_;
  format.comment = comment_;
  format.bad_numbers = bad_numbers_ == "skip"    ? BadNumbers::skip
                       : bad_numbers_ == "last"  ? BadNumbers::last
                       : bad_numbers_ == "first" ? BadNumbers::first
                                                 : BadNumbers::error;
  if (!ragged_.empty())
    format.ragged = ragged_ == "error" ? RaggedRecords::error : RaggedRecords::empty;
  format.keys = parse_text_keys(by_);
  return format;
}

}  // namespace corank
