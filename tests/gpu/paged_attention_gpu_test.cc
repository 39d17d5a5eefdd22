// PagedAttention on the device against double arithmetic over a poisoned pool: every slot that no
// query sees is NaN, so a read of one fails the test. Bits must not depend on the batch, on the
// chunks of a prompt, on repetition, on graphs or on dependent launch.
//
// Covers kernels/cuda/attention/attention_plan.cu, kernels/cuda/attention/attention_decode.cu,
// kernels/cuda/attention/attention_prefill.cu
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "kernels/cuda/attention/paged_attention.h"
#include "kernels/cuda/device/cuda_kernels.h"
#include "tests/gpu/attention_batch.h"
#include "tests/gpu/device_array.h"
#include "tests/kernels/cases.h"

namespace quire::gpu {
namespace {

using cuda::Device;

// Contexts on both sides of every border of a tile, a block, a chunk.
std::vector<Sequence> Borders() {
  std::vector<Sequence> all;
  for (int32_t n :
       {1,   2,   15,  16,  17,  31,  33,  47,  48,  63,  64,   65,   79,   80,   81,  127,
        128, 129, 191, 192, 193, 255, 256, 257, 511, 513, 1023, 1024, 1025, 2047, 2049}) {
    all.push_back({n, 1});
  }
  return all;
}

const std::vector<Shape> kShapes = {
    {4, 1, 128, 64},
    {8, 2, 128, 16},
    {8, 8, 128, 32},
    {6, 2, 64, 16},
    {16, 1, 128, 64, 0, DType::kF16},
    {10, 2, 64, 64, 0, DType::kF16},
    {7, 1, 128, 32, 100},
    {4, 2, 64, 32, 33},
    {16, 8, 64, 64},
    // Heads of other sizes than the compiled ones, and groups larger than kDecodeRows.
    {4, 1, 8, 16},
    {6, 2, 32, 64, 40},
    {8, 2, 72, 32},
    {8, 8, 80, 64},
    {8, 2, 96, 16, 0, DType::kF16},
    {7, 1, 112, 64},
    {8, 2, 160, 32, 70},
    {4, 2, 192, 64},
    {8, 1, 256, 64},
    {16, 1, 256, 16, 0, DType::kF16},
    {4, 4, 256, 32, 100},
    Capped({8, 4, 256, 64, 90}, 5),
    Capped({16, 1, 256, 16}, 50),
    Capped({8, 2, 128, 32}, 3),
    Capped({6, 2, 64, 64, 0, DType::kF16}, 10),
    Capped({4, 1, 96, 64}, 2),
    {24, 1, 128, 64},
    {48, 2, 64, 16, 33},
    {71, 1, 64, 64},
    {130, 1, 16, 32},
};

TEST(PagedAttentionGpuTest, DecodesContextsOfEveryLength) {
  for (const Shape& shape : WithKvTypes(kShapes)) {
    SCOPED_TRACE(NameOf(shape));
    Attention attention(shape);
    const Batch batch(shape, Borders());
    batch.Check(batch.Run(attention));
    attention.CheckSpace();
  }
}

// A few heads are divided among the multiprocessors in other ways than many.
TEST(PagedAttentionGpuTest, FewSequencesHaveTheBitsOfMany) {
  for (const Shape& shape : WithKvTypes(kShapes)) {
    SCOPED_TRACE(NameOf(shape));
    Attention attention(shape);
    std::vector<Sequence> all = Borders();
    for (size_t s = 0; s < all.size(); ++s) all[s].seed = 1 + s;
    const Batch batch(shape, all);
    const std::vector<uint16_t> out = batch.Run(attention);
    for (const size_t count : {1, 5}) {
      for (size_t first = 0; first + count <= all.size(); first += count) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
        const Batch few(shape, {begin, begin + static_cast<std::ptrdiff_t>(count)});
        const std::vector<uint16_t> of_few = few.Run(attention);
        for (size_t s = 0; s < count; ++s) {
          EXPECT_EQ(few.RowsOf(of_few, static_cast<int>(s)),
                    batch.RowsOf(out, static_cast<int>(first + s)))
              << "context " << all[first + s].context << " of " << count;
        }
      }
    }
    attention.CheckSpace();
  }
}

TEST(PagedAttentionGpuTest, DecodesOneLongContext) {
  for (const Shape& shape :
       WithKvTypes({Shape{8, 2, 128, 64}, Shape{16, 1, 64, 16}, Shape{4, 4, 128, 32},
                    Shape{8, 2, 256, 64}, Shape{8, 2, 80, 16}})) {
    for (int32_t context : {4097, 16390, 33000}) {
      SCOPED_TRACE(NameOf(shape) + " context " + std::to_string(context));
      Attention attention(shape);
      const Batch batch(shape, {{context, 1}});
      batch.Check(batch.Run(attention));
      attention.CheckSpace();
    }
  }
}

TEST(PagedAttentionGpuTest, ServesDecodeAndPrefillInOneStep) {
  for (const Shape& shape : WithKvTypes(kShapes)) {
    SCOPED_TRACE(NameOf(shape));
    Attention attention(shape);
    const Batch batch(shape, {{1, 1},
                              {16, 16},
                              {17, 1},
                              {33, 20},
                              {65, 65},
                              {5, 0},
                              {200, 37},
                              {513, 2},
                              {1100, 1},
                              {700, 150},
                              {1030, 3},
                              {129, 129},
                              {300, 130},
                              {64, 5},
                              {90, 8},
                              {257, 16},
                              {1500, 33},
                              {2, 2}});
    batch.Check(batch.Run(attention));
    attention.CheckSpace();
  }
}

TEST(PagedAttentionGpuTest, PrefillsOneLongPrompt) {
  for (const Shape& shape : WithKvTypes(
           {Shape{4, 1, 128, 64}, Shape{5, 1, 64, 16}, Shape{4, 2, 128, 32, 700},
            Capped({4, 2, 256, 64, 700}, 50), Shape{5, 1, 192, 16}, Shape{4, 1, 112, 32}})) {
    SCOPED_TRACE(NameOf(shape));
    const Batch batch(shape, {{1400, 1400}});
    Attention attention(shape);
    batch.Check(batch.Run(attention));
  }
}

// Guessed tokens of several sequences among decoding ones: contexts that are cut into spans, and
// those on both sides of the shortest.
TEST(PagedAttentionGpuTest, VerifiesGuessesOverLongContexts) {
  for (const Shape& shape :
       WithKvTypes({Shape{8, 2, 128, 64}, Shape{16, 8, 64, 16}, Shape{7, 1, 128, 32, 3000},
                    Capped({8, 4, 256, 64, 4000}, 50), Shape{24, 1, 80, 16},
                    Shape{6, 2, 64, 16, 0, DType::kF16}, Shape{4, 4, 192, 32}})) {
    SCOPED_TRACE(NameOf(shape));
    Attention attention(shape);
    const Batch batch(shape, {{1022, 17},
                              {1040, 17},
                              {3000, 1},
                              {1100, 9},
                              {2060, 5},
                              {4097, 12},
                              {700, 2},
                              {9000, 17},
                              {16390, 3},
                              {1, 1}});
    const std::vector<uint16_t> out = batch.Run(attention);
    batch.Check(out, 3);
    EXPECT_EQ(batch.Run(attention), out);
    attention.CheckSpace();
  }
}

TEST(PagedAttentionGpuTest, CutsChunksOfPromptsOverLongContexts) {
  for (const Shape& shape : WithKvTypes({Shape{8, 2, 128, 64}, Shape{4, 1, 64, 32},
                                         Shape{8, 2, 128, 16, 5000}, Shape{4, 2, 256, 64}})) {
    for (const std::vector<Sequence>& sequences : {std::vector<Sequence>{{8192, 64}},
                                                   {{8200, 1024}, {2500, 1}},
                                                   {{8192, 256}, {32768, 17}},
                                                   {{32760, 64}, {12000, 1}, {8200, 130}}}) {
      SCOPED_TRACE(NameOf(shape) + " of " + std::to_string(sequences[0].queries));
      Attention attention(shape);
      const Batch batch(shape, sequences);
      const std::vector<uint16_t> out = batch.Run(attention);
      batch.Check(out, 4);
      EXPECT_EQ(batch.Run(attention), out);
      attention.CheckSpace();
    }
  }
}

// More states than there is memory for: tiles of the later sequences take their spans one after
// another.
TEST(PagedAttentionGpuTest, RoomForStatesDoesNotChangeBits) {
  std::vector<Shape> shapes = WithKvTypes(Shape{8, 1, 128, 64});
  shapes.insert(shapes.end(), {Shape{8, 1, 64, 64}, Shape{8, 1, 256, 64}});
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(NameOf(shape));
    std::vector<std::vector<uint16_t>> alone;
    std::vector<Sequence> all;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      all.push_back({static_cast<int32_t>(1900 + 30 * seed), 16, seed});
      Attention attention(shape, TestDevice(), 2048);
      const Batch batch(shape, {all.back()});
      alone.push_back(batch.Run(attention));
      batch.Check(alone.back(), 4);
    }
    while (all.size() < 220) all.push_back(all[all.size() - 4]);
    Attention attention(shape, TestDevice(), 2048);
    const Batch batch(shape, all);
    const std::vector<uint16_t> out = batch.Run(attention);
    for (int s = 0; s < 220; ++s) ASSERT_EQ(batch.RowsOf(out, s), alone[s % 4]) << s;
    EXPECT_EQ(batch.Run(attention), out);
    attention.CheckSpace();
  }
}

