// Sample on the device draws the same token as the CPU backend, whose own test compares it with
// double arithmetic, on rows for every path of the search.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

Backend& Cpu() {
  static const std::unique_ptr<Backend> backend = std::move(CreateCpuBackends(1, 0)[0]);
  return *backend;
}

enum Kind { kNormal, kFlat, kPeaked, kTied, kHoles, kEqual, kOneHot, kTwoLevels, kWide, kNumKinds };
constexpr const char* kKindNames[] = {"normal", "flat",    "peaked",     "tied", "holes",
                                      "equal",  "one-hot", "two levels", "wide"};

float Logit(Kind kind, Random& random, int64_t i, int64_t vocab) {
  // A sum of uniforms is nearly normal, and fast.
  const uint64_t bits = random.Next();
  float normal = -6.0f;
  for (int k = 0; k < 8; ++k) normal += static_cast<float>(bits >> (8 * k) & 255) * (1.5f / 255);
  switch (kind) {
    case kNormal: return normal * 1.7f;
    case kFlat: return normal * 0.05f;
    case kPeaked: return normal * 2.0f + (i % 997 == 3 ? 12.0f : 0.0f);
    case kTied: return std::round(normal * 3.0f) / 4.0f;
    case kHoles: return bits % 3 == 0 ? -INFINITY : normal;
    case kEqual: return 1.25f;
    case kOneHot: return i == vocab / 3 ? 9.0f : -INFINITY;
    case kTwoLevels: return i % 2 == 0 ? 1.0f : 0.96875f;
    default: return normal * 1e4f;
  }
}

// Filters that narrow the row step by step, alone and together.
void AddNarrowing(Random& random, SampleRow& row) {
  if (random.Below(2) == 0) row.top_n_sigma = static_cast<float>(0.2 + 3 * random.Uniform());
  if (random.Below(2) == 0) row.typical_p = static_cast<float>(0.02 + 0.98 * random.Uniform());
  if (random.Below(2) == 0) {
    row.dynatemp_range = static_cast<float>(row.temperature * random.Uniform());
    row.dynatemp_exponent = static_cast<float>(3 * random.Uniform());
  }
  if (random.Below(2) == 0) {
    row.xtc_probability = random.Below(2) == 0 ? 1.0f : 0.5f;
    row.xtc_threshold = static_cast<float>(0.5 * (1 - random.Uniform()));
    if (random.Below(2) == 0) row.xtc_threshold *= 0.01f;
  }
}

// Settings for every path: no filter, few tokens kept, many kept, edges among ties, and
// combinations.
SampleRow Setting(Random& random, int64_t vocab) {
  SampleRow row;
  const double t = random.Uniform();
  row.temperature = t < 0.1   ? 0.0f
                    : t < 0.4 ? 1.0f
                              : static_cast<float>(0.1 + 2 * random.Uniform());
  const double k = random.Uniform();
  if (k < 0.15) row.top_k = 1 + static_cast<int32_t>(random.Below(60));
  if (k >= 0.15 && k < 0.3) row.top_k = 1 + static_cast<int32_t>(random.Below(vocab + 3));
  const double p = random.Uniform();
  if (p < 0.3) row.top_p = static_cast<float>(random.Uniform());
  if (p >= 0.3 && p < 0.5) row.top_p = 0.95f;
  if (p >= 0.5 && p < 0.55) row.top_p = 0.5f;
  if (p >= 0.55 && p < 0.6) row.top_p = 0.999999f;
  if (random.Below(5) == 0) row.min_p = static_cast<float>(random.Uniform() * 0.3);
  if (random.Below(4) == 0) AddNarrowing(random, row);
  row.seed = random.Next();
  return row;
}

