// Norms, rope, activations and row moves against their slow twins on every path.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "mstar/kernels/isa_test_util.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/kernels/ops/embedding.h"
#include "mstar/kernels/ops/norm.h"
#include "mstar/kernels/ops/rope.h"
#include "mstar/kernels/ref/dequantize.h"
#include "mstar/tensor/compare.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

constexpr std::array kTypes = {DType::kF32, DType::kBF16};

Tensor random(const Shape& shape, uint32_t seed, DType dtype = DType::kF32, float spread = 2.0F) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-spread, spread);
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  for (float& value : values) {
    value = uniform(generator);
  }
  return Tensor::from(values, shape).to(dtype);
}

// Rows that begin at an odd element and stand further apart than they are long.
Tensor misaligned(int64_t rows, int64_t dim, uint32_t seed, DType dtype, float spread = 2.0F) {
  return random({rows, dim + 5}, seed, dtype, spread).slice(1, 1, dim + 1);
}

// One rounding to the output type, and `ulps` f32 roundings of values up to `size` on the way.
Tolerance rounding(DType dtype, double size, double ulps) {
  return {.atol = size * ulps * 6e-8, .rtol = (dtype == DType::kBF16 ? 0.0079 : 1e-6)};
}

// Runs op(stream) -> Tensor with the slow twins and on every path; all must agree.
template <typename Op>
void expect_twins_agree(const Tolerance& tolerance, Op&& op) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  Tensor want;
  {
    const ScopedReference slow;
    want = op(stream);
  }
  for (const Isa isa : available_isas()) {
    const ScopedIsa scope(isa);
    const Comparison result = compare(op(stream), want, tolerance);
    EXPECT_TRUE(result.passed) << to_string(isa) << " " << result.to_string();
  }
}

TEST(Norms, AllFlavoursOfRaggedRows) {
  for (const DType in : kTypes) {
    for (const DType to : kTypes) {
      for (const int64_t dim : {1, 7, 16, 33, 128, 1000}) {
        const Tensor x = misaligned(6, dim, 1, in);
        const Tensor weight = random({dim}, 2, DType::kBF16);
        const Tensor bias = random({dim}, 3);
        const Tensor scale = misaligned(2, dim, 4, in);
        const Tensor shift = misaligned(2, dim, 5, in);
        const Tolerance close = rounding(to, 6.0 * std::sqrt(static_cast<double>(dim)), 8.0);
        for (const bool gemma : {false, true}) {
          for (const auto flavour : {RmsNormRounding::kOnce, RmsNormRounding::kBeforeWeight}) {
            const RmsNormOptions options{1e-6F, gemma, flavour};
            expect_twins_agree(close, [&](Stream& stream) {
              Tensor out = misaligned(6, dim, 9, to);
              ops::rms_norm(stream, x, weight, options, out);
              return out;
            });
            expect_twins_agree(close, [&](Stream& stream) {
              Tensor out = misaligned(6, dim, 9, to);
              Tensor residual = misaligned(6, dim, 10, in);
              ops::add_rms_norm(stream, x, residual, weight, options, out);
              return out;
            });
          }
        }
        expect_twins_agree(close, [&](Stream& stream) {
          Tensor out = misaligned(6, dim, 9, to);
          ops::ada_rms_norm(stream, x, scale, shift, 1e-6F, out);
          return out;
        });
        expect_twins_agree(close, [&](Stream& stream) {
          Tensor out = misaligned(6, dim, 9, to);
          ops::layer_norm(stream, x, weight, bias, 1e-5F, out);
          return out;
        });
        for (const bool silu : {false, true}) {
          expect_twins_agree(close, [&](Stream& stream) {
            Tensor out = misaligned(6, dim, 9, to);
            ops::l2_norm_scaled(stream, x, bias, silu, out);
            return out;
          });
        }
      }
    }
  }
}

TEST(Norms, ExtremeRows) {
  for (const float size : {1e-18F, 1e-5F, 1e15F}) {
    Tensor x = misaligned(3, 65, 1, DType::kF32, size);
    for (int64_t column = 0; column < 65; ++column) {
      x.select(0, 1).data<float>()[column] = 0.0F;
    }
    expect_twins_agree(rounding(DType::kF32, 16.0, 8.0), [&](Stream& stream) {
      Tensor out = Tensor::empty({3, 65}, DType::kF32);
      ops::rms_norm(stream, x, {}, {}, out);
      EXPECT_EQ(out.select(0, 1).to_floats(), std::vector<float>(65, 0.0F));
      return out;
    });
    expect_twins_agree(rounding(DType::kF32, 16.0, 8.0), [&](Stream& stream) {
      Tensor out = Tensor::empty({3, 65}, DType::kF32);
      ops::layer_norm(stream, x, {}, {}, 1e-5F, out);
      return out;
    });
  }
}