// Ranges that keep as many partial states as the longest contexts allow.
TEST(PagedAttentionGpuTest, KeepsPartialStatesWithinTheirSpace) {
  for (const Shape& shape : {Shape{8, 1, 64, 64}, Capped({8, 1, 64, 64}, 20), Shape{8, 1, 128, 64},
                             Shape{8, 1, 256, 64}}) {
    SCOPED_TRACE(NameOf(shape));
    const Batch batch(shape, std::vector<Sequence>(190, {512, 1}));
    Attention attention(shape, TestDevice(), 512);
    batch.Check(batch.Run(attention));
    attention.CheckSpace();
  }
}

TEST(PagedAttentionGpuTest, HandlesScoresBeyondTheExponentRange) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (float cap : {0.0f, 30.0f}) {
      const Shape shape = Capped({4, 1, 128, 16, 0, dtype}, cap);
      Attention attention(shape);
      const Batch batch(shape, {{600, 1}, {90, 90}}, 100.0);
      batch.Check(batch.Run(attention));
    }
  }
}

// Rows of zeros, and of sizes that f16 does not hold: those of 8-bit K are scaled first. Their
// scores are far below 1 or far above the exponent's range.
TEST(PagedAttentionGpuTest, TakesQueriesOfEverySize) {
  for (const double q_scale : {0.0, 1e-30, 1e-12, 1e3, 1e6}) {
    for (const Shape& shape : WithKvTypes({Shape{4, 1, 128, 64}, Shape{4, 2, 64, 16},
                                           Shape{12, 1, 256, 32}, Shape{4, 2, 128, 16, 20}})) {
      SCOPED_TRACE(NameOf(shape) + " queries of " + std::to_string(q_scale));
      Attention attention(shape);
      // The most queries of the step decide the form of decode attention.
      for (const Batch& batch : {Batch(shape, {{300, 1}, {5, 1}, {90, 90}}, q_scale),
                                 Batch(shape, {{1400, 1}, {5, 1}}, q_scale)}) {
        batch.Check(batch.Run(attention));
      }
    }
  }
}

