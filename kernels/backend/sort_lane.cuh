// A lane that sorts units of fixed-size records; see DeviceBackend. Pieces of a large unit are
// sorted while the next ones are uploaded, and merged in the end.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/backend/record_lane.cuh"
#include "kernels/formats/sort_kernels.cuh"

namespace corank {

template <int W>
class SortLane : RecordLane<W> {
  using Base = RecordLane<W>;
  using Base::out_, Base::pieces_, Base::staging_, Base::stream_;
  using typename Base::Piece;

 public:
  SortLane(const DeviceOrder& order, const BackendConfig& config)
      : Base(order, config, locator_shift(order.layout.record_bytes)),
        piece_records_(piece_records(config, order.layout.record_bytes)) {
    out_.reserve(this->unit_capacity_bytes());
  }

  // Returns the max number of records of a unit for a device with so much free memory.
  static std::uint64_t max_records(std::uint64_t free_bytes, std::uint32_t record_bytes) {
    // Records before and after, and as many located keys; a radix sort needs little more.
    const std::uint64_t held_bytes =
        2 * (record_bytes + sizeof(typename Merged<W>::Key) + sizeof(std::uint32_t));
    // A MiB is more than segments lose by alignment. CUB's merge sort counts in 32 bits.
    const std::uint64_t reached_bytes =
        (std::uint64_t{4} << 30 << locator_shift(record_bytes)) - (1 << 20);
    return std::min({free_bytes / 8 * 7 / held_bytes, reached_bytes / record_bytes,
                     std::uint64_t{std::numeric_limits<std::int32_t>::max()}});
  }

  // Sorts the records of the unit, which are in any order, for download_sorted().
  Found sort(const WorkUnit& unit) {
    this->begin(unit, piece_records_);
    reserve_out();
    Found found;
    wait_for(uploads_.get(), all_uploaded_.get(), [&] { found = sort_pieces(unit); });
    return found;
  }

  void download_sorted(std::byte* output) {
    wait_for(stream_.get(), this->merged_.get(),
             [&] { this->download(output, this->unit_bytes_); });
  }

 private:
  // Max pieces, which one pass merges, and min bytes of one that is worth its launches.
  static constexpr std::uint64_t max_pieces = device::detail::max_fan_in;
  static constexpr std::uint64_t min_piece_bytes = std::uint64_t{16} << 20;

  // Returns the shift of locators that reach as far as these records allow.
  static unsigned locator_shift(std::uint32_t record_bytes) {
    return static_cast<unsigned>(std::countr_zero(record_bytes | sizeof(uint4)));
  }

  // Returns how many records a piece has. A lane that has the device for itself sorts one piece
  // while the next is uploaded; otherwise other lanes keep the device busy.
  static std::uint64_t piece_records(const BackendConfig& config, std::uint32_t record_bytes) {
    if (config.tokens > 1) return config.unit_records;
    return std::max(divide_up(config.unit_records, max_pieces), min_piece_bytes / record_bytes + 1);
  }

  void reserve_out() {
    this->runs_.clear();
    for (const Piece& piece : pieces_) this->append_run(piece.first, piece.records);
    std::size_t sorting = 0, merging = 0;
    CORANK_CUDA(sort_piece(nullptr, sorting, pieces_.front(), nullptr));
    if (pieces_.size() > 1) CORANK_CUDA(this->merge_located(nullptr, merging, nullptr));
    out_.reserve(std::max({sorting, merging, std::size_t{this->unit_bytes_}}));
  }

  Found sort_pieces(const WorkUnit& unit) {
    staging_.upload_description(uploads_.get());
    upload(0);
    Found encoded;
    const auto sort = [&](const Piece& piece) {
      CORANK_CUDA(sort_piece(out_.get(), out_.capacity(), piece, encoded.differing));
    };
    for (std::size_t p = 0; p < pieces_.size(); ++p)
      encoded = this->run([&] {
        if (p != 0) sort(pieces_[p - 1]);
        CORANK_CUDA(cudaStreamWaitEvent(stream_.get(), uploaded_.get(), 0));
        this->verify_input(unit, pieces_[p]);
        encode(pieces_[p]);
        upload(p + 1);  // which takes as long as the copy if the memory is not pinned
      });
    return this->run([&] {
      sort(pieces_.back());
      const bool is_divided = pieces_.size() > 1;
      if (is_divided) CORANK_CUDA(this->merge_located(out_.get(), out_.capacity(), nullptr));
      this->gather_and_verify(unit.records, this->located(is_divided ? 1 : 0));
    });
  }

  // Enqueues the upload of piece `p`, if there is one. uploaded_ tells its end.
  void upload(std::size_t p) {
    if (p == pieces_.size()) return;
    staging_.upload_segments(pieces_[p].first_segment, pieces_[p].segments, uploads_.get());
    CORANK_CUDA(cudaEventRecord(uploaded_.get(), uploads_.get()));
  }

  void encode(const Piece& piece) {
    encode_unsorted<W>
        <<<divide_up(piece.records, block_threads), block_threads, 0, stream_.get()>>>(
            staging_.segments() + piece.first_segment, piece.segments, piece.records,
            this->less(nullptr), this->located(0, piece.first), staging_.found());
    check_launch("encode_unsorted");
  }

  // Sorts the located keys of a piece on side 0; see sort_located().
  cudaError_t sort_piece(void* temporary, std::size_t& bytes, const Piece& piece,
                         const std::uint64_t* differing) {
    return sort_located(temporary, bytes,
                        {this->located(0, piece.first), this->located(1, piece.first)},
                        piece.records, this->less(nullptr), differing, stream_.get());
  }

  const std::uint64_t piece_records_;
  Stream uploads_ = make_stream();
  Event uploaded_ = make_event(cudaEventDisableTiming);  // a piece
  Event all_uploaded_ = make_event(cudaEventBlockingSync | cudaEventDisableTiming);
};

}  // namespace corank