// Rows of one vocabulary with their jobs, on the host and on the device.
class Batch {
 public:
  Batch(int64_t rows, int64_t vocab, uint64_t seed, int64_t gap = 0)
      : rows_(rows), vocab_(vocab), logits_(DType::kF32, {rows, vocab}) {
    kinds_.resize(static_cast<size_t>(rows));
    jobs_.resize(static_cast<size_t>(rows));
    lists_.resize(static_cast<size_t>(rows));
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        for (int64_t r = i; r < rows; r += kThreads) MakeRow(r, seed);
      });
    }
    for (std::thread& thread : threads) thread.join();
    device_logits_ = std::make_unique<DeviceTensor>(DType::kF32, rows, vocab, gap);
    Upload();
  }
  ~Batch() {
    CUDA_CHECK(cudaFreeHost(masks_));
    CUDA_CHECK(cudaFreeHost(mask_words_));
  }

  // Results of rows [begin, begin + count), and the tokens written to the jobs' `drawn`.
  std::vector<SampleResult> OnDevice(const cuda::Device& device, int64_t begin, int64_t count) {
    DeviceArray<SampleResult> results(count);
    Enqueue(device, begin, count, results.data());
    return results.Get();
  }
  std::vector<SampleResult> OnDevice(const cuda::Device& device) {
    return OnDevice(device, 0, rows_);
  }
  void Enqueue(const cuda::Device& device, int64_t begin, int64_t count, SampleResult* results) {
    cuda::Sample({.logits = device_logits_->view().Rows(begin, count),
                  .jobs = device_jobs_->data() + begin,
                  .results = results},
                 device);
  }
  std::vector<SampleResult> OnCpu() {
    Array scratch = logits_.Copy();
    std::vector<SampleResult> results(static_cast<size_t>(rows_));
    Cpu().Sample({.logits = scratch.view(), .jobs = jobs_.data(), .results = results.data()});
    return results;
  }
  std::vector<int32_t> drawn() const { return device_drawn_->Get(); }
  void Overwrite(int64_t row, int64_t token, float logit) {
    logits_.Set(row * vocab_ + token, logit);
  }
  void SetMask(int64_t row, const std::vector<uint32_t>& mask) {
    lists_[static_cast<size_t>(row)].mask = mask;
  }
  // From now on the masks come late: none of them is there before PostMask.
  void HoldMasks() {
    if (mask_words_ == nullptr) {
      const auto bytes = static_cast<size_t>(rows_) * sizeof(uint32_t);
      CUDA_CHECK(cudaHostAlloc(&mask_words_, bytes, cudaHostAllocDefault));
    }
    std::fill_n(mask_words_, rows_, kMaskAwaited);
    Upload();
    std::fill_n(masks_, rows_ * MaskWords(vocab_), 0u);
  }
  void PostMask(int64_t row) {
    std::ranges::copy(lists_[static_cast<size_t>(row)].mask, masks_ + row * MaskWords(vocab_));
    AnswerMask(row, static_cast<uint32_t>(job(row).num_known));
  }
  void AnswerMask(int64_t row, uint32_t word) {
    std::atomic_ref(mask_words_[row]).store(word, std::memory_order_release);
  }
  SampleJob& job(int64_t row) { return jobs_[static_cast<size_t>(row)]; }
  // Copies logits, jobs and lists to the device.
  void Upload();

  std::string Describe(int64_t row) const {
    const SampleJob& job = jobs_[static_cast<size_t>(row)];
    const SampleRow& p = job.params;
    return "row " + std::to_string(row) + " of " + std::to_string(vocab_) + ", " +
           kKindNames[kinds_[static_cast<size_t>(row)]] + ": temperature " +
           std::to_string(p.temperature) + " top_k " + std::to_string(p.top_k) + " top_p " +
           std::to_string(p.top_p) + " min_p " + std::to_string(p.min_p) + " known " +
           std::to_string(job.num_known) + " biases " + std::to_string(job.num_bias) + " banned " +
           std::to_string(job.num_banned) + " bad words " + std::to_string(job.num_bad_words) +
           " allowed " + std::to_string(job.num_allowed) + (job.mask ? " masked" : "") +
           " top_n_sigma " + std::to_string(p.top_n_sigma) + " typical_p " +
           std::to_string(p.typical_p) + " xtc " + std::to_string(p.xtc_probability) + " " +
           std::to_string(p.xtc_threshold) + " dynatemp " + std::to_string(p.dynatemp_range) +
           " dry " + std::to_string(p.dry_multiplier) + " of " + std::to_string(p.dry_last_n);
  }

 private:
  static constexpr int kThreads = 16;
  struct Lists {
    std::vector<int32_t> tokens, banned, bad_words, allowed, breakers;
    std::vector<LogitBias> bias;
    std::vector<uint32_t> mask;
  };

  void MakeRow(int64_t r, uint64_t seed) {
    Random random(seed * 1000003 + static_cast<uint64_t>(r));
    const auto kind = static_cast<Kind>(random.Below(kNumKinds));
    kinds_[static_cast<size_t>(r)] = kind;
    float* row = logits_.floats() + r * vocab_;
    for (int64_t i = 0; i < vocab_; ++i) row[i] = Logit(kind, random, i, vocab_);
    SampleJob& job = jobs_[static_cast<size_t>(r)];
    Lists& lists = lists_[static_cast<size_t>(r)];
    job.params = Setting(random, vocab_);
    job.num_known = static_cast<int32_t>(random.Below(500));
    if (random.Below(3) == 0) MakeLists(random, job, lists);
    if (random.Below(4) == 0) MakeMask(random, lists);
    if (random.Below(100) == 0) row[random.Below(vocab_)] = random.Below(2) == 0 ? NAN : INFINITY;
  }
  // Few tokens, about half of them, or nearly all; some masks without any token.
  void MakeMask(Random& random, Lists& lists) {
    const uint64_t kind = random.Below(4);
    for (int64_t i = 0; i < MaskWords(vocab_); ++i) {
      const auto bits = static_cast<uint32_t>(random.Next());
      const bool hit = random.Below(64) == 0;
      lists.mask.push_back(kind == 0         ? (hit ? 1u << (bits % 32) : 0u)
                           : kind == 1       ? bits
                           : kind == 2       ? (hit ? bits : ~0u)
                           : (bits & 3) == 0 ? ~0u
                                             : 0u);
    }
  }
  void MakeLists(Random& random, SampleJob& job, Lists& lists) {
    const bool whole = random.Below(20) == 0;
    job.num_known = static_cast<int32_t>(random.Below(whole ? 131072 : 3000));
    job.num_prompt = static_cast<int32_t>(random.Below(job.num_known + 1));
    for (int32_t i = 0; i < job.num_known; ++i) {
      lists.tokens.push_back(static_cast<int32_t>(random.Below(std::min<int64_t>(vocab_, 400))));
    }
    MakeIdLists(random, job, lists);
    if (random.Below(2) == 0) job.params.repetition_penalty = 1.2f;
    if (random.Below(2) == 0) job.params.presence_penalty = 0.7f;
    if (random.Below(2) == 0) job.params.frequency_penalty = 0.013f;
    if (random.Below(2) == 0) {
      const int64_t stride = std::max<int64_t>(vocab_ / (1 + random.Below(1024)), 1);
      for (int64_t token = 0; token < vocab_ && lists.bias.size() < 1024; token += stride) {
        lists.bias.push_back(
            {static_cast<int32_t>(token), static_cast<float>(random.Normal() * 3)});
      }
    }
    if (random.Below(2) == 0) {
      for (int i = 0; i < 5; ++i) {
        lists.banned.push_back(static_cast<int32_t>(random.Below(vocab_)));
      }
    }
  }

  // DRY with and without breakers, over tokens that repeat; words that end here and words that do
  // not; few allowed tokens.
  void MakeIdLists(Random& random, SampleJob& job, Lists& lists) {
    std::vector<int32_t>& tokens = lists.tokens;
    if (random.Below(2) == 0) {
      job.params.dry_multiplier = static_cast<float>(0.1 + random.Uniform());
      job.params.dry_base = static_cast<float>(1 + random.Uniform());
      job.params.dry_allowed_length = 1 + static_cast<int32_t>(random.Below(4));
      if (random.Below(2) == 0) job.params.dry_last_n = static_cast<int32_t>(random.Below(2000));
      const auto period = static_cast<size_t>(1 + random.Below(90));
      for (size_t i = tokens.size() / 2 + period; i < tokens.size(); ++i) {
        if (random.Below(200) != 0) tokens[i] = tokens[i - period];
      }
      for (int64_t i = random.Below(4); i > 0 && !tokens.empty(); --i) {
        lists.breakers.push_back(tokens[static_cast<size_t>(random.Below(job.num_known))]);
      }
    }
    for (int64_t i = random.Below(6); i > 0; --i) {
      const int64_t before = std::min<int64_t>(random.Below(5), job.num_known);
      lists.bad_words.insert(lists.bad_words.end(), tokens.end() - before, tokens.end());
      if (before > 0 && random.Below(3) == 0) lists.bad_words.back() = 0;
      lists.bad_words.push_back(~static_cast<int32_t>(random.Below(vocab_)));
    }
    if (random.Below(4) == 0) {
      for (int64_t i = 1 + random.Below(1000); i > 0; --i) {
        lists.allowed.push_back(static_cast<int32_t>(random.Below(vocab_)));
      }
    }
  }

  const int64_t rows_, vocab_;
  Array logits_;
  std::vector<Kind> kinds_;
  std::vector<SampleJob> jobs_;
  std::vector<Lists> lists_;
  std::unique_ptr<DeviceTensor> device_logits_;
  std::unique_ptr<DeviceArray<SampleJob>> device_jobs_;
  std::unique_ptr<DeviceArray<int32_t>> device_tokens_, device_drawn_;
  std::unique_ptr<DeviceArray<LogitBias>> device_bias_;
  uint32_t* mask_words_ = nullptr;  // [rows] in host memory; null: no mask comes late
  uint32_t* masks_ = nullptr;  // [rows, MaskWords(vocab)] in host memory, as in a step's message
};

