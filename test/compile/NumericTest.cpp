//===- NumericTest.cpp - What the bundled modules compute -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// Entry points of bench/modules run on fixed inputs, and what they compute is
// compared with the same computed here. Inputs are multiples of 1/8 and small,
// so that sums and products are exact in any order; where there is a division, a
// root or an exponential, the reference is computed in double.
//
//===----------------------------------------------------------------------===//

#include "context_pool/CompileCache.h"
#include "context_pool/Fingerprint.h"
#include "test/compile/CompileTestSupport.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"
#include "test/support/TestFiles.h"

#include "mlir/ExecutionEngine/CRunnerUtils.h"
#include "llvm/ADT/Twine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

using namespace ctxpool;
using namespace ctxpool::test;

namespace {

//===----------------------------------------------------------------------===//
// Arrays
//===----------------------------------------------------------------------===//

/// A row-major array, and the descriptor through which compiled code sees it.
template <typename T, int rank>
class Array {
public:
  explicit Array(std::array<int64_t, rank> extents, T value = T())
      : sizes(extents),
        elements(std::accumulate(extents.begin(), extents.end(), int64_t(1),
                                 std::multiplies<>()),
                 value) {}

  template <typename... Indices>
  T &operator()(Indices... indices) {
    static_assert(sizeof...(indices) == rank);
    int64_t at = 0, dimension = 0;
    ((at = at * sizes[dimension++] + indices), ...);
    return elements[at];
  }

  /// What a function of the C interface takes. Valid until the next call.
  StridedMemRefType<T, rank> *ref() {
    descriptor.basePtr = descriptor.data = elements.data();
    descriptor.offset = 0;
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
      descriptor.sizes[i] = sizes[i];
      descriptor.strides[i] = stride;
      stride *= sizes[i];
    }
    return &descriptor;
  }

  std::array<int64_t, rank> sizes;
  std::vector<T> elements;

private:
  StridedMemRefType<T, rank> descriptor;
};

/// Filled with multiples of `step` between -8 and 8 steps, in no evident order.
template <typename T, int rank>
Array<T, rank> pattern(std::array<int64_t, rank> sizes, unsigned seed,
                       T step = T(0.125)) {
  Array<T, rank> array(sizes);
  uint32_t state = seed;
  for (T &element : array.elements) {
    state = state * 1664525u + 1013904223u;
    element = T(int((state >> 16) % 17) - 8) * step;
  }
  return array;
}

template <typename T>
auto near(const std::vector<T> &expected, T tolerance) {
  return testing::Pointwise(
      testing::Truly([tolerance](const std::tuple<T, T> &pair) {
        auto [actual, wanted] = pair;
        return std::abs(actual - wanted) <=
               tolerance * std::max(T(1), std::abs(wanted));
      }),
      expected);
}

//===----------------------------------------------------------------------===//
// Where the object comes from
//===----------------------------------------------------------------------===//

/// A file of bench/modules and what is made of it.
struct Sample {
  explicit Sample(llvm::StringRef name)
      : text(readFile(sourceDir() / "bench/modules" / name.str())),
        recipe(hostRecipe()) {
    recipe.pipeline = pipelineOf(text);
  }

  absl::StatusOr<Artifact> compile() const {
    return compileObject(text, recipe);
  }

  absl::StatusOr<CacheKey> makeKey() const {
    auto context = compilingTemplate()->clone();
    if (!context.ok())
      return context.status();
    registerPasses();
    auto digest = fingerprint(*parse(**context, text));
    if (!digest.ok())
      return digest.status();
    return makeCacheKey(*digest, recipe);
  }

  std::string text;
  CompileRecipe recipe;
};

absl::StatusOr<Artifact> compileAnew(const Sample &sample) {
  return sample.compile();
}

/// What `cache` holds under `key`; it must not come to compiling.
absl::StatusOr<Artifact> hit(CompileCache &cache, const CacheKey &key) {
  return cache.getOrCompile(key, []() -> absl::StatusOr<Artifact> {
    return absl::InternalError("the artifact is not in memory");
  });
}

