#include "io/known_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <string_view>

#include "corank/error.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

using namespace std::string_view_literals;

// Further signs of a format, for a magic number that plain records could begin with.
struct Signs {
  std::string_view follows = {};  // after the magic number, in the first known_format_head_bytes
  std::size_t follows_at = 0;     // 0: anywhere
  bool (*confirms)(std::string_view head) = nullptr;
  std::string_view tail = {};  // `tail_gap` bytes before the end of the file
  std::size_t tail_gap = 0;
};

// How to recognise a file format, and the remedy for its users.
struct KnownFormat {
  std::string_view magic;  // first bytes of a file
  std::string_view name;
  std::string_view remedy;  // empty: skip its header
  bool is_compressed = false;
  Signs signs = {};
};

constexpr std::string_view as_columns = "export its rows as CSV or as fixed-size records first";
constexpr std::string_view as_text = "convert it to text with the samtools or bcftools program";
constexpr std::string_view unpack_archive = "unpack it first";
constexpr std::string_view unpack = "decompress it with its own program first";

// Returns whether ORC's first stream, which is the index of the first column, or the footer of a
// table without rows follows the magic number: as it is, or in a chunk with a header of three
// bytes, twice its length and a bit. Chunks are so small that the third is a control character or
// NUL, which text does not hold there, and padding does not follow it.
bool begins_orc_stream(std::string_view head) {
  const std::string_view rest = head.substr(3);
  if (rest.starts_with("\x08\x03\x10\0"sv)) return true;
  if (rest.size() < 4) return false;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(rest[i]); };
  const unsigned chunk_header = byte(0) | byte(1) << 8 | byte(2) << 16;
  const bool is_index = byte(0) == '\n' && byte(2) == 0x12;
  const bool is_chunk = chunk_header > 1 && byte(2) <= 8 && byte(3) != 0;
  return is_index || is_chunk;
}

constexpr std::array<KnownFormat, 24> known_formats{{
    {"\x93NUMPY"sv, "a NumPy array", {}},
    {"PAR1"sv, "a Parquet file", as_columns, false, {.tail = "PAR1"sv}},
    {"PAR1\x15"sv, "a Parquet file", as_columns},
    {"ARROW1\0\0"sv, "an Arrow IPC file", as_columns},
    // The size of a message below 64 KiB, then the start of its table, as Arrow's libraries write
    // it.
    {"\xff\xff\xff\xff"sv,
     "an Arrow IPC stream",
     as_columns,
     false,
     {.follows = "\0\0\x10\0\0\0\0\0\x0a\0"sv, .follows_at = 6}},
    {"FEA1"sv, "a Feather file", as_columns, false, {.tail = "FEA1"sv}},
    // The last field of its postscript, whose length follows.
    {"ORC"sv, "an ORC file", as_columns, false, {.tail = "\x82\xf4\x03\x03ORC"sv, .tail_gap = 1}},
    {"ORC"sv, "an ORC file", as_columns, false, {.confirms = begins_orc_stream}},
    {"Obj\x01"sv, "an Avro file", as_columns, false, {.follows = "avro."sv}},
    {"SQLite format 3\0"sv, "an SQLite database", "export its tables as CSV first"},
    {"\x89HDF\r\n\x1a\n"sv, "an HDF5 file", as_columns},
    {"BAM\1"sv, "a BAM file", as_text},
    {"BCF\2"sv, "a BCF file", as_text},
    {"CRAM\2"sv, "a CRAM file", as_text},
    {"CRAM\3"sv, "a CRAM file", as_text},
    {"PK\3\4"sv, "a ZIP archive, as .npz and .xlsx files are", unpack_archive, true},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive", unpack_archive, true},
    {{}, "a tar archive", unpack_archive, false, {.follows = "ustar\0"sv, .follows_at = 257}},
    {{}, "a tar archive", unpack_archive, false, {.follows = "ustar  "sv, .follows_at = 257}},
    {"LZIP\1"sv, "an lzip file", unpack, true},
    {"\x89LZO\0\r\n\x1a\n"sv, "an lzop file", unpack, true},
    {"\xff\x06\0\0sNaPpY"sv, "a Snappy file", unpack, true},
    {"\x1f\x9d\x90"sv, "a file of the compress program", "decompress it with gzip -d first", true},
    {"]\0\0"sv,
     "an .lzma file",
     "decompress it with xz -d first",
     true,
     {.follows = "\xff\xff\xff\xff\xff\xff\xff\xff\0"sv, .follows_at = 5}},
}};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool begins_like(const KnownFormat& format, std::string_view head, bool decompress) {
  if (!head.starts_with(format.magic) || (format.is_compressed && !decompress)) return false;
  const Signs& signs = format.signs;
  if (signs.confirms) return signs.confirms(head);
  if (signs.follows_at != 0)
    return head.size() > signs.follows_at &&
           head.substr(signs.follows_at).starts_with(signs.follows);
  return head.substr(format.magic.size()).find(signs.follows) != std::string_view::npos;
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
                  ? fmt::format(", or say {} if it is not compressed", Setting::no_decompression)
                  : fmt::format(", or say {} if it holds fixed-size records from its first byte on",
                                setting_is(Setting::skip_bytes, "0")));
}

}  // namespace

void refuse_known_format(const std::filesystem::path& path, const FileDescriptor& file,
                         std::uint64_t file_bytes, bool decompress) {
  std::array<std::byte, known_format_head_bytes> room;
  const std::span<std::byte> head(room.data(), std::min<std::uint64_t>(room.size(), file_bytes));
  read_whole(file, head, 0, path);
  std::array<std::byte, known_format_tail_bytes> end;
  const std::span<std::byte> tail(end.data(), std::min<std::uint64_t>(end.size(), file_bytes));
  read_whole(file, tail, file_bytes - tail.size(), path);
  refuse_known_format(path, head, decompress);
  refuse_known_ends(path, head, tail, file_bytes, decompress);
}

void refuse_known_format(const std::filesystem::path& path, std::span<const std::byte> head,
                         bool decompress) {
  for (const KnownFormat& format : known_formats)
    if (format.signs.tail.empty() && begins_like(format, text_of(head), decompress))
      refuse(path, format);
}

void refuse_known_ends(const std::filesystem::path& path, std::span<const std::byte> head,
                       std::span<const std::byte> tail, std::uint64_t bytes, bool decompress) {
  for (const KnownFormat& format : known_formats) {
    const std::uint64_t end_bytes = format.signs.tail.size() + format.signs.tail_gap;
    if (format.signs.tail.empty() || bytes < format.magic.size() + end_bytes) continue;
    assert(end_bytes <= tail.size());
    if (begins_like(format, text_of(head), decompress) &&
        text_of(tail.last(end_bytes)).starts_with(format.signs.tail))
      refuse(path, format);
  }
}

void refuse_wide_text(const std::filesystem::path& path, std::span<const std::byte> head) {
  const std::string_view text = text_of(head.first(std::min(head.size(), known_format_head_bytes)));
  const bool is_little = text.starts_with("\xff\xfe"), is_big = text.starts_with("\xfe\xff");
  if (!is_little && !is_big) return;
  // Text in one byte a character may begin with these two, but hardly holds NUL.
  for (std::size_t at = 2; at + 1 < text.size(); at += 2)
    if (const char high = text[at + is_little], low = text[at + is_big]; high == '\0' && low > '\0')
      throw_error(
          "{}: is encoded as UTF-16 or UTF-32; convert it to UTF-8 first, as iconv -f UTF-16 -t "
          "UTF-8 does",
          path == "-" ? "standard input" : path.string());
}

}  // namespace corank
