// Compression codecs: their names, and their encoders by their own libraries.
//
// One thread at a time may use an Encoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "corank/compression.hpp"
#include "util/math.hpp"

namespace corank {

std::string_view name_of(Codec codec);
std::string_view suffix_of(Codec codec);  // with its dot
std::vector<std::string_view> all_suffixes();
std::string_view magic_of(Codec codec);  // first bytes of every frame

// Encodes frames with checksums. One encoder serves any number of frames.
struct Encoder {
  // Returns the max size of a frame that holds so many bytes.
  std::function<std::size_t(std::size_t bytes)> bound;
  // Writes one frame that holds `in`; returns its size. `into` must have room for bound(in.size()).
  std::function<std::size_t(std::span<const std::byte> in, std::span<std::byte> into)> encode;
};

// Throws Error unless the codec has the level; 0 is its default.
void check_level(const Compression& compression);

// Returns an encoder without functions for Codec::none. Throws Error as check_level() does.
Encoder make_encoder(const Compression& compression);

// Uncompressed bytes per output frame. Smaller frames compress worse; larger ones only take memory.
inline constexpr std::size_t frame_bytes = MiB;

// Returns the approximate memory of an encoder for frames of frame_bytes.
std::uint64_t encoder_bytes(const Compression& compression);

}  // namespace corank
