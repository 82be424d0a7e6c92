// Shows progress in one line of a terminal, which it overwrites, or as JSON objects.
#pragma once

#include <chrono>

#include "corank/options.hpp"

namespace corank {

class ProgressLine {
 public:
  void show(const Progress& progress);
  // Clears the line of a terminal.
  ~ProgressLine();

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool shown_ = false;
};

}  // namespace corank
