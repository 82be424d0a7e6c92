#include "codec/codec.hpp"

#include <bzlib.h>
#include <libdeflate.h>
#include <lz4frame.h>
#include <lzma.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <new>

#include "corank/error.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

// Casts input for the libraries, which only read it but do not declare it const.
template <class Byte>
Byte* input_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<Byte*>(const_cast<std::byte*>(bytes.data()));
}

using Bytes = std::span<const std::byte>;
using Room = std::span<std::byte>;

Encoder gzip_encoder(int level) {
  const std::shared_ptr<libdeflate_compressor> compressor(
      ::libdeflate_alloc_compressor(level == 0 ? 6 : level), ::libdeflate_free_compressor);
  if (!compressor) throw std::bad_alloc();
  return {
      [=](std::size_t bytes) { return ::libdeflate_gzip_compress_bound(compressor.get(), bytes); },
      [=](Bytes in, Room into) {
        const std::size_t length = ::libdeflate_gzip_compress(compressor.get(), in.data(),
                                                              in.size(), into.data(), into.size());
        if (length == 0) throw Error(ErrorCode::system, "libdeflate failed");
        return length;
      }};
}

Encoder zstd_encoder(int level) {
  const std::shared_ptr<ZSTD_CCtx> context(::ZSTD_createCCtx(), ::ZSTD_freeCCtx);
  if (!context) throw std::bad_alloc();
  ::ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level);
  ::ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  return {::ZSTD_compressBound, [=](Bytes in, Room into) {
            const std::size_t result =
                ::ZSTD_compress2(context.get(), into.data(), into.size(), in.data(), in.size());
            if (::ZSTD_isError(result))
              throw_error(ErrorCode::system, "zstd failed: {}", ::ZSTD_getErrorName(result));
            return result;
          }};
}

Encoder bzip2_encoder(int level) {
  // Bound given by the manual of bzip2.
  return {[](std::size_t bytes) { return bytes + bytes / 100 + 601; },
          [level = level == 0 ? 9 : level](Bytes in, Room into) -> std::size_t {
            char nothing = 0;  // bzip2 rejects null even for an empty input
            auto length = static_cast<unsigned>(into.size());
            const int result =
                ::BZ2_bzBuffToBuffCompress(reinterpret_cast<char*>(into.data()), &length,
                                           in.empty() ? &nothing : input_of<char>(in),
                                           static_cast<unsigned>(in.size()), level, 0, 0);
            if (result == BZ_MEM_ERROR) throw std::bad_alloc();
            if (result != BZ_OK) throw Error(ErrorCode::system, "bzip2 failed");
            return length;
          }};
}

// Returns the options of a level, with a dictionary no larger than a frame can use.
lzma_options_lzma xz_options(int level) {
  lzma_options_lzma options;
  ::lzma_lzma_preset(&options,
                     level == 0 ? LZMA_PRESET_DEFAULT : static_cast<std::uint32_t>(level));
  options.dict_size = std::min<std::uint32_t>(options.dict_size, frame_bytes);
  return options;
}

// The filters point to the options.
std::array<lzma_filter, 2> xz_filters(lzma_options_lzma& options) {
  return {{{LZMA_FILTER_LZMA2, &options}, {LZMA_VLI_UNKNOWN, nullptr}}};
}

Encoder xz_encoder(int level) {
  return {::lzma_stream_buffer_bound, [options = xz_options(level)](Bytes in, Room into) mutable {
            auto filters = xz_filters(options);
            std::size_t length = 0;
            const lzma_ret result = ::lzma_stream_buffer_encode(
                filters.data(), LZMA_CHECK_CRC64, nullptr, input_of<const std::uint8_t>(in),
                in.size(), reinterpret_cast<std::uint8_t*>(into.data()), &length, into.size());
            if (result == LZMA_MEM_ERROR) throw std::bad_alloc();
            if (result != LZMA_OK) throw Error(ErrorCode::system, "xz failed");
            return length;
          }};
}

