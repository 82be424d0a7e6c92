// The codecs, each by its own library.
//
// Boost.Iostreams has filters for most of them, but its zstd filter takes a stream that was cut off
// for one that ended, none of its filters says where it failed, and it cannot write checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>

#include "corank/compression.hpp"

namespace corank {

// Data that no compressor made, or that needs more memory than max_decoder_bytes.
struct CodecError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a frame may ask for to be decoded: the most that the programs' levels ask for, and no more,
// since a few bytes of a made-up file can ask for anything.
inline constexpr std::uint64_t max_decoder_bytes = std::uint64_t{144} << 20;

std::string_view name_of(Codec codec);
std::string_view suffix_of(Codec codec);  // with its dot

// By the first bytes of a file, at least recognised_bytes of them if there are so many.
Codec recognise(std::span<const std::byte> head);
inline constexpr std::size_t recognised_bytes = 10;

// A frame after another: what gzip calls members and xz streams.
class Decoder {
 public:
  virtual ~Decoder() = default;

  struct Step {
    std::size_t consumed;
    std::size_t produced;
    bool frame_ended;  // with the last byte consumed; the next one begins another
  };
  // Decodes as much of `in` as `out`, which has room for a byte at least, can take. Throws
  // CodecError.
  virtual Step decode(std::span<const std::byte> in, std::span<std::byte> out) = 0;
};

std::unique_ptr<Decoder> make_decoder(Codec codec);

// About as much memory as the decoder takes for a file that begins with `head`.
std::uint64_t decoder_bytes(Codec codec, std::span<const std::byte> head);

// Makes frames, with checksums. Reused from frame to frame, by one thread at a time.
class Encoder {
 public:
  virtual ~Encoder() = default;

  // No frame of `bytes` bytes is longer.
  virtual std::size_t bound(std::size_t bytes) const = 0;
  // Writes one frame that holds `in`, and returns its length. `into` has room for the bound.
  virtual std::size_t encode(std::span<const std::byte> in, std::span<std::byte> into) = 0;
};

std::unique_ptr<Encoder> make_encoder(const Compression& compression);

// Of what compressed outputs hold: with less, the ratio suffers, with more, only the memory.
inline constexpr std::size_t frame_bytes = std::size_t{1} << 20;

// About as much memory as an encoder takes for frames of frame_bytes.
std::uint64_t encoder_bytes(const Compression& compression);

}  // namespace corank
