// Speed of the tokenizer on one core: documents of a file, and one letter repeated, which must stay
// linear. Checks that decoding gives the text back before anything is timed. Run by
// tokenizer_bench.py.
//
// usage: tokenizer_bench TOKENIZER_JSON DOCUMENTS (documents are separated by the byte 1E)
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "server/text/detokenizer.h"
#include "server/text/tokenizer.h"

namespace quire {
namespace {

constexpr int kRounds = 5;

// CPU time of this process: other load of the machine does not count. Both tokenizers run on one
// core.
int64_t CpuNowNs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
double Seconds(int64_t since_ns) { return static_cast<double>(CpuNowNs() - since_ns) * 1e-9; }

std::vector<std::string> ReadDocuments(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::string> documents;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\x1E', begin), text.size());
    documents.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return documents;
}

// The best of some rounds, in seconds.
template <class Body>
double BestOf(const Body& body) {
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t begin = CpuNowNs();
    body();
    best = std::min(best, Seconds(begin));
  }
  return best;
}

void MeasureDocuments(const Tokenizer& tokenizer, const std::vector<std::string>& documents) {
  size_t bytes = 0, tokens = 0;
  uint64_t hash = 0xCBF29CE484222325u;
  std::vector<int32_t> all;
  for (const std::string& document : documents) {
    std::vector<int32_t> ids;
    if (!tokenizer.Encode(document, false, false, &ids).ok() ||
        tokenizer.Decode(ids, false) != document) {
      std::fprintf(stderr, "a document does not come back as it was\n");
      std::exit(1);
    }
    for (const int32_t id : ids) hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001B3u;
    bytes += document.size();
    tokens += ids.size();
    all.insert(all.end(), ids.begin(), ids.end());
  }
  std::vector<int32_t> ids;
  const double encode = BestOf([&] {
    for (const std::string& document : documents) {
      ids.clear();
      tokenizer.Encode(document, false, false, &ids).IgnoreError();
    }
  });
  std::vector<TokenOffset> offsets;
  const double with_offsets = BestOf([&] {
    for (const std::string& document : documents) {
      ids.clear();
      offsets.clear();
      tokenizer.Encode(document, false, false, &ids, &offsets).IgnoreError();
    }
  });
  const double stream = BestOf([&] {
    Detokenizer detokenizer(&tokenizer, {.stop = {"<never>", "\n\n\n\n\n\n"}});
    std::string out;
    for (const int32_t id : all) {
      out.clear();
      detokenizer.Push(id, &out);
    }
  });
  std::printf(
      "{\"bytes\": %zu, \"tokens\": %zu, \"hash\": \"%016lx\", \"encode_mb_per_s\": %.1f, "
      "\"encode_with_offsets_mb_per_s\": %.1f, \"detokenize_ns_per_token\": %.1f}\n",
      bytes, tokens, static_cast<unsigned long>(hash), static_cast<double>(bytes) * 1e-6 / encode,
      static_cast<double>(bytes) * 1e-6 / with_offsets,
      stream * 1e9 / static_cast<double>(all.size()));
}

void MeasureOneLetter(const Tokenizer& tokenizer) {
  for (const char* unit : {"a", " ", "7", "\xE4\xB8\x96", "ab"}) {
    std::printf("{\"unit\": \"%s\"", unit);
    for (const size_t kilobytes : {64, 256, 1024}) {
      std::string text;
      while (text.size() < kilobytes << 10) text += unit;
      std::vector<int32_t> ids;
      const double seconds = BestOf([&] {
        ids.clear();
        tokenizer.Encode(text, false, false, &ids).IgnoreError();
      });
      std::printf(", \"kb_%zu_ns_per_byte\": %.1f", kilobytes,
                  seconds * 1e9 / static_cast<double>(text.size()));
    }
    std::printf("}\n");
  }
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s TOKENIZER_JSON DOCUMENTS\n", argv[0]);
    return 2;
  }
  const int64_t begin = quire::CpuNowNs();
  const auto tokenizer = quire::Tokenizer::Load(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str());
    return 1;
  }
  std::printf("{\"load_ms\": %.1f}\n", quire::Seconds(begin) * 1e3);
  quire::MeasureDocuments(**tokenizer, quire::ReadDocuments(argv[2]));
  quire::MeasureOneLetter(**tokenizer);
  return 0;
}
