#include "bench/ceilings.h"

#include <atomic>
#include <cstring>
#include <vector>

#include "mstar/kernels/cpu/amx-inl.h"
#include "mstar/kernels/cpu/isa.h"
#include "mstar/tensor/tensor.h"

#include "bench/measure.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mstar::bench {

namespace {

// Where results go so that no loop is optimized away.
std::atomic<float> sink{0.0F};

constexpr int64_t kSteps = 100'000;

#if defined(__x86_64__)
// Each probe keeps twelve (or more) independent sums in flight and returns its operations.
#define MSTAR_PROBE(features) __attribute__((target(features), noinline))

MSTAR_PROBE("avx2,fma") double probe_f32_avx2() {
  __m256 sums[12];
#pragma GCC unroll 24
  for (auto& sum : sums) {
    sum = _mm256_setzero_ps();
    asm("" : "+x"(sum));  // else equal sums become one
  }
  const __m256 a = _mm256_set1_ps(0.5F);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      sum = _mm256_fmadd_ps(sum, a, a);
    }
  }
#pragma GCC unroll 24
  for (int index = 1; index < 12; ++index) {
    sums[0] = _mm256_add_ps(sums[0], sums[index]);
  }
  sink = _mm256_cvtss_f32(sums[0]);
  return static_cast<double>(kSteps) * 12 * 16;
}

MSTAR_PROBE("avx512f") double probe_f32_avx512() {
  __m512 sums[24];
#pragma GCC unroll 24
  for (auto& sum : sums) {
    sum = _mm512_setzero_ps();
    asm("" : "+v"(sum));  // else equal sums become one
  }
  const __m512 a = _mm512_set1_ps(0.5F);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 24
    for (auto& sum : sums) {
      sum = _mm512_fmadd_ps(sum, a, a);
    }
  }
#pragma GCC unroll 24
  for (int index = 1; index < 24; ++index) {
    sums[0] = _mm512_add_ps(sums[0], sums[index]);
  }
  sink = _mm512_cvtss_f32(sums[0]);
  return static_cast<double>(kSteps) * 24 * 32;
}

MSTAR_PROBE("avx512f,avx512bf16") double probe_bf16_avx512() {
  __m512 sums[24];
#pragma GCC unroll 24
  for (auto& sum : sums) {
    sum = _mm512_setzero_ps();
    asm("" : "+v"(sum));  // else equal sums become one
  }
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f003f00));
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 24
    for (auto& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, a, a);
    }
  }
#pragma GCC unroll 24
  for (int index = 1; index < 24; ++index) {
    sums[0] = _mm512_add_ps(sums[0], sums[index]);
  }
  sink = _mm512_cvtss_f32(sums[0]);
  return static_cast<double>(kSteps) * 24 * 64;
}

MSTAR_PROBE("avx512f,avx512vnni") double probe_int8_avx512() {
  __m512i sums[24];
#pragma GCC unroll 24
  for (auto& sum : sums) {
    sum = _mm512_setzero_si512();
    asm("" : "+v"(sum));  // else equal sums become one
  }
  const __m512i a = _mm512_set1_epi32(0x01010101);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 24
    for (auto& sum : sums) {
      asm("vpdpbusd %1, %1, %0" : "+v"(sum) : "v"(a));  // the intrinsic's sums are copied
    }
  }
#pragma GCC unroll 24
  for (int index = 1; index < 24; ++index) {
    sums[0] = _mm512_add_epi32(sums[0], sums[index]);
  }
  sink = static_cast<float>(_mm512_cvtsi512_si32(sums[0]));
  return static_cast<double>(kSteps) * 24 * 128;
}

// Widening 16-bit multiply-adds, exact for int8: what a set without VNNI has.
MSTAR_PROBE("avx2") double probe_int8_avx2() {
  __m256i sums[12];
#pragma GCC unroll 24
  for (auto& sum : sums) {
    sum = _mm256_setzero_si256();
    asm("" : "+x"(sum));  // else equal sums become one
  }
  __m256i a = _mm256_set1_epi16(1);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      asm volatile("" : "+x"(a));  // else the product moves out of the loop
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, a));
    }
  }
#pragma GCC unroll 24
  for (int index = 1; index < 12; ++index) {
    sums[0] = _mm256_add_epi32(sums[0], sums[index]);
  }
  sink = static_cast<float>(_mm256_cvtsi256_si32(sums[0]));
  return static_cast<double>(kSteps) * 12 * 32;
}

// Products of tiles of registers alone. Only after best_isa() asked for the registers.
template <bool kInt8>
double probe_amx() {
  amx::TileShapes shapes;
  for (int tile = 0; tile < 6; ++tile) {
    shapes.set(tile, amx::kAmxRows);
  }
  amx::configure_tiles(shapes);  // and zero
  constexpr int64_t kProducts = kSteps / 10;
  for (int64_t step = 0; step < kProducts; ++step) {
    if constexpr (kInt8) {
      amx::dot_int8_tiles<0, 4, 5>();
      amx::dot_int8_tiles<1, 4, 5>();
      amx::dot_int8_tiles<2, 4, 5>();
      amx::dot_int8_tiles<3, 4, 5>();
    } else {
      amx::dot_bf16_tiles<0, 4, 5>();
      amx::dot_bf16_tiles<1, 4, 5>();
      amx::dot_bf16_tiles<2, 4, 5>();
      amx::dot_bf16_tiles<3, 4, 5>();
    }
  }
  amx::release_tiles();
  return static_cast<double>(kProducts) * 4 * 2 * 16 * 16 * (kInt8 ? 64 : 32);
}