TEST(Norms, InPlaceAndResidualSum) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  Tensor x = random({40, 700}, 1, DType::kBF16);
  Tensor residual = random({40, 700}, 2, DType::kBF16);
  Tensor sum = Tensor::empty({40, 700}, DType::kBF16);
  ops::add(stream, x, residual, sum);
  const Tensor weight = random({700}, 3, DType::kBF16);
  Tensor want = Tensor::empty({40, 700}, DType::kBF16);
  ops::rms_norm(stream, sum, weight, {}, want);
  ops::add_rms_norm(stream, x, residual, weight, {}, x);
  EXPECT_TRUE(compare(residual, sum, {.exact = true}).passed);
  EXPECT_TRUE(compare(x, want, {.exact = true}).passed);
}

TEST(Rope, RaggedHeadsInEveryLayout) {
  for (const DType dtype : kTypes) {
    for (const bool interleave : {false, true}) {
      for (const bool round_table : {false, true}) {
        RopeConfig config;
        config.head_dim = 150;
        config.rotary_dim = 138;
        config.interleave = interleave;
        config.layout = RopeConfig::Layout::kInterleaved;
        config.section = {29, 20, 20};
        const Tensor positions = Tensor::from(
            std::array{0.0F, 1.5F, 15000.25F, 3.0F, 900000.0F, 2.0F, 7.0F, 8.0F, 9e6F}, {3, 3});
        const Tolerance close = round_table && dtype == DType::kBF16
                                    ? Tolerance{.atol = 0.04, .rtol = 0.0}
                                    : rounding(dtype, 4.0, 4.0);
        expect_twins_agree(close, [&](Stream& stream) {
          const Tensor inv_freq = rope_inv_freq(config);
          Tensor cos = Tensor::empty({3, 69}, DType::kF32);
          Tensor sin = Tensor::empty({3, 69}, DType::kF32);
          ops::rope_table(stream, positions, inv_freq, config, cos, sin);
          Tensor x = random({3, 5, 150}, 1, dtype).slice(1, 1, 4);
          ops::apply_rope(stream, cos, sin, config, round_table, x);
          return x;
        });
      }
    }
  }
}

TEST(Rope, TablesAreRightToTheLastBit) {
  RopeConfig config;
  config.head_dim = 128;
  std::vector<int32_t> positions;
  for (int32_t position = 0; position < 400000; position = position * 5 / 4 + 1) {
    positions.push_back(position);
  }
  const auto tokens = static_cast<int64_t>(positions.size());
  expect_twins_agree({.exact = true}, [&](Stream& stream) {
    Tensor tables = Tensor::empty({2, tokens, 64}, DType::kF32);
    Tensor cos = tables.select(0, 0);
    Tensor sin = tables.select(0, 1);
    ops::rope_table(
        stream, Tensor::from(positions, {tokens}), rope_inv_freq(config), config, cos, sin);
    return tables;
  });
}

TEST(Activations, AgreeOverTheWholeRange) {
  std::vector<float> values = {0.0F, -0.0F, 1e-30F, -1e-30F, 88.0F, -88.0F, 1e4F, -1e4F, 1e15F};
  for (float x = -12.0F; x < 12.0F; x += 0.0371F) {
    values.push_back(x);
  }
  const auto n = static_cast<int64_t>(values.size());
  for (const auto activation : {Activation::kSilu,
                                Activation::kGelu,
                                Activation::kGeluTanh,
                                Activation::kRelu,
                                Activation::kRelu2,
                                Activation::kNone}) {
    for (const DType dtype : kTypes) {
      const Tensor x = Tensor::from(values, {n}).to(dtype);
      const Tolerance close{.atol = 2e-6, .rtol = dtype == DType::kBF16 ? 0.0079 : 1e-6};
      expect_twins_agree(close, [&](Stream& stream) {
        Tensor out = Tensor::empty({n}, dtype);
        ops::activate(stream, x, activation, out);
        return out;
      });
      expect_twins_agree({.atol = 1e-4, .rtol = 0.0079}, [&](Stream& stream) {
        Tensor out = misaligned(7, 31, 3, DType::kF32);
        ops::gated_activation(stream, misaligned(7, 62, 4, dtype), activation, out);
        return out;
      });
    }
  }
}