absl::StatusOr<Artifact> takeFromMemory(const Sample &sample) {
  auto cache = CompileCache::create();
  auto key = sample.makeKey();
  if (!cache.ok() || !key.ok())
    return cache.ok() ? key.status() : cache.status();
  auto made = (*cache)->getOrCompile(*key, [&] { return sample.compile(); });
  return made.ok() ? hit(**cache, *key) : made;
}

absl::StatusOr<Artifact> takeFromAnotherThread(const Sample &sample) {
  auto cache = CompileCache::create();
  auto key = sample.makeKey();
  if (!cache.ok() || !key.ok())
    return cache.ok() ? key.status() : cache.status();
  std::thread([&] {
    EXPECT_THAT((*cache)->getOrCompile(*key, [&] { return sample.compile(); }),
                IsOk());
  }).join();
  return hit(**cache, *key);
}

struct Source {
  const char *name;
  absl::StatusOr<Artifact> (*get)(const Sample &sample);
};

class NumericTest : public testing::TestWithParam<Source> {
protected:
  /// Loads the file of bench/modules.
  void load(llvm::StringRef module) {
    auto artifact = GetParam().get(Sample(module));
    ASSERT_THAT(artifact, IsOk());
    auto loaded = Executable::load(*artifact);
    ASSERT_THAT(loaded, IsOk());
    executable = *std::move(loaded);
  }

  /// Calls a function through its C interface.
  template <typename Result = void, typename... Arguments>
  Result run(llvm::StringRef name, Arguments... arguments) {
    return call<Result>(*executable, ("_mlir_ciface_" + name).str(),
                        arguments...);
  }

  std::shared_ptr<Executable> executable;
};

INSTANTIATE_TEST_SUITE_P(
    Artifacts, NumericTest,
    testing::Values(Source{"FreshCompile", compileAnew},
                    Source{"Memory", takeFromMemory},
                    Source{"AnotherThread", takeFromAnotherThread}),
    [](const testing::TestParamInfo<Source> &info) { return info.param.name; });

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

template <typename T>
Array<T, 2> product(Array<T, 2> &a, Array<T, 2> &b) {
  Array<T, 2> c({a.sizes[0], b.sizes[1]});
  for (int64_t i = 0; i < a.sizes[0]; ++i)
    for (int64_t j = 0; j < b.sizes[1]; ++j)
      for (int64_t k = 0; k < a.sizes[1]; ++k)
        c(i, j) += a(i, k) * b(k, j);
  return c;
}

template <typename T>
Array<T, 2> transposed(Array<T, 2> &a) {
  Array<T, 2> turned({a.sizes[1], a.sizes[0]});
  for (int64_t i = 0; i < a.sizes[0]; ++i)
    for (int64_t j = 0; j < a.sizes[1]; ++j)
      turned(j, i) = a(i, j);
  return turned;
}

TEST_P(NumericTest, Saxpy) {
  ASSERT_NO_FATAL_FAILURE(load("saxpy.mlir"));
  auto x = pattern<float, 1>({37}, 1), y = pattern<float, 1>({37}, 2);
  std::vector<float> expected = y.elements;
  for (int i = 0; i < 30; ++i)
    expected[i] += 1.5f * x(i);

  run("saxpy", int64_t(30), 1.5f, x.ref(), y.ref());

  EXPECT_EQ(y.elements, expected);
}

TEST_P(NumericTest, Matmul) {
  ASSERT_NO_FATAL_FAILURE(load("matmul.mlir"));
  auto a = pattern<float, 2>({128, 256}, 1),
       b = pattern<float, 2>({256, 64}, 2);
  Array<float, 2> c({128, 64}, NAN);
  run("matmul", a.ref(), b.ref(), c.ref());
  EXPECT_EQ(c.elements, product(a, b).elements);

  auto x = pattern<float, 2>({32, 384}, 3), w = pattern<float, 2>({96, 384}, 4);
  Array<float, 2> y({32, 96}, NAN);
  run("matmul_nt", x.ref(), w.ref(), y.ref());
  auto wTurned = transposed(w);
  EXPECT_EQ(y.elements, product(x, wTurned).elements);
}

/// The upper half of a float whose lower half is zero.
uint16_t bfloat16Of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits >> 16;
}

