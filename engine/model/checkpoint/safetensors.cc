// The safetensors format: 8 bytes of header length N (little-endian), N bytes of JSON, tensor data.
// Enforces the rules of its reference implementation, and a few that it leaves open.
#include "engine/model/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/base/fault_list.h"
#include "engine/base/file_error.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "kernels/check.h"

namespace quire {
namespace {

constexpr uint64_t kLengthBytes = 8;
// A tensor takes some 120 bytes of header and 12 keys and values. The largest files have a few
// thousand tensors; these bounds admit 300,000 and hold a hostile header to some 400 MB of memory.
constexpr uint64_t kMaxHeaderBytes = 64 << 20;
constexpr size_t kMaxHeaderValues = 4 << 20;
constexpr size_t kMaxRank = 8;
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// Bits of an element by its name in the file; 0 for a name that is not in the format.
int BitsOf(std::string_view dtype) {
  static constexpr struct {
    std::string_view name;
    int bits;
  } kTypes[] = {
      {"F64", 64},    {"F32", 32}, {"F16", 16}, {"BF16", 16},   {"I64", 64},
      {"I32", 32},    {"I16", 16}, {"I8", 8},   {"U64", 64},    {"U32", 32},
      {"U16", 16},    {"U8", 8},   {"BOOL", 8}, {"F8_E4M3", 8}, {"F8_E5M2", 8},
      {"F8_E8M0", 8}, {"C64", 64}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
  };
  for (const auto& [name, bits] : kTypes) {
    if (name == dtype) return bits;
  }
  return 0;
}

absl::Status Bad(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::Status BadTensor(const std::string& path, const std::string& name, const std::string& what) {
  return Bad(path, absl::StrCat("tensor \"", name, "\": ", what));
}

// An unsigned integer that also fits int64, as shapes and offsets must.
bool IsSize(const nlohmann::json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{INT64_MAX};
}

// Reads dtype, shape and the two offsets of one header entry; sizes must agree.
absl::StatusOr<StoredTensor> ParseEntry(const nlohmann::json& entry) {
  const auto fail = [](const std::string& what) { return absl::InvalidArgumentError(what); };
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets")) {
    return fail("not an object of exactly dtype, shape and data_offsets");
  }
  const nlohmann::json& dtype = entry["dtype"];
  const nlohmann::json& shape = entry["shape"];
  const nlohmann::json& offsets = entry["data_offsets"];
  if (!dtype.is_string() || BitsOf(dtype.get_ref<const std::string&>()) == 0) {
    return fail("unknown dtype");
  }
  if (!shape.is_array() || !std::ranges::all_of(shape, IsSize)) {
    return fail("shape is not a list of sizes");
  }
  if (shape.size() > kMaxRank) return fail(absl::StrCat("more than ", kMaxRank, " dimensions"));
  if (!offsets.is_array() || offsets.size() != 2 || !std::ranges::all_of(offsets, IsSize)) {
    return fail("data_offsets is not a list of two sizes");
  }

  StoredTensor tensor;
  tensor.dtype = dtype.get<std::string>();
  uint64_t bits = BitsOf(tensor.dtype);
  for (const nlohmann::json& dim : shape) {
    tensor.shape.push_back(dim.get<int64_t>());
    if (__builtin_mul_overflow(bits, dim.get<uint64_t>(), &bits)) {
      return fail("shape overflows 64 bits");
    }
  }
  if (bits % 8 != 0) return fail("elements do not fill whole bytes");
  tensor.begin = offsets[0].get<uint64_t>();
  const uint64_t end = offsets[1].get<uint64_t>();
  if (tensor.begin > end) return fail(absl::StrCat("begins at ", tensor.begin, ", ends at ", end));
  tensor.bytes = bits / 8;
  if (tensor.bytes != end - tensor.begin) {
    return fail(absl::StrCat("shape and dtype need ", tensor.bytes, " bytes, data_offsets give ",
                             end - tensor.begin));
  }
  return tensor;
}

// The tensors, in order of offset, must follow one another from 0 to `data_bytes`.
absl::Status CheckTiling(const std::map<std::string, StoredTensor>& tensors, uint64_t data_bytes,
                         const std::string& path) {
  using Entry = std::pair<const std::string, StoredTensor>;
  std::vector<const Entry*> order;
  order.reserve(tensors.size());
  for (const Entry& entry : tensors) order.push_back(&entry);
  std::ranges::sort(order, {},
                    [](const Entry* e) { return std::pair(e->second.begin, e->second.bytes); });
  uint64_t at = 0;
  for (const Entry* entry : order) {
    const auto& [name, tensor] = *entry;
    // Both are at most INT64_MAX, so the sum does not wrap.
    const uint64_t end = tensor.begin + tensor.bytes;
    if (tensor.begin < at) {
      return BadTensor(path, name, absl::StrCat("overlaps the tensor that ends at byte ", at));
    }
    if (tensor.begin > at) {
      return BadTensor(path, name,
                       absl::StrCat("leaves a hole from byte ", at, " to ", tensor.begin));
    }
    if (end > data_bytes) {
      return BadTensor(path, name,
                       absl::StrCat("ends at byte ", end, " of ", data_bytes,
                                    ": the file is truncated or the header wrong"));
    }
    at = end;
  }
  if (at != data_bytes) {
    return Bad(path, absl::StrCat(data_bytes - at, " bytes after the last tensor"));
  }
  return absl::OkStatus();
}

// Reads exactly out.size() bytes at `offset`.
absl::Status ReadExactly(int fd, uint64_t offset, std::span<char> out) {
  while (!out.empty()) {
    const ssize_t n = pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::UnavailableError(std::strerror(errno));
    if (n == 0) return absl::DataLossError(absl::StrCat("the file ends at byte ", offset));
    offset += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

// Reads length and header of an open file, after a check that the length is plausible.
absl::StatusOr<std::string> ReadHeader(int fd, uint64_t file_bytes, const std::string& path) {
  std::string header(kLengthBytes, '\0');
  if (file_bytes < kLengthBytes) {
    return Bad(path, absl::StrCat(file_bytes, " bytes: too short for a safetensors file"));
  }
  absl::Status read = ReadExactly(fd, 0, header);
  if (!read.ok()) return Bad(path, std::string(read.message()));
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= uint64_t{static_cast<unsigned char>(header[i])} << (8 * i);
  }
  if (length > kMaxHeaderBytes) {
    return Bad(path, absl::StrCat("header of ", length, " bytes, the limit is ", kMaxHeaderBytes));
  }
  if (length > file_bytes - kLengthBytes) {
    return Bad(path, absl::StrCat("header of ", length, " bytes in a file of ", file_bytes));
  }
  header.resize(kLengthBytes + length);
  read = ReadExactly(fd, kLengthBytes, std::span(header).subspan(kLengthBytes));
  if (!read.ok()) return Bad(path, std::string(read.message()));
  return header;
}

// The shard files an index names, each a plain name in its own directory.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ReadJsonFile(path));
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return Bad(path, "\"weight_map\" is missing or not an object");
  }
  std::map<std::string, std::string> shard_of;
  for (const auto& [name, shard] : json["weight_map"].items()) {
    if (!shard.is_string()) return BadTensor(path, name, "its file is not a string");
    const std::string& file = shard.get_ref<const std::string&>();
    if (file.find('/') != std::string::npos || !file.ends_with(".safetensors") ||
        file.starts_with(".")) {
      return BadTensor(path, name,
                       "its file must be the plain name of a .safetensors file in this directory");
    }
    shard_of[name] = file;
  }
  return shard_of;
}

// The one file of safetensors in a directory that may be a whole model under another name; empty if
// there is none, or several.
std::string OtherSafetensors(const std::string& dir) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool is_part = name.find("-of-") != name.npos;
    const bool is_other = name.starts_with("adapter_") || name.starts_with("consolidated");
    std::error_code ignored;
    if (it->path().extension() != ".safetensors" || !it->is_regular_file(ignored)) continue;
    if (!is_part && !is_other) found.push_back(name);
  }
  return found.size() == 1 ? found[0] : "";
}

}  // namespace

