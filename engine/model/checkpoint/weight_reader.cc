// Threads read and convert; the caller's thread copies the results to the device.
#include "engine/model/checkpoint/weight_reader.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "engine/model/checkpoint/load_progress.h"
#include "kernels/row_scale.h"

namespace quire {
namespace {

// Copies in flight before the copier waits for the oldest; Backend::WaitFor allows eight.
constexpr size_t kCopiesUnderWay = 4;
// A reader fills one while the other is being copied.
constexpr int32_t kBuffersPerReader = 2;

// Converts `count` elements; `from` may be unaligned, as bytes of a file are.
template <typename From, typename To>
void ConvertRow(const char* from, char* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    From in;
    std::memcpy(&in, from + i * sizeof(From), sizeof(From));
    const To out = FromFloat<To>(ToFloat(in));
    std::memcpy(to + i * sizeof(To), &out, sizeof(To));
  }
}

// The row of the piece's stored rows that becomes row r of the result.
int64_t StoredRow(const WeightPiece& piece, int64_t r) {
  if (piece.repeats) return 0;
  if (piece.order.empty()) return r;
  const auto run = static_cast<int64_t>(piece.order.size());
  return r / run * run + piece.order[static_cast<size_t>(r % run)];
}

// Zeros behind the wanted columns of each row.
void FillPadding(const WeightPiece& piece, char* out) {
  const auto size = static_cast<int64_t>(SizeOf(piece.to));
  const int64_t padding = (piece.width - piece.columns.count) * size;
  if (padding == 0) return;
  for (int64_t r = 0; r < piece.rows.count; ++r) {
    std::memset(out + (r * piece.width + piece.columns.count) * size, 0,
                static_cast<size_t>(padding));
  }
}

// The wanted columns of `stored`, converted.
void Convert(const WeightPiece& piece, const char* stored, char* out) {
  const auto from_size = static_cast<int64_t>(SizeOf(piece.from));
  const auto to_size = static_cast<int64_t>(SizeOf(piece.to));
  DispatchElement(piece.from, [&](auto from_tag) {
    DispatchElement(piece.to, [&](auto to_tag) {
      for (int64_t r = 0; r < piece.rows.count; ++r) {
        ConvertRow<decltype(from_tag), decltype(to_tag)>(
            stored + (StoredRow(piece, r) * piece.stored_width + piece.columns.begin) * from_size,
            out + r * piece.width * to_size, piece.columns.count);
      }
    });
  });
}

// Where a piece's elements and scales go: a buffer, or the device.
struct Place {
  char* elements;
  char* scales;
};

// The wanted columns of `stored` as 8-bit elements, and the scales of their rows.
void ConvertToEightBit(const WeightPiece& piece, const char* stored, const Place& out) {
  std::vector<float> row(static_cast<size_t>(piece.stored_width));
  DispatchFloat(piece.from, [&](auto tag) {
    using From = decltype(tag);
    for (int64_t r = 0; r < piece.rows.count; ++r) {
      const int64_t at = StoredRow(piece, r) * piece.stored_width;
      ConvertRow<From, float>(stored + at * static_cast<int64_t>(sizeof(From)),
                              reinterpret_cast<char*>(row.data()), piece.stored_width);
      float largest = 0;
      for (float x : row) largest = std::fmax(largest, std::abs(x));
      const RowScale scale = RowScaleFor(largest);
      std::memcpy(out.scales + r * static_cast<int64_t>(sizeof(float)), &scale.scale,
                  sizeof(float));
      auto* to = reinterpret_cast<E4M3*>(out.elements + r * piece.width);
      for (int64_t c = 0; c < piece.columns.count; ++c) {
        to[c] = FromFloat<E4M3>(row[static_cast<size_t>(piece.columns.begin + c)] * scale.inverse);
      }
    }
  });
}

absl::Status CheckScales(const Checkpoint& checkpoint, const WeightPiece& piece, const char* out) {
  for (int64_t r = 0; r < piece.rows.count; ++r) {
    float scale;
    std::memcpy(&scale, out + r * static_cast<int64_t>(sizeof(scale)), sizeof(scale));
    if (std::isfinite(scale) && scale > 0) continue;
    const StoredTensor& stored = checkpoint.tensors().find(*piece.name)->second;
    return absl::InvalidArgumentError(absl::StrCat(
        checkpoint.path(stored), ": tensor \"", *piece.name, "\": element ",
        piece.rows.begin + StoredRow(piece, r), " is ", scale, "; a scale is finite and above 0"));
  }
  return absl::OkStatus();
}

// Below this, whole rows are read sooner than the wanted columns of each.
constexpr int64_t kLeastRunBytes = 4096;

int64_t RunBytes(const WeightPiece& piece) {
  return piece.columns.count * static_cast<int64_t>(SizeOf(piece.from));
}

bool ReadsColumnsAlone(const WeightPiece& piece) {
  return piece.order.empty() && piece.columns.count < piece.stored_width &&
         RunBytes(piece) >= kLeastRunBytes && !piece.becomes_eight_bit();
}

// Bytes of the file that are read for a piece.
int64_t BytesRead(const WeightPiece& piece) {
  if (piece.make != nullptr) return piece.read_bytes;
  return ReadsColumnsAlone(piece) ? piece.rows.count * RunBytes(piece) : piece.stored_bytes();
}

// Reads the wanted columns row by row to `out`, whose rows begin `stride` bytes apart.
absl::Status ReadColumns(const Checkpoint& checkpoint, const WeightPiece& piece, int64_t stride,
                         char* out) {
  const auto size = static_cast<int64_t>(SizeOf(piece.from));
  const int64_t run = RunBytes(piece);
  for (int64_t r = 0; r < piece.rows.count; ++r) {
    const int64_t at = ((piece.rows.begin + r) * piece.stored_width + piece.columns.begin) * size;
    const absl::Status read = checkpoint.Read(*piece.name, static_cast<uint64_t>(at),
                                              {out + r * stride, static_cast<size_t>(run)});
    if (!read.ok()) return read;
  }
  return absl::OkStatus();
}

// Reads a piece; `scratch` is reused from piece to piece.
absl::Status ReadPiece(const Checkpoint& checkpoint, const WeightPiece& piece, const Place& place,
                       std::vector<char>& scratch) {
  char* const out = place.elements;
  if (piece.make != nullptr) return piece.make(checkpoint, out, scratch);
  FillPadding(piece, out);
  if (ReadsColumnsAlone(piece)) {
    if (piece.from == piece.to) {
      const int64_t stride = piece.width * static_cast<int64_t>(SizeOf(piece.to));
      return ReadColumns(checkpoint, piece, stride, out);
    }
    WeightPiece dense = piece;
    dense.stored_width = piece.columns.count;
    dense.columns.begin = 0;
    scratch.resize(static_cast<size_t>(dense.stored_bytes()));
    const absl::Status read = ReadColumns(checkpoint, piece, RunBytes(piece), scratch.data());
    if (read.ok()) Convert(dense, scratch.data(), out);
    return read;
  }
  const auto row_bytes = piece.stored_width * static_cast<int64_t>(SizeOf(piece.from));
  const auto offset = static_cast<uint64_t>(piece.rows.begin * row_bytes);
  const auto bytes = static_cast<size_t>(piece.stored_bytes());
  const bool as_stored =
      piece.from == piece.to && piece.order.empty() && !piece.repeats && !piece.are_scales;
  const bool whole = piece.columns.count == piece.stored_width;
  if (as_stored && whole && piece.width == piece.stored_width) {
    return checkpoint.Read(*piece.name, offset, {out, bytes});
  }
  scratch.resize(bytes);
  RETURN_IF_ERROR(checkpoint.Read(*piece.name, offset, scratch));
  if (piece.becomes_eight_bit()) {
    ConvertToEightBit(piece, scratch.data(), place);
  } else {
    Convert(piece, scratch.data(), out);
  }
  return piece.are_scales ? CheckScales(checkpoint, piece, out) : absl::OkStatus();
}

// The place of a piece in a buffer, or its own where there is none.
Place PlaceOf(const WeightPiece& piece, char* buffer) {
  if (buffer == nullptr) return {piece.device, reinterpret_cast<char*>(piece.scales)};
  return {buffer, buffer + piece.bytes()};
}

// The buffers, the pieces in them, and the waiting between readers and copier.
class Staging {
 public:
  explicit Staging(size_t num_pieces) : num_pieces_(num_pieces) {}