#endif  // x86

double probe_f32_portable() {
  float sums[32] = {};
  for (int64_t step = 0; step < kSteps; ++step) {
    for (float& sum : sums) {
      sum = sum * 0.5F + 0.5F;
    }
  }
  for (int index = 1; index < 32; ++index) {
    sums[0] += sums[index];
  }
  sink = sums[0];
  return static_cast<double>(kSteps) * 32 * 2;
}

using Probe = double (*)();

// Operations per second of a probe running on all threads at once.
double rate_once(ThreadPool& pool, Probe probe) {
  std::atomic<double> total{0.0};
  const double begin = now();
  pool.parallel_for(pool.num_threads(), [&](int) {
    const double done = probe();
    double before = total.load();
    while (!total.compare_exchange_weak(before, before + done)) {
    }
  });
  return total.load() / (now() - begin);
}

double rate(ThreadPool& pool, Probe probe) {
  std::vector<double> rates;
  for (int round = 0; round < 9; ++round) {
    rates.push_back(rate_once(pool, probe));
  }
  return median(std::move(rates));
}

// What the active instruction set has for a type.
Probe probe_of(Peak peak) {
#if defined(__x86_64__)
  const Isa isa = active_isa();
  if (isa == Isa::kPortable) {
    return &probe_f32_portable;
  }
  if (peak == Peak::kInt8) {
    if (isa == Isa::kAmx) {
      return &probe_amx<true>;
    }
    return isa >= Isa::kAvx512Bf16 ? &probe_int8_avx512 : &probe_int8_avx2;
  }
  if (peak == Peak::kBF16 && isa >= Isa::kAvx512Bf16) {
    return isa == Isa::kAmx ? &probe_amx<false> : &probe_bf16_avx512;
  }
  return isa == Isa::kAvx2 ? &probe_f32_avx2 : &probe_f32_avx512;
#else
  static_cast<void>(peak);
  return &probe_f32_portable;
#endif
}

#if defined(__x86_64__)
// Four streams at once, as a kernel reads a few panels: one alone leaves a fifth of the bandwidth.
MSTAR_PROBE("avx2") void read_avx2(const std::byte* data, int64_t size_bytes) {
  __m256i sum = _mm256_setzero_si256();
  const int64_t quarter = size_bytes / 4;
  for (int64_t index = 0; index < quarter; index += 64) {
#pragma GCC unroll 4
    for (int64_t stream = 0; stream < 4; ++stream) {
      const auto* p = reinterpret_cast<const __m256i*>(data + stream * quarter + index);
      sum = _mm256_xor_si256(sum, _mm256_xor_si256(_mm256_load_si256(p), _mm256_load_si256(p + 1)));
    }
  }
  sink = static_cast<float>(_mm256_cvtsi256_si32(sum));
}

#endif

void read_portable(const std::byte* data, int64_t size_bytes) {
  uint64_t sum = 0;
  for (int64_t index = 0; index < size_bytes; index += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data + index, 8);
    sum ^= word;
  }
  sink = static_cast<float>(sum);
}

// Bytes per second of one pass over `bytes` of a buffer that no cache holds.
double bandwidth_once(ThreadPool& pool, int64_t bytes) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  constexpr int64_t kPiece = 1 << 20;
  static const Tensor buffer = [] {
    Tensor all = Tensor::empty({kBytes}, DType::kU8);
    std::memset(all.bytes(), 1, kBytes);
    return all;
  }();
  static int64_t begin_at = 0;
  auto* read = &read_portable;
#if defined(__x86_64__)
  if (active_isa() != Isa::kPortable) {
    read = &read_avx2;
  }
#endif
  begin_at = (begin_at + bytes) % kBytes;  // the next part, so that a large cache has none of it
  const double begin = now();
  pool.parallel_for(static_cast<int>(bytes / kPiece), [&](int piece) {
    read(buffer.bytes() + (begin_at + piece * kPiece) % kBytes, kPiece);
  });
  return static_cast<double>(bytes) / (now() - begin);
}

double measure_bandwidth(ThreadPool& pool) {
  std::vector<double> rates;
  for (int round = 0; round < 5; ++round) {
    rates.push_back(bandwidth_once(pool, int64_t{256} << 20));
  }
  return median(std::move(rates));
}

}  // namespace

Ceilings measure_ceilings(ThreadPool& pool) {
  Ceilings ceilings;
  ceilings.bandwidth = measure_bandwidth(pool);
  ceilings.f32_flops = rate(pool, probe_of(Peak::kF32));
  ceilings.bf16_flops = rate(pool, probe_of(Peak::kBF16));
  ceilings.int8_ops = rate(pool, probe_of(Peak::kInt8));
  return ceilings;
}

Ceilings glance_at_ceilings(ThreadPool& pool, Peak peak) {
  Ceilings ceilings;
  ceilings.bandwidth = bandwidth_once(pool, int64_t{64} << 20);
  const double rate = rate_once(pool, probe_of(peak));
  switch (peak) {
    case Peak::kF32: ceilings.f32_flops = rate; break;
    case Peak::kBF16: ceilings.bf16_flops = rate; break;
    case Peak::kInt8: ceilings.int8_ops = rate; break;
  }
  return ceilings;
}

}  // namespace mstar::bench
