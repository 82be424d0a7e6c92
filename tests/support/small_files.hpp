// Makes writing fail where a file would become too large.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <cstdint>

namespace corank::test {

// While it lives, files end at `bytes`.
class SmallFiles {
 public:
  explicit SmallFiles(std::uint64_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const struct rlimit limit { bytes, old_.rlim_max };
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  struct rlimit old_ {};
  void (*handler_)(int);
};

}  // namespace corank::test