TEST_P(NumericTest, MatmulMixed) {
  ASSERT_NO_FATAL_FAILURE(load("matmul.mlir"));
  auto a = pattern<float, 2>({5, 19}, 1), b = pattern<float, 2>({19, 7}, 2);
  auto c = pattern<float, 2>({5, 7}, 3);
  Array<uint16_t, 2> aHalf(a.sizes), bHalf(b.sizes);
  llvm::transform(a.elements, aHalf.elements.begin(), bfloat16Of);
  llvm::transform(b.elements, bHalf.elements.begin(), bfloat16Of);
  Array<float, 2> expected = product(a, b);
  for (size_t i = 0; i < c.elements.size(); ++i)
    expected.elements[i] += c.elements[i];

  run("matmul_mixed", aHalf.ref(), bHalf.ref(), c.ref());

  EXPECT_EQ(c.elements, expected.elements);
}

TEST_P(NumericTest, BatchMatmulBiasRelu) {
  ASSERT_NO_FATAL_FAILURE(load("batch_matmul_bias_relu.mlir"));
  const float bias[16] = {
      0.125f, -0.25f, 0.5f,   0.0625f,  -0.125f, 0.375f,   -0.5f,   0.25f,
      1.0f,   -0.75f, 0.875f, -0.0625f, 0.1875f, -0.3125f, 0.4375f, -1.0f};
  auto x = pattern<float, 3>({8, 32, 64}, 1),
       w = pattern<float, 3>({8, 64, 16}, 2);
  Array<float, 3> y({8, 32, 16}, NAN), expected({8, 32, 16});
  for (int b = 0; b < 8; ++b)
    for (int m = 0; m < 32; ++m)
      for (int n = 0; n < 16; ++n) {
        float sum = bias[n];
        for (int k = 0; k < 64; ++k)
          sum += x(b, m, k) * w(b, k, n);
        expected(b, m, n) = std::max(sum, 0.0f);
      }

  run("batch_matmul_bias_relu", x.ref(), w.ref(), y.ref());

  EXPECT_EQ(y.elements, expected.elements);
}

TEST_P(NumericTest, QuantizedMatmul) {
  ASSERT_NO_FATAL_FAILURE(load("quantized_matmul.mlir"));
  const int32_t bias[8] = {120, -340, 75, 0, -1024, 512, 33, -7};
  const int64_t multiplier[8] = {1340545408, 1073741824, 2040109440,
                                 1518500224, 1181116032, 1717986944,
                                 1288490240, 1932735232};
  const int shift[8] = {39, 38, 40, 39, 38, 40, 39, 38};
  auto x = pattern<int8_t, 2>({16, 64}, 1, 9),
       w = pattern<int8_t, 2>({64, 8}, 2, 13);
  Array<int8_t, 2> y({16, 8}), expected({16, 8});
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 8; ++n) {
      int32_t sum = bias[n];
      for (int k = 0; k < 64; ++k)
        sum += (x(m, k) + 3) * (w(k, n) - 2);
      // Halves round up.
      double scaled =
          std::floor(std::ldexp(double(sum * multiplier[n]), -shift[n]) + 0.5);
      expected(m, n) = int8_t(std::clamp(scaled + 5, -128.0, 127.0));
    }

  run("quantized_matmul", x.ref(), w.ref(), y.ref());

  EXPECT_EQ(y.elements, expected.elements);
}