  struct Filled {
    size_t piece = 0;
    char* buffer = nullptr;
  };

  // Reader: the next piece and its buffer; nullopt when no piece is left.
  std::optional<Filled> Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return Over() || !free_.empty(); });
    if (Over()) return std::nullopt;
    const Filled next{next_++, free_.back()};
    free_.pop_back();
    if (Over()) changed_.notify_all();
    return next;
  }
  // Reader: has filled the buffer from Next, or failed.
  void Fill(const Filled& filled, const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    if (status.ok()) {
      filled_.push_back(filled);
    } else if (failed_.ok() || filled.piece < failed_piece_) {
      failed_ = status;
      failed_piece_ = filled.piece;
    }
    ++done_;
    changed_.notify_all();
  }
  // Copier: a piece that was read; nullopt when no further piece will come.
  std::optional<Filled> Take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !filled_.empty() || (Over() && done_ == next_); });
    if (filled_.empty()) return std::nullopt;
    const Filled filled = filled_.front();
    filled_.pop_front();
    return filled;
  }
  void AddFree(char* buffer) {
    const std::lock_guard lock(mutex_);
    free_.push_back(buffer);
    changed_.notify_all();
  }
  absl::Status status() const { return failed_; }  // once all readers are done

 private:
  // No reader begins another piece.
  bool Over() const { return next_ == num_pieces_ || !failed_.ok(); }

  const size_t num_pieces_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  size_t next_ = 0;  // to be read
  size_t done_ = 0;  // read, or failed
  std::vector<char*> free_;
  std::deque<Filled> filled_;
  absl::Status failed_;
  size_t failed_piece_ = 0;
};

