// IdIndex: from request id to sequence, in O(1), without allocating while the size stays within the
// capacity. Open addressing with linear probing; deletion moves later entries back instead of
// leaving tombstones, so that no number of adds and erases requires a rebuild. One thread.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/values/request.h"

namespace quire {

struct Sequence;

class IdIndex {
 public:
  explicit IdIndex(size_t capacity);

  // Requires a non-zero id that is not present.
  void Insert(RequestId id, Sequence* sequence);
  // Requires that the id is present.
  void Erase(RequestId id);
  Sequence* Find(RequestId id) const;  // null if unknown
  size_t size() const { return size_; }

 private:
  struct Cell {
    RequestId id = 0;  // 0: empty
    Sequence* sequence = nullptr;
  };

  size_t Home(RequestId id) const;
  // Where `id` is, or the empty cell where it would be inserted.
  size_t Locate(RequestId id) const;
  void Grow();

  std::vector<Cell> cells_;  // a power of two, at most half full
  size_t size_ = 0;
};

}  // namespace quire
