// Names the files of an output in several parts, and manages their folder.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace corank {

// Returns the name of a part, such as part-00007.
std::string part_name(unsigned part, std::string_view suffix);

class PartFiles {
 public:
  // Creates the folder if necessary; the destructor removes a created folder if it is still empty.
  // Throws Error if `folder` is not a folder, or if it holds other parts.
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