std::vector<std::thread> StartReaders(const Checkpoint& checkpoint,
                                      const std::vector<WeightPiece>& pieces, int32_t count,
                                      Staging& staging, LoadProgress& progress) {
  std::vector<std::thread> readers;
  for (int32_t i = 0; i < count; ++i) {
    readers.emplace_back([&checkpoint, &pieces, &staging, &progress] {
      std::vector<char> scratch;
      while (const auto next = staging.Next()) {
        const WeightPiece& piece = pieces[next->piece];
        staging.Fill(*next, ReadPiece(checkpoint, piece, PlaceOf(piece, next->buffer), scratch));
        progress.Add(BytesRead(piece), SteadyNowNs());
      }
    });
  }
  return readers;
}

// Copies filled buffers to the device in the order in which they were filled.
void CopyAll(const std::vector<WeightPiece>& pieces, Staging& staging, Backend& backend) {
  struct Copy {
    uint64_t mark;
    char* buffer;
  };
  std::deque<Copy> under_way;
  while (const auto filled = staging.Take()) {
    const WeightPiece& piece = pieces[filled->piece];
    const Place from = PlaceOf(piece, filled->buffer);
    backend.CopyToDevice(piece.device, from.elements, static_cast<size_t>(piece.bytes()));
    if (piece.becomes_eight_bit()) {
      backend.CopyToDevice(piece.scales, from.scales, static_cast<size_t>(piece.scale_bytes()));
    }
    under_way.push_back({backend.Mark(), filled->buffer});
    if (under_way.size() < kCopiesUnderWay) continue;
    backend.WaitFor(under_way.front().mark);
    staging.AddFree(under_way.front().buffer);
    under_way.pop_front();
  }
  backend.Synchronize();
}

}  // namespace

void AddPieces(const WeightPiece& whole, std::vector<WeightPiece>& pieces) {
  if (whole.rows.count == 0) return;
  if (whole.repeats) return pieces.push_back(whole);
  const int64_t row_bytes = whole.stored_bytes() / whole.rows.count;
  // Runs of rows that change places stay together.
  const int64_t run = std::max<int64_t>(1, static_cast<int64_t>(whole.order.size()));
  CHECK_EQ(whole.rows.count % run, 0);
  const int64_t rows = std::clamp<int64_t>(kMaxPieceBytes / row_bytes, 1, whole.rows.count);
  const int64_t step = std::max(rows / run * run, run);
  for (int64_t done = 0; done < whole.rows.count; done += step) {
    WeightPiece piece = whole;
    piece.rows = {whole.rows.begin + done, std::min(step, whole.rows.count - done)};
    piece.device += done * (whole.bytes() / whole.rows.count);
    if (piece.scales != nullptr) piece.scales += done;
    pieces.push_back(piece);
  }
}

absl::Status ReadWeights(const Checkpoint& checkpoint, const std::vector<WeightPiece>& pieces,
                         const WeightReading& how, Backend& backend) {
  const auto readers = static_cast<int32_t>(
      std::clamp<int64_t>(how.threads, 1, static_cast<int64_t>(pieces.size()) + 1));
  Staging staging(pieces.size());
  Buffer memory;
  if (how.in_place) {
    // A null buffer means the piece's own place. Nothing is copied, so every piece has one.
    for (size_t i = 0; i < pieces.size(); ++i) staging.AddFree(nullptr);
  } else {
    int64_t largest = 0;
    for (const WeightPiece& piece : pieces) {
      largest = std::max(largest, piece.bytes() + piece.scale_bytes());
    }
    // At least as many as copies in flight, and one to fill.
    const auto buffers = std::max<int64_t>(readers * kBuffersPerReader, kCopiesUnderWay + 1);
    memory = backend.AllocateHost(static_cast<size_t>(largest * buffers));
    if (memory.empty()) {
      return absl::ResourceExhaustedError("no host memory for " +
                                          std::to_string(largest * buffers) +
                                          " bytes of buffers to load weights through");
    }
    for (int64_t i = 0; i < buffers; ++i) {
      staging.AddFree(static_cast<char*>(memory.data()) + i * largest);
    }
  }
  int64_t total_bytes = 0;
  for (const WeightPiece& piece : pieces) total_bytes += BytesRead(piece);
  LoadProgress progress(total_bytes, SteadyNowNs());
  std::vector<std::thread> threads = StartReaders(checkpoint, pieces, readers, staging, progress);
  if (!how.in_place) CopyAll(pieces, staging, backend);
  for (std::thread& thread : threads) thread.join();
  return staging.status();
}

}  // namespace quire