TEST(Activations, NaNIsNeverHidden) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const Tensor x = Tensor::from(std::array{std::numeric_limits<float>::quiet_NaN(), 1.0F}, {2});
  for (const Isa isa : available_isas()) {
    const ScopedIsa scope(isa);
    for (const auto activation :
         {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
      Tensor out = Tensor::empty({2}, DType::kF32);
      ops::activate(stream, x, activation, out);
      EXPECT_TRUE(std::isnan(out.to_floats()[0]));
      EXPECT_FALSE(std::isnan(out.to_floats()[1]));
    }
  }
}

TEST(Elementwise, MixedTypesAndGates) {
  for (const DType a : kTypes) {
    for (const DType b : kTypes) {
      const Tensor x = misaligned(6, 37, 1, a);
      const Tensor y = misaligned(6, 37, 2, b);
      const Tensor gate = misaligned(3, 37, 3, b);
      const Tolerance close = rounding(a, 8.0, 2.0);
      const auto make = [&] { return misaligned(6, 37, 4, a); };
      expect_twins_agree(close, [&](Stream& stream) {
        Tensor out = make();
        ops::add(stream, x, y, out);
        return out;
      });
      expect_twins_agree(close, [&](Stream& stream) {
        Tensor out = make();
        ops::mul(stream, x, y, out);
        return out;
      });
      expect_twins_agree(close, [&](Stream& stream) {
        Tensor out = make();
        ops::affine(stream, y, 3.0F, -1.0F, out);
        return out;
      });
      expect_twins_agree(close, [&](Stream& stream) {
        Tensor out = make();
        ops::add_gated(stream, x, gate, y, out);
        return out;
      });
    }
  }
}

TEST(Copy, StridesAndTypes) {
  for (const DType from : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kU8}) {
    for (const DType to : {DType::kF32, DType::kBF16, DType::kF16, DType::kI64}) {
      const Tensor x = random({5, 6, 19}, 1, DType::kF32, 100.0F).to(DType::kI32).to(from);
      for (const Tensor& view : {x, x.transpose(0, 1), x.transpose(0, 2), x.slice(2, 3, 14)}) {
        const Tensor want = view.copy().to(to);
        expect_twins_agree({.exact = true}, [&](Stream& stream) {
          Tensor out = Tensor::empty(view.shape(), to);
          ops::copy(stream, view, out);
          EXPECT_TRUE(compare(out, want, {.exact = true}).passed);
          return out;
        });
      }
    }
  }
}

TEST(Copy, FillReachesStridedTargets) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64, DType::kU8, DType::kBool}) {
    const float value = dtype == DType::kBool ? 1.0F : 7.0F;
    expect_twins_agree({.exact = true}, [&](Stream& stream) {
      const Tensor x = Tensor::zeros({3, 4, 10}, dtype);
      Tensor middle = x.slice(2, 2, 5);
      ops::fill(stream, value, middle);
      Tensor column = x.transpose(0, 2).slice(0, 9, 10);
      ops::fill(stream, value, column);
      for (int64_t row = 0; row < 4; ++row) {
        EXPECT_EQ(x.select(0, 1).select(0, row).to_floats(),
                  (std::vector<float>{0, 0, value, value, value, 0, 0, 0, 0, value}))
            << to_string(dtype);
      }
      return x;
    });
  }
}

TEST(CheckFinite, RaisesAndNeverLowersTheFlag) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  const float inf = std::numeric_limits<float>::infinity();
  for (const Isa isa : available_isas()) {
    const ScopedIsa scope(isa);
    for (const float bad : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
      for (const int64_t place : {0, 36, 73}) {
        Tensor x = random({2, 37}, 1);
        Tensor flag = Tensor::zeros({1}, DType::kU8);
        ops::check_finite(stream, x, flag);
        EXPECT_EQ(flag.to_ints()[0], 0);
        x.data<float>()[place] = bad;
        ops::check_finite(stream, x, flag);
        EXPECT_EQ(flag.to_ints()[0], 1);
        ops::check_finite(stream, Tensor::zeros({3}, DType::kF32), flag);
        EXPECT_EQ(flag.to_ints()[0], 1);
      }
    }
  }
}

