// Safetensors: reads the tensors of a checkpoint directory. Checks every value of a header against
// the file before it uses the value, and reads with pread: a bad file is an error that names file,
// tensor and rule, never a signal.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/dtype.h"

namespace quire {

// The place of one tensor. `dtype` is the file's own name ("BF16"), since files may hold types that
// cannot be loaded.
struct StoredTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // first byte in the file
  uint64_t bytes = 0;  // size of the elements, exactly
  size_t file = 0;     // index into Checkpoint's files
};

// The DType of a stored name, or INVALID_ARGUMENT with the loadable names.
absl::StatusOr<DType> LoadableDType(std::string_view stored);
// The names of 8-bit elements, which have their scales in another tensor.
inline constexpr char kStoredE4M3[] = "F8_E4M3";
inline constexpr char kStoredI8[] = "I8";

// Parses a file's header: the first `8 + N` bytes, where `file_bytes` is the size of the whole.
// `path` is for messages. Names are unique, and the tensors tile the rest of the file without holes
// or overlaps.
absl::StatusOr<std::map<std::string, StoredTensor>> ParseSafetensorsHeader(std::string_view header,
                                                                           uint64_t file_bytes,
                                                                           const std::string& path);

// The tensors of a directory: model.safetensors, else the shards of model.safetensors.index.json.
// Constant after Open: any number of threads may read.
class Checkpoint {
 public:
  // NOT_FOUND when the directory holds neither, or for a shard that is not there; INVALID_ARGUMENT
  // for a file that breaks a rule. All faults, one a line.
  static absl::StatusOr<Checkpoint> Open(const std::string& dir);

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  // The file a tensor lies in.
  const std::string& path(const StoredTensor& tensor) const { return files_[tensor.file].path; }
  // The file that lists all tensors: the only one, or the index.
  const std::string& listing_path() const { return listing_path_; }
  size_t num_files() const { return files_.size(); }

  // Reads the tensor's bytes [offset, offset + out.size()), which must lie inside it.
  absl::Status Read(const std::string& name, uint64_t offset, std::span<char> out) const;

 private:
  class Descriptor {
   public:
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&&) = delete;
    ~Descriptor();
    int get() const { return fd_; }

   private:
    int fd_;
  };
  struct File {
    std::string path;
    Descriptor fd;
  };

  absl::Status AddFile(const std::string& path);
  absl::Status OpenShards(const std::string& dir);
  absl::Status CheckIndex(const std::string& dir,
                          const std::map<std::string, std::string>& shard_of) const;

  std::string listing_path_;
  std::vector<File> files_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace quire