// A pool of more than 2^31 elements.
TEST(PagedAttentionGpuTest, ReachesBlocksFarApart) {
  const Shape shape{4, 1, 128, 64, 0, DType::kBF16, 40 << 20};
  Attention attention(shape);
  const Batch batch(shape, {{1500, 1}, {2000, 1}, {130, 130}});
  batch.Check(batch.Run(attention));
}

TEST(PagedAttentionGpuTest, BitsDoNotDependOnTheBatch) {
  for (const Shape& shape :
       WithKvTypes({Shape{8, 2, 128, 64}, Shape{4, 4, 64, 16}, Shape{16, 1, 128, 32},
                    Capped({8, 4, 256, 64}, 50), Shape{24, 1, 80, 16}})) {
    SCOPED_TRACE(NameOf(shape));
    Attention attention(shape);
    const std::vector<Sequence> chosen = {{1, 1, 1},    {700, 1, 2},  {5000, 1, 3},  {64, 1, 4},
                                          {300, 40, 5}, {1025, 1, 6}, {3000, 17, 7}, {2500, 64, 8}};
    for (const Sequence& sequence : chosen) {
      const std::vector<uint16_t> alone = Batch(shape, {sequence}).Run(attention);
      Random random(sequence.seed);
      for (int mates : {1, 6, 63, 255}) {
        std::vector<Sequence> all;
        for (int i = 0; i < mates; ++i) {
          const auto context = static_cast<int32_t>(1 + random.Below(mates > 100 ? 300 : 900));
          const bool prefill = random.Below(8) == 0;
          all.push_back({context, prefill ? std::min(context, 50) : 1, 100 + random.Next() % 1000});
        }
        const int place = static_cast<int>(random.Below(mates + 1));
        all.insert(all.begin() + place, sequence);
        const Batch batch(shape, all);
        EXPECT_EQ(batch.RowsOf(batch.Run(attention), place), alone)
            << "context " << sequence.context << " among " << mates;
      }
    }
  }
}