void Batch::Upload() {
  device_logits_->Set(logits_);
  std::vector<int32_t> tokens(1, 0);
  std::vector<LogitBias> bias(1);
  for (size_t r = 0; r < jobs_.size(); ++r) {
    for (int32_t token : lists_[r].tokens) tokens.push_back(token);
    for (int32_t token : lists_[r].banned) tokens.push_back(token);
    for (int32_t token : lists_[r].bad_words) tokens.push_back(token);
    for (int32_t token : lists_[r].allowed) tokens.push_back(token);
    for (int32_t token : lists_[r].breakers) tokens.push_back(token);
    for (const LogitBias& b : lists_[r].bias) bias.push_back(b);
  }
  device_tokens_ = std::make_unique<DeviceArray<int32_t>>(tokens);
  device_bias_ = std::make_unique<DeviceArray<LogitBias>>(bias);
  device_drawn_ = std::make_unique<DeviceArray<int32_t>>(rows_);
  const int64_t words = MaskWords(vocab_);
  const auto mask_bytes = static_cast<size_t>(rows_ * words) * sizeof(uint32_t);
  if (masks_ == nullptr) CUDA_CHECK(cudaHostAlloc(&masks_, mask_bytes, cudaHostAllocDefault));
  std::vector<SampleJob> on_device = jobs_;
  int64_t token_at = 1, bias_at = 1;
  for (size_t r = 0; r < jobs_.size(); ++r) {
    const Lists& lists = lists_[r];
    SampleJob& here = jobs_[r];
    SampleJob& there = on_device[r];
    here.tokens = lists.tokens.data();
    here.banned = lists.banned.data();
    here.bad_words = lists.bad_words.data();
    here.allowed = lists.allowed.data();
    here.breakers = lists.breakers.data();
    here.num_bad_words = there.num_bad_words = static_cast<int32_t>(lists.bad_words.size());
    here.num_allowed = there.num_allowed = static_cast<int32_t>(lists.allowed.size());
    here.num_breakers = there.num_breakers = static_cast<int32_t>(lists.breakers.size());
    here.bias = lists.bias.data();
    here.num_banned = there.num_banned = static_cast<int32_t>(lists.banned.size());
    here.num_bias = there.num_bias = static_cast<int32_t>(lists.bias.size());
    there.tokens = device_tokens_->data() + token_at;
    token_at += static_cast<int64_t>(lists.tokens.size());
    there.banned = device_tokens_->data() + token_at;
    token_at += static_cast<int64_t>(lists.banned.size());
    there.bad_words = device_tokens_->data() + token_at;
    token_at += static_cast<int64_t>(lists.bad_words.size());
    there.allowed = device_tokens_->data() + token_at;
    token_at += static_cast<int64_t>(lists.allowed.size());
    there.breakers = device_tokens_->data() + token_at;
    token_at += static_cast<int64_t>(lists.breakers.size());
    there.bias = device_bias_->data() + bias_at;
    bias_at += static_cast<int64_t>(lists.bias.size());
    there.drawn = device_drawn_->data() + r;
    if (lists.mask.empty()) continue;
    here.mask = there.mask = masks_ + static_cast<int64_t>(r) * words;
    if (mask_words_ != nullptr) there.mask_for = mask_words_ + r;
    std::copy(lists.mask.begin(), lists.mask.end(), masks_ + static_cast<int64_t>(r) * words);
  }
  device_jobs_ = std::make_unique<DeviceArray<SampleJob>>(on_device);
}

