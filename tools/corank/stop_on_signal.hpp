// Turns the first SIGHUP, SIGINT or SIGTERM into a stop request; the second one ends the process
// immediately. To be made while the process has one thread, at most once.
#pragma once

#include <stop_token>

namespace corank {

class StopOnSignal {
 public:
  StopOnSignal();
  std::stop_token token() const;
  // Returns the exit code of a process that the first signal stopped.
  static int exit_code();
};

}  // namespace corank
