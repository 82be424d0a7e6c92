#include "codec/decompressor.hpp"

#include <bzlib.h>
#include <fmt/format.h>
#include <isa-l/igzip_lib.h>
#include <lz4.h>
#include <lz4frame.h>
#include <lzma.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "codec/codec.hpp"
#include "corank/error.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

// Thrown for damaged data.
struct CodecError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Thrown for data whose decoder needs more memory than allowed.
struct CodecNeedsMemory : CodecError {
  using CodecError::CodecError;
};

std::uint64_t byte_at(std::span<const std::byte> bytes, std::size_t index) {
  return index < bytes.size() ? std::to_integer<std::uint64_t>(bytes[index]) : 0;
}

std::uint32_t little_endian_32(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(byte_at(bytes, 0) | byte_at(bytes, 1) << 8 |
                                    byte_at(bytes, 2) << 16 | byte_at(bytes, 3) << 24);
}

// Advances a stream of ISA-L, bzip2 or liblzma, whose members have the same names, by `step`.
template <class Stream, class Step>
auto advance(Stream& stream, std::span<const std::byte>& in, std::span<std::byte>& out, Step step) {
  const auto limited = [](std::size_t bytes) {  // ISA-L and bzip2 count in 32 bits
    return static_cast<unsigned>(std::min<std::size_t>(bytes, std::numeric_limits<int>::max()));
  };
  const unsigned in_bytes = limited(in.size()), out_bytes = limited(out.size());
  // The libraries only read the input, but do not all declare it const.
  stream.next_in = reinterpret_cast<decltype(stream.next_in)>(const_cast<std::byte*>(in.data()));
  stream.avail_in = in_bytes;
  stream.next_out = reinterpret_cast<decltype(stream.next_out)>(out.data());
  stream.avail_out = out_bytes;
  const auto result = step();
  in = in.subspan(in_bytes - stream.avail_in);
  out = out.subspan(out_bytes - stream.avail_out);
  return result;
}

// Returns a stream that `end` frees.
template <class Stream, class End>
std::shared_ptr<Stream> make_stream(const Stream& start, End end) {
  return {new Stream(start), [end](Stream* stream) {
            end(stream);
            delete stream;
          }};
}

const char* meaning_of_gzip(int result) {
  if (result == ISAL_INVALID_WRAPPER || result == ISAL_UNSUPPORTED_METHOD)
    return "a header is malformed";
  return result == ISAL_INCORRECT_CHECKSUM ? "checksum mismatch" : "a block is malformed";
}

FrameDecoder gzip_decoder(std::uint64_t) {
  const auto begin = [](inflate_state& stream) {
    ::isal_inflate_init(&stream);
    stream.crc_flag = ISAL_GZIP;  // reads headers, and verifies checksums
  };
  const auto stream = std::make_shared<inflate_state>();
  begin(*stream);
  return [stream, begin](auto& in, auto& out) {
    const int result = advance(*stream, in, out, [&] { return ::isal_inflate(stream.get()); });
    if (result < ISAL_DECOMP_OK) throw CodecError(meaning_of_gzip(result));
    const bool is_end = stream->block_state == ISAL_BLOCK_FINISH;
    if (is_end) begin(*stream);
    return is_end;
  };
}

FrameDecoder zstd_decoder(std::uint64_t max_bytes) {
  const std::shared_ptr<ZSTD_DStream> stream(::ZSTD_createDStream(), ::ZSTD_freeDStream);
  if (!stream) throw std::bad_alloc();
  // The library accepts up to 31; its default is 27.
  const int max_window_log = std::clamp(static_cast<int>(std::bit_width(max_bytes)) - 1, 27, 31);
  ::ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax, max_window_log);
  return [stream](auto& in, auto& out) {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer into{out.data(), out.size(), 0};
    const std::size_t result = ::ZSTD_decompressStream(stream.get(), &into, &from);
    if (::ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
      throw CodecNeedsMemory(::ZSTD_getErrorName(result));
    if (::ZSTD_isError(result)) throw CodecError(::ZSTD_getErrorName(result));
    in = in.subspan(from.pos);
    out = out.subspan(into.pos);
    return result == 0;
  };
}

