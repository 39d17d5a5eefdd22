// quality_bench [MODEL TEXT [ENCODED]]: the cost of each encoding of weights and KV against the
// same model in float32, over the documents of a text; a table in Markdown. With ENCODED, a
// checkpoint of the model whose matrices are narrow, the cost of that alone. Without arguments: the
// demo model on stories that it was not trained on.
#include <cstdio>
#include <string>

#include "bench/quality/encoding_quality.h"

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
    {"FP8, a scale for each 128 x 128 block", {.stored = Encoding::kFp8Blocks}},
    {"int8 with 8-bit inputs, a scale for each row", {.stored = Encoding::kInt8Rows}},
    {"`--kv-cache-dtype fp8`", {.options = {.kv_dtype = DType::kE4M3}}},
    {"it and `--quantization fp8`", {.options = {.kv_dtype = DType::kE4M3, .eight_bit = true}}},
};

void Print(const std::string& name, const EncodingQuality& q) {
  std::printf("| %s | %lld | %.1e | %.2f %% | %.4f | %.4f |\n", name.c_str(),
              static_cast<long long>(q.tokens), q.mean_kl(), 100 * q.top1_agreement(),
              q.perplexity(), q.reference_perplexity());
}

int Run(const std::string& model, const std::string& path, const std::string& encoded) {
  const absl::StatusOr<Documents> documents = ReadDocuments(model, path);
  if (!documents.ok()) {
    std::fprintf(stderr, "%s\n", documents.status().ToString().c_str());
    return 1;
  }
  std::printf("| encoding | tokens | mean KL | top-1 agreement | perplexity | in float32 |\n");
  std::printf("|---|---|---|---|---|---|\n");
  if (!encoded.empty()) {
    Print(encoded, MeasureEncoding(model, *documents, {.path = encoded}));
    return 0;
  }
  for (const Row& row : kRows) {
    Print(row.name, MeasureEncoding(model, *documents, row.encoded));
  }
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  if (argc == 2 || argc > 4) {
    std::fprintf(stderr, "usage: %s [MODEL TEXT [ENCODED]]\n", argv[0]);
    return 2;
  }
  const std::string root = QUIRE_SOURCE_DIR;
  return quire::Run(argc > 1 ? argv[1] : root + "/models/demo",
                    argc > 1 ? argv[2] : root + "/bench/quality/stories.txt",
                    argc > 3 ? argv[3] : "");
}
