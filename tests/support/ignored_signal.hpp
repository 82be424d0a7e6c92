// Ignores a signal, in this process and in those that it starts, during its lifetime.
#pragma once

#include <signal.h>

namespace corank::test {

class IgnoredSignal {
 public:
  explicit IgnoredSignal(int number) : number_(number), handler_(::signal(number, SIG_IGN)) {}
  ~IgnoredSignal() { ::signal(number_, handler_); }
  IgnoredSignal(const IgnoredSignal&) = delete;
  IgnoredSignal& operator=(const IgnoredSignal&) = delete;

 private:
  int number_;
  void (*handler_)(int);
};

}  // namespace corank::test
