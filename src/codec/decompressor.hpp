// Decompression as a filter of Boost.Iostreams, for every codec.
//
// Decompressor is an input filter, to be composed with a device that holds compressed bytes. It
// accepts any number of frames (gzip calls them members, xz calls them streams), skippable frames,
// legacy frames of lz4, and zeros after the frames of gzip and xz. Anything else, a truncated frame
// included, is thrown as Error with the file and the byte. One thread at a time may use a filter.
//
// The library's own filters are not strict enough: its zstd filter accepts truncated data. The
// others detect truncation, but they tell neither the byte nor the cause, refuse padding, and have
// no limit on their memory. There is none for lz4.
#pragma once

#include <boost/iostreams/filter/symmetric.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "corank/compression.hpp"
#include "util/math.hpp"

namespace corank {

// Memory that decoders may always use: as much as the highest level of any compressor needs. Memory
// beyond it needs permission, because a few bytes of a forged file can ask for any amount. Frames
// of `zstd --long=31`, for example, need more.
inline constexpr std::uint64_t default_max_decoder_bytes = 144 * MiB;

// Recognises a codec by the first bytes of a file: recognised_bytes of them, or the whole file.
// `named` is the codec that the file is named after. It decides for a file that begins with a
// skippable frame, which zstd and lz4 share.
Codec recognise(std::span<const std::byte> head, Codec named = Codec::none);
inline constexpr std::size_t recognised_bytes = 10;

// Returns where in `bytes`, at `from` or later, a frame may begin: one that recognise() recognises.
std::optional<std::size_t> find_frame(Codec codec, std::span<const std::byte> bytes,
                                      std::size_t from);

// Empty gzip member at the end of a BGZF file.
inline constexpr std::string_view bgzf_end{
    "\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0\x1b\0\x03\0\0\0\0\0\0\0\0\0", 28};
// Returns whether a gzip file that begins with `head`, at least bgzf_head_bytes, is a BGZF file.
inline constexpr std::size_t bgzf_head_bytes = 16;
bool is_bgzf(std::span<const std::byte> head);

// Returns the approximate memory of a decoder for a file that begins with `head`.
std::uint64_t decoder_bytes(Codec codec, std::span<const std::byte> head, std::uint64_t max_bytes);

// Decodes as much of `in` as fits in `out`, and removes these bytes from both. Returns whether the
// frame has ended; the next byte then begins another frame.
using FrameDecoder = std::function<bool(std::span<const std::byte>& in, std::span<std::byte>& out)>;

// Implements Decompressor; see the requirements of boost::iostreams::symmetric_filter.
class StrictDecoding {
 public:
  using char_type = char;

  // Errors call the input `name`. Uses at most `max_bytes` of memory, or default_max_decoder_bytes
  // if that is more.
  StrictDecoding(std::string name, Codec codec, std::uint64_t max_bytes);

  bool filter(const char*& in, const char* in_end, char*& out, char* out_end, bool at_end);
  void close() {}

  bool is_in_frame() const { return in_frame_; }
  // Counts frames that were decoded elsewhere.
  void skip(std::uint64_t compressed_bytes, std::uint64_t decoded_bytes);

 private:
  void decode(std::span<const std::byte>& in, std::span<std::byte>& out, bool at_end);
  std::span<const std::byte> skip_padding(std::span<const std::byte> in);
  [[noreturn]] void fail(const std::string& what) const;

  std::string name_;
  Codec codec_;
  std::uint64_t max_bytes_;
  FrameDecoder decoder_;
  bool in_frame_ = false;
  std::uint64_t consumed_bytes_ = 0;
  std::uint64_t produced_bytes_ = 0;
};

// Takes the size of its input buffer, and the arguments of StrictDecoding.
using Decompressor = boost::iostreams::symmetric_filter<StrictDecoding>;

}  // namespace corank
