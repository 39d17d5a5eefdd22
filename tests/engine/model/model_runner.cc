// Steps of plain vectors on one rank, and the expected values beside the checkpoints.
#include "tests/engine/model/model_runner.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>

#include "engine/base/json.h"
#include "engine/model/linear.h"
#include "kernels/check.h"

namespace quire::testing {
namespace {

constexpr int32_t kBlockSize = 16;
constexpr int32_t kBlocksPerSequence = 24;
constexpr int32_t kSequences = 3;
constexpr int32_t kMaxTokens = 384;
constexpr int32_t kMaxLogitRows = 16;

template <typename T>
T Good(absl::StatusOr<T> result) {
  if (!result.ok()) std::cerr << result.status() << "\n";
  CHECK(result.ok());
  return *std::move(result);
}

// Blocks of a sequence, neither adjacent nor in order; block 0 stays unused.
int32_t BlockOf(int32_t sequence, int32_t index) {
  return 1 + (kBlocksPerSequence - 1 - index) * kSequences + sequence;
}

}  // namespace

std::string ModelDir(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  return std::string(QUIRE_SOURCE_DIR) + "/tests/testdata/models/" + name;
}

Expected ReadExpected(const std::string& name) {
  const nlohmann::json json = Good(ReadJsonFile(ModelDir(name) + "/expected.json"));
  Expected expected{.vocab_size = json.at("vocab_size").get<int32_t>(),
                    .bf16_relative_error = json.value("bf16_relative_error", 0.0)};
  std::ifstream file(ModelDir(name) + "/expected.f32", std::ios::binary);
  for (const nlohmann::json& item : json.at("prompts")) {
    Expected::Prompt prompt;
    item.at("tokens").get_to(prompt.tokens);
    item.at("greedy").get_to(prompt.greedy);
    item.at("positions").get_to(prompt.positions);
    prompt.ranks = item.value("ranks", 1);
    prompt.margins = item.value("margins", std::vector<double>());
    prompt.logits.resize(prompt.positions.size() * expected.vocab_size);
    file.read(reinterpret_cast<char*>(prompt.logits.data()),
              static_cast<std::streamsize>(prompt.logits.size() * sizeof(float)));
    CHECK(file.good());
    expected.prompts.push_back(std::move(prompt));
  }
  CHECK(file.peek() == std::ifstream::traits_type::eof());
  return expected;
}

double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  CHECK(a.size() == b.size() && !b.empty());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = double{a[i]} - b[i];
    difference += d * d;
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

int32_t ArgMax(const std::vector<float>& logits, int32_t vocab_size) {
  const auto row = logits.end() - vocab_size;
  return static_cast<int32_t>(std::max_element(row, logits.end()) - row);
}

ModelRunner::ModelRunner(const std::string& name, TpInfo tp, const RunnerOptions& options,
                         Backend& backend)
    : backend_(backend), config_(Good(ModelConfig::Load(ModelDir(name)))) {
  if (options.eight_bit) config_.quantization.source = Quantization::Source::kWhileLoading;
  const ModelOptions model_options{.weight_dtype = options.weight_dtype,
                                   .activation_dtype = options.activation_dtype,
                                   .eight_bit_kv = options.kv_dtype == DType::kE4M3,
                                   .max_tokens = kMaxTokens,
                                   .max_logit_rows = kMaxLogitRows,
                                   .max_model_len = kBlocksPerSequence * kBlockSize,
                                   .width_multiple = options.width_multiple};
  model_ = Good(LoadModel(ModelDir(name), config_, tp, model_options, backend));
  const KvLayout layout{
      .num_layers = config_.num_layers,
      .num_kv_heads = static_cast<int32_t>(KvShard(config_.num_kv_heads, tp).count),
      .head_dim = config_.head_dim,
      .block_size = kBlockSize,
      .dtype = options.kv_dtype};
  const int32_t num_blocks = 1 + kSequences * kBlocksPerSequence;
  cache_ = std::make_unique<KvCache>(Good(KvCache::Create(backend, layout, num_blocks)));
  // NaN in every type: whatever is read before it is written shows.
  const std::vector<char> poison(num_blocks * layout.block_bytes(), '\xff');
  backend.CopyToDevice(cache_->block_data(0), poison.data(), poison.size());

  std::vector<int32_t> table;
  for (int32_t s = 0; s < kSequences; ++s) {
    for (int32_t i = 0; i < kBlocksPerSequence; ++i) table.push_back(BlockOf(s, i));
  }
  block_table_ = Upload(table);
  block_table_memory_ = std::move(uploads_.back());
  columns_ = Vocabulary::LocalRows(config_.vocab_size, tp);
  logits_ = backend.Allocate(sizeof(float) * kMaxLogitRows * columns_ * tp.size);
  if (tp.size > 1) whole_ = backend.AllocateShared(logits_.bytes());
}

template <typename T>
const T* ModelRunner::Upload(const std::vector<T>& values) {
  uploads_.push_back(backend_.Allocate(std::max<size_t>(values.size(), 1) * sizeof(T)));
  backend_.CopyToDevice(uploads_.back().data(), values.data(), values.size() * sizeof(T));
  return static_cast<const T*>(uploads_.back().data());
}

std::vector<float> ModelRunner::Run(const std::vector<Slice>& slices) {
  std::vector<int32_t> ids, positions, query_begin = {0}, context_len, table_row, logit_rows;
  std::vector<int64_t> slots;
  size_t max_query_len = 0;
  for (const Slice& slice : slices) {
    max_query_len = std::max(max_query_len, slice.tokens.size());
    const auto begin = static_cast<int32_t>(ids.size());
    for (int32_t row : slice.logit_rows) logit_rows.push_back(begin + row);
    for (size_t i = 0; i < slice.tokens.size(); ++i) {
      const int32_t position = slice.context + static_cast<int32_t>(i);
      ids.push_back(slice.tokens[i]);
      positions.push_back(position);
      slots.push_back(int64_t{BlockOf(slice.sequence, position / kBlockSize)} * kBlockSize +
                      position % kBlockSize);
    }
    query_begin.push_back(static_cast<int32_t>(ids.size()));
    context_len.push_back(slice.context + static_cast<int32_t>(slice.tokens.size()));
    table_row.push_back(slice.sequence);
  }
  uploads_.clear();
  const ModelInput input{.num_tokens = static_cast<int32_t>(ids.size()),
                         .num_seqs = static_cast<int32_t>(slices.size()),
                         .num_logit_rows = static_cast<int32_t>(logit_rows.size()),
                         .max_query_len = static_cast<int32_t>(max_query_len),
                         .token_ids = Upload(ids),
                         .positions = Upload(positions),
                         .slots = Upload(slots),
                         .query_begin = Upload(query_begin),
                         .context_len = Upload(context_len),
                         .table_row = Upload(table_row),
                         .block_table = block_table_,
                         .table_stride = kBlocksPerSequence,
                         .logit_rows = Upload(logit_rows)};
  const TensorView logits(logits_.data(), DType::kF32, {input.num_logit_rows, columns_});
  model_->Forward(input, *cache_, logits);
  return WholeRows(logits);
}

// In a group each rank's share of the rows is a copy of all of them, so that each gets them whole.
std::vector<float> ModelRunner::WholeRows(TensorView logits) {
  const int64_t rows = logits.dim[0], ranks = backend_.ranks();
  if (rows == 0) return {};
  TensorView whole = logits;
  if (ranks > 1) {
    TensorView copies = logits;
    copies.dim[0] = rows * ranks;
    for (int64_t r = 1; r < ranks; ++r) {
      const size_t bytes = static_cast<size_t>(logits.bytes());
      backend_.CopyOnDevice(copies.Rows(r * rows, rows).data, logits.data, bytes);
    }
    whole = TensorView(whole_.data(), DType::kF32, {rows, columns_ * ranks});
    backend_.ColumnsToRows(copies, whole);
  }
  std::vector<float> padded(whole.size()), result;
  backend_.CopyToHost(padded.data(), whole.data, padded.size() * sizeof(float));
  backend_.Synchronize();
  for (int64_t row = 0; row < rows; ++row) {
    const auto begin = padded.begin() + row * whole.dim[1];
    result.insert(result.end(), begin, begin + config_.vocab_size);
  }
  return result;
}

std::vector<float> ModelRunner::RunChunked(const std::vector<int32_t>& tokens, int32_t chunk,
                                           const std::vector<int32_t>& positions,
                                           int32_t sequence) {
  std::vector<float> result;
  const auto total = static_cast<int32_t>(tokens.size());
  for (int32_t begin = 0; begin < total; begin += chunk) {
    const int32_t end = std::min(begin + chunk, total);
    Slice slice{.sequence = sequence, .context = begin};
    slice.tokens.assign(tokens.begin() + begin, tokens.begin() + end);
    for (int32_t p : positions) {
      if (begin <= p && p < end) slice.logit_rows.push_back(p - begin);
    }
    const std::vector<float> logits = Run({slice});
    result.insert(result.end(), logits.begin(), logits.end());
  }
  return result;
}

std::vector<int32_t> ModelRunner::Greedy(const std::vector<int32_t>& tokens, int32_t chunk,
                                         int32_t count) {
  const auto prompt_len = static_cast<int32_t>(tokens.size());
  std::vector<float> logits = RunChunked(tokens, chunk, {prompt_len - 1});
  std::vector<int32_t> result;
  while (true) {
    result.push_back(ArgMax(logits, config_.vocab_size));
    const auto made = static_cast<int32_t>(result.size());
    if (made == count) return result;
    logits =
        Run({{.context = prompt_len + made - 1, .tokens = {result.back()}, .logit_rows = {0}}});
  }
}

}  // namespace quire::testing