TEST_P(NumericTest, SparseMatvec) {
  ASSERT_NO_FATAL_FAILURE(load("sparse_matvec.mlir"));
  // Row i has the columns 3i + 11t mod 64 that come out in order, for t < i % 5.
  Array<int64_t, 1> positions({65});
  std::vector<int64_t> columns;
  for (int64_t i = 0; i < 64; ++i) {
    std::vector<int64_t> row;
    for (int64_t t = 0; t < i % 5; ++t)
      row.push_back((3 * i + 11 * t) % 64);
    llvm::sort(row);
    columns.insert(columns.end(), row.begin(), row.end());
    positions(i + 1) = int64_t(columns.size());
  }
  Array<int64_t, 1> coordinates({int64_t(columns.size())});
  coordinates.elements = columns;
  auto values = pattern<double, 1>({int64_t(columns.size())}, 1);
  auto x = pattern<double, 1>({64}, 2), y = pattern<double, 1>({64}, 3);
  Array<double, 1> forward = y, backward = y;
  for (int64_t i = 0; i < 64; ++i)
    for (int64_t at = positions(i); at < positions(i + 1); ++at) {
      forward(i) += values(at) * x(columns[at]);
      backward(columns[at]) += values(at) * x(i);
    }

  Array<double, 1> result = y;
  run("csr_matvec", positions.ref(), coordinates.ref(), values.ref(), x.ref(),
      result.ref());
  EXPECT_EQ(result.elements, forward.elements);

  result = y;
  run("csr_transposed_matvec", positions.ref(), coordinates.ref(), values.ref(),
      x.ref(), result.ref());
  EXPECT_EQ(result.elements, backward.elements);
}

TEST_P(NumericTest, VectorSchedule) {
  ASSERT_NO_FATAL_FAILURE(load("vector_schedule.mlir"));
  auto a = pattern<float, 2>({16, 24}, 1), b = pattern<float, 2>({24, 8}, 2);
  auto c = pattern<float, 2>({16, 8}, 3);
  Array<float, 2> expected = product(a, b);
  for (size_t i = 0; i < c.elements.size(); ++i)
    expected.elements[i] += c.elements[i];
  run("gemm_8x8", a.ref(), b.ref(), c.ref());
  EXPECT_EQ(c.elements, expected.elements);

  Array<float, 2> turned({24, 16}, NAN);
  run("transpose_8x8", a.ref(), turned.ref());
  EXPECT_EQ(turned.elements, transposed(a).elements);

  auto x = pattern<float, 1>({96}, 4), y = pattern<float, 1>({96}, 5);
  EXPECT_EQ(run<float>("dot", x.ref(), y.ref()),
            std::inner_product(x.elements.begin(), x.elements.end(),
                               y.elements.begin(), 0.0f));
}

//===----------------------------------------------------------------------===//
// Convolutions and stencils
//===----------------------------------------------------------------------===//

TEST_P(NumericTest, DepthwiseConv) {
  ASSERT_NO_FATAL_FAILURE(load("depthwise_conv.mlir"));
  auto x = pattern<float, 4>({1, 33, 33, 16}, 1);
  auto filter = pattern<float, 3>({3, 3, 16}, 2);
  auto bias = pattern<float, 1>({16}, 3);
  auto mix = pattern<float, 2>({16, 24}, 4);
  Array<float, 4> y({1, 16, 16, 24}, NAN), expected({1, 16, 16, 24});
  for (int h = 0; h < 16; ++h)
    for (int w = 0; w < 16; ++w)
      for (int c = 0; c < 16; ++c) {
        float sum = bias(c);
        for (int i = 0; i < 3; ++i)
          for (int j = 0; j < 3; ++j)
            sum += x(0, 2 * h + i, 2 * w + j, c) * filter(i, j, c);
        for (int n = 0; n < 24; ++n)
          expected(0, h, w, n) += std::clamp(sum, 0.0f, 6.0f) * mix(c, n);
      }

  run("depthwise_conv", x.ref(), filter.ref(), bias.ref(), mix.ref(), y.ref());

  EXPECT_EQ(y.elements, expected.elements);
}

TEST_P(NumericTest, StencilJacobi) {
  ASSERT_NO_FATAL_FAILURE(load("stencil_affine.mlir"));
  auto grid = pattern<double, 2>({64, 64}, 1);
  Array<double, 2> expected = grid;
  for (int step = 0; step < 6; ++step) {
    Array<double, 2> from = expected;
    for (int i = 1; i < 63; ++i)
      for (int j = 1; j < 63; ++j)
        expected(i, j) = (from(i, j) + from(i - 1, j) + from(i + 1, j) +
                          from(i, j - 1) + from(i, j + 1)) /
                         5;
  }

  run("jacobi_2d", int64_t(3), grid.ref());

  EXPECT_THAT(grid.elements, near(expected.elements, 1e-14));
}

