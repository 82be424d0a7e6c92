#include "codec/parallel_decompressor.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <utility>

#include "corank/error.hpp"

namespace corank {
namespace {

constexpr std::size_t enough_bytes = std::size_t{64} << 10;  // compressed, of a piece
constexpr std::size_t max_decoded_bytes = 4 * MiB;
constexpr std::size_t block_bytes = std::size_t{128} << 10;  // of a read

}  // namespace

struct ParallelDecompressor::Piece {
  enum class State { queued, decoded, refused };

  std::vector<std::byte> compressed;
  std::atomic<State> state;
  std::unique_ptr<std::byte[]> decoded = {};
  std::size_t decoded_bytes = 0;
};

ParallelDecompressor::ParallelDecompressor(std::string name, Codec codec, std::uint64_t max_bytes,
                                           unsigned threads, std::stop_token stop)
    : name_(std::move(name)),
      codec_(codec),
      max_bytes_(max_bytes),
      max_ahead_(threads + 1),
      stop_(std::move(stop)),
      here_(name_, codec, max_bytes),
      decodings_(threads) {}

ParallelDecompressor::~ParallelDecompressor() = default;

std::uint64_t ParallelDecompressor::memory_bytes(unsigned threads, std::uint64_t decoder_bytes) {
  const std::uint64_t pieces = threads + 2;  // ahead, and current
  return threads * decoder_bytes + pieces * (max_piece_bytes + block_bytes + max_decoded_bytes);
}

std::size_t ParallelDecompressor::read(const Read& input, std::span<std::byte> into) {
  assert(!into.empty());
  for (;;) {
    if (!current_) begin_piece(input);
    if (!current_ && !here_.is_in_frame()) return 0;
    const std::size_t got = is_decoded_ ? copy(into) : decode_here(into);
    if (got != 0) return got;
  }
}

// Begins the next piece, if there is one.
void ParallelDecompressor::begin_piece(const Read& input) {
  assert(rest_.empty());
  while (!has_ended_ && ahead_.size() < num_ahead_) cut(input);
  num_ahead_ = std::min(2 * num_ahead_, max_ahead_);
  is_decoded_ = false;
  if (ahead_.empty()) return;
  current_ = std::move(ahead_.front());
  ahead_.pop_front();
  is_decoded_ = !here_.is_in_frame() && wait_for(*current_);
  rest_ = current_->compressed;
  if (is_decoded_) rest_ = {current_->decoded.get(), current_->decoded_bytes};
}

// Reads compressed bytes, and cuts one piece off.
void ParallelDecompressor::cut(const Read& input) {
  std::size_t searched = enough_bytes;
  for (;;) {
    if (const auto end = find_frame(codec_, uncut_, searched)) return add_piece(*end, true);
    if (uncut_.size() >= max_piece_bytes) return add_piece(uncut_.size(), false);
    searched = std::max(searched, uncut_.size() - std::min(uncut_.size(), recognised_bytes));
    const std::size_t had = uncut_.size();
    uncut_.resize(had + block_bytes);
    const std::size_t got = input(std::span(uncut_).subspan(had));
    uncut_.resize(had + got);
    if (got != 0) continue;
    has_ended_ = true;
    if (had != 0) add_piece(had, true);
    return;
  }
}

// Adds a piece of the next `bytes` bytes. `ends_frame` tells whether a frame may end with them.
void ParallelDecompressor::add_piece(std::size_t bytes, bool ends_frame) {
  std::vector<std::byte> rest(uncut_.begin() + static_cast<std::ptrdiff_t>(bytes), uncut_.end());
  uncut_.resize(bytes);
  const bool is_whole = begins_frame_ && ends_frame;
  begins_frame_ = ends_frame;
  const bool is_first = num_ahead_ == 1;  // decoded here, so that a look at it starts no threads
  ahead_.push_back(std::make_shared<Piece>(
      std::exchange(uncut_, std::move(rest)),
      is_whole && !is_first ? Piece::State::queued : Piece::State::refused));
  if (ahead_.back()->state == Piece::State::refused) return;
  if (!queue_)
    queue_.emplace(static_cast<unsigned>(decodings_.size()),
                   [this](std::shared_ptr<Piece>& piece, unsigned thread) {
                     decode(*piece, decodings_[thread]);
                   });
  queue_->submit(ahead_.back());
}

void ParallelDecompressor::decode(Piece& piece, Decoding& decoding) {
  piece.decoded = std::make_unique_for_overwrite<std::byte[]>(max_decoded_bytes);
  const auto* in = reinterpret_cast<const char*>(piece.compressed.data());
  const auto* const in_end = in + piece.compressed.size();
  auto* const begin = reinterpret_cast<char*>(piece.decoded.get());
  char* out = begin;
  bool is_done = false;
  try {
    if (!decoding) decoding.emplace(name_, codec_, max_bytes_);
    is_done = !decoding->filter(in, in_end, out, begin + max_decoded_bytes, true) && in == in_end;
  } catch (const Error&) {
    // The caller of read() reports it, with the right place in the file.
  }
  piece.decoded_bytes = static_cast<std::size_t>(out - begin);
  if (!is_done) {
    decoding.reset();
    piece.decoded.reset();
  }
  piece.state = is_done ? Piece::State::decoded : Piece::State::refused;
}

// Returns whether a thread has decoded the piece, once it is known.
bool ParallelDecompressor::wait_for(const Piece& piece) {
  if (!queue_) return false;
  auto lock = queue_->lock();
  queue_->wait(lock, stop_, [&] { return piece.state != Piece::State::queued; });
  return piece.state == Piece::State::decoded;
}

std::size_t ParallelDecompressor::copy(std::span<std::byte> into) {
  const std::size_t got = std::min(into.size(), rest_.size());
  std::ranges::copy(rest_.first(got), into.begin());
  rest_ = rest_.subspan(got);
  if (!rest_.empty()) return got;
  here_.skip(current_->compressed.size(), current_->decoded_bytes);
  current_.reset();
  return got;
}

std::size_t ParallelDecompressor::decode_here(std::span<std::byte> into) {
  const auto* in = reinterpret_cast<const char*>(rest_.data());
  auto* out = reinterpret_cast<char*>(into.data());
  here_.filter(in, in + rest_.size(), out, out + into.size(), has_ended_ && ahead_.empty());
  rest_ = rest_.subspan(static_cast<std::size_t>(in - reinterpret_cast<const char*>(rest_.data())));
  if (rest_.empty()) current_.reset();
  return static_cast<std::size_t>(out - reinterpret_cast<char*>(into.data()));
}

}  // namespace corank
