#include "io/codec.hpp"

#include <bzlib.h>
#include <fmt/format.h>
#include <lz4.h>
#include <lz4frame.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "corank/error.hpp"

namespace corank {
namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

struct CodecFacts {
  Codec codec;
  std::string_view name;
  std::string_view suffix;
  int min_level;
  int max_level;
};

constexpr std::array<CodecFacts, 6> facts{{
    {Codec::none, "none", "", 0, 0},
    {Codec::gzip, "gzip", ".gz", 1, 9},
    {Codec::zstd, "zstd", ".zst", -50, 22},
    {Codec::bzip2, "bzip2", ".bz2", 1, 9},
    {Codec::xz, "xz", ".xz", 1, 9},
    {Codec::lz4, "lz4", ".lz4", 1, 12},
}};

const CodecFacts& facts_of(Codec codec) {
  return facts[static_cast<std::size_t>(codec)];
}

// Limits a size to what the libraries can count in 32 bits.
unsigned count_of(std::size_t bytes) {
  return static_cast<unsigned>(
      std::min<std::size_t>(bytes, std::numeric_limits<unsigned>::max() / 2));
}

std::uint64_t byte_at(std::span<const std::byte> bytes, std::size_t index) {
  return index < bytes.size() ? std::to_integer<std::uint64_t>(bytes[index]) : 0;
}

// --- Decoders ---

// Casts input for the libraries, which only read it but do not declare it const.
template <class Byte>
Byte* input_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<Byte*>(const_cast<std::byte*>(bytes.data()));
}

class GzipDecoder : public Decoder {
 public:
  GzipDecoder() {
    if (::inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~GzipDecoder() override { ::inflateEnd(&stream_); }
  GzipDecoder(const GzipDecoder&) = delete;
  GzipDecoder& operator=(const GzipDecoder&) = delete;

  Step decode(std::span<const std::byte> in, std::span<std::byte> out) override {
    stream_.next_in = input_of<Bytef>(in);
    stream_.avail_in = count_of(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = count_of(out.size());
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      throw CodecError(stream_.msg ? stream_.msg : "a preset dictionary is wanted");
    if (result == Z_STREAM_END) ::inflateReset(&stream_);
    return {static_cast<std::size_t>(reinterpret_cast<std::byte*>(stream_.next_in) -
                                     input_of<std::byte>(in)),
            static_cast<std::size_t>(reinterpret_cast<std::byte*>(stream_.next_out) - out.data()),
            result == Z_STREAM_END};
  }

 private:
  z_stream stream_{};
};

class ZstdDecoder : public Decoder {
 public:
  explicit ZstdDecoder(std::uint64_t max_bytes) : stream_(::ZSTD_createDStream()) {
    if (!stream_) throw std::bad_alloc();
    // The library accepts up to 31; its default is 27.
    const int max_window_log = std::clamp(static_cast<int>(std::bit_width(max_bytes)) - 1, 27, 31);
    ::ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, max_window_log);
  }

  Step decode(std::span<const std::byte> in, std::span<std::byte> out) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer into{out.data(), out.size(), 0};
    const std::size_t result = ::ZSTD_decompressStream(stream_.get(), &into, &from);
    if (::ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
      throw CodecNeedsMemory(::ZSTD_getErrorName(result));
    if (::ZSTD_isError(result)) throw CodecError(::ZSTD_getErrorName(result));
    return {from.pos, into.pos, result == 0};
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ::ZSTD_freeDStream(stream); }
  };
  std::unique_ptr<ZSTD_DStream, Free> stream_;
};

class Bzip2Decoder : public Decoder {
 public:
  Bzip2Decoder() { begin(); }
  ~Bzip2Decoder() override { ::BZ2_bzDecompressEnd(&stream_); }
  Bzip2Decoder(const Bzip2Decoder&) = delete;
  Bzip2Decoder& operator=(const Bzip2Decoder&) = delete;