FrameDecoder bzip2_decoder(std::uint64_t) {
  const auto begin = [](bz_stream& stream) {
    ::BZ2_bzDecompressEnd(&stream);
    stream = {};
    if (::BZ2_bzDecompressInit(&stream, 0, 0) != BZ_OK) throw std::bad_alloc();
  };
  const auto stream = make_stream(bz_stream{}, ::BZ2_bzDecompressEnd);
  begin(*stream);
  return [stream, begin](auto& in, auto& out) {
    const int result = advance(*stream, in, out, [&] { return ::BZ2_bzDecompress(&*stream); });
    if (result == BZ_MEM_ERROR) throw std::bad_alloc();
    if (result == BZ_DATA_ERROR_MAGIC) throw CodecError("no bzip2 data begins here");
    if (result != BZ_OK && result != BZ_STREAM_END) throw CodecError("its checksum is wrong");
    if (result == BZ_STREAM_END) begin(*stream);
    return result == BZ_STREAM_END;
  };
}

const char* meaning_of(lzma_ret result) {
  if (result == LZMA_FORMAT_ERROR) return "no xz data begins here";
  if (result == LZMA_OPTIONS_ERROR) return "it was made with options that liblzma does not know";
  return "malformed block or checksum mismatch";
}

std::shared_ptr<lzma_stream> begin_xz(std::uint64_t max_bytes) {
  const auto stream = make_stream<lzma_stream>(LZMA_STREAM_INIT, ::lzma_end);
  if (::lzma_stream_decoder(stream.get(), max_bytes, 0) != LZMA_OK) throw std::bad_alloc();
  return stream;
}

FrameDecoder xz_decoder(std::uint64_t max_bytes) {
  return [stream = begin_xz(max_bytes), max_bytes](auto& in, auto& out) {
    const lzma_ret result =
        advance(*stream, in, out, [&] { return ::lzma_code(&*stream, LZMA_RUN); });
    if (result == LZMA_MEM_ERROR) throw std::bad_alloc();
    if (result == LZMA_MEMLIMIT_ERROR) throw CodecNeedsMemory("the dictionary is too large");
    if (result != LZMA_OK && result != LZMA_STREAM_END && result != LZMA_BUF_ERROR)
      throw CodecError(meaning_of(result));
    if (result == LZMA_STREAM_END && ::lzma_stream_decoder(stream.get(), max_bytes, 0) != LZMA_OK)
      throw std::bad_alloc();
    return result == LZMA_STREAM_END;
  };
}

constexpr std::uint32_t lz4_legacy_magic = 0x184C2102;
constexpr std::uint32_t lz4_frame_magic = 0x184D2204;
constexpr std::uint32_t skippable_magic = 0x184D2A50;  // the low 4 bits may vary; shared with zstd

bool is_lz4_magic(std::uint32_t word) {
  return word == lz4_legacy_magic || word == lz4_frame_magic || (word & ~15u) == skippable_magic;
}

// Returns whether a magic number of lz4 may begin with this byte.
bool may_begin_lz4(std::byte first) {
  const auto byte = std::to_integer<std::uint32_t>(first);
  const std::array magics{lz4_legacy_magic, lz4_frame_magic, skippable_magic | (byte & 15)};
  return std::ranges::any_of(magics, [&](std::uint32_t magic) { return (magic & 255) == byte; });
}

// Decodes frames and skippable frames.
FrameDecoder lz4_frame_decoder() {
  LZ4F_dctx* made = nullptr;
  if (::LZ4F_isError(::LZ4F_createDecompressionContext(&made, LZ4F_VERSION)))
    throw std::bad_alloc();
  const std::shared_ptr<LZ4F_dctx> context(made, ::LZ4F_freeDecompressionContext);
  return [context](auto& in, auto& out) {
    std::size_t consumed = in.size();
    std::size_t produced = out.size();
    const std::size_t result =
        ::LZ4F_decompress(context.get(), out.data(), &produced, in.data(), &consumed, nullptr);
    if (::LZ4F_isError(result)) throw CodecError(::LZ4F_getErrorName(result));
    in = in.subspan(consumed);
    out = out.subspan(produced);
    return result == 0;
  };
}