bool SameBits(const SampleResult& a, const SampleResult& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

// Logprobs may differ in the last place, as the logarithms of the two libraries may.
void ExpectSame(Batch& batch, const std::vector<SampleResult>& got,
                const std::vector<SampleResult>& expected, int64_t* inexact) {
  for (size_t r = 0; r < got.size(); ++r) {
    ASSERT_EQ(got[r].nonfinite, expected[r].nonfinite) << batch.Describe(static_cast<int64_t>(r));
    ASSERT_EQ(got[r].token, expected[r].token) << batch.Describe(static_cast<int64_t>(r));
    const float x = got[r].logprob, y = expected[r].logprob;
    *inexact += x != y;
    ASSERT_LE(std::abs(x - y), std::abs(y) * 0x1p-22) << batch.Describe(static_cast<int64_t>(r));
  }
}

TEST(SampleGpuTest, MatchesTheTokenOfTheCpu) {
  struct Size {
    int64_t rows, vocab, gap;
  };
  int64_t compared = 0, inexact = 0;
  for (const Size& size :
       {Size{3000, 97, 0}, Size{1500, 1000, 0}, Size{700, 5003, 1}, Size{3000, 32000, 0},
        Size{8, 32000, 0}, Size{700, 128256, 0}, Size{1, 128256, 4}, Size{600, 151936, 0},
        Size{8, 151936, 0}, Size{500, 262144, 0}, Size{3, 262144, 0}}) {
    for (int64_t done = 0; done < size.rows; done += 256) {
      const int64_t rows = std::min<int64_t>(256, size.rows - done);
      Batch batch(rows, size.vocab, static_cast<uint64_t>(size.vocab + done), size.gap);
      const std::vector<SampleResult> got = batch.OnDevice(TestDevice());
      ExpectSame(batch, got, batch.OnCpu(), &inexact);
      if (HasFatalFailure()) return;
      const std::vector<int32_t> drawn = batch.drawn();
      for (size_t r = 0; r < got.size(); ++r) ASSERT_EQ(drawn[r], got[r].token);
      compared += rows;
    }
  }
  EXPECT_GE(compared, 10000);
  RecordProperty("rows", static_cast<int>(compared));
  RecordProperty("logprobs_one_place_off", static_cast<int>(inexact));
  std::printf("%ld rows, %ld logprobs one place off\n", static_cast<long>(compared),
              static_cast<long>(inexact));
}

TEST(SampleGpuTest, FlagsNonfiniteRows) {
  Batch batch(4, 2000, 1);
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t i = 0; i < 2000; ++i) batch.Overwrite(r, i, r == 3 ? -INFINITY : 1.0f);
    batch.job(r).params.temperature = static_cast<float>(r % 2);
  }
  batch.Overwrite(0, 1999, NAN);
  batch.Overwrite(1, 0, INFINITY);
  batch.Upload();
  const std::vector<SampleResult> got = batch.OnDevice(TestDevice());
  EXPECT_EQ(got[0].nonfinite, 1);
  EXPECT_EQ(got[1].nonfinite, 1);
  EXPECT_EQ(got[2].nonfinite, 0);
  EXPECT_EQ(got[3].nonfinite, 1);
}

