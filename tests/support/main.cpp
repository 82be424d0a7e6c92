// The main function of the test programs, in its own file because Catch2 version 2 compiles slowly.
#include <cstdio>
#include <string>

#define CATCH_CONFIG_RUNNER  // for version 2; version 3 ignores it
#include "support/catch.hpp"

// Returns why this machine cannot run the tests; empty if it can. A test program may override it.
[[gnu::weak]] std::string cannot_run() {
  return {};
}

int main(int argc, char** argv) {
  if (const std::string reason = cannot_run(); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 77;  // the exit code that CTest counts as skipped
  }
  return Catch::Session().run(argc, argv) == 0 ? 0 : 1;  // not the number of failures
}
