// The files of an output of several parts, and the folder that they are in.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace corank {

class PartFiles {
 public:
  // Makes the folder if need be, and removes it in the end if nothing came into it. Throws Error if
  // it is none, or holds other parts.
  PartFiles(const std::filesystem::path& folder, unsigned count, std::string_view suffix);
  ~PartFiles();
  PartFiles(const PartFiles&) = delete;
  PartFiles& operator=(const PartFiles&) = delete;

  const std::vector<std::filesystem::path>& paths() const { return paths_; }

 private:
  std::filesystem::path folder_;
  bool made_;
  std::vector<std::filesystem::path> paths_;
};

}  // namespace corank