TEST_P(NumericTest, StencilBlur) {
  ASSERT_NO_FATAL_FAILURE(load("stencil_affine.mlir"));
  const float weight[3] = {0.25f, 0.5f, 0.25f};
  auto image = pattern<float, 2>({66, 66}, 1);
  Array<float, 2> blurred({64, 64}, NAN), expected({64, 64});
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < 64; ++j)
      for (int di = 0; di < 3; ++di)
        for (int dj = 0; dj < 3; ++dj)
          expected(i, j) += weight[di] * weight[dj] * image(i + di, j + dj);

  run("blur_3x3", image.ref(), blurred.ref());

  EXPECT_EQ(blurred.elements, expected.elements);
}

TEST_P(NumericTest, StencilLaplace) {
  ASSERT_NO_FATAL_FAILURE(load("stencil_affine.mlir"));
  auto u = pattern<double, 3>({32, 32, 32}, 1);
  Array<double, 3> lap({32, 32, 32}, NAN), expected({32, 32, 32});
  for (int i = 1; i < 31; ++i)
    for (int j = 1; j < 31; ++j)
      for (int k = 1; k < 31; ++k)
        expected(i, j, k) = u(i - 1, j, k) + u(i + 1, j, k) + u(i, j - 1, k) +
                            u(i, j + 1, k) + u(i, j, k - 1) + u(i, j, k + 1) -
                            6 * u(i, j, k);

  run("laplace_3d", u.ref(), lap.ref());

  EXPECT_EQ(lap.elements, expected.elements);
}

//===----------------------------------------------------------------------===//
// Reductions and normalisation
//===----------------------------------------------------------------------===//

TEST_P(NumericTest, Reduction) {
  ASSERT_NO_FATAL_FAILURE(load("reduction.mlir"));
  auto x = pattern<float, 2>({9, 21}, 1);
  Array<float, 1> rows({9}), columns({21}), largest({9}, -INFINITY);
  Array<int64_t, 1> where({9});
  float squares = 0;
  int64_t above = 0;
  for (int64_t i = 0; i < 9; ++i)
    for (int64_t j = 0; j < 21; ++j) {
      rows(i) += x(i, j);
      columns(j) += x(i, j);
      squares += x(i, j) * x(i, j);
      above += x(i, j) > 0.25f;
      if (x(i, j) > largest(i)) {
        largest(i) = x(i, j);
        where(i) = j;
      }
    }

  Array<float, 1> rowSums({9}, NAN), columnSums({21}, NAN), values({9}, NAN);
  Array<int64_t, 1> places({9}, -1);
  run("sum_rows", x.ref(), rowSums.ref());
  run("sum_columns", x.ref(), columnSums.ref());
  run("argmax", x.ref(), values.ref(), places.ref());

  EXPECT_EQ(rowSums.elements, rows.elements);
  EXPECT_EQ(columnSums.elements, columns.elements);
  EXPECT_EQ(values.elements, largest.elements);
  EXPECT_EQ(places.elements, where.elements);
  EXPECT_EQ(run<float>("norm", x.ref()), std::sqrt(squares));
  EXPECT_EQ(run<int64_t>("count_above", x.ref(), 0.25f), above);
}

/// The rows of `x` as doubles, each changed by `change`.
template <typename T>
std::vector<T>
byRows(const std::vector<T> &x, size_t columns,
       llvm::function_ref<void(llvm::MutableArrayRef<double>)> change) {
  std::vector<double> wide(x.begin(), x.end());
  for (size_t at = 0; at < wide.size(); at += columns)
    change(llvm::MutableArrayRef<double>(&wide[at], columns));
  return std::vector<T>(wide.begin(), wide.end());
}

