#include "io/known_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "corank/error.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

using namespace std::string_view_literals;

// How to recognise a file format, and the remedy for its users.
struct KnownFormat {
  std::string_view magic;  // first bytes of a file
  std::string_view name;
  std::string_view remedy;  // empty: skip its header
  // For a magic number that plain records could begin with: what must follow it in the first
  // known_format_head_bytes, at `follows_at` or anywhere, and what a file must end with, `tail_gap`
  // bytes before its end.
  // A stream, whose end is not known, is not refused by a format with a tail.
  std::string_view follows = {};
  std::size_t follows_at = 0;  // 0: anywhere
  std::string_view tail = {};
  std::size_t tail_gap = 0;
  bool is_compressed = false;
};

constexpr std::string_view as_columns = "export its rows as CSV or as fixed-size records first";
constexpr std::string_view as_text = "convert it to text with the samtools or bcftools program";
constexpr std::string_view unpack = "decompress it with its own program first";

constexpr std::array<KnownFormat, 23> known_formats{{
    {.magic = "\x93NUMPY"sv, .name = "a NumPy array", .remedy = {}},
    {.magic = "PAR1"sv, .name = "a Parquet file", .remedy = as_columns, .tail = "PAR1"sv},
    {.magic = "PAR1\x15"sv, .name = "a Parquet file", .remedy = as_columns},
    {.magic = "ARROW1\0\0"sv, .name = "an Arrow IPC file", .remedy = as_columns},
    // The size of a message below 64 KiB, then the start of its table, as Arrow's libraries write
    // it.
    {.magic = "\xff\xff\xff\xff"sv,
     .name = "an Arrow IPC stream",
     .remedy = as_columns,
     .follows = "\0\0\x10\0\0\0\0\0\x0a\0"sv,
     .follows_at = 6},
    {.magic = "FEA1"sv, .name = "a Feather file", .remedy = as_columns, .tail = "FEA1"sv},
    {.magic = "ORC"sv, .name = "an ORC file", .remedy = as_columns, .tail = "ORC"sv, .tail_gap = 1},
    // Its first stream, the index of the first column, begins as it is or as an uncompressed chunk.
    {.magic = "ORC\n"sv,
     .name = "an ORC file",
     .remedy = as_columns,
     .follows = "\x12"sv,
     .follows_at = 5},
    {.magic = "ORC"sv,
     .name = "an ORC file",
     .remedy = as_columns,
     .follows = "\0\n"sv,
     .follows_at = 5},
    {.magic = "Obj\x01"sv, .name = "an Avro file", .remedy = as_columns, .follows = "avro."sv},
    {.magic = "SQLite format 3\0"sv,
     .name = "an SQLite database",
     .remedy = "export its tables as CSV first"},
    {.magic = "\x89HDF\r\n\x1a\n"sv, .name = "an HDF5 file", .remedy = as_columns},
    {.magic = "BAM\1"sv, .name = "a BAM file", .remedy = as_text},
    {.magic = "BCF\2"sv, .name = "a BCF file", .remedy = as_text},
    {.magic = "CRAM\2"sv, .name = "a CRAM file", .remedy = as_text},
    {.magic = "CRAM\3"sv, .name = "a CRAM file", .remedy = as_text},
    {.magic = "PK\3\4"sv,
     .name = "a ZIP archive, as .npz and .xlsx files are",
     .remedy = "unpack it first",
     .is_compressed = true},
    {.magic = "7z\xbc\xaf\x27\x1c"sv,
     .name = "a 7z archive",
     .remedy = "unpack it first",
     .is_compressed = true},
    {.magic = "LZIP\1"sv, .name = "an lzip file", .remedy = unpack, .is_compressed = true},
    {.magic = "\x89LZO\0\r\n\x1a\n"sv,
     .name = "an lzop file",
     .remedy = unpack,
     .is_compressed = true},
    {.magic = "\xff\x06\0\0sNaPpY"sv,
     .name = "a Snappy file",
     .remedy = unpack,
     .is_compressed = true},
    {.magic = "\x1f\x9d\x90"sv,
     .name = "a file of the compress program",
     .remedy = "decompress it with gzip -d first",
     .is_compressed = true},
    {.magic = "]\0\0"sv,
     .name = "an .lzma file",
     .remedy = "decompress it with xz -d first",
     .follows = "\xff\xff\xff\xff\xff\xff\xff\xff\0"sv,
     .follows_at = 5,
     .is_compressed = true},
}};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool begins_like(const KnownFormat& format, std::string_view head, bool decompress) {
  if (!head.starts_with(format.magic) || (format.is_compressed && !decompress)) return false;
  if (format.follows_at != 0)
    return head.size() > format.follows_at &&
           head.substr(format.follows_at).starts_with(format.follows);
  return head.substr(format.magic.size()).find(format.follows) != std::string_view::npos;
}

[[noreturn]] void refuse(const std::filesystem::path& path, const KnownFormat& format) {
  const std::string remedy =
      format.remedy.empty()
          ? fmt::format("say {} {}, with N the bytes of its header, which are 128 for most",
                        setting_is(Setting::skip_bytes, "N"), Setting::drop_header)
          : std::string(format.remedy);
  throw_error("{}: is {}, which does not hold plain records; {}{}",
              path == "-" ? "standard input" : path.string(), format.name, remedy,
              format.is_compressed
                  ? fmt::format(", or say {} if it is none", Setting::no_decompression)
                  : fmt::format(", or say {} if it holds fixed-size records from its first byte on",
                                setting_is(Setting::skip_bytes, "0")));
}

// Fills `bytes` from the file; throws Error if it has become shorter.
void read_whole(const FileDescriptor& file, std::span<std::byte> bytes, std::uint64_t offset,
                const std::filesystem::path& path) {
  if (read_at(file, bytes, offset, path) != bytes.size())
    throw Error(path.string() + ": became shorter while it was read; try again once it is whole");
}

}  // namespace

void refuse_known_format(const std::filesystem::path& path, const FileDescriptor& file,
                         std::uint64_t file_bytes, bool decompress) {
  std::array<std::byte, known_format_head_bytes> room;
  const std::span<std::byte> first(room.data(), std::min<std::uint64_t>(room.size(), file_bytes));
  read_whole(file, first, 0, path);
  const std::string_view head = text_of(first);
  for (const KnownFormat& format : known_formats) {
    if (!begins_like(format, head, decompress)) continue;
    const std::uint64_t end_bytes = format.tail.size() + format.tail_gap;
    if (file_bytes < format.magic.size() + end_bytes) continue;
    std::array<std::byte, 8> end;
    const auto tail = std::span(end).first(format.tail.size());
    read_whole(file, tail, file_bytes - end_bytes, path);
    if (text_of(tail) == format.tail) refuse(path, format);
  }
}

void refuse_known_format(const std::filesystem::path& path, std::span<const std::byte> head,
                         bool decompress) {
  for (const KnownFormat& format : known_formats)
    if (format.tail.empty() && begins_like(format, text_of(head), decompress)) refuse(path, format);
}

}  // namespace corank
