// Linear probing with backward-shift deletion.
#include "engine/schedule/containers/id_index.h"

#include <bit>
#include <utility>

#include "kernels/check.h"

namespace quire {

IdIndex::IdIndex(size_t capacity) : cells_(std::bit_ceil(2 * capacity + 2)) {}

size_t IdIndex::Home(RequestId id) const {
  // Fibonacci hashing: consecutive ids spread over the table.
  return (id * 0x9E3779B97F4A7C15u) >> (64 - std::countr_zero(cells_.size()));
}

size_t IdIndex::Locate(RequestId id) const {
  size_t i = Home(id);
  while (cells_[i].id != 0 && cells_[i].id != id) i = (i + 1) & (cells_.size() - 1);
  return i;
}

Sequence* IdIndex::Find(RequestId id) const { return cells_[Locate(id)].sequence; }

void IdIndex::Insert(RequestId id, Sequence* sequence) {
  CHECK_NE(id, 0u);
  if (2 * (size_ + 1) > cells_.size()) Grow();
  Cell& cell = cells_[Locate(id)];
  CHECK_EQ(cell.id, 0u);
  cell = {id, sequence};
  ++size_;
}

void IdIndex::Erase(RequestId id) {
  const size_t mask = cells_.size() - 1;
  size_t hole = Locate(id);
  CHECK_NE(cells_[hole].id, 0u);
  // An entry moves back into the hole unless its home lies after the hole (in probe order).
  for (size_t i = (hole + 1) & mask; cells_[i].id != 0; i = (i + 1) & mask) {
    const size_t from_home = (i - Home(cells_[i].id)) & mask;
    if (from_home < ((i - hole) & mask)) continue;
    cells_[hole] = cells_[i];
    hole = i;
  }
  cells_[hole] = {};
  --size_;
}

void IdIndex::Grow() {
  std::vector<Cell> old(cells_.size() * 2);
  old.swap(cells_);
  for (const Cell& cell : old) {
    if (cell.id != 0) cells_[Locate(cell.id)] = cell;
  }
}

}  // namespace quire
