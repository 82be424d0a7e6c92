// Compression codecs, each with a decoder and an encoder by its own library.
//
// One thread at a time may use a Decoder or an Encoder. Damaged data is thrown as CodecError.
//
// Boost.Iostreams has filters for most codecs. But its zstd filter accepts a truncated stream, none
// of its filters says where it failed, and it cannot write checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>

#include "corank/compression.hpp"

namespace corank {

// Thrown for damaged data.
struct CodecError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Thrown for data whose decoder needs more memory than allowed.
struct CodecNeedsMemory : CodecError {
  using CodecError::CodecError;
};

// Memory that decoders may always use: as much as the highest level of any compressor needs. Memory
// beyond it needs permission, because a few bytes of a forged file can ask for any amount. Frames
// of `zstd --long=31`, for example, need more.
inline constexpr std::uint64_t default_max_decoder_bytes = std::uint64_t{144} << 20;

std::string_view name_of(Codec codec);
std::string_view suffix_of(Codec codec);  // with its dot

// Recognises a codec by the first bytes of a file: recognised_bytes of them, or the whole file.
// `named` is the codec that the file is named after. It decides for a file that begins with a
// skippable frame, which zstd and lz4 share.
Codec recognise(std::span<const std::byte> head, Codec named = Codec::none);
inline constexpr std::size_t recognised_bytes = 10;

// Empty gzip member at the end of a BGZF file.
inline constexpr std::string_view bgzf_end{
    "\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0\x1b\0\x03\0\0\0\0\0\0\0\0\0", 28};
// Returns whether a gzip file that begins with `head`, at least 16 bytes, is a BGZF file.
bool is_bgzf(std::span<const std::byte> head);

// Decodes one frame after another; gzip calls them members, xz calls them streams.
class Decoder {
 public:
  virtual ~Decoder() = default;

  struct Step {
    std::size_t consumed;
    std::size_t produced;
    bool frame_ended;  // by the last byte consumed; the next byte begins another frame
  };
  // Decodes as much of `in` as fits in `out`, which must have room for at least one byte. Throws
  // CodecError.
  virtual Step decode(std::span<const std::byte> in, std::span<std::byte> out) = 0;
};

// Returns a decoder that uses at most `max_bytes` of memory, or default_max_decoder_bytes if that
// is more. Returns null for Codec::none.
std::unique_ptr<Decoder> make_decoder(Codec codec,
                                      std::uint64_t max_bytes = default_max_decoder_bytes);

// Returns the approximate memory of a decoder for a file that begins with `head`.
std::uint64_t decoder_bytes(Codec codec, std::span<const std::byte> head,
                            std::uint64_t max_bytes = default_max_decoder_bytes);

// Encodes frames with checksums. One encoder serves any number of frames.
class Encoder {
 public:
  virtual ~Encoder() = default;

  // Returns the max size of a frame that holds `bytes` bytes.
  virtual std::size_t bound(std::size_t bytes) const = 0;
  // Writes one frame that holds `in`; returns its size. `into` must have room for bound(in.size()).
  virtual std::size_t encode(std::span<const std::byte> in, std::span<std::byte> into) = 0;
};

// Returns null for Codec::none.
std::unique_ptr<Encoder> make_encoder(const Compression& compression);

// Uncompressed bytes per output frame. Smaller frames compress worse; larger ones only take memory.
inline constexpr std::size_t frame_bytes = std::size_t{1} << 20;

// Returns the approximate memory of an encoder for frames of frame_bytes.
std::uint64_t encoder_bytes(const Compression& compression);

}  // namespace corank