  Step decode(std::span<const std::byte> in, std::span<std::byte> out) override {
    if (ended_) {
      ::BZ2_bzDecompressEnd(&stream_);
      begin();
    }
    stream_.next_in = input_of<char>(in);
    stream_.avail_in = count_of(in.size());
    stream_.next_out = reinterpret_cast<char*>(out.data());
    stream_.avail_out = count_of(out.size());
    const int result = ::BZ2_bzDecompress(&stream_);
    if (result == BZ_MEM_ERROR) throw std::bad_alloc();
    if (result == BZ_DATA_ERROR_MAGIC) throw CodecError("no bzip2 data begins here");
    if (result != BZ_OK && result != BZ_STREAM_END) throw CodecError("its checksum is wrong");
    ended_ = result == BZ_STREAM_END;
    return {static_cast<std::size_t>(stream_.next_in - input_of<char>(in)),
            static_cast<std::size_t>(reinterpret_cast<std::byte*>(stream_.next_out) - out.data()),
            ended_};
  }

 private:
  void begin() {
    stream_ = {};
    if (::BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) throw std::bad_alloc();
    ended_ = false;
  }
  bz_stream stream_{};
  bool ended_ = false;
};

std::string_view meaning_of(lzma_ret result) {
  switch (result) {
    case LZMA_FORMAT_ERROR:
      return "no xz data begins here";
    case LZMA_OPTIONS_ERROR:
      return "it was made with options that liblzma does not know";
    default:
      return "a checksum, or what it is of, is wrong";
  }
}

class XzDecoder : public Decoder {
 public:
  explicit XzDecoder(std::uint64_t max_bytes) : max_bytes_(max_bytes) { begin(); }
  ~XzDecoder() override { ::lzma_end(&stream_); }
  XzDecoder(const XzDecoder&) = delete;
  XzDecoder& operator=(const XzDecoder&) = delete;

  Step decode(std::span<const std::byte> in, std::span<std::byte> out) override {
    if (ended_) begin();
    stream_.next_in = input_of<const std::uint8_t>(in);
    stream_.avail_in = in.size();
    stream_.next_out = reinterpret_cast<std::uint8_t*>(out.data());
    stream_.avail_out = out.size();
    const lzma_ret result = ::lzma_code(&stream_, LZMA_RUN);
    if (result == LZMA_MEM_ERROR) throw std::bad_alloc();
    if (result == LZMA_MEMLIMIT_ERROR) throw CodecNeedsMemory("the dictionary is too large");
    if (result != LZMA_OK && result != LZMA_STREAM_END && result != LZMA_BUF_ERROR)
      throw CodecError(std::string(meaning_of(result)));
    ended_ = result == LZMA_STREAM_END;
    return {in.size() - stream_.avail_in, out.size() - stream_.avail_out, ended_};
  }

  std::uint64_t memory_bytes() const { return ::lzma_memusage(&stream_); }

 private:
  void begin() {
    if (::lzma_stream_decoder(&stream_, max_bytes_, 0) != LZMA_OK) throw std::bad_alloc();
    ended_ = false;
  }
  std::uint64_t max_bytes_;
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool ended_ = false;
};

class Lz4FrameDecoder : public Decoder {
 public:
  Lz4FrameDecoder() {
    LZ4F_dctx* context = nullptr;
    if (::LZ4F_isError(::LZ4F_createDecompressionContext(&context, LZ4F_VERSION)))
      throw std::bad_alloc();
    context_.reset(context);
  }

  Step decode(std::span<const std::byte> in, std::span<std::byte> out) override {
    std::size_t consumed = in.size();
    std::size_t produced = out.size();
    const std::size_t result =
        ::LZ4F_decompress(context_.get(), out.data(), &produced, in.data(), &consumed, nullptr);
    if (::LZ4F_isError(result)) throw CodecError(::LZ4F_getErrorName(result));
    return {consumed, produced, result == 0};
  }