TEST_P(NumericTest, Softmax) {
  ASSERT_NO_FATAL_FAILURE(load("softmax.mlir"));
  auto logits = pattern<float, 2>({6, 11}, 1, 0.5f);
  auto logSumExp = [](llvm::ArrayRef<double> row) {
    double sum = 0;
    for (double v : row)
      sum += std::exp(v);
    return std::log(sum);
  };
  auto logarithms = byRows<float>(logits.elements, 11, [&](auto row) {
    double total = logSumExp(row);
    for (double &v : row)
      v -= total;
  });
  auto probabilities = byRows<float>(logits.elements, 11, [&](auto row) {
    double total = logSumExp(row);
    for (double &v : row)
      v = std::exp(v - total);
  });

  // The result is a buffer that belongs to the caller.
  auto runAndTake = [&](llvm::StringRef name) {
    StridedMemRefType<float, 2> result;
    run(name, &result, logits.ref());
    EXPECT_EQ(result.sizes[0], 6);
    EXPECT_EQ(result.sizes[1], 11);
    const float *data = result.data + result.offset;
    std::vector<float> elements(data, data + 6 * 11);
    std::free(result.basePtr);
    return elements;
  };
  EXPECT_THAT(runAndTake("softmax"), near(probabilities, 1e-6f));
  EXPECT_THAT(runAndTake("log_softmax"), near(logarithms, 1e-6f));
}

TEST_P(NumericTest, LayerNorm) {
  ASSERT_NO_FATAL_FAILURE(load("layer_norm.mlir"));
  auto x = pattern<float, 3>({2, 16, 64}, 1);
  auto gamma = pattern<float, 1>({64}, 2), beta = pattern<float, 1>({64}, 3);
  auto meanSquare = [](llvm::ArrayRef<double> row) {
    double sum = 0;
    for (double v : row)
      sum += v * v;
    return sum / double(row.size());
  };
  auto layers = byRows<float>(x.elements, 64, [&](auto row) {
    double mean = std::accumulate(row.begin(), row.end(), 0.0) / 64;
    for (double &v : row)
      v -= mean;
    double deviation = std::sqrt(meanSquare(row) + 1e-5);
    for (int i = 0; i < 64; ++i)
      row[i] = row[i] / deviation * gamma(i) + beta(i);
  });
  auto roots = byRows<float>(x.elements, 64, [&](auto row) {
    double root = std::sqrt(meanSquare(row) + 1e-5);
    for (int i = 0; i < 64; ++i)
      row[i] = row[i] / root * gamma(i);
  });

  Array<float, 3> y({2, 16, 64}, NAN);
  run("layer_norm", x.ref(), gamma.ref(), beta.ref(), y.ref());
  EXPECT_THAT(y.elements, near(layers, 1e-5f));
  run("rms_norm", x.ref(), gamma.ref(), y.ref());
  EXPECT_THAT(y.elements, near(roots, 1e-5f));
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

TEST_P(NumericTest, Gcd) {
  ASSERT_NO_FATAL_FAILURE(load("control_flow.mlir"));
  for (int64_t a : {0, 1, 12, 35, 360, 1071})
    for (int64_t b : {0, 1, 18, 49, 84, 462})
      EXPECT_EQ(run<int64_t>("gcd", a, b), std::gcd(a, b)) << a << ", " << b;
}

TEST_P(NumericTest, SortAndLowerBound) {
  ASSERT_NO_FATAL_FAILURE(load("control_flow.mlir"));
  auto keys = pattern<int32_t, 1>({25}, 1, 3);
  std::vector<int32_t> sorted = keys.elements;
  llvm::sort(sorted);

  run("sort", keys.ref());

  EXPECT_EQ(keys.elements, sorted);
  for (int32_t key = -26; key <= 26; ++key)
    EXPECT_EQ(run<int64_t>("lower_bound", keys.ref(), key),
              llvm::lower_bound(sorted, key) - sorted.begin())
        << key;
}

TEST_P(NumericTest, Interpreter) {
  ASSERT_NO_FATAL_FAILURE(load("control_flow.mlir"));
  // 7! in register 0, counting register 1 down.
  Array<int32_t, 2> code({6, 4});
  code.elements = {1, 0, 0, 1, /**/ 1, 1, 0, 7, /**/ 3, 0, 1, 0,
                   4, 1, 0, 1, /**/ 5, 0, 1, 2, /**/ 0, 0, 0, 0};
  Array<int32_t, 1> registers({8});

  EXPECT_EQ(run<int32_t>("interpret", code.ref(), registers.ref(), 100), 5040);
  EXPECT_EQ(run<int32_t>("interpret", code.ref(), registers.ref(), 10), -1);
}

} // namespace
