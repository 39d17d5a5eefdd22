// Reads the tensors of a matrix by what all published packings share: an element lies in a cell of
// the tensor's data whose index is a number of its row plus a number of its column, and so are the
// bits in front of it in the cell.
#include "engine/model/packed/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "kernels/ceil_div.h"
#include "kernels/packed_row.h"

namespace quire {
namespace {

using Packing = IntegerFormat::Packing;

const std::vector<std::string> kWords = {"I32"}, kBytes = {"I8"}, kLong = {"I64"},
                               kFloats = {"F16", "BF16", "F32"};

// AWQ: output e of each eight lies in the word's bits from 4 * kAwqNibble[e] on.
constexpr std::array<int, 8> kAwqNibble = {0, 4, 1, 5, 2, 6, 3, 7};

int64_t Blocks(const IntegerFormat& format, int64_t columns) {
  return format.group == 0 ? 1 : columns / format.group;
}

// The names of the tensors of a module.
struct Names {
  std::string elements, scales, zeros, groups, shape, bias;

  Names(const IntegerFormat& format, const std::string& module) {
    const bool words = format.packing == Packing::kCompressedTensors;
    if (words || format.packing == Packing::kPlain) {
      elements = module + (words ? ".weight_packed" : ".weight");
      scales = module + ".weight_scale";
      zeros = module + ".weight_zero_point";
      groups = module + ".weight_g_idx";
      if (words) shape = module + ".weight_shape";
    } else {
      elements = module + ".qweight";
      scales = module + ".scales";
      zeros = module + ".qzeros";
      if (format.packing == Packing::kGptq) groups = module + ".g_idx";
      bias = module + ".bias";
    }
  }
};

// A fault of the data of a stored tensor.
template <typename... Parts>
absl::Status Fault(const Checkpoint& checkpoint, const std::string& name, const Parts&... parts) {
  const StoredTensor& stored = checkpoint.tensors().find(name)->second;
  return absl::InvalidArgumentError(
      absl::StrCat(checkpoint.path(stored), ": tensor \"", name, "\": ", parts...));
}

// A rectangle of cells of one size, as it was read.
struct Cells {
  ShardRange rows, columns;  // of the stored tensor
  int64_t size = 4;          // bytes of a cell: 1, 2 or 4
  std::vector<char> data;

  uint32_t operator[](int64_t i) const {
    uint32_t cell = 0;
    std::memcpy(&cell, &data[static_cast<size_t>(i * size)], static_cast<size_t>(size));
    return cell;
  }
};

absl::StatusOr<Cells> ReadCells(const Checkpoint& checkpoint, const std::string& name,
                                ShardRange rows, ShardRange columns) {
  const StoredTensor& stored = checkpoint.tensors().find(name)->second;
  const int64_t width = stored.shape.size() == 2 ? stored.shape[1] : 1;
  const int64_t count = std::max<int64_t>(1, stored.shape[0] * width);
  Cells cells{.rows = rows, .columns = columns, .size = static_cast<int64_t>(stored.bytes) / count};
  cells.data.resize(static_cast<size_t>(rows.count * columns.count * cells.size));
  // Whole rows are one run.
  const bool whole = columns.count == width;
  const int64_t runs = whole ? 1 : rows.count;
  const auto run_bytes = cells.data.size() / static_cast<size_t>(std::max<int64_t>(1, runs));
  for (int64_t i = 0; i < runs; ++i) {
    const int64_t at = ((rows.begin + i) * width + columns.begin) * cells.size;
    RETURN_IF_ERROR(
        checkpoint.Read(name, static_cast<uint64_t>(at),
                        {cells.data.data() + static_cast<size_t>(i) * run_bytes, run_bytes}));
  }
  return cells;
}

// Of a row or a column: its summand of the index of a cell, and of the bits in front.
struct Summand {
  int64_t cell = 0;
  int shift = 0;
};

// A matrix of integers in cells, some of its rows (outputs) and columns.
struct StoredIntegers {
  Cells cells;
  std::vector<Summand> rows, columns;
  uint32_t mask = 15;
  uint32_t flip = 0;      // of signed bytes, whose middle is 0
  uint32_t less_one = 0;  // 1: the stored elements are less than the value by 1, modulo the range

