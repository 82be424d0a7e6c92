// Loads a shared object that contains the library, whose name is the argument, and calls it.
#include <dlfcn.h>

#include <cstdio>

int main(int, char** arguments) {
  void* const plugin = ::dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (!plugin) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    return 1;
  }
  const auto merge = reinterpret_cast<int (*)()>(::dlsym(plugin, "merge_two_runs"));
  return merge ? merge() : 1;
}
