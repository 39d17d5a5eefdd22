// One walk over the vectors for each of size, write and read, so that the three cannot differ.
#include "engine/worker/process/plan_codec.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "engine/worker/rank/row_tables.h"
#include "kernels/check.h"

namespace quire {
namespace {

// Changes with every change of the structs that travel.
constexpr uint32_t kVersion = 7;
constexpr uint32_t kPlanMagic = 0x51504C4E;    // "QPLN"
constexpr uint32_t kResultMagic = 0x51524553;  // "QRES"
constexpr size_t kMaxVectors = 12;

struct Head {
  uint32_t magic = 0;
  uint32_t version = 0;
  uint64_t step = 0;
  uint64_t bytes = 0;  // of the whole, this head included
  // plan: tokens, samples, graph size, flags; result: checksum, times
  std::array<uint64_t, 4> word{};
  std::array<uint32_t, kMaxVectors> count{};
  uint64_t sizes = 0;  // hash of the fields above and the sizes of the elements
};
static_assert(std::is_trivially_copyable_v<Head>);
static_assert(std::has_unique_object_representations_v<Head>);  // a change to any bit shows

// Hash of the head before `sizes`, and of the size of an element of each vector.
uint64_t SizesOf(const Head& head, std::span<const uint32_t> element_bytes) {
  const uint64_t seed = XXH3_64bits(element_bytes.data(), element_bytes.size_bytes());
  return XXH3_64bits_withSeed(&head, offsetof(Head, sizes), seed);
}

// Elements of 4 and 8 bytes follow one another, so each vector begins at a multiple of 8.
size_t Padded(size_t bytes) { return (bytes + 7) / 8 * 8; }

template <typename... Vectors>
size_t Write(Head head, std::span<std::byte> out, const Vectors&... vectors) {
  static_assert(sizeof...(vectors) <= kMaxVectors);
  static_assert((std::is_trivially_copyable_v<typename Vectors::value_type> && ...));
  head.version = kVersion;
  head.bytes = sizeof(Head) + (0 + ... + Padded(vectors.size() * sizeof(vectors[0])));
  CHECK_LE(head.bytes, out.size());
  size_t index = 0;
  ((head.count[index++] = static_cast<uint32_t>(vectors.size())), ...);
  head.sizes = SizesOf(head, std::array{static_cast<uint32_t>(sizeof(vectors[0]))...});
  std::memcpy(out.data(), &head, sizeof(Head));
  std::byte* at = out.data() + sizeof(Head);
  const auto write = [&at](const auto& vector) {
    const size_t bytes = vector.size() * sizeof(vector[0]);
    if (bytes > 0) std::memcpy(at, vector.data(), bytes);
    at += Padded(bytes);
  };
  (write(vectors), ...);
  return head.bytes;
}

// Fills `head` and the vectors.
template <typename... Vectors>
bool Read(uint32_t magic, std::span<const std::byte> bytes, Head& head, Vectors&... vectors) {
  if (bytes.size() < sizeof(Head)) return false;
  std::memcpy(&head, bytes.data(), sizeof(Head));
  if (head.magic != magic || head.version != kVersion || head.bytes > bytes.size()) return false;
  if (head.sizes != SizesOf(head, std::array{static_cast<uint32_t>(sizeof(vectors[0]))...})) {
    return false;
  }
  size_t index = 0;
  size_t total = sizeof(Head);
  // No overflow: each is less than 2^32 elements of some hundred bytes.
  ((total += Padded(head.count[index++] * sizeof(vectors[0]))), ...);
  if (total != head.bytes) return false;
  index = 0;
  const std::byte* at = bytes.data() + sizeof(Head);
  const auto read = [&](auto& vector) {
    vector.resize(head.count[index++]);
    const size_t size = vector.size() * sizeof(vector[0]);
    if (size > 0) std::memcpy(static_cast<void*>(vector.data()), at, size);
    at += Padded(size);
  };
  (read(vectors), ...);
  return true;
}

// The booleans of a plan, one bit each.
uint64_t FlagsOf(const StepPlan& plan) {
  return uint64_t{plan.shutdown} | uint64_t{plan.watch.timed} << 1 |
         uint64_t{plan.watch.uncaptured} << 2 | uint64_t{plan.watch.recorded} << 3;
}

template <typename T>
int64_t Bytes(int64_t count) {
  return static_cast<int64_t>(Padded(static_cast<size_t>(count) * sizeof(T)));
}

}  // namespace

int64_t PlanBounds::PlanBytes() const {
  const int64_t rows = max_rows;
  return static_cast<int64_t>(sizeof(Head)) + Bytes<NewRow>(rows) + Bytes<TokenRun>(rows) +
         Bytes<BlockAdd>(num_blocks) + Bytes<BlockClone>(rows) + Bytes<RowWork>(rows) +
         Bytes<int32_t>(max_tokens + rows) + Bytes<LogitBias>(rows * RowTables::kMaxBiases) +
         Bytes<int32_t>(rows * RowTables::kMaxIds) + Bytes<RowMask>(rows) +
         Bytes<uint32_t>(MaxMasks(max_rows, vocab_size) * MaskWords(vocab_size)) +
         Bytes<StepReading>(2 * rows);
}

int64_t PlanBounds::ResultBytes() const {
  return static_cast<int64_t>(sizeof(Head)) + Bytes<SampledToken>(max_draws) +
         Bytes<PartTime>(StepProfiler::kMaxParts + 1) +
         Bytes<uint32_t>(MaxReadingWords(max_rows, max_tokens, hidden_size));
}

size_t EncodePlan(const StepPlan& plan, std::span<std::byte> out) {
  const Head head{
      .magic = kPlanMagic,
      .step = plan.step,
      .word = {static_cast<uint64_t>(plan.num_tokens), static_cast<uint64_t>(plan.num_samples),
               static_cast<uint64_t>(plan.graph_size), FlagsOf(plan)}};
  return Write(head, out, plan.new_rows, plan.token_runs, plan.block_adds, plan.block_clones,
               plan.work, plan.tokens, plan.biases, plan.ids, plan.masks, plan.mask_words,
               plan.readings);
}

size_t EncodedBytes(std::span<const std::byte> bytes) {
  Head head;
  if (bytes.size() < sizeof(Head)) return 0;
  std::memcpy(&head, bytes.data(), sizeof(Head));
  return std::min<uint64_t>(head.bytes, bytes.size());
}

bool DecodePlan(std::span<const std::byte> bytes, StepPlan& plan) {
  Head head;
  if (!Read(kPlanMagic, bytes, head, plan.new_rows, plan.token_runs, plan.block_adds,
            plan.block_clones, plan.work, plan.tokens, plan.biases, plan.ids, plan.masks,
            plan.mask_words, plan.readings)) {
    return false;
  }
  plan.step = head.step;
  plan.num_tokens = static_cast<int32_t>(head.word[0]);
  plan.num_samples = static_cast<int32_t>(head.word[1]);
  plan.graph_size = static_cast<int32_t>(head.word[2]);
  plan.shutdown = (head.word[3] & 1) != 0;
  plan.watch = {.timed = (head.word[3] & 2) != 0,
                .uncaptured = (head.word[3] & 4) != 0,
                .recorded = (head.word[3] & 8) != 0};
  return true;
}

size_t EncodeResult(const StepResult& result, std::span<std::byte> out) {
  const Head head{.magic = kResultMagic,
                  .step = result.step,
                  .word = {result.checksum, static_cast<uint64_t>(result.started_ns),
                           static_cast<uint64_t>(result.enqueued_ns),
                           static_cast<uint64_t>(result.finished_ns)}};
  return Write(head, out, result.samples, result.parts, result.reading_words);
}

bool DecodeResult(std::span<const std::byte> bytes, StepResult& result) {
  Head head;
  if (!Read(kResultMagic, bytes, head, result.samples, result.parts, result.reading_words)) {
    return false;
  }
  result.step = head.step;
  result.checksum = head.word[0];
  result.started_ns = static_cast<int64_t>(head.word[1]);
  result.enqueued_ns = static_cast<int64_t>(head.word[2]);
  result.finished_ns = static_cast<int64_t>(head.word[3]);
  return true;
}

}  // namespace quire