  uint32_t At(int64_t row, int64_t column) const {
    const Summand &r = rows[static_cast<size_t>(row)], &c = columns[static_cast<size_t>(column)];
    return ((cells[r.cell + c.cell] >> (r.shift + c.shift) ^ flip) + less_one) & mask;
  }
};

// Which dimension of a stored matrix several elements of a cell follow.
enum class Along : uint8_t { kNone, kRows, kColumns };

// How a stored matrix of integers lies: transposed (stored row = our column) or not.
struct Lay {
  int bits = 4;
  bool transposed = false;
  Along packed = Along::kNone;
  bool awq = false;
};

// Reads our `rows` and `columns` of the stored matrix.
absl::StatusOr<StoredIntegers> ReadIntegers(const Checkpoint& checkpoint, const std::string& name,
                                            const Lay& lay, ShardRange rows, ShardRange columns) {
  StoredIntegers out;
  out.mask = (1u << lay.bits) - 1;
  const int64_t per_cell = 32 / lay.bits;
  const auto cells_of = [&](ShardRange range, bool packed) {
    if (!packed) return range;
    const int64_t begin = range.begin / per_cell;
    return ShardRange{begin, CeilDiv(range.begin + range.count, per_cell) - begin};
  };
  const ShardRange our_rows = cells_of(rows, lay.packed == Along::kRows);
  const ShardRange our_columns = cells_of(columns, lay.packed == Along::kColumns);
  ASSIGN_OR_RETURN(out.cells, ReadCells(checkpoint, name, lay.transposed ? our_columns : our_rows,
                                        lay.transposed ? our_rows : our_columns));
  const int64_t width = out.cells.columns.count;
  const auto summands = [&](ShardRange range, ShardRange read, bool packed, int64_t stride) {
    std::vector<Summand> result;
    for (int64_t i = range.begin; i < range.begin + range.count; ++i) {
      if (!packed) {
        result.push_back({(i - read.begin) * stride, 0});
        continue;
      }
      const auto within = static_cast<int>(i % per_cell);
      const int nibble = lay.awq ? kAwqNibble[static_cast<size_t>(within)] : within;
      result.push_back({(i / per_cell - read.begin) * stride, lay.bits * nibble});
    }
    return result;
  };
  out.rows = summands(rows, our_rows, lay.packed == Along::kRows, lay.transposed ? 1 : width);
  out.columns =
      summands(columns, our_columns, lay.packed == Along::kColumns, lay.transposed ? width : 1);
  return out;
}

Lay LayOfElements(const IntegerFormat& format) {
  Lay lay{.bits = format.bits, .packed = Along::kColumns};
  switch (format.packing) {
    case Packing::kCompressedTensors: break;
    case Packing::kPlain: lay.packed = Along::kNone; break;
    case Packing::kAwq: lay = {format.bits, true, Along::kRows, true}; break;
    case Packing::kGptq: lay.transposed = true; break;
  }
  return lay;
}

Lay LayOfZeros(const IntegerFormat& format) {
  const bool awq = format.packing == Packing::kAwq;
  return {format.bits, awq || format.packing == Packing::kGptq, Along::kRows, awq};
}

// The group of each stored column, each in range.
absl::StatusOr<std::vector<int32_t>> ReadGroups(const Checkpoint& checkpoint,
                                                const std::string& name, const PackedPart& part,
                                                int64_t blocks) {
  std::vector<int32_t> groups(static_cast<size_t>(part.stored_columns));
  RETURN_IF_ERROR(checkpoint.Read(
      name, 0, {reinterpret_cast<char*>(groups.data()), groups.size() * sizeof(int32_t)}));
  for (size_t c = 0; c < groups.size(); ++c) {
    if (0 <= groups[c] && groups[c] < blocks) continue;
    return Fault(checkpoint, name, "element ", c, " is ", groups[c], "; the matrix has ", blocks,
                 " groups");
  }
  return groups;
}

// The stored column of each loaded one: sorted by group, and in their order within one.
absl::StatusOr<std::vector<int32_t>> ReadOrder(const Checkpoint& checkpoint,
                                               const IntegerFormat& format,
                                               const PackedPart& part) {
  const std::string name = Names(format, part.module).groups;
  const int64_t blocks = Blocks(format, part.stored_columns);
  ASSIGN_OR_RETURN(const std::vector<int32_t> groups, ReadGroups(checkpoint, name, part, blocks));
  std::vector<int64_t> sizes(static_cast<size_t>(blocks));
  for (const int32_t group : groups) ++sizes[static_cast<size_t>(group)];
  const int64_t wanted = part.stored_columns / blocks;
  for (int64_t b = 0; b < blocks; ++b) {
    if (sizes[static_cast<size_t>(b)] == wanted) continue;
    return Fault(checkpoint, name, "group ", b, " has ", sizes[static_cast<size_t>(b)],
                 " columns; config.json makes it ", wanted);
  }
  std::vector<int32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, {}, [&groups](int32_t column) { return groups[static_cast<size_t>(column)]; });
  return order;
}

// Of a format in order: what the file says besides is no other order.
absl::Status CheckInOrder(const Checkpoint& checkpoint, const IntegerFormat& format,
                          const PackedPart& part) {
  const std::string name = Names(format, part.module).groups;
  if (!checkpoint.tensors().contains(name)) return absl::OkStatus();
  const int64_t blocks = Blocks(format, part.stored_columns);
  ASSIGN_OR_RETURN(const std::vector<int32_t> groups, ReadGroups(checkpoint, name, part, blocks));
  const int64_t width = part.stored_columns / blocks;
  for (size_t c = 0; c < groups.size(); ++c) {
    if (groups[c] == static_cast<int64_t>(c) / width) continue;
    return Fault(checkpoint, name, "column ", c, " is of group ", groups[c],
                 ", so columns are not in order, as config.json says (desc_act, actorder)");
  }
  return absl::OkStatus();
}

absl::Status CheckShapeTensor(const Checkpoint& checkpoint, const std::string& name,
                              const PackedPart& part) {
  std::array<int64_t, 2> shape{};
  RETURN_IF_ERROR(checkpoint.Read(name, 0, {reinterpret_cast<char*>(shape.data()), sizeof(shape)}));
  if (shape[0] == part.stored_rows && shape[1] == part.stored_columns) return absl::OkStatus();
  return Fault(checkpoint, name, "says [", shape[0], ", ", shape[1], "], config.json makes it [",
               part.stored_rows, ", ", part.stored_columns, "]");
}

// The place, from the beginning of a part on, of its loaded row.
int64_t StoredRow(const PackedPart& part, int64_t row) {
  if (part.order.empty()) return row;
  const auto run = static_cast<int64_t>(part.order.size());
  return row / run * run + part.order[static_cast<size_t>(row % run)];
}

// Packs the part's loaded rows [first, first + count), which are whole runs of its order.
absl::Status MakeRows(const Checkpoint& checkpoint, const IntegerFormat& format,
                      const PackedPart& part, ShardRange loaded, char* out) {
  const int64_t k = part.columns.count;
  std::vector<int32_t> order;
  if (format.any_order) {
    ASSIGN_OR_RETURN(order, ReadOrder(checkpoint, format, part));
  }
  ASSIGN_OR_RETURN(
      StoredIntegers stored,
      ReadIntegers(checkpoint, Names(format, part.module).elements, LayOfElements(format),
                   {part.rows.begin + loaded.begin, loaded.count}, part.columns));
  if (format.packing == Packing::kPlain) stored.flip = 0x80;
  std::vector<PackedPlace> places;
  for (int64_t c = 0; c < k; ++c) places.emplace_back(format.dtype(), c);
  const int64_t row_bytes = BytesOf(format.dtype(), k);
  std::memset(out, 0, static_cast<size_t>(loaded.count * row_bytes));
  for (int64_t r = 0; r < loaded.count; ++r) {
    auto* const row = reinterpret_cast<uint8_t*>(out + r * row_bytes);
    const int64_t from = StoredRow(part, loaded.begin + r) - loaded.begin;
    for (int64_t c = 0; c < k; ++c) {
      const PackedPlace& place = places[static_cast<size_t>(c)];
      const uint32_t element = stored.At(from, order.empty() ? c : order[static_cast<size_t>(c)]);
      row[place.byte] = static_cast<uint8_t>(row[place.byte] | element << place.shift);
    }
  }
  return absl::OkStatus();
}

// Of the scales and zeros of a matrix: blocks of columns and their place.
struct BlockRun {
  ShardRange blocks;
  int64_t stride = 0;  // of one block's, a number for each row
};

// The stored blocks of a run.
ShardRange StoredBlocks(const IntegerFormat& format, const PackedPart& part, const BlockRun& run) {
  const int64_t first = format.group == 0 ? 0 : part.columns.begin / format.group;
  return {first + run.blocks.begin, run.blocks.count};
}

// Writes a part's scales to the rows from `row` on.
absl::Status MakeScales(const Checkpoint& checkpoint, const IntegerFormat& format,
                        const PackedPart& part, const BlockRun& run, float* out) {
  const std::string name = Names(format, part.module).scales;
  const bool transposed = LayOfZeros(format).transposed;
  const ShardRange blocks = StoredBlocks(format, part, run);
  ASSIGN_OR_RETURN(const Cells cells, ReadCells(checkpoint, name, transposed ? blocks : part.rows,
                                                transposed ? part.rows : blocks));
  const DType type = *LoadableDType(checkpoint.tensors().find(name)->second.dtype);
  for (int64_t b = 0; b < blocks.count; ++b) {
    for (int64_t r = 0; r < part.rows.count; ++r) {
      const int64_t row = StoredRow(part, r);
      const int64_t at = transposed ? b * part.rows.count + row : row * blocks.count + b;
      const float scale = DispatchFloat(type, [&](auto tag) {
        std::memcpy(&tag, &cells.data[static_cast<size_t>(at) * sizeof(tag)], sizeof(tag));
        return ToFloat(tag);
      });
      if (!std::isfinite(scale)) {
        const int64_t stored_row = part.rows.begin + row, block = blocks.begin + b;
        return Fault(checkpoint, name, "element (", transposed ? block : stored_row, ", ",
                     transposed ? stored_row : block, ") is ", scale, "; a scale is finite");
      }
      out[b * run.stride + r] = scale;
    }
  }
  return absl::OkStatus();
}

// Of a symmetric format: all zeros of a piece are the middle of the range, or all less by 1, as
// GPTQ's first form stores them.
absl::Status CheckMiddle(const Checkpoint& checkpoint, const std::string& name,
                         const IntegerFormat& format, const StoredIntegers& stored,
                         const std::array<ShardRange, 2>& rows_and_blocks) {
  const auto& [rows, blocks] = rows_and_blocks;
  const uint32_t middle = 1u << (format.bits - 1);
  const uint32_t first = stored.At(0, 0);
  const bool less_one = format.packing == Packing::kGptq && first == middle - 1;
  const uint32_t wanted = less_one ? first : middle;
  for (int64_t b = 0; b < blocks.count; ++b) {
    for (int64_t r = 0; r < rows.count; ++r) {
      const uint32_t zero = stored.At(r, b);
      if (zero == wanted) continue;
      return Fault(checkpoint, name, "row ", rows.begin + r, ", group ", blocks.begin + b,
                   ": the zero is ", zero, "; config.json says symmetric (sym, zero_point), so ",
                   "all zeros are ", wanted);
    }
  }
  return absl::OkStatus();
}

absl::Status MakeZeros(const Checkpoint& checkpoint, const IntegerFormat& format,
                       const PackedPart& part, const BlockRun& run, uint8_t* out) {
  const std::string name = Names(format, part.module).zeros;
  Lay lay = LayOfZeros(format);
  // Older compressed-tensors stores signed bytes, as int-quantized does.
  const bool bytes = checkpoint.tensors().find(name)->second.dtype == "I8";
  if (bytes) lay.packed = Along::kNone;
  const ShardRange blocks = StoredBlocks(format, part, run);
  ASSIGN_OR_RETURN(StoredIntegers stored, ReadIntegers(checkpoint, name, lay, part.rows, blocks));
  if (format.symmetric) {
    RETURN_IF_ERROR(CheckMiddle(checkpoint, name, format, stored, {part.rows, blocks}));
    for (int64_t b = 0; b < blocks.count; ++b) {
      std::memset(out + b * run.stride, 1 << (format.bits - 1),
                  static_cast<size_t>(part.rows.count));
    }
    return absl::OkStatus();
  }
  if (bytes) stored.flip = 1u << (format.bits - 1);
  stored.less_one = format.zeros_less_one ? 1 : 0;
  for (int64_t b = 0; b < run.blocks.count; ++b) {
    for (int64_t r = 0; r < part.rows.count; ++r) {
      out[b * run.stride + r] = static_cast<uint8_t>(stored.At(StoredRow(part, r), b));
    }
  }
  return absl::OkStatus();
}

// Of a part without a bias: a stored one changes nothing.
absl::Status CheckNoBias(const Checkpoint& checkpoint, const std::string& name) {
  const auto stored = checkpoint.tensors().find(name);
  if (stored == checkpoint.tensors().end()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Cells cells,
                   ReadCells(checkpoint, name, {0, stored->second.shape[0]}, {0, 1}));
  // The last byte of an element has its sign.
  const size_t count = static_cast<size_t>(std::max<int64_t>(stored->second.shape[0], 1));
  const size_t size = std::max<size_t>(cells.data.size() / count, 1);
  bool zero = true;
  for (size_t i = 0; i < cells.data.size(); ++i) {
    const int bits = i % size == size - 1 ? 0x7f : 0xff;
    zero = zero && (cells.data[i] & bits) == 0;
  }
  if (zero) return absl::OkStatus();
  return Fault(checkpoint, name, "is not zero; config.json describes no bias here");
}

absl::Status CheckData(const Checkpoint& checkpoint, const IntegerFormat& format,
                       const PackedPart& part) {
  const Names names(format, part.module);
  if (!names.bias.empty() && !part.has_bias) RETURN_IF_ERROR(CheckNoBias(checkpoint, names.bias));
  if (!names.shape.empty()) RETURN_IF_ERROR(CheckShapeTensor(checkpoint, names.shape, part));
  if (format.any_order || names.groups.empty()) return absl::OkStatus();
  return CheckInOrder(checkpoint, format, part);
}

}  // namespace