constexpr std::size_t lz4_legacy_block_bytes = 8 * MiB;

// Decodes one block of a legacy frame, as `lz4 -l` writes it: a magic number, then blocks of up to
// lz4_legacy_block_bytes, each after its compressed size. The end of the frame is not marked, so
// each block is reported as a frame.
FrameDecoder lz4_block_decoder(std::uint32_t compressed_bytes) {
  if (compressed_bytes == 0 || compressed_bytes > LZ4_COMPRESSBOUND(lz4_legacy_block_bytes))
    throw CodecError("the size of a block is wrong");
  return [compressed_bytes, compressed = std::vector<std::byte>(),
          decoded = std::vector<std::byte>(),
          emitted = std::size_t{0}](auto& in, auto& out) mutable {
    const auto taken = in.first(std::min(in.size(), compressed_bytes - compressed.size()));
    compressed.insert(compressed.end(), taken.begin(), taken.end());
    in = in.subspan(taken.size());
    if (compressed.size() < compressed_bytes) return false;
    if (decoded.empty()) {
      decoded.resize(lz4_legacy_block_bytes);
      const int bytes = ::LZ4_decompress_safe(
          reinterpret_cast<const char*>(compressed.data()), reinterpret_cast<char*>(decoded.data()),
          static_cast<int>(compressed.size()), static_cast<int>(decoded.size()));
      if (bytes <= 0) throw CodecError("a block is malformed");
      decoded.resize(static_cast<std::size_t>(bytes));
    }
    const auto produced =
        std::span(decoded).subspan(emitted).first(std::min(out.size(), decoded.size() - emitted));
    std::ranges::copy(produced, out.begin());
    out = out.subspan(produced.size());
    emitted += produced.size();
    return emitted == decoded.size();
  };
}

// Decodes a sequence of frames, skippable frames and legacy frames, which it distinguishes by their
// magic numbers.
class Lz4Decoder {
 public:
  bool operator()(std::span<const std::byte>& in, std::span<std::byte>& out) {
    if (!current_) {
      const auto taken = in.first(std::min(in.size(), word_.size() - word_bytes_));
      std::ranges::copy(taken, word_.begin() + static_cast<std::ptrdiff_t>(word_bytes_));
      in = in.subspan(taken.size());
      word_bytes_ += taken.size();
      if (!in_legacy_frame_ && word_bytes_ != 0 && !may_begin_lz4(word_.front()))
        throw CodecError("no lz4 data begins here");
      if (word_bytes_ < word_.size()) return false;
      word_bytes_ = 0;
      begin_frame(out.first(0));
      if (!current_) return true;
    }
    const bool ended = current_(in, out);
    if (ended) current_ = nullptr;
    return ended;
  }

 private:
  void begin_frame(std::span<std::byte> no_room) {
    const std::uint32_t word = little_endian_32(word_);
    if (word == lz4_legacy_magic) {
      in_legacy_frame_ = true;
    } else if (in_legacy_frame_ && !is_lz4_magic(word)) {
      current_ = lz4_block_decoder(word);
    } else {
      in_legacy_frame_ = false;
      current_ = frame_;
      std::span<const std::byte> magic(word_);
      current_(magic, no_room);
    }
  }

  FrameDecoder frame_ = lz4_frame_decoder();
  FrameDecoder current_;  // decodes the frame or block; null between them
  bool in_legacy_frame_ = false;
  std::array<std::byte, 4> word_{};  // first bytes of the next frame or block
  std::size_t word_bytes_ = 0;
};

// Functions that make a decoder, in the order of Codec. A decoder uses at most `max_bytes` of
// memory.
constexpr std::array<FrameDecoder (*)(std::uint64_t max_bytes), 6> decoders{
    [](std::uint64_t) { return FrameDecoder(); },
    gzip_decoder,
    zstd_decoder,
    bzip2_decoder,
    xz_decoder,
    [](std::uint64_t) { return FrameDecoder(Lz4Decoder()); },
};