 private:
  struct Free {
    void operator()(LZ4F_dctx* context) const { ::LZ4F_freeDecompressionContext(context); }
  };
  std::unique_ptr<LZ4F_dctx, Free> context_;
};

std::uint32_t little_endian_32(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(byte_at(bytes, 0) | byte_at(bytes, 1) << 8 |
                                    byte_at(bytes, 2) << 16 | byte_at(bytes, 3) << 24);
}

constexpr std::uint32_t lz4_legacy_magic = 0x184C2102;
constexpr std::uint32_t lz4_frame_magic = 0x184D2204;
constexpr std::uint32_t skippable_magic = 0x184D2A50;  // the low 4 bits may vary; shared with zstd

bool is_lz4_magic(std::uint32_t word) {
  return word == lz4_legacy_magic || word == lz4_frame_magic || (word & ~15u) == skippable_magic;
}

// Decodes the blocks of a legacy frame, as `lz4 -l` writes them: a magic number, then blocks of up
// to 8 MiB, each after its compressed size. The end of the frame is not marked, so each block is
// reported as a frame.
class Lz4LegacyDecoder {
 public:
  static constexpr std::size_t block_bytes = std::size_t{8} << 20;

  // Begins a block of `compressed_bytes` bytes.
  void begin(std::uint32_t compressed_bytes) {
    if (compressed_bytes == 0 || compressed_bytes > LZ4_COMPRESSBOUND(block_bytes))
      throw CodecError("the size of a block is wrong");
    wanted_bytes_ = compressed_bytes;
    compressed_.clear();
    decoded_.clear();
    emitted_ = 0;
  }

  Decoder::Step decode(std::span<const std::byte> in, std::span<std::byte> out) {
    const std::size_t taken = std::min(in.size(), wanted_bytes_ - compressed_.size());
    compressed_.insert(compressed_.end(), in.begin(),
                       in.begin() + static_cast<std::ptrdiff_t>(taken));
    if (compressed_.size() < wanted_bytes_) return {taken, 0, false};
    if (decoded_.empty()) {
      decoded_.resize(block_bytes);
      const int decoded = ::LZ4_decompress_safe(
          input_of<const char>(compressed_), reinterpret_cast<char*>(decoded_.data()),
          static_cast<int>(compressed_.size()), static_cast<int>(decoded_.size()));
      if (decoded <= 0) throw CodecError("a block is malformed");
      decoded_.resize(static_cast<std::size_t>(decoded));
    }
    const std::size_t produced = std::min(out.size(), decoded_.size() - emitted_);
    std::copy_n(decoded_.begin() + static_cast<std::ptrdiff_t>(emitted_), produced, out.begin());
    emitted_ += produced;
    return {taken, produced, emitted_ == decoded_.size()};
  }

 private:
  std::size_t wanted_bytes_ = 0;
  std::vector<std::byte> compressed_, decoded_;
  std::size_t emitted_ = 0;
};

// Decodes a sequence of frames, skippable frames and legacy frames, which it distinguishes by their
// magic numbers.
class Lz4Decoder : public Decoder {
 public:
  Step decode(std::span<const std::byte> in, std::span<std::byte> out) override {
    std::size_t consumed = 0;
    if (state_ == State::between) {
      for (; word_bytes_ < word_.size() && consumed < in.size(); ++consumed)
        word_[word_bytes_++] = in[consumed];
      if (word_bytes_ < word_.size()) return {consumed, 0, false};
      word_bytes_ = 0;
      begin_frame(out);
      if (state_ == State::between) return {consumed, 0, true};
    }
    Step step = state_ == State::in_block ? legacy_.decode(in.subspan(consumed), out)
                                          : frame_.decode(in.subspan(consumed), out);
    step.consumed += consumed;
    if (step.frame_ended) state_ = State::between;
    return step;
  }

 private:
  enum class State { between, in_frame, in_block };

