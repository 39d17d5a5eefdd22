// The tokenizer against a plain one: byte-level BPE as one would write it from its definition, with
// a regular expression, strings and a map of merges. Both give the same ids or there is no ratio.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/ratios/ratio.h"
#include "kernels/check.h"
#include "server/text/tokenizer.h"

namespace quire {
namespace {

constexpr char kTokenizer[] = QUIRE_SOURCE_DIR "/models/demo/tokenizer.json";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string Utf8(int code_point) {
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xC0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 63))};
}

class PlainTokenizer {
 public:
  PlainTokenizer() {
    const auto json = nlohmann::json::parse(ReadFile(kTokenizer));
    for (const auto& [token, id] : json["model"]["vocab"].items()) vocabulary_[token] = id;
    for (const auto& merge : json["model"]["merges"]) {
      const int32_t rank = static_cast<int32_t>(ranks_.size());
      ranks_[{merge[0].get<std::string>(), merge[1].get<std::string>()}] = rank;
    }
    const std::string pattern = json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
    int error = 0;
    PCRE2_SIZE offset = 0;
    regex_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.c_str()), pattern.size(),
                           PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    CHECK(regex_ != nullptr);
    match_ = pcre2_match_data_create_from_pattern(regex_, nullptr);
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool printable =
          (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      byte_names_.push_back(Utf8(printable ? b : next++));
    }
  }
  ~PlainTokenizer() {
    pcre2_match_data_free(match_);
    pcre2_code_free(regex_);
  }

  std::vector<int32_t> Encode(const std::string& text) const {
    std::vector<int32_t> ids;
    for (size_t at = 0; at < text.size();) {
      CHECK(pcre2_match(regex_, reinterpret_cast<PCRE2_SPTR>(text.c_str()), text.size(), at, 0,
                        match_, nullptr) > 0);
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match_);
      CHECK_EQ(ends[0], at);
      EncodePiece(text.substr(at, ends[1] - at), &ids);
      at = ends[1];
    }
    return ids;
  }

 private:
  void EncodePiece(const std::string& piece, std::vector<int32_t>* ids) const {
    std::vector<std::string> symbols;
    for (const char c : piece) symbols.push_back(byte_names_[static_cast<uint8_t>(c)]);
    while (true) {
      int32_t best = INT32_MAX;
      size_t place = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = ranks_.find({symbols[i], symbols[i + 1]});
        if (found != ranks_.end() && found->second < best) best = found->second, place = i;
      }
      if (best == INT32_MAX) break;
      symbols[place] += symbols[place + 1];
      symbols.erase(symbols.begin() + static_cast<int64_t>(place) + 1);
    }
    for (const std::string& symbol : symbols) ids->push_back(vocabulary_.at(symbol));
  }

  std::map<std::string, int32_t> vocabulary_;
  std::map<std::pair<std::string, std::string>, int32_t> ranks_;
  std::vector<std::string> byte_names_;
  pcre2_code* regex_ = nullptr;
  pcre2_match_data* match_ = nullptr;
};

}  // namespace

void AddTextRatios(std::vector<Ratio>* ratios) {
  std::string text;
  for (const char* path : {"ARCHITECTURE.md", "CONTRIBUTING.md", "docs/errors.md"}) {
    text += ReadFile(std::string(QUIRE_SOURCE_DIR "/") + path);
  }
  const auto loaded = Tokenizer::Load(kTokenizer);
  CHECK(loaded.ok());
  const Tokenizer& tokenizer = **loaded;
  const PlainTokenizer plain;
  std::vector<int32_t> ids;
  CHECK(tokenizer.Encode(text, false, false, &ids).ok());
  CHECK(ids == plain.Encode(text));
  ratios->push_back({"tokenizer_over_plain", TimesFaster(
                                                 [&] {
                                                   ids.clear();
                                                   (void)tokenizer.Encode(text, false, false, &ids);
                                                 },
                                                 [&] { (void)plain.Encode(text); })});
}

}  // namespace quire