TEST(SampleGpuTest, TellsRowsWithoutATokenFromUnsoundOnes) {
  Batch batch(3, 40000, 8);
  const std::vector<uint32_t> none(static_cast<size_t>(MaskWords(40000)), 0);
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t i = 0; i < 40000; ++i) batch.Overwrite(r, i, 1.0f);
    batch.job(r).params = {.temperature = static_cast<float>(r % 2)};
    batch.SetMask(r, none);
  }
  batch.Overwrite(2, 77, NAN);
  batch.Upload();
  const std::vector<SampleResult> got = batch.OnDevice(TestDevice());
  EXPECT_EQ(got[0].nonfinite, SampleResult::kNoToken);
  EXPECT_EQ(got[1].nonfinite, SampleResult::kNoToken);
  EXPECT_EQ(got[2].nonfinite, SampleResult::kUnsound);
}

TEST(SampleGpuTest, DrawsWithMasksThatComeWhileItWaits) {
  for (const int64_t rows : {3, 64}) {
    Batch batch(rows, 128256, 21);
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<uint32_t> mask(static_cast<size_t>(MaskWords(128256)), 0x80402010u << (r % 4));
      batch.SetMask(r, mask);
      batch.job(r).num_known = std::max(1, batch.job(r).num_known);
    }
    batch.Upload();
    const std::vector<SampleResult> expected = batch.OnDevice(TestDevice());
    batch.HoldMasks();
    DeviceArray<SampleResult> results(rows);
    batch.Enqueue(TestDevice(), 0, rows, results.data());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(cudaStreamQuery(TestDevice().stream), cudaErrorNotReady);
    for (int64_t r = rows; r-- > 0;) {
      if (r % 3 == 2) batch.AnswerMask(r, r % 2 == 0 ? kMaskWithheld : 1'000'000);
      if (r % 3 != 2) batch.PostMask(r);
    }
    CUDA_CHECK(cudaStreamSynchronize(TestDevice().stream));
    const std::vector<SampleResult> got = results.Get();
    const std::vector<int32_t> drawn = batch.drawn();
    for (int64_t r = 0; r < rows; ++r) {
      const auto i = static_cast<size_t>(r);
      if (r % 3 != 2) {
        EXPECT_TRUE(SameBits(got[i], expected[i])) << batch.Describe(r);
      } else {
        EXPECT_EQ(got[i].nonfinite, SampleResult::kNoMask);
        EXPECT_EQ(got[i].token, 0);
        EXPECT_EQ(drawn[i], 0);
      }
    }
  }
}

