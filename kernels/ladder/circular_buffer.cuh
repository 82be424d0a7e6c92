// The circular-buffer merge: one thread block merges two runs through rings in shared memory.
//
// A block merges its stretch tile by tile. It keeps the next elements of both runs in two rings of
// one tile each; a tile of output can use up no more than that of either. Whatever a tile leaves
// over stays where it is, and only the gap is refilled: so every element is loaded once. The price
// is that a position in a ring is a position modulo its capacity.
//
//     fill    every thread copies its share of the missing elements into the rings
//     merge   every thread finds by co-rank where its few outputs start, and merges them serially;
//             the result is a list of slots, since moving elements twice would cost more
//     store   the threads write the outputs side by side, and drop what was used from the rings
//
// with a barrier after each step. Nothing here needs a device, so that tests run it on a host.
//
// Source: Hwu, Kirk, El Hajj, "Programming Massively Parallel Processors", 4th ed., chapter 12.
// That the merge yields positions by which the values are then gathered is from Sean Baxter's
// "Modern GPU".
#pragma once

#include <cstdint>

#include "corank/algorithm/co_rank.hpp"

namespace corank {

// The simplest View: an array of T. A View is copied like a pointer, read by [], written by put().
template <class T>
struct Items {
  T* items;

  CORANK_HOST_DEVICE T operator[](std::uint64_t i) const { return items[i]; }
  CORANK_HOST_DEVICE void put(std::uint64_t i, const T& item) const { items[i] = item; }
  CORANK_HOST_DEVICE Items operator+(std::uint64_t i) const { return {items + i}; }
};

template <std::uint32_t threads_, std::uint32_t items_>
struct CircularBufferPolicy {
  static constexpr std::uint32_t threads = threads_;      // per block
  static constexpr std::uint32_t items = items_;          // merged by a thread per tile
  static constexpr std::uint32_t tile = threads * items;  // output of one iteration
  static constexpr std::uint32_t slots = 2 * tile;        // of both rings together
  static_assert((tile & (tile - 1)) == 0, "a ring's positions wrap by a mask");
  static_assert(slots <= 0x10000, "slots are numbered by 16 bits");
};

// A first-in, first-out window on `slots`, of which it uses `capacity` from `base` on.
template <class View, std::uint32_t capacity>
class Ring {
 public:
  CORANK_HOST_DEVICE Ring(View slots, std::uint32_t base) : slots_(slots), base_(base) {}

  CORANK_HOST_DEVICE std::uint32_t count() const { return count_; }
  CORANK_HOST_DEVICE std::uint32_t room() const { return capacity - count_; }
  CORANK_HOST_DEVICE std::uint32_t slot(std::uint32_t i) const {
    return base_ + ((head_ + i) & (capacity - 1));
  }
  CORANK_HOST_DEVICE auto operator[](std::uint64_t i) const {
    return slots_[slot(static_cast<std::uint32_t>(i))];
  }

  CORANK_HOST_DEVICE void append(std::uint32_t n) { count_ += n; }
  CORANK_HOST_DEVICE void drop(std::uint32_t n) {
    head_ = (head_ + n) & (capacity - 1);
    count_ -= n;
  }

 private:
  View slots_;
  std::uint32_t base_;
  std::uint32_t head_ = 0;
  std::uint32_t count_ = 0;
};

// One thread's part in its block's merge of `a` and `b`. All threads hold the same state; what
// they share is `slots` (Policy::slots elements), `order` (Policy::tile) and `a_used`.
template <class Policy, class View, class Less>
class CircularMerge {
 public:
  CORANK_HOST_DEVICE CircularMerge(View a, std::uint64_t a_count, View b, std::uint64_t b_count,
                                   View slots, std::uint16_t* order, std::uint32_t* a_used,
                                   Less less)
      : a_{a, a_count, {slots, 0}},
        b_{b, b_count, {slots, Policy::tile}},
        left_(a_count + b_count),
        slots_(slots),
        order_(order),
        a_used_(a_used),
        less_(less) {}

  CORANK_HOST_DEVICE bool done() const { return left_ == 0; }

  CORANK_HOST_DEVICE void fill(std::uint32_t thread) {
    refill(a_, thread);
    refill(b_, thread);
  }

  CORANK_HOST_DEVICE void merge(std::uint32_t thread) const {
    const auto& a = a_.ring;
    const auto& b = b_.ring;
    std::uint32_t rank = thread * Policy::items;
    const std::uint32_t end = smaller(rank + Policy::items, outputs());
    if (rank >= end) return;
    auto i = static_cast<std::uint32_t>(co_rank(rank, a, a.count(), b, b.count(), less_));
    std::uint32_t j = rank - i;
    for (; rank < end; ++rank) {
      const bool from_b = i == a.count() || (j < b.count() && less_(b[j], a[i]));
      order_[rank] = static_cast<std::uint16_t>(from_b ? b.slot(j++) : a.slot(i++));
    }
    if (end == outputs()) *a_used_ = i;
  }

  // Advances `out` to the next tile's output.
  CORANK_HOST_DEVICE void store(std::uint32_t thread, View& out) {
    const std::uint32_t count = outputs();
    for (std::uint32_t rank = thread; rank < count; rank += Policy::threads)
      out.put(rank, slots_[order_[rank]]);
    out = out + count;
    a_.ring.drop(*a_used_);
    b_.ring.drop(count - *a_used_);
    left_ -= count;
  }

 private:
  struct Input {
    View next;           // the input that is not loaded yet
    std::uint64_t left;  // its length
    Ring<View, Policy::tile> ring;
  };

  CORANK_HOST_DEVICE static std::uint32_t smaller(std::uint32_t x, std::uint64_t y) {
    return x < y ? x : static_cast<std::uint32_t>(y);
  }

  CORANK_HOST_DEVICE std::uint32_t outputs() const { return smaller(Policy::tile, left_); }

  CORANK_HOST_DEVICE void refill(Input& input, std::uint32_t thread) {
    const std::uint32_t count = smaller(input.ring.room(), input.left);
    for (std::uint32_t i = thread; i < count; i += Policy::threads)
      slots_.put(input.ring.slot(input.ring.count() + i), input.next[i]);
    input.ring.append(count);
    input.next = input.next + count;
    input.left -= count;
  }

  Input a_, b_;
  std::uint64_t left_;  // outputs to produce
  View slots_;
  std::uint16_t* order_;
  std::uint32_t* a_used_;
  Less less_;
};

#ifdef __CUDACC__
// Called by all threads of a block of Policy::threads. Shared memory may be reused on return.
template <class Policy, class View, class Less>
__device__ void merge_block(CircularMerge<Policy, View, Less> merge, View out) {
  while (!merge.done()) {
    merge.fill(threadIdx.x);
    __syncthreads();
    merge.merge(threadIdx.x);
    __syncthreads();
    merge.store(threadIdx.x, out);
    __syncthreads();
  }
}
#endif

}  // namespace corank
