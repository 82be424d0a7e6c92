// Decompresses files of many frames on several threads.
//
// The compressed bytes are cut before magic numbers, where frames may begin. Threads decode each
// piece as if it were a file. The caller of read() decodes the pieces that they refuse: those with
// too large or damaged frames, and those that begin where a magic number is by chance. It goes on
// until a frame ends where a piece does. So contents and errors are those of Decompressor; only the
// byte that an error names may be another, before the damage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "codec/decompressor.hpp"
#include "util/worker_queue.hpp"

namespace corank {

// One thread at a time may use it.
class ParallelDecompressor {
 public:
  // Reads compressed bytes; returns 0 at the end.
  using Read = std::function<std::size_t(std::span<std::byte> into)>;

  // Takes the arguments of StrictDecoding, for each thread.
  ParallelDecompressor(std::string name, Codec codec, std::uint64_t max_bytes, unsigned threads,
                       std::stop_token stop);
  ~ParallelDecompressor();

  // Decompresses at least one byte of what `input` reads; returns 0 at the end. Throws Error,
  // Interrupted, and what `input` throws.
  std::size_t read(const Read& input, std::span<std::byte> into);

  // Returns the max memory on `threads` threads, of which a decoder takes `decoder_bytes`.
  static std::uint64_t memory_bytes(unsigned threads, std::uint64_t decoder_bytes);

  // More would wait for the thread that copies what they decode.
  static constexpr unsigned max_threads = 8;
  // Compressed bytes of a piece. Larger frames are decoded by one thread.
  static constexpr std::size_t max_piece_bytes = 2 * MiB;

 private:
  struct Piece;
  using Decoding = std::optional<StrictDecoding>;

  void begin_piece(const Read& input);
  void cut(const Read& input);
  void add_piece(std::size_t bytes, bool ends_frame);
  void decode(Piece& piece, Decoding& decoding);
  bool wait_for(const Piece& piece);
  std::size_t copy(std::span<std::byte> into);
  std::size_t decode_here(std::span<std::byte> into);

  const std::string name_;
  const Codec codec_;
  const std::uint64_t max_bytes_;
  const std::size_t max_ahead_;  // pieces
  const std::stop_token stop_;

  std::vector<std::byte> uncut_;              // compressed bytes after the last piece
  bool begins_frame_ = true;                  // whether a frame may begin with them
  bool has_ended_ = false;                    // whether there are no more
  std::deque<std::shared_ptr<Piece>> ahead_;  // pieces to be returned next
  std::size_t num_ahead_ = 1;                 // grows, as some callers only want the first bytes

  std::shared_ptr<Piece> current_;   // being returned; null between pieces
  bool is_decoded_ = false;          // whether a thread has decoded it
  std::span<const std::byte> rest_;  // what is left to be copied, or else decoded
  StrictDecoding here_;              // of the caller's thread

  std::vector<Decoding> decodings_;                           // one a thread, made by it
  std::optional<WorkerQueue<std::shared_ptr<Piece>>> queue_;  // last: uses the members above
};

}  // namespace corank
