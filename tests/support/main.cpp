// The main function of both test programs, compiled once: this takes long with Catch2's version 2.
#include <cstdio>
#include <string>

#define CATCH_CONFIG_RUNNER  // of version 2; version 3 has no such thing
#include "support/catch.hpp"

// Why this machine can't run the tests; empty if it can. A test program may have its own.
[[gnu::weak]] std::string cannot_run() {
  return {};
}

int main(int argc, char** argv) {
  if (const std::string reason = cannot_run(); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 77;  // which CTest takes for "skipped"
  }
  return Catch::Session().run(argc, argv) == 0 ? 0 : 1;  // a number of failures could be 77
}
