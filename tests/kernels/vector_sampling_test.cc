// The vectorised sampler against the scalar arithmetic of kernels/sampling_math.h, bit for bit, on
// every instruction set: that header is the contract between devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "kernels/cpu/vector/vector_kernels.h"
#include "kernels/sampling_math.h"
#include "tests/kernels/cases.h"

namespace quire {
namespace {

using cpu::Drawn;
using cpu::DrawRow;
using cpu::VectorKernels;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }

template <typename Fn>
void OnEveryIsa(Fn fn) {
  for (cpu::Isa isa : cpu::SupportedIsas()) {
    SCOPED_TRACE(Name(isa));
    fn(cpu::KernelsFor(isa));
  }
}

// Every sign and exponent, odd steps through the significand, and the edges.
std::vector<float> ManyFloats() {
  std::vector<float> floats;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 8191) {
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (float edge : {-87.0f, 88.37f, 0.0f, -0.0f, 0.34657359f, -0.34657359f, -27.7258872f}) {
    float below = edge, above = edge;
    for (int i = 0; i < 40; ++i) {
      floats.insert(floats.end(), {below, above});
      below = std::nextafter(below, -kInfinity);
      above = std::nextafter(above, kInfinity);
    }
  }
  Random random(3);
  for (int i = 0; i < 500000; ++i) floats.push_back(static_cast<float>(-100 * random.Uniform()));
  const std::initializer_list<float> last = {kInfinity, -kInfinity, NAN};
  floats.insert(floats.end(), last);
  return floats;
}

void ExpectSameExp(const VectorKernels& kernels, const float* x, int64_t n) {
  std::vector<float> e(n);
  kernels.exp(x, e.data(), n);
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(e[i]));
    } else {
      ASSERT_EQ(Bits(e[i]), Bits(ExactExp(x[i]))) << "x " << x[i];
    }
  }
}

TEST(VectorSamplingTest, ExpMatchesTheScalarBits) {
  const std::vector<float> x = ManyFloats();
  OnEveryIsa([&](const VectorKernels& kernels) {
    ExpectSameExp(kernels, x.data(), static_cast<int64_t>(x.size()));
    for (int64_t n = 0; n < 40; ++n) ExpectSameExp(kernels, x.data() + 132000 + 37 * n, n);
  });
}

TEST(VectorSamplingTest, MassIsTheSumOfScalarMasses) {
  Random random(8);
  OnEveryIsa([&](const VectorKernels& kernels) {
    for (int64_t n : {1, 2, 15, 16, 17, 63, 1000, 50021}) {
      std::vector<float> x(n);
      for (float& v : x) v = static_cast<float>(12 * random.Normal());
      x[n / 2] = -kInfinity;
      x[0] = 1.5f;
      const float top = *std::max_element(x.begin(), x.end());
      uint64_t mass = 0;
      for (float v : x) mass += static_cast<uint64_t>(ExactExp(v - top) * 0x1p40f);
      ASSERT_EQ(kernels.exp_mass(x.data(), top, n), mass) << n;
    }
  });
}

// The score of a draw that keeps only `token`: its noise, because its z is 0.
float NoiseOf(const VectorKernels& kernels, std::vector<float>& z, uint64_t seed, uint32_t position,
              uint32_t token) {
  z[token] = 0.0f;
  const Drawn drawn = kernels.draw({.z = z.data(),
                                    .vocab = static_cast<int64_t>(z.size()),
                                    .min_z = -kInfinity,
                                    .min_p = 0.0f,
                                    .seed = seed,
                                    .position = position});
  z[token] = -kInfinity;
  EXPECT_EQ(drawn.token, static_cast<int32_t>(token));
  return drawn.score;
}

TEST(VectorSamplingTest, NoiseMatchesTheScalarBitsInEveryLane) {
  constexpr uint64_t kSeeds[] = {0, 1, ~uint64_t{0}, uint64_t{1} << 32, 0x9e3779b97f4a7c15u};
  constexpr uint32_t kPositions[] = {0, 1, 4095, 0x7fffffffu};
  OnEveryIsa([&](const VectorKernels& kernels) {
    for (int64_t vocab : {64, 67, 333}) {  // whole blocks, and ends within a block
      std::vector<float> z(vocab, -kInfinity);
      for (uint64_t seed : kSeeds) {
        for (uint32_t position : kPositions) {
          for (uint32_t token = 0; token < vocab; ++token) {
            ASSERT_EQ(Bits(NoiseOf(kernels, z, seed, position, token)),
                      Bits(GumbelNoise(seed, position, token)))
                << "seed " << seed << " position " << position << " token " << token;
          }
        }
      }
    }
  });
}

