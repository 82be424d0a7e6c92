#define CATCH_CONFIG_RUNNER  // of version 2; version 3 has no such thing
#include "catch.hpp"

int main(int argc, char** argv) {
  return Catch::Session().run(argc, argv);
}
