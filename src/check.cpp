#include "corank/check.hpp"

#include "header.hpp"
#include "scan.hpp"

namespace corank {

CheckResult check(const std::filesystem::path& file, const Schema& schema,
                  const std::vector<KeyField>& keys, bool checksum, bool decompress) {
  const ScanResult result =
      scan(Run(file, schema.record_bytes, true, decompress), KeyEncoding(schema, keys), checksum);
  return {result.records, result.checksum};
}

CheckResult check(const std::filesystem::path& file, const TextFormat& format, bool checksum,
                  bool decompress) {
  std::vector<Run> runs;
  runs.emplace_back(file, 1, true, decompress);
  const std::string header = format.header ? take_header(runs, format) : "";
  const TextEncoding encoding(format, header);
  const ScanResult result = scan(runs.front(), KeyEncoding(encoding.layout()), checksum);
  return {result.records, result.checksum};
}

}  // namespace corank