TEST(PagedAttentionGpuTest, PrefillChunksDoNotChangeBits) {
  for (const Shape& shape : WithKvTypes({Shape{8, 2, 128, 64}, Shape{6, 2, 64, 16, 90},
                                         Shape{3, 1, 128, 32}, Capped({6, 2, 256, 16, 90}, 50)})) {
    SCOPED_TRACE(NameOf(shape));
    Attention attention(shape);
    Batch batch(shape, {{40, 9}, {900, 900}});
    const DeviceArray<uint16_t> whole = batch.MakeOut(), parts = batch.MakeOut();
    attention.Enqueue(batch.Params(whole));
    attention.Enqueue(batch.Part(parts, 0, 0, 9));
    for (int32_t begin = 0, count = 17; begin < 900; begin += count) {
      count = std::min(17 + count * 5 % 143, 900 - begin);
      if (900 - begin - count < 17)
        count = 900 - begin;  // fewer than 17 would go to the decode kernel
      attention.Enqueue(batch.Part(parts, 1, begin, count));
    }
    EXPECT_EQ(parts.Get(), whole.Get());
  }
}

TEST(PagedAttentionGpuTest, RepeatsTheSameBits) {
  for (const Shape& shape : WithKvTypes({Shape{8, 2, 128, 64}, Shape{8, 8, 64, 32},
                                         Shape{8, 4, 256, 64}, Shape{8, 4, 96, 64}})) {
    const Batch batch(
        shape,
        {{3000, 1}, {100, 1}, {700, 200}, {9000, 1}, {65, 1}, {20, 3}, {9000, 12}, {6000, 100}});
    Attention attention(shape), plain(shape, TestDevice(false));
    const std::vector<uint16_t> first = batch.Run(attention);
    DeviceArray<uint16_t> out = batch.MakeOut();
    for (int i = 0; i < 20; ++i) {
      out.Poison();
      (i % 2 == 0 ? attention : plain).Enqueue(batch.Params(out));
      ASSERT_EQ(out.Get(), first) << i;
    }
  }
}