absl::StatusOr<DType> LoadableDType(std::string_view stored) {
  if (stored == "F32") return DType::kF32;
  if (stored == "BF16") return DType::kBF16;
  if (stored == "F16") return DType::kF16;
  return absl::InvalidArgumentError(
      absl::StrCat("stored as ", std::string(stored), "; supported: F32, BF16, F16"));
}

absl::StatusOr<std::map<std::string, StoredTensor>> ParseSafetensorsHeader(
    std::string_view header, uint64_t file_bytes, const std::string& path) {
  CHECK(kLengthBytes <= header.size() && header.size() <= file_bytes);
  std::string_view text = header.substr(kLengthBytes);
  if (!text.starts_with('{')) return Bad(path, "the header does not begin with '{'");
  // Depth 3: the header, a tensor, its shape.
  ASSIGN_OR_RETURN(
      nlohmann::json json,
      ParseJson(text, absl::StrCat(path, ": header"),
                {.max_depth = 3, .max_bytes = kMaxHeaderBytes, .max_values = kMaxHeaderValues}));
  std::map<std::string, StoredTensor> tensors;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      const auto is_string = [](const nlohmann::json& value) { return value.is_string(); };
      if (!entry.is_object() || !std::ranges::all_of(entry, is_string)) {
        return Bad(path, "__metadata__ is not an object of strings");
      }
      continue;
    }
    absl::StatusOr<StoredTensor> tensor = ParseEntry(entry);
    if (!tensor.ok()) return BadTensor(path, name, std::string(tensor.status().message()));
    tensors.emplace(name, *std::move(tensor));
  }
  RETURN_IF_ERROR(CheckTiling(tensors, file_bytes - header.size(), path));
  for (auto& [name, tensor] : tensors) tensor.begin += header.size();
  return tensors;
}