  void begin_frame(std::span<std::byte> out) {
    const std::uint32_t word = little_endian_32(word_);
    if (word == lz4_legacy_magic) {
      in_legacy_frame_ = true;
    } else if (in_legacy_frame_ && !is_lz4_magic(word)) {
      legacy_.begin(word);
      state_ = State::in_block;
    } else {
      in_legacy_frame_ = false;
      frame_.decode(word_, out.first(0));
      state_ = State::in_frame;
    }
  }

  State state_ = State::between;
  bool in_legacy_frame_ = false;
  std::array<std::byte, 4> word_{};  // first bytes of the next frame or block
  std::size_t word_bytes_ = 0;
  Lz4FrameDecoder frame_;
  Lz4LegacyDecoder legacy_;
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

// --- Encoders ---

class GzipEncoder : public Encoder {
 public:
  explicit GzipEncoder(int level) {
    if (::deflateInit2(&stream_, level == 0 ? Z_DEFAULT_COMPRESSION : level, Z_DEFLATED,
                       16 + MAX_WBITS, MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::bad_alloc();
  }
  ~GzipEncoder() override { ::deflateEnd(&stream_); }
  GzipEncoder(const GzipEncoder&) = delete;
  GzipEncoder& operator=(const GzipEncoder&) = delete;

  std::size_t bound(std::size_t bytes) const override { return ::deflateBound(&stream_, bytes); }
  std::size_t encode(std::span<const std::byte> in, std::span<std::byte> into) override {
    ::deflateReset(&stream_);
    stream_.next_in = input_of<Bytef>(in);
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(into.data());
    stream_.avail_out = static_cast<uInt>(into.size());
    if (::deflate(&stream_, Z_FINISH) != Z_STREAM_END)
      throw Error(ErrorCode::system, "zlib failed");
    return into.size() - stream_.avail_out;
  }

 private:
  mutable z_stream stream_{};
};

class ZstdEncoder : public Encoder {
 public:
  explicit ZstdEncoder(int level) : context_(::ZSTD_createCCtx()) {
    if (!context_) throw std::bad_alloc();
    ::ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, level);
    ::ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_checksumFlag, 1);
  }

  std::size_t bound(std::size_t bytes) const override { return ::ZSTD_compressBound(bytes); }
  std::size_t encode(std::span<const std::byte> in, std::span<std::byte> into) override {
    const std::size_t result =
        ::ZSTD_compress2(context_.get(), into.data(), into.size(), in.data(), in.size());
    if (::ZSTD_isError(result))
      throw Error(ErrorCode::system, fmt::format("zstd failed: {}", ::ZSTD_getErrorName(result)));
    return result;
  }

 private:
  struct Free {
    void operator()(ZSTD_CCtx* context) const { ::ZSTD_freeCCtx(context); }
  };
  std::unique_ptr<ZSTD_CCtx, Free> context_;
};

class Bzip2Encoder : public Encoder {
 public:
  explicit Bzip2Encoder(int level) : level_(level == 0 ? 9 : level) {}

  // Bound given by the manual of bzip2.
  std::size_t bound(std::size_t bytes) const override { return bytes + bytes / 100 + 601; }
  std::size_t encode(std::span<const std::byte> in, std::span<std::byte> into) override {
    char nothing = 0;  // bzip2 rejects null even for an empty input
    auto length = static_cast<unsigned>(into.size());
    const int result = ::BZ2_bzBuffToBuffCompress(reinterpret_cast<char*>(into.data()), &length,
                                                  in.empty() ? &nothing : input_of<char>(in),
                                                  static_cast<unsigned>(in.size()), level_, 0, 0);
    if (result == BZ_MEM_ERROR) throw std::bad_alloc();
    if (result != BZ_OK) throw Error(ErrorCode::system, "bzip2 failed");
    return length;
  }