// As many rows as a server may have, of two kinds of layers: both plans hold for the whole step.
TEST(PagedAttentionGpuTest, AlternatesWindowsOverTheMostRows) {
  const Shape shape{2, 1, 64, 16}, windowed{2, 1, 64, 16, 33};
  std::vector<Sequence> sequences;
  for (int i = 0; i < 4096; ++i) sequences.push_back({1 + i % 97, 1, 1000u + i % 50});
  const Batch batch(shape, sequences), in_window(windowed, sequences);
  Attention attention(shape);
  const DeviceArray<uint16_t> out = batch.MakeOut(), seen = in_window.MakeOut();
  attention.op().Plan(batch.Params(out));
  attention.op().Plan(in_window.Params(seen));
  for (int layer = 0; layer < 3; ++layer) {
    attention.op().Run(batch.Params(out));
    attention.op().Run(in_window.Params(seen));
  }
  batch.Check(out.Get());
  in_window.Check(seen.Get());
  attention.CheckSpace();
}

// Replays a captured step while the contexts grow: the graph must have no length in it, and every
// counter must return to zero. Layers run without a pause between them.
void ReplayOverGrowingContexts(const std::vector<Sequence>& longest) {
  const Shape shape{8, 2, 128, 64};
  Batch batch(shape, longest);
  Attention attention(shape), eager(shape);
  const DeviceArray<uint16_t> out = batch.MakeOut(), other = batch.MakeOut();

  const cudaStream_t stream = TestDevice().stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  const PagedAttentionParams p = batch.Params(out), q = batch.Params(other);
  attention.Enqueue(q);
  for (int layer = 0; layer < 6; ++layer) attention.Enqueue(layer % 2 == 0 ? p : q);
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));

  for (int32_t shrink : {50, 20, 7, 1, 0}) {
    std::vector<int32_t> contexts;
    for (const Sequence& s : longest) {
      contexts.push_back(std::max(1, s.context - shrink * s.context / 60));
    }
    batch.SetContexts(contexts);
    CUDA_CHECK(cudaGraphLaunch(exec, stream));
    CUDA_CHECK(cudaGraphLaunch(exec, stream));
    CUDA_CHECK(cudaDeviceSynchronize());
    const std::vector<uint16_t> replayed = out.Get();
    EXPECT_EQ(other.Get(), replayed);
    EXPECT_EQ(batch.Run(eager), replayed) << shrink;
    batch.Check(replayed);
  }
  CUDA_CHECK(cudaGraphExecDestroy(exec));
  CUDA_CHECK(cudaGraphDestroy(graph));
}

TEST(PagedAttentionGpuTest, ReplaysAGraphOverGrowingContexts) {
  std::vector<Sequence> longest;
  for (int i = 0; i < 24; ++i) longest.push_back({i % 5 == 0 ? 6000 : 60 + 37 * i, 1});
  for (int i = 0; i < 8; ++i) longest.push_back({1, 1});  // padding
  ReplayOverGrowingContexts(longest);
}

// Few sequences, whose heads come to have many chunks.
TEST(PagedAttentionGpuTest, ReplaysAGraphFromFewChunksToMany) {
  ReplayOverGrowingContexts({{5000, 1}, {700, 1}});
  ReplayOverGrowingContexts(std::vector<Sequence>(24, {1400, 1}));
}

// A step of layers, each of which writes its tokens' K and V just before it reads them. A kernel
// must not read those early; it may read older steps' K and V early.
class LayeredStep {
 public:
  static constexpr int kLayers = 5;

  LayeredStep(const Shape& shape, const Batch& batch)
      : shape_(shape),
        batch_(batch),
        pool_before_(batch.PoolBefore()),
        qkv_(batch.QkvRows()),
        slots_(batch.Slots()),
        positions_(std::vector<int32_t>(static_cast<size_t>(slots_.size()), 0)),
        turn_(NoTurn(shape.head_dim)) {
    for (int layer = 0; layer < kLayers; ++layer) {
      pools_.emplace_back(pool_before_.size());
      out_.push_back(batch.MakeOut());
    }
  }

