#include "corank/check.hpp"

#include "scan.hpp"

namespace corank {

CheckResult check(const std::filesystem::path& file, const Schema& schema,
                  const std::vector<KeyField>& keys, bool checksum) {
  const ScanResult result =
      scan(Run(file, schema.record_bytes, true), KeyEncoding(schema, keys), checksum);
  return {result.records, result.checksum};
}

}  // namespace corank