std::vector<WeightSource::Stored> PackedMatrix::tensors() const {
  std::vector<Stored> result;
  for (const PackedPart& part : parts_) {
    const Names names(format_, part.module);
    const int64_t n = part.stored_rows, k = part.stored_columns;
    const int64_t per_word = 32 / format_.bits, blocks = Blocks(format_, k);
    const auto add = [&](const std::string& name, std::vector<Form> forms, bool optional = false) {
      result.push_back({name, std::move(forms), optional});
    };
    switch (format_.packing) {
      case Packing::kCompressedTensors:
      case Packing::kPlain:
        add(names.elements, names.shape.empty()
                                ? std::vector<Form>{{{n, k}, kBytes}}
                                : std::vector<Form>{{{n, CeilDiv(k, per_word)}, kWords}});
        add(names.scales, {{{n, blocks}, kFloats}});
        if (!names.shape.empty()) add(names.shape, {{{2}, kLong}});
        if (format_.has_zeros) {
          add(names.zeros, {{{CeilDiv(n, per_word), blocks}, kWords}, {{n, blocks}, kBytes}});
        }
        break;
      case Packing::kAwq: add(names.elements, {{{k, n / per_word}, kWords}}); break;
      case Packing::kGptq: add(names.elements, {{{k / per_word, n}, kWords}}); break;
    }
    if (format_.packing == Packing::kAwq || format_.packing == Packing::kGptq) {
      add(names.scales, {{{blocks, n}, kFloats}});
      add(names.zeros, {{{blocks, n / per_word}, kWords}});
    }
    if (!names.bias.empty() && !part.has_bias) add(names.bias, {{{n}, kFloats}}, true);
    if (!names.groups.empty()) add(names.groups, {{{k}, kWords}}, !format_.any_order);
  }
  return result;
}