TEST(Rows, EmbeddingGatherAndScatter) {
  const Tensor ids = Tensor::from(std::array<int64_t, 5>{3, -1, 0, 9, 3}, {5});
  const Tensor rows = Tensor::from(std::array<int32_t, 5>{3, -1, 0, 9, 5}, {5});
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Tensor table = misaligned(9, 21, 1, dtype);
    expect_twins_agree({.exact = true}, [&](Stream& stream) {
      Tensor out = Tensor::empty({5, 21}, DType::kF32);
      ops::embedding(stream, table, ids, 2.0F, out);
      EXPECT_EQ(out.select(0, 1).to_floats(), std::vector<float>(21, 0.0F));
      return out;
    });
    expect_twins_agree({.exact = true}, [&](Stream& stream) {
      Tensor out = Tensor::empty({5, 21}, dtype);
      ops::gather_rows(stream, table, rows, out);
      return out;
    });
    expect_twins_agree({.exact = true}, [&](Stream& stream) {
      Tensor out = Tensor::zeros({9, 21}, dtype);
      ops::scatter_rows(stream, misaligned(5, 21, 2, dtype), rows, out);
      return out;
    });
  }
  expect_twins_agree(rounding(DType::kF32, 8.0, 3.0), [&](Stream& stream) {
    Tensor out = random({9, 21}, 3);
    const Tensor repeated = Tensor::from(std::array<int32_t, 5>{3, -1, 0, 3, 3}, {5});
    ops::scatter_add_rows(
        stream, misaligned(5, 21, 2, DType::kBF16), random({5}, 4), repeated, out);
    return out;
  });
}

TEST(Rows, EmbeddingFromBlockQuantizedTables) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ6_K}) {
    Tensor table = Tensor::zeros({4, 768}, dtype);
    std::mt19937 generator(1);
    for (int64_t byte = 0; byte < table.size_bytes(); ++byte) {
      table.bytes()[byte] = static_cast<std::byte>(generator() % 60);  // scales stay small
    }
    std::vector<float> values(4 * 768);
    dequantize(dtype, table.bytes(), 4 * 768, values.data());
    const Tensor want = Tensor::from(values, {4, 768});
    Tensor out = Tensor::empty({3, 768}, DType::kF32);
    ops::embedding(stream, table, Tensor::from(std::array<int32_t, 3>{2, 4, 0}, {3}), 1.0F, out);
    EXPECT_TRUE(compare(out.select(0, 0), want.select(0, 2), {.exact = true}).passed);
    EXPECT_EQ(out.select(0, 1).to_floats(), std::vector<float>(768, 0.0F));
    EXPECT_TRUE(compare(out.select(0, 2), want.select(0, 0), {.exact = true}).passed);
  }
}

// What a decode step is made of. The replay must reproduce it to the last bit and allocate
// nothing; what it costs is measured in bench/.
TEST(Replay, ChainOfSmallOpsIsBitEqual) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  Tensor x = random({2, 256}, 1, DType::kBF16);
  const Tensor start = x.copy();
  const Tensor weight = random({256}, 2, DType::kBF16);
  const auto chain = [&] {
    for (int layer = 0; layer < 50; ++layer) {
      Tensor y = stream.empty({2, 256}, DType::kBF16);
      ops::rms_norm(stream, x, weight, {}, y);
      Tensor z = stream.empty({2, 128}, DType::kBF16);
      ops::gated_activation(stream, y, Activation::kSilu, z);
      Tensor half = y.slice(1, 0, 128);
      ops::add(stream, z, half, half);
      ops::add(stream, x, y, x);
    }
  };
  chain();
  const Tensor want = x.copy();
  std::copy_n(start.bytes(), start.size_bytes(), x.bytes());
  stream.begin_capture();
  chain();
  const auto graph = stream.end_capture();
  EXPECT_EQ(graph->num_ops(), 200);
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::copy_n(start.bytes(), start.size_bytes(), x.bytes());
    graph->replay();
    EXPECT_TRUE(compare(x, want, {.exact = true}).passed);
  }
}

}  // namespace
}  // namespace mstar