Checkpoint::Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& dir) {
  Checkpoint checkpoint;
  struct stat info;
  const std::string single = absl::StrCat(dir, "/", kSingleFile);
  const std::string index = absl::StrCat(dir, "/", kIndexFile);
  if (stat(single.c_str(), &info) == 0) {
    checkpoint.listing_path_ = single;
    RETURN_IF_ERROR(checkpoint.AddFile(single));
  } else if (stat(index.c_str(), &info) == 0) {
    checkpoint.listing_path_ = index;
    RETURN_IF_ERROR(checkpoint.OpenShards(dir));
  } else {
    const std::string other = OtherSafetensors(dir);
    return absl::NotFoundError(absl::StrCat(
        dir, ": neither ", kSingleFile, " nor ", kIndexFile, " can be read; ",
        other.empty() ? "other weight formats (pytorch_model.bin, GGUF) have to be converted"
                      : absl::StrCat("rename ", other, " to ", kSingleFile)));
  }
  return checkpoint;
}

absl::Status Checkpoint::OpenShards(const std::string& dir) {
  ASSIGN_OR_RETURN(const auto shard_of, ReadIndex(listing_path_));
  std::set<std::string> shards;
  for (const auto& [name, shard] : shard_of) shards.insert(shard);
  FaultList faults;
  for (const std::string& shard : shards) faults.Add(AddFile(absl::StrCat(dir, "/", shard)));
  // Tensors of a shard that cannot be read would all be missing.
  return faults.empty() ? CheckIndex(dir, shard_of) : faults.status();
}

absl::Status Checkpoint::CheckIndex(const std::string& dir,
                                    const std::map<std::string, std::string>& shard_of) const {
  FaultList faults;
  for (const auto& [name, shard] : shard_of) {
    auto it = tensors_.find(name);
    if (it == tensors_.end() || path(it->second) != absl::StrCat(dir, "/", shard)) {
      faults.Add(BadTensor(listing_path_, name, absl::StrCat("is not in ", shard)));
    }
  }
  for (const auto& [name, tensor] : tensors_) {
    if (shard_of.contains(name)) continue;
    faults.Add(BadTensor(path(tensor), name, absl::StrCat("is not listed in ", kIndexFile)));
  }
  return faults.status();
}

absl::Status Checkpoint::AddFile(const std::string& path) {
  // O_NONBLOCK: opening a FIFO would wait for a writer; it is refused below.
  Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return FileError(path, errno);
  struct stat info;
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return Bad(path, "not a regular file");
  const auto file_bytes = static_cast<uint64_t>(info.st_size);
  ASSIGN_OR_RETURN(const std::string header, ReadHeader(fd.get(), file_bytes, path));
  ASSIGN_OR_RETURN(auto tensors, ParseSafetensorsHeader(header, file_bytes, path));
  for (auto& [name, tensor] : tensors) {
    tensor.file = files_.size();
    auto [it, inserted] = tensors_.emplace(name, std::move(tensor));
    if (!inserted) {
      return BadTensor(path, name, absl::StrCat("is also in ", this->path(it->second)));
    }
  }
  files_.push_back(File{path, std::move(fd)});
  return absl::OkStatus();
}

absl::Status Checkpoint::Read(const std::string& name, uint64_t offset, std::span<char> out) const {
  const auto it = tensors_.find(name);
  CHECK(it != tensors_.end());
  const StoredTensor& tensor = it->second;
  CHECK(offset <= tensor.bytes && out.size() <= tensor.bytes - offset);
  const File& file = files_[tensor.file];
  absl::Status read = ReadExactly(file.fd.get(), tensor.begin + offset, out);
  return read.ok() ? read : BadTensor(file.path, name, std::string(read.message()));
}

}  // namespace quire