Encoder lz4_encoder(int level) {
  LZ4F_preferences_t preferences = LZ4F_INIT_PREFERENCES;
  preferences.compressionLevel = level;
  preferences.frameInfo.blockSizeID = LZ4F_max4MB;
  preferences.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
  return {[=](std::size_t bytes) { return ::LZ4F_compressFrameBound(bytes, &preferences); },
          [=](Bytes in, Room into) {
            const std::size_t result =
                ::LZ4F_compressFrame(into.data(), into.size(), in.data(), in.size(), &preferences);
            if (::LZ4F_isError(result))
              throw_error(ErrorCode::system, "lz4 failed: {}", ::LZ4F_getErrorName(result));
            return result;
          }};
}

struct CodecFacts {
  Codec codec;
  std::string_view name;
  std::string_view suffix;
  std::string_view magic;
  int min_level;
  int max_level;
  Encoder (*make_encoder)(int level);
};

constexpr std::array<CodecFacts, 6> facts{{
    {Codec::none, "none", "", "", 0, 0, nullptr},
    {Codec::gzip, "gzip", ".gz", "\x1f\x8b\x08", 1, 9, gzip_encoder},
    {Codec::zstd, "zstd", ".zst", "\x28\xb5\x2f\xfd", -50, 22, zstd_encoder},
    {Codec::bzip2, "bzip2", ".bz2", "BZh", 1, 9, bzip2_encoder},
    {Codec::xz, "xz", ".xz", {"\xfd\x37zXZ\0", 6}, 1, 9, xz_encoder},
    {Codec::lz4, "lz4", ".lz4", "\x04\x22\x4d\x18", 1, 12, lz4_encoder},
}};

const CodecFacts& facts_of(Codec codec) {
  return facts[static_cast<std::size_t>(codec)];
}

bool has_level(const CodecFacts& codec, int level) {
  return level >= codec.min_level && level <= codec.max_level;
}

[[noreturn]] void throw_no_level(const CodecFacts& codec, std::string_view level) {
  throw_error(ErrorCode::options, "{}:{}: {} has levels {} to {}", codec.name, level, codec.name,
              codec.min_level, codec.max_level);
}

}  // namespace

Compression Compression::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto found = std::ranges::find(facts, name, &CodecFacts::name);
  if (found == facts.end())
    throw_error(ErrorCode::options, "{}: no such codec; say none, gzip, zstd, bzip2, xz or lz4",
                name);
  Compression compression{found->codec, 0};
  if (colon == std::string_view::npos) return compression;
  const std::string_view level = text.substr(colon + 1);
  const auto [end, error] =
      std::from_chars(level.data(), level.data() + level.size(), compression.level);
  if (error != std::errc() || end != level.data() + level.size() ||
      !has_level(*found, compression.level))
    throw_no_level(*found, level);
  return compression;
}

Codec Compression::by_name(std::string_view name) {
  const auto found = std::ranges::find_if(facts, [&](const CodecFacts& codec) {
    return !codec.suffix.empty() && name.ends_with(codec.suffix);
  });
  return found == facts.end() ? Codec::none : found->codec;
}

std::string_view name_of(Codec codec) {
  return facts_of(codec).name;
}

std::string_view suffix_of(Codec codec) {
  return facts_of(codec).suffix;
}

std::vector<std::string_view> all_suffixes() {
  std::vector<std::string_view> suffixes;
  for (const CodecFacts& codec : facts) suffixes.push_back(codec.suffix);
  return suffixes;
}

std::string_view magic_of(Codec codec) {
  return facts_of(codec).magic;
}

void check_level(const Compression& compression) {
  const CodecFacts& facts = facts_of(compression.codec);
  if (compression.level != 0 && !has_level(facts, compression.level))
    throw_no_level(facts, std::to_string(compression.level));
}

Encoder make_encoder(const Compression& compression) {
  check_level(compression);
  const CodecFacts& facts = facts_of(compression.codec);
  return facts.make_encoder ? facts.make_encoder(compression.level) : Encoder();
}

std::uint64_t encoder_bytes(const Compression& compression) {
  switch (compression.codec) {
    case Codec::gzip:
    case Codec::lz4:
      return MiB;
    case Codec::zstd:  // measured
      return (compression.level <= 8 ? 8 : 20) * MiB;
    case Codec::bzip2:
      return 8 * MiB;
    case Codec::xz: {
      lzma_options_lzma options = xz_options(compression.level);
      return ::lzma_raw_encoder_memusage(xz_filters(options).data());
    }
    case Codec::none:
      break;
  }
  return 0;
}

}  // namespace corank