// Returns the bytes after the skippable frames at the start of `head`; empty if they extend beyond
// it.
std::span<const std::byte> skip_skippable_frames(std::span<const std::byte> head) {
  while (head.size() >= 8 && (little_endian_32(head) & ~15u) == skippable_magic)
    head = head.subspan(
        std::min<std::uint64_t>(std::uint64_t{8} + little_endian_32(head.subspan(4)), head.size()));
  return head;
}

// Returns the window that a decoder of the frame must hold (RFC 8878, section 3.1.1.1).
std::uint64_t zstd_window_bytes(std::span<const std::byte> head) {
  const bool single_segment = (byte_at(head, 4) & 0x20) != 0;
  if (single_segment) {
    const auto content = ::ZSTD_getFrameContentSize(head.data(), head.size());
    return content == ZSTD_CONTENTSIZE_ERROR ? 0 : content;
  }
  const std::uint64_t base = std::uint64_t{1} << (10 + (byte_at(head, 5) >> 3));
  return base + base / 8 * (byte_at(head, 5) & 7);
}

// Returns the memory of a decoder for the dictionary size that `head` tells.
std::uint64_t xz_decoder_bytes(std::span<const std::byte> head, std::uint64_t max_bytes) {
  const auto stream = begin_xz(max_bytes);
  std::byte some;
  std::span<std::byte> out(&some, 1);
  // Reading the file will report damage.
  advance(*stream, head, out, [&] { return ::lzma_code(stream.get(), LZMA_RUN); });
  return ::lzma_memusage(stream.get());
}

}  // namespace

Codec recognise(std::span<const std::byte> head, Codec named) {
  const auto holds = [&](std::size_t at, std::string_view magic) {
    return head.size() >= at + magic.size() &&
           std::memcmp(head.data() + at, magic.data(), magic.size()) == 0;
  };
  using namespace std::string_view_literals;
  // Short magic numbers are checked together with the bytes that must follow them.
  if (holds(0, magic_of(Codec::gzip)) && byte_at(head, 3) < 0x20) return Codec::gzip;
  if (holds(0, magic_of(Codec::zstd))) return Codec::zstd;
  // Files by pzstd begin with a skippable frame.
  if ((little_endian_32(head) & ~15u) == skippable_magic) {
    const auto next = skip_skippable_frames(head);
    const bool is_known = next.size() >= 4 && next.size() < head.size();
    const bool is_lz4 = is_known ? is_lz4_magic(little_endian_32(next)) : named == Codec::lz4;
    return is_lz4 ? Codec::lz4 : Codec::zstd;
  }
  if (holds(0, magic_of(Codec::bzip2)) && byte_at(head, 3) >= '1' && byte_at(head, 3) <= '9' &&
      (holds(4, "\x31\x41\x59\x26\x53\x59"sv) || holds(4, "\x17\x72\x45\x38\x50\x90"sv)))
    return Codec::bzip2;
  if (holds(0, magic_of(Codec::xz))) return Codec::xz;
  if (holds(0, magic_of(Codec::lz4)) || holds(0, "\x02\x21\x4c\x18"sv)) return Codec::lz4;
  return Codec::none;
}

std::optional<std::size_t> find_frame(Codec codec, std::span<const std::byte> bytes,
                                      std::size_t from) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view magic = magic_of(codec);
  for (std::size_t at = text.find(magic, from); at != text.npos; at = text.find(magic, at + 1))
    if (recognise(bytes.subspan(at)) == codec) return at;
  return std::nullopt;
}

bool is_bgzf(std::span<const std::byte> head) {
  constexpr std::size_t subfield_at = 10;  // the size of the extra field, which starts with `BC`
  return head.size() >= bgzf_head_bytes && (byte_at(head, 3) & 4) != 0 &&
         std::memcmp(head.data() + subfield_at, bgzf_end.data() + subfield_at, 6) == 0;
}

