#include "standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "corank/error.hpp"
#include "io/file.hpp"

namespace corank {

void fill_closed_streams() {
  // Opened in the wrong mode, so that reading and writing fail as on a closed stream.
  const int flags[] = {O_WRONLY, O_RDONLY, O_RDONLY};
  for (int stream = 0; stream < 3; ++stream)
    if (::fcntl(stream, F_GETFD) < 0 && ::open("/dev/null", flags[stream]) != stream) ::_exit(2);
}

void say(const std::string& text) {
  std::fputs(text.c_str(), stderr);
}

void finish_printing() {
  if (std::fflush(stdout) != 0) throw_file_error("standard output", "write");
  if (std::ferror(stdout)) throw Error("standard output: not all of it could be written");
}

}  // namespace corank
