// quality_bench [MODEL TEXT [ENCODED]]: the cost of each encoding of weights and KV against the
// same model in float32, over the documents of a text; a table in Markdown. With ENCODED, a
// checkpoint of the model whose matrices are narrow, the cost of that alone. Without arguments: the
// demo model on stories that it was not trained on, and two models of random weights on random
// tokens.
#include <cstdio>
#include <string>

#include "bench/quality/encoding_quality.h"
#include "engine/model/checkpoint/model_config.h"

namespace quire {
namespace {

struct Row {
  const char* name;
  EncodedModel encoded;
};

const Row kRows[] = {
    {"bfloat16 weights and KV",
     {.options = {.weight_dtype = DType::kBF16, .kv_dtype = DType::kBF16}}},
    {"`--quantization fp8`", {.options = {.eight_bit = true}}},
    {"FP8, a scale for each 128 x 128 block", {.stored = NarrowForm::kFp8Blocks}},
    {"int8 with 8-bit inputs, a scale for each row", {.stored = NarrowForm::kInt8Rows}},
    {"int8, a scale for each 128 columns", {.stored = NarrowForm::kInt8Groups}},
    {"int4, a scale for each 128 columns", {.stored = NarrowForm::kInt4Groups}},
    {"`--kv-cache-dtype fp8`", {.options = {.kv_dtype = DType::kE4M3}}},
    {"it and `--quantization fp8`", {.options = {.kv_dtype = DType::kE4M3, .eight_bit = true}}},
};

void Print(const std::string& name, const EncodingQuality& q) {
  std::printf("| %s | %lld | %.1e | %.2f %% | %.4f | %.4f |\n", name.c_str(),
              static_cast<long long>(q.tokens), q.mean_kl(), 100 * q.top1_agreement(),
              q.perplexity(), q.reference_perplexity());
}

void PrintHead() {
  std::printf("| encoding | tokens | mean KL | top-1 agreement | perplexity | in float32 |\n");
  std::printf("|---|---|---|---|---|---|\n");
}

int Run(const std::string& model, const std::string& path, const std::string& encoded) {
  const absl::StatusOr<Documents> documents = ReadDocuments(model, path);
  if (!documents.ok()) {
    std::fprintf(stderr, "%s\n", documents.status().ToString().c_str());
    return 1;
  }
  PrintHead();
  if (!encoded.empty()) {
    Print(encoded, MeasureEncoding(model, *documents, {.path = encoded}));
    return 0;
  }
  for (const Row& row : kRows) {
    Print(row.name, MeasureEncoding(model, *documents, row.encoded));
  }
  return 0;
}

// The forms that matrices of any width can have.
void RunRandom(const std::string& model) {
  std::printf("\n%s\n\n", model.c_str());
  PrintHead();
  const Documents documents = RandomDocuments(ModelConfig::Load(model)->vocab_size, 8);
  for (const Row& row : kRows) {
    const bool groups = row.encoded.stored == NarrowForm::kInt8Groups ||
                        row.encoded.stored == NarrowForm::kInt4Groups;
    if (!groups) Print(row.name, MeasureEncoding(model, documents, row.encoded));
  }
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  if (argc == 2 || argc > 4) {
    std::fprintf(stderr, "usage: %s [MODEL TEXT [ENCODED]]\n", argv[0]);
    return 2;
  }
  const std::string root = QUIRE_SOURCE_DIR;
  if (argc > 1) return quire::Run(argv[1], argv[2], argc > 3 ? argv[3] : "");
  if (quire::Run(root + "/models/demo", root + "/bench/quality/stories.txt", "") != 0) return 1;
  for (const char* name : {"llama", "qwen3"}) {
    quire::RunRandom(root + "/tests/testdata/models/" + name);
  }
}