 private:
  int level_;
};

// Returns the options of a level, with a dictionary no larger than a frame can use.
lzma_options_lzma xz_options(int level) {
  lzma_options_lzma options;
  ::lzma_lzma_preset(&options,
                     level == 0 ? LZMA_PRESET_DEFAULT : static_cast<std::uint32_t>(level));
  options.dict_size = std::min<std::uint32_t>(options.dict_size, frame_bytes);
  return options;
}

class XzEncoder : public Encoder {
 public:
  explicit XzEncoder(int level) : options_(xz_options(level)) {}
  XzEncoder(const XzEncoder&) = delete;
  XzEncoder& operator=(const XzEncoder&) = delete;

  std::size_t bound(std::size_t bytes) const override { return ::lzma_stream_buffer_bound(bytes); }
  std::size_t encode(std::span<const std::byte> in, std::span<std::byte> into) override {
    std::size_t length = 0;
    const lzma_ret result = ::lzma_stream_buffer_encode(
        filters_, LZMA_CHECK_CRC64, nullptr, input_of<const std::uint8_t>(in), in.size(),
        reinterpret_cast<std::uint8_t*>(into.data()), &length, into.size());
    if (result == LZMA_MEM_ERROR) throw std::bad_alloc();
    if (result != LZMA_OK) throw Error(ErrorCode::system, "xz failed");
    return length;
  }

  std::uint64_t memory_bytes() const { return ::lzma_raw_encoder_memusage(filters_); }

 private:
  lzma_options_lzma options_;
  lzma_filter filters_[2] = {{LZMA_FILTER_LZMA2, &options_}, {LZMA_VLI_UNKNOWN, nullptr}};
};

class Lz4Encoder : public Encoder {
 public:
  explicit Lz4Encoder(int level) {
    preferences_.compressionLevel = level;
    preferences_.frameInfo.blockSizeID = LZ4F_max4MB;
    preferences_.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
  }

  std::size_t bound(std::size_t bytes) const override {
    return ::LZ4F_compressFrameBound(bytes, &preferences_);
  }
  std::size_t encode(std::span<const std::byte> in, std::span<std::byte> into) override {
    const std::size_t result =
        ::LZ4F_compressFrame(into.data(), into.size(), in.data(), in.size(), &preferences_);
    if (::LZ4F_isError(result))
      throw Error(ErrorCode::system, fmt::format("lz4 failed: {}", ::LZ4F_getErrorName(result)));
    return result;
  }