TEST(VectorSamplingTest, NoiseMatchesTheScalarBitsForManyWords) {
  OnEveryIsa([&](const VectorKernels& kernels) {
    std::vector<float> z(64, -kInfinity);
    for (uint32_t position = 0; position < 300000; ++position) {
      ASSERT_EQ(Bits(NoiseOf(kernels, z, 5, position, position % 64)),
                Bits(GumbelNoise(5, position, position % 64)))
          << position;
    }
  });
}

// Random words at the edges of the noise: the smallest and the largest; both sides of 1/2, where
// low words become high words and the float of a word rounds up to 1/2; both sides of 1 -
// sqrt(1/2), where the logarithm's argument changes.
TEST(VectorSamplingTest, NoiseMatchesTheScalarBitsAtTheEdges) {
  constexpr uint64_t kSeed = 0x9e3779b97f4a7c15u;
  struct Edge {
    uint32_t position, token, word;
  };
  constexpr Edge kEdges[] = {{12312, 60390, 0x00000000u},  {27066, 61236, 0x00000001u},
                             {12591, 46544, 0xfffffffeu},  {15539, 813, 0xffffffffu},
                             {49803, 66663, 0x7fffffffu},  {21914, 16158, 0x80000000u},
                             {138996, 27722, 0x7fffff40u}, {72557, 127318, 0x80000040u},
                             {33, 20451, 0x4afb0c85u},     {140, 121139, 0x4afb0cd9u}};
  OnEveryIsa([&](const VectorKernels& kernels) {
    std::vector<float> z(128000, -kInfinity);
    for (const Edge& edge : kEdges) {
      SCOPED_TRACE(edge.word);
      ASSERT_EQ(RandomWord(kSeed, edge.position, edge.token), edge.word);
      ASSERT_EQ(Bits(NoiseOf(kernels, z, kSeed, edge.position, edge.token)),
                Bits(GumbelNoise(kSeed, edge.position, edge.token)));
    }
  });
}

// The draw of sampling.h, one token at a time.
Drawn ScalarDraw(const DrawRow& row) {
  Drawn best{-kInfinity, -1};
  for (int64_t i = 0; i < row.vocab; ++i) {
    if (row.z[i] == -kInfinity || row.z[i] < row.min_z) continue;
    if (row.min_p > 0.0f && ExactExp(row.z[i]) < row.min_p) continue;
    const uint32_t token = static_cast<uint32_t>(i);
    const float score = row.z[i] + GumbelNoise(row.seed, row.position, token);
    if (score > best.score) best = {score, static_cast<int32_t>(i)};
  }
  return best;
}

TEST(VectorSamplingTest, DrawsMatchTheScalarDraws) {
  OnEveryIsa([&](const VectorKernels& kernels) {
    Random random(21);
    for (int draw = 0; draw < 600; ++draw) {
      std::vector<float> z(1 + random.Below(draw % 50 == 0 ? 20000 : 700));
      for (float& v : z) v = static_cast<float>(-6 * random.Uniform());
      for (int64_t i = random.Below(40); i > 0; --i) z[random.Below(z.size())] = -kInfinity;
      z[random.Below(z.size())] = 0.0f;
      const DrawRow row{.z = z.data(),
                        .vocab = static_cast<int64_t>(z.size()),
                        .min_z = draw % 3 == 0 ? -2.0f : -kInfinity,
                        .min_p = draw % 4 == 0 ? ExactExp(z[random.Below(z.size())]) : 0.0f,
                        .seed = random.Next(),
                        .position = static_cast<uint32_t>(random.Below(1 << 20))};
      const Drawn drawn = kernels.draw(row), expected = ScalarDraw(row);
      ASSERT_EQ(drawn.token, expected.token) << draw;
      ASSERT_EQ(Bits(drawn.score), Bits(expected.score)) << draw;
    }
  });
}

}  // namespace
}  // namespace quire