void PackedMatrix::AddPieces(const Checkpoint&, const TensorView& tensor,
                             std::vector<WeightPiece>& pieces) const {
  const auto add = [&pieces](void* device, int64_t bytes, int64_t read, auto make) {
    WeightPiece& piece = pieces.emplace_back();
    piece.device = static_cast<char*>(device);
    piece.made_bytes = bytes;
    piece.read_bytes = read;
    piece.make = std::move(make);
  };
  const int64_t row_bytes = BytesOf(tensor.dtype, tensor.dim[1]);
  int64_t row = 0;
  for (const PackedPart& part : parts_) {
    const int64_t run = std::max<int64_t>(1, static_cast<int64_t>(part.order.size()));
    const int64_t step = std::max(kMaxPieceBytes / row_bytes / run * run, run);
    for (int64_t done = 0; done < part.rows.count; done += step) {
      const ShardRange loaded = {done, std::min(step, part.rows.count - done)};
      const int64_t bytes = loaded.count * row_bytes;
      add(tensor.Rows(row + done, loaded.count).data, bytes, bytes,
          [this, &part, loaded](const Checkpoint& checkpoint, char* out, std::vector<char>&) {
            return MakeRows(checkpoint, format_, part, loaded, out);
          });
    }
    row += part.rows.count;
  }
  CHECK_EQ(row, tensor.dim[0]);
  const int64_t blocks = Blocks(format_, tensor.dim[1]), stride = tensor.scale_stride;
  const int64_t step = std::clamp<int64_t>(kMaxPieceBytes / (stride * 4), 1, blocks);
  for (int64_t done = 0; done < blocks; done += step) {
    const BlockRun run{{done, std::min(step, blocks - done)}, stride};
    const int64_t count = run.blocks.count * stride;
    add(tensor.scales + done * stride, count * 4, count * 2,
        [this, run, count](const Checkpoint& checkpoint, char* out, std::vector<char>&) {
          std::memset(out, 0, static_cast<size_t>(count * 4));
          auto* scales = reinterpret_cast<float*>(out);
          for (const PackedPart& part : parts_) {
            if (run.blocks.begin == 0) RETURN_IF_ERROR(CheckData(checkpoint, format_, part));
            RETURN_IF_ERROR(MakeScales(checkpoint, format_, part, run, scales));
            scales += part.rows.count;
          }
          return absl::OkStatus();
        });
    if (tensor.zeros == nullptr) continue;
    add(const_cast<uint8_t*>(tensor.zeros) + done * stride, count, count * format_.bits / 8,
        [this, run, count](const Checkpoint& checkpoint, char* out, std::vector<char>&) {
          std::memset(out, 0, static_cast<size_t>(count));
          auto* zeros = reinterpret_cast<uint8_t*>(out);
          for (const PackedPart& part : parts_) {
            RETURN_IF_ERROR(MakeZeros(checkpoint, format_, part, run, zeros));
            zeros += part.rows.count;
          }
          return absl::OkStatus();
        });
  }
}

// Those of the matrix, which come first.
std::vector<WeightSource::Stored> ColumnOrder::tensors() const { return {}; }

void ColumnOrder::AddPieces(const Checkpoint&, const TensorView& tensor,
                            std::vector<WeightPiece>& pieces) const {
  WeightPiece& piece = pieces.emplace_back();
  piece.device = tensor.ptr<char>();
  piece.made_bytes = piece.read_bytes = tensor.bytes();
  piece.make = [this](const Checkpoint& checkpoint, char* out, std::vector<char>&) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> order, ReadOrder(checkpoint, format_, parts_[0]));
    for (const PackedPart& part : parts_) {
      ASSIGN_OR_RETURN(const std::vector<int32_t> other, ReadOrder(checkpoint, format_, part));
      if (other == order) continue;
      return Fault(checkpoint, Names(format_, part.module).groups,
                   "orders the columns otherwise than \"", parts_[0].module,
                   "\"; they are one matrix here");
    }
    std::memcpy(out, order.data(), order.size() * sizeof(int32_t));
    return absl::OkStatus();
  };
}

}  // namespace quire
