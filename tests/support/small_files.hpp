// Makes writes fail once a file reaches a size limit.
#pragma once

#include <sys/resource.h>

#include <cstdint>

#include "support/ignored_signal.hpp"

namespace corank::test {

// Limits the size of files to `bytes` during its lifetime.
class SmallFiles {
 public:
  explicit SmallFiles(std::uint64_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const struct rlimit limit { bytes, old_.rlim_max };
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallFiles() { ::setrlimit(RLIMIT_FSIZE, &old_); }

 private:
  IgnoredSignal ignored_{SIGXFSZ};  // the writes fail instead
  struct rlimit old_ {};
};

}  // namespace corank::test