  void Enqueue(cuda::PagedAttention& attention, const Device& device) {
    const int64_t width = int64_t{shape_.heads} * shape_.head_dim;
    const TensorView qkv(qkv_.data(), shape_.dtype, {slots_.size(), qkv_.size() / slots_.size()});
    for (int layer = 0; layer < kLayers; ++layer) {
      PagedAttentionParams p = batch_.Params(out_[layer]);
      p.kv.base = pools_[layer].data();
      p.q = qkv.Columns(0, width);
      cuda::RopeStoreKv({.qkv = qkv,
                         .num_heads = shape_.heads,
                         .positions = positions_.data(),
                         .slots = slots_.data(),
                         .cos_sin = TensorView(turn_.data(), DType::kF32, {1, shape_.head_dim}),
                         .kv = p.kv},
                        device, layer > 0);
      if (layer == 0) attention.Plan(p);
      attention.Run(p);
    }
  }
  void ForgetTheStep() {
    for (DeviceArray<uint16_t>& pool : pools_) {
      CUDA_CHECK(
          cudaMemcpy(pool.data(), pool_before_.data(), pool.size() * 2, cudaMemcpyDeviceToDevice));
    }
    for (DeviceArray<uint16_t>& out : out_) out.Poison();
    CUDA_CHECK(cudaDeviceSynchronize());
  }
  std::vector<uint16_t> Out(int layer) const { return out_[layer].Get(); }

 private:
  // Cosines of one and sines of zero: the stored K equals the rows.
  static std::vector<float> NoTurn(int32_t dim) {
    std::vector<float> turn(static_cast<size_t>(dim), 0.0f);
    std::fill_n(turn.begin(), dim / 2, 1.0f);
    return turn;
  }

  const Shape shape_;
  const Batch& batch_;
  const DeviceArray<uint16_t> pool_before_, qkv_;
  const DeviceArray<int64_t> slots_;
  const DeviceArray<int32_t> positions_;
  const DeviceArray<float> turn_;
  std::vector<DeviceArray<uint16_t>> pools_, out_;
};

TEST(PagedAttentionGpuTest, ReadsNewTokensOnlyAfterTheyAreWritten) {
  const std::vector<Sequence> one = {{1024, 1}};
  const std::vector<Sequence> few = {{1, 1},   {16, 1},   {17, 1},   {65, 2},
                                     {300, 1}, {1024, 1}, {1026, 2}, {5000, 1}};
  const std::vector<Sequence> mixed = {{700, 1}, {300, 100}, {40, 40}, {2048, 1}, {3000, 20}};
  for (const Shape& shape :
       {Shape{8, 2, 128, 64}, Shape{8, 8, 64, 16}, Shape{4, 1, 64, 32, 90}, Shape{8, 2, 256, 64}}) {
    for (const auto& sequences : {one, few, mixed}) {
      SCOPED_TRACE(NameOf(shape) + " of " + std::to_string(sequences.size()));
      const Batch batch(shape, sequences);
      Attention attention(shape);
      LayeredStep step(shape, batch);
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      const cudaStream_t stream = TestDevice().stream;
      CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      step.Enqueue(attention.op(), TestDevice());
      CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
      CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
      const std::vector<uint16_t> expected = batch.Run(attention);
      batch.Check(expected);
      for (int i = 0; i < 20; ++i) {
        step.ForgetTheStep();
        CUDA_CHECK(cudaGraphLaunch(exec, stream));
        for (int layer = 0; layer < LayeredStep::kLayers; ++layer) {
          ASSERT_EQ(step.Out(layer), expected) << i << " layer " << layer;
        }
      }
      CUDA_CHECK(cudaGraphExecDestroy(exec));
      CUDA_CHECK(cudaGraphDestroy(graph));
    }
  }
}

}  // namespace
}  // namespace quire::gpu