std::uint64_t decoder_bytes(Codec codec, std::span<const std::byte> head, std::uint64_t max_bytes) {
  max_bytes = std::max(max_bytes, default_max_decoder_bytes);
  switch (codec) {
    case Codec::gzip:
      return MiB / 8;
    case Codec::zstd:
      return std::min(zstd_window_bytes(skip_skippable_frames(head)), max_bytes) + MiB / 2;
    case Codec::bzip2:
      return 4 * MiB;
    case Codec::xz:
      return xz_decoder_bytes(head, max_bytes);
    case Codec::lz4:  // two blocks, of 8 MiB in legacy frames, else 64 KiB, 256 KiB, 1 MiB or 4 MiB
      if (little_endian_32(head) == lz4_legacy_magic) return 2 * lz4_legacy_block_bytes + MiB;
      return (MiB / 8 << 2 * (std::clamp<std::uint64_t>(byte_at(head, 5) >> 4 & 7, 4, 7) - 4)) +
             MiB / 8;
    case Codec::none:
      break;
  }
  return 0;
}

StrictDecoding::StrictDecoding(std::string name, Codec codec, std::uint64_t max_bytes)
    : name_(std::move(name)),
      codec_(codec),
      max_bytes_(max_bytes),
      decoder_(decoders[static_cast<std::size_t>(codec)](
          std::max(max_bytes, default_max_decoder_bytes))) {}

bool StrictDecoding::filter(const char*& in, const char* in_end, char*& out, char* out_end,
                            bool at_end) {
  std::span left = std::as_bytes(std::span(in, in_end));
  std::span room = std::as_writable_bytes(std::span(out, out_end));
  do {
    if (!in_frame_) left = skip_padding(left);
    if (!in_frame_ && left.empty()) break;
    decode(left, room, at_end);
  } while (!room.empty() && (!left.empty() || at_end));
  in = in_end - left.size();
  out = out_end - room.size();
  return in_frame_ || !at_end;
}

void StrictDecoding::skip(std::uint64_t compressed_bytes, std::uint64_t decoded_bytes) {
  assert(!in_frame_);
  consumed_bytes_ += compressed_bytes;
  produced_bytes_ += decoded_bytes;
}

void StrictDecoding::decode(std::span<const std::byte>& in, std::span<std::byte>& out,
                            bool at_end) {
  const std::size_t in_bytes = in.size(), out_bytes = out.size();
  try {
    in_frame_ = !decoder_(in, out);
  } catch (const CodecNeedsMemory&) {
    throw_error(ErrorCode::memory,
                "{}: its {} data need more memory to be decompressed than the budget, {} bytes; "
                "use a larger {}, or decompress it with the {} program first",
                name_, name_of(codec_), max_bytes_, Setting::memory, name_of(codec_));
  } catch (const CodecError& error) {
    fail(fmt::format("is damaged ({})", error.what()));
  }
  consumed_bytes_ += in_bytes - in.size();
  produced_bytes_ += out_bytes - out.size();
  if (at_end && in_frame_ && out.size() == out_bytes) fail("ends too early,");
}

// Skips zeros after a frame, left by tapes and block copies. gzip and xz accept them, too. Reports
// other bytes that do not begin a frame: their decoders take some for a frame that was cut.
std::span<const std::byte> StrictDecoding::skip_padding(std::span<const std::byte> in) {
  if (codec_ != Codec::gzip && codec_ != Codec::xz) return in;
  const auto data = std::ranges::find_if(in, [](std::byte byte) { return byte != std::byte{}; });
  const auto zeros = static_cast<std::size_t>(data - in.begin());
  consumed_bytes_ += zeros;
  if (consumed_bytes_ != 0 && data != in.end() &&
      std::to_integer<char>(*data) != magic_of(codec_).front())
    fail("is followed by other bytes,");
  return in.subspan(zeros);
}

void StrictDecoding::fail(const std::string& what) const {
  throw_error(
      "{}: its {} data {} at byte {}, after {} decompressed byte{}; {}", name_, name_of(codec_),
      what, consumed_bytes_, produced_bytes_, produced_bytes_ == 1 ? "" : "s",
      produced_bytes_ != 0
          ? "get it anew"
          : "get it anew or, if it is not compressed, use " + to_marker(Setting::no_decompression));
}

}  // namespace corank
