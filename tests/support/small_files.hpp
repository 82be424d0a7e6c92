// Makes writes fail once a file reaches a size limit.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <cstdint>

namespace corank::test {

// Limits the size of files to `bytes` during its lifetime.
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
