// Logits in float32 arithmetic, everything that is made of them in double.
#include "bench/quality/encoding_quality.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>
#include <random>
#include <thread>

#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "server/text/tokenizer.h"
#include "tests/engine/model/temp_dir.h"

namespace quire {
namespace {

constexpr int32_t kWindow = 384;  // the context of a ModelRunner
constexpr int32_t kChunk = 16;    // its rows of logits

std::vector<double> LogSoftmax(const float* logits, int32_t count) {
  const double largest = *std::max_element(logits, logits + count);
  double sum = 0;
  for (int32_t i = 0; i < count; ++i) sum += std::exp(logits[i] - largest);
  std::vector<double> result(count);
  for (int32_t i = 0; i < count; ++i) result[i] = logits[i] - largest - std::log(sum);
  return result;
}

std::vector<std::vector<int32_t>> Windows(const Documents& documents) {
  std::vector<std::vector<int32_t>> windows;
  for (const std::vector<int32_t>& document : documents) {
    for (size_t begin = 0; begin + 1 < document.size(); begin += kWindow) {
      const size_t end = std::min<size_t>(begin + kWindow, document.size());
      windows.emplace_back(document.begin() + begin, document.begin() + end);
    }
  }
  return windows;
}

}  // namespace

double EncodingQuality::perplexity() const { return std::exp(loss / static_cast<double>(tokens)); }
double EncodingQuality::reference_perplexity() const {
  return std::exp(reference_loss / static_cast<double>(tokens));
}

void EncodingQuality::Add(const float* reference, const float* other, int32_t vocab_size,
                          int32_t next) {
  const std::vector<double> p = LogSoftmax(reference, vocab_size);
  const std::vector<double> q = LogSoftmax(other, vocab_size);
  for (int32_t i = 0; i < vocab_size; ++i) kl += std::exp(p[i]) * (p[i] - q[i]);
  const auto best = [](const std::vector<double>& x) {
    return std::distance(x.begin(), std::ranges::max_element(x));
  };
  same_best += best(p) == best(q) ? 1 : 0;
  reference_loss -= p[next];
  loss -= q[next];
  ++tokens;
}

absl::StatusOr<Documents> ReadDocuments(const std::string& model, const std::string& path) {
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(model + "/tokenizer.json"));
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.empty()) return absl::NotFoundError(path + ": no text to read");
  Documents documents;
  for (const absl::string_view document : absl::StrSplit(text, "\n\n\n")) {
    RETURN_IF_ERROR(
        tokenizer->Encode(std::string(document), true, false, &documents.emplace_back()));
  }
  return documents;
}

Documents RandomDocuments(int32_t vocab_size, int32_t count) {
  std::mt19937 random(1);
  Documents documents(static_cast<size_t>(count), std::vector<int32_t>(256));
  for (std::vector<int32_t>& document : documents) {
    for (int32_t& token : document) {
      token = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_size));
    }
  }
  return documents;
}

EncodingQuality MeasureEncoding(const std::string& model, const Documents& documents,
                                const EncodedModel& encoded_model) {
  const auto threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::unique_ptr<Backend> backend = std::move(CreateCpuBackends(1, threads)[0]);
  testing::ModelRunner reference(model, {}, {}, *backend);
  const testing::TempDir copy;
  if (encoded_model.stored) {
    const absl::Status written = WriteNarrowed(model, *encoded_model.stored, copy.path());
    if (!written.ok()) std::cerr << written << "\n";
    CHECK(written.ok());
  }
  const std::string& other = encoded_model.path.empty() ? model : encoded_model.path;
  testing::ModelRunner encoded(encoded_model.stored ? copy.path() : other, {},
                               encoded_model.options, *backend);
  const int32_t vocab_size = reference.config().vocab_size;
  EncodingQuality quality;
  for (const std::vector<int32_t>& window : Windows(documents)) {
    std::vector<int32_t> positions(window.size() - 1);
    std::iota(positions.begin(), positions.end(), 0);
    const std::vector<float> a = reference.RunChunked(window, kChunk, positions);
    const std::vector<float> b = encoded.RunChunked(window, kChunk, positions);
    for (size_t i = 0; i + 1 < window.size(); ++i) {
      const size_t row = i * vocab_size;
      quality.Add(&a[row], &b[row], vocab_size, window[i + 1]);
    }
  }
  return quality;
}

}  // namespace quire
