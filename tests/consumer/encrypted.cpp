// Merges encrypted runs into an encrypted output, and sorts encrypted lines, by a filter that is
// made here. A merge in one pass, and a sort in memory, write no plain byte to the disk. The cipher
// is a toy; a real one replaces Cipher::next().
#include <boost/iostreams/compose.hpp>
#include <boost/iostreams/concepts.hpp>
#include <boost/iostreams/device/file.hpp>
#include <boost/iostreams/filtering_stream.hpp>
#include <boost/iostreams/operations.hpp>
#include <corank/iostreams.hpp>
#include <cstdint>
#include <cstdio>
#include <ios>
#include <stdexcept>
#include <string>
#include <vector>

namespace io = boost::iostreams;

// Encrypts what is written through it, and decrypts what is read.
class Cipher : public io::multichar_dual_use_filter {
 public:
  explicit Cipher(std::uint64_t key) : state_(key) {}

  template <class Source>
  std::streamsize read(Source& source, char* bytes, std::streamsize count) {
    const std::streamsize got = io::read(source, bytes, count);
    for (std::streamsize i = 0; i < got; ++i) bytes[i] = static_cast<char>(bytes[i] ^ next());
    return got;
  }

  template <class Sink>
  std::streamsize write(Sink& sink, const char* bytes, std::streamsize count) {
    std::string encrypted(bytes, static_cast<std::size_t>(count));
    for (char& byte : encrypted) byte = static_cast<char>(byte ^ next());
    return io::write(sink, encrypted.data(), count);
  }

 private:
  char next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<char>(state_ >> 56);
  }

  std::uint64_t state_;
};

static const std::uint64_t key = 0x5eed;

static void write_encrypted(const std::string& file, const std::string& lines) {
  io::filtering_ostream out;
  out.push(Cipher(key));
  out.push(io::file_sink(file, std::ios::binary));
  out << lines;
}

// Within a chain, nobody else could tell that the file is not open.
template <class Device>
static Device open(const std::string& file) {
  Device device(file, std::ios::binary);
  if (!device.is_open()) throw std::runtime_error(file + ": cannot be opened");
  return device;
}

static corank::NamedSource encrypted_run(const std::string& file) {
  return corank::source(file, io::compose(Cipher(key), open<io::file_source>(file)));
}

static corank::NamedSink encrypted_output(const std::string& file) {
  return corank::sink(file, io::compose(Cipher(key), open<io::file_sink>(file)));
}

// Returns whether the file holds these lines, as the call that wrote it counted them.
static bool holds(const std::string& file, const std::string& lines, const corank::Stats& stats) {
  io::filtering_istream in;
  in.push(Cipher(key));
  in.push(io::file_source(file, std::ios::binary));
  const std::string text(std::istreambuf_iterator<char>(in), {});
  if (text != lines) std::fprintf(stderr, "%s holds: %s\n", file.c_str(), text.c_str());
  return text == lines && stats.records == 6;
}

int main() {
  write_encrypted("cities.enc", "Essen\nLyon\nUlm\n");
  write_encrypted("towns.enc", "Ahrweiler\nLindau\nVichy\n");
  write_encrypted("unsorted.enc", "Ulm\nVichy\nEssen\nLyon\nAhrweiler\nLindau\n");
  const std::string sorted = "Ahrweiler\nEssen\nLindau\nLyon\nUlm\nVichy\n";

  corank::Options options;
  options.text = corank::TextFormat{};
  const std::vector<corank::NamedSource> runs{encrypted_run("cities.enc"),
                                              encrypted_run("towns.enc")};
  const corank::Stats merged = corank::merge(runs, encrypted_output("places.enc"), options);
  const std::vector<corank::NamedSource> unsorted{encrypted_run("unsorted.enc")};
  const corank::Stats resorted = corank::sort(unsorted, encrypted_output("sorted.enc"), options);
  return holds("places.enc", sorted, merged) && holds("sorted.enc", sorted, resorted) ? 0 : 1;
}