 private:
  LZ4F_preferences_t preferences_ = LZ4F_INIT_PREFERENCES;
};

}  // namespace

Compression Compression::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto found = std::ranges::find(facts, name, &CodecFacts::name);
  if (found == facts.end())
    throw Error(
        ErrorCode::options,
        fmt::format("{}: no such codec; there are none, gzip, zstd, bzip2, xz and lz4", name));
  Compression compression{found->codec, 0};
  if (colon == std::string_view::npos) return compression;
  const std::string_view level = text.substr(colon + 1);
  const auto [end, error] =
      std::from_chars(level.data(), level.data() + level.size(), compression.level);
  if (error != std::errc() || end != level.data() + level.size() ||
      compression.level < found->min_level || compression.level > found->max_level)
    throw Error(ErrorCode::options,
                fmt::format("{}: {} is no level of {}, which has {} to {}", text, level, name,
                            found->min_level, found->max_level));
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

Codec recognise(std::span<const std::byte> head, Codec named) {
  const auto holds = [&](std::size_t at, std::string_view magic) {
    return head.size() >= at + magic.size() &&
           std::memcmp(head.data() + at, magic.data(), magic.size()) == 0;
  };
  using namespace std::string_view_literals;
  // Short magic numbers are checked together with the bytes that must follow them.
  if (holds(0, "\x1f\x8b\x08"sv) && byte_at(head, 3) < 0x20) return Codec::gzip;
  if (holds(0, "\x28\xb5\x2f\xfd"sv)) return Codec::zstd;
  // Files by pzstd begin with a skippable frame.
  if ((little_endian_32(head) & ~15u) == skippable_magic) {
    const auto next = skip_skippable_frames(head);
    const bool is_known = next.size() >= 4 && next.size() < head.size();
    const bool is_lz4 = is_known ? is_lz4_magic(little_endian_32(next)) : named == Codec::lz4;
    return is_lz4 ? Codec::lz4 : Codec::zstd;
  }
  if (holds(0, "BZh"sv) && byte_at(head, 3) >= '1' && byte_at(head, 3) <= '9' &&
      (holds(4, "\x31\x41\x59\x26\x53\x59"sv) || holds(4, "\x17\x72\x45\x38\x50\x90"sv)))
    return Codec::bzip2;
  if (holds(0, "\xfd\x37zXZ\0"sv)) return Codec::xz;
  if (holds(0, "\x04\x22\x4d\x18"sv) || holds(0, "\x02\x21\x4c\x18"sv)) return Codec::lz4;
  return Codec::none;
}

bool is_bgzf(std::span<const std::byte> head) {
  constexpr std::size_t subfield_at = 10;  // the size of the extra field, which starts with `BC`
  return head.size() >= 16 && (byte_at(head, 3) & 4) != 0 &&
         std::memcmp(head.data() + subfield_at, bgzf_end.data() + subfield_at, 6) == 0;
}

std::unique_ptr<Decoder> make_decoder(Codec codec, std::uint64_t max_bytes) {
  max_bytes = std::max(max_bytes, default_max_decoder_bytes);
  switch (codec) {
    case Codec::gzip:
      return std::make_unique<GzipDecoder>();
    case Codec::zstd:
      return std::make_unique<ZstdDecoder>(max_bytes);
    case Codec::bzip2:
      return std::make_unique<Bzip2Decoder>();
    case Codec::xz:
      return std::make_unique<XzDecoder>(max_bytes);
    case Codec::lz4:
      return std::make_unique<Lz4Decoder>();
    case Codec::none:
      break;
  }
  return nullptr;
}

std::uint64_t decoder_bytes(Codec codec, std::span<const std::byte> head, std::uint64_t max_bytes) {
  max_bytes = std::max(max_bytes, default_max_decoder_bytes);
  switch (codec) {
    case Codec::gzip:
      return MiB / 16;
    case Codec::zstd:
      return std::min(zstd_window_bytes(skip_skippable_frames(head)), max_bytes) + MiB / 2;
    case Codec::bzip2:
      return 4 * MiB;
    case Codec::xz: {
      XzDecoder decoder(max_bytes);
      std::byte some;
      try {
        decoder.decode(head, {&some, 1});
      } catch (const CodecError&) {
        // Reading the file will report it.
      }
      return decoder.memory_bytes();
    }
    case Codec::lz4:  // two blocks, of 8 MiB in legacy frames, else 64 KiB, 256 KiB, 1 MiB or 4 MiB
      if (little_endian_32(head) == lz4_legacy_magic)
        return 2 * Lz4LegacyDecoder::block_bytes + MiB;
      return (MiB / 8 << 2 * (std::clamp<std::uint64_t>(byte_at(head, 5) >> 4 & 7, 4, 7) - 4)) +
             MiB / 8;
    case Codec::none:
      break;
  }
  return 0;
}

std::unique_ptr<Encoder> make_encoder(const Compression& compression) {
  switch (compression.codec) {
    case Codec::gzip:
      return std::make_unique<GzipEncoder>(compression.level);
    case Codec::zstd:
      return std::make_unique<ZstdEncoder>(compression.level);
    case Codec::bzip2:
      return std::make_unique<Bzip2Encoder>(compression.level);
    case Codec::xz:
      return std::make_unique<XzEncoder>(compression.level);
    case Codec::lz4:
      return std::make_unique<Lz4Encoder>(compression.level);
    case Codec::none:
      break;
  }
  return nullptr;
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
    case Codec::xz:
      return XzEncoder(compression.level).memory_bytes();
    case Codec::none:
      break;
  }
  return 0;
}

}  // namespace corank