TEST(SampleGpuTest, GivesUpOnAMaskThatNeverComes) {
  Batch batch(2, 5000, 22);
  batch.SetMask(0, std::vector<uint32_t>(static_cast<size_t>(MaskWords(5000)), ~0u));
  batch.SetMask(1, {});
  batch.HoldMasks();
  const std::vector<SampleResult> got = batch.OnDevice(TestDevice());
  EXPECT_EQ(got[0].nonfinite, SampleResult::kNoMask);
  EXPECT_NE(got[1].nonfinite, SampleResult::kNoMask);
}

TEST(SampleGpuTest, ResultsDoNotDependOnTheBatch) {
  // A launch of few rows gives each row more blocks.
  for (int64_t vocab : {32000, 128256}) {
    Batch batch(256, vocab, 99);
    const std::vector<SampleResult> together = batch.OnDevice(TestDevice());
    for (int64_t count : {1, 2, 17, 100}) {
      for (int64_t begin = 0; begin + count <= 256; begin += count + 13) {
        const std::vector<SampleResult> part = batch.OnDevice(TestDevice(), begin, count);
        for (int64_t r = 0; r < count; ++r) {
          ASSERT_TRUE(
              SameBits(part[static_cast<size_t>(r)], together[static_cast<size_t>(begin + r)]))
              << batch.Describe(begin + r);
        }
      }
    }
  }
}

TEST(SampleGpuTest, RepeatsTheSameBits) {
  Batch batch(64, 50000, 5);
  std::vector<SampleResult> results;
  ExpectSameBits([&](const cuda::Device& device) { results = batch.OnDevice(device); },
                 [&] {
                   return std::string(reinterpret_cast<const char*>(results.data()),
                                      results.size() * sizeof(SampleResult));
                 });
}

TEST(SampleGpuTest, ACapturedGraphGivesTheSameBits) {
  Batch batch(40, 128256, 6);
  const cuda::Device device = TestDevice();
  const std::vector<SampleResult> expected = batch.OnDevice(device);
  DeviceArray<SampleResult> results(40);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA_CHECK(cudaDeviceSynchronize());
  CUDA_CHECK(cudaStreamBeginCapture(device.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < 3; ++i) batch.Enqueue(device, 0, 40, results.data());
  CUDA_CHECK(cudaStreamEndCapture(device.stream, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int replay = 0; replay < 5; ++replay) {
    results.Poison();
    CUDA_CHECK(cudaGraphLaunch(exec, device.stream));
    const std::vector<SampleResult> got = results.Get();
    for (size_t r = 0; r < got.size(); ++r) ASSERT_TRUE(SameBits(got[r], expected[r])) << r;
  }
  CUDA_CHECK(cudaGraphExecDestroy(exec));
  CUDA_CHECK(cudaGraphDestroy(graph));
}

}  // namespace
}  // namespace quire::gpu
