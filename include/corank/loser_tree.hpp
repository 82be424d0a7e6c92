// The textbook k-way merge: a tournament whose inner nodes keep the loser of their match.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace corank {

// `before(i, j)` says whether source i's next record goes out before source j's: a strict total
// order, in which a source that has run dry comes after all others. After the winner's source has
// moved on, replay() finds the next one with log2(sources) calls of `before`.
//
// Source: Knuth, "The Art of Computer Programming", volume 3, section 5.4.1.
template <class Before>
class LoserTree {
 public:
  // At least one source.
  LoserTree(std::size_t sources, Before before) : before_(before), nodes_(2 * sources) {
    // Sources are the leaves `sources` to `2 * sources - 1` of an implicit binary tree.
    for (std::size_t i = 0; i < sources; ++i) nodes_[sources + i] = i;
    for (std::size_t node = sources - 1; node > 0; --node)
      nodes_[node] = better(nodes_[2 * node], nodes_[2 * node + 1]);
    nodes_[0] = nodes_[1];
    // Top down, each winner gives way to the loser of its match.
    for (std::size_t node = 1; node < sources; ++node)
      nodes_[node] = nodes_[nodes_[2 * node] == nodes_[node] ? 2 * node + 1 : 2 * node];
  }

  std::size_t winner() const { return nodes_[0]; }

  void replay() {
    std::size_t source = nodes_[0];
    for (std::size_t node = (nodes_.size() / 2 + source) / 2; node > 0; node /= 2)
      if (before_(nodes_[node], source)) std::swap(nodes_[node], source);
    nodes_[0] = source;
  }

 private:
  std::size_t better(std::size_t i, std::size_t j) const { return before_(j, i) ? j : i; }

  Before before_;
  std::vector<std::size_t> nodes_;
};

}  // namespace corank
