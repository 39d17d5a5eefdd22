// The zip format without compression: tokenizers are read once by each gateway, and crc32 is all
// that it asks for.
#include "server/wire/vllm_engine/tokenizer_bundle.h"

#include <openssl/sha.h>
#include <zlib.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "engine/base/status_macros.h"

namespace quire {
namespace {

constexpr size_t kMaxBytes = size_t{256} << 20;

// In the order of other servers of the protocol.
constexpr std::array<const char*, 11> kFiles = {"tokenizer.json",
                                                "tokenizer_config.json",
                                                "config.json",
                                                "generation_config.json",
                                                "special_tokens_map.json",
                                                "vocab.json",
                                                "merges.txt",
                                                "tokenizer.model",
                                                "tekken.json",
                                                "chat_template.json",
                                                "chat_template.jinja"};

constexpr uint16_t kVersion = 20;           // 2.0: the first with folders, which readers expect
constexpr uint16_t kDate1980 = 1 << 5 | 1;  // January 1st

void Put16(uint32_t value, std::string* out) {
  out->push_back(static_cast<char>(value & 255));
  out->push_back(static_cast<char>(value >> 8 & 255));
}

void Put32(uint32_t value, std::string* out) {
  Put16(value & 0xFFFF, out);
  Put16(value >> 16, out);
}

struct Entry {
  std::string name;
  uint32_t crc = 0;
  uint32_t size = 0;
  uint32_t offset = 0;
};

// The fields that the local header and the central one have in common.
void PutFacts(const Entry& entry, std::string* out) {
  Put16(kVersion, out);
  Put16(0, out);  // flags
  Put16(0, out);  // stored
  Put16(0, out);  // midnight
  Put16(kDate1980, out);
  Put32(entry.crc, out);
  Put32(entry.size, out);  // compressed
  Put32(entry.size, out);
  Put16(static_cast<uint32_t>(entry.name.size()), out);
  Put16(0, out);  // extra
}

class ZipWriter {
 public:
  void Add(const std::string& name, const std::string& bytes) {
    Entry entry{.name = name,
                .crc = static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(bytes.data()),
                                                   static_cast<uInt>(bytes.size()))),
                .size = static_cast<uint32_t>(bytes.size()),
                .offset = static_cast<uint32_t>(zip_.size())};
    Put32(0x04034b50, &zip_);
    PutFacts(entry, &zip_);
    zip_ += name;
    zip_ += bytes;
    entries_.push_back(std::move(entry));
  }

  std::string Finish() {
    const auto start = static_cast<uint32_t>(zip_.size());
    for (const Entry& entry : entries_) {
      Put32(0x02014b50, &zip_);
      Put16(kVersion, &zip_);  // made by
      PutFacts(entry, &zip_);
      Put16(0, &zip_);  // comment
      Put16(0, &zip_);  // disk
      Put16(0, &zip_);  // internal attributes
      Put32(0, &zip_);  // external attributes
      Put32(entry.offset, &zip_);
      zip_ += entry.name;
    }
    const auto bytes = static_cast<uint32_t>(zip_.size()) - start;
    Put32(0x06054b50, &zip_);
    Put32(0, &zip_);  // disks
    Put16(static_cast<uint32_t>(entries_.size()), &zip_);
    Put16(static_cast<uint32_t>(entries_.size()), &zip_);
    Put32(bytes, &zip_);
    Put32(start, &zip_);
    Put16(0, &zip_);  // comment
    return std::move(zip_);
  }

 private:
  std::string zip_;
  std::vector<Entry> entries_;
};

std::string Sha256Hex(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace

absl::StatusOr<TokenizerBundle> BundleTokenizer(const std::string& directory,
                                                const std::string& chat_template) {
  ZipWriter writer;
  size_t total = 0;
  bool any = false;
  for (const char* name : kFiles) {
    const bool replaced = name == std::string_view("chat_template.jinja") && !chat_template.empty();
    std::ifstream file(replaced ? chat_template : directory + "/" + name, std::ios::binary);
    if (!file) continue;
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    total += bytes.size();
    if (total > kMaxBytes) {
      return absl::ResourceExhaustedError("the model's tokenizer files are larger than 256 MiB");
    }
    writer.Add(name, bytes);
    any = true;
  }
  if (!any) return absl::NotFoundError("the model's directory has no tokenizer files");
  TokenizerBundle bundle{.zip = writer.Finish(), .sha256 = ""};
  bundle.sha256 = Sha256Hex(bundle.zip);
  return bundle;
}

absl::StatusOr<std::shared_ptr<const TokenizerBundle>> SharedTokenizerBundle::Get() {
  const std::lock_guard lock(mutex_);
  if (bundle_ == nullptr) {
    ASSIGN_OR_RETURN(TokenizerBundle made, BundleTokenizer(directory_, chat_template_));
    bundle_ = std::make_shared<const TokenizerBundle>(std::move(made));
  }
  return bundle_;
}

}  // namespace quire
