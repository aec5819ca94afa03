//===- ModuleGenerator.cpp - Modules of a given size ----------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/ModuleGenerator.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <string>

using namespace ctxpool::bench;

static constexpr llvm::StringLiteral pipeline =
    "builtin.module(canonicalize,cse,"
    "func.func(linalg-fuse-elementwise-ops),eliminate-empty-tensors,"
    "one-shot-bufferize{bufferize-function-boundaries=true "
    "function-boundary-type-conversion=identity-layout-map},"
    "buffer-deallocation-pipeline,convert-bufferization-to-memref,"
    "func.func(convert-linalg-to-loops),canonicalize,cse,convert-scf-to-cf,"
    "expand-strided-metadata,lower-affine,convert-math-to-llvm,"
    "convert-arith-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,"
    "convert-cf-to-llvm,reconcile-unrealized-casts)";

static constexpr unsigned maxConstantKib = 64;

namespace {

class Generator {
public:
  Generator(const GeneratorOptions &wanted, llvm::raw_ostream &stream)
      : options(wanted), random(wanted.seed), os(stream) {}

  void run();

private:
  /// The standard says what the engine gives, and not what its distributions
  /// do.
  uint64_t below(uint64_t bound) { return random() % bound; }
  bool oneIn(uint64_t chances) { return below(chances) == 0; }
  template <size_t count>
  llvm::StringRef pick(const llvm::StringRef (&choices)[count]) {
    return choices[below(count)];
  }
  /// A number in eighths: what it is written as is what it is.
  std::string number() {
    uint64_t eighths = 1 + below(63);
    return llvm::formatv("{0}.{1,0+3}", eighths / 8, eighths % 8 * 125);
  }

  /// Attributes that the whole module shares, and one of the function's own.
  std::string attributes(unsigned function);
  /// A chain of operations on f32 that begins at `value`; returns its end.
  std::string chain(llvm::StringRef indent, std::string value,
                    llvm::StringRef other);
  std::string fresh() { return "%v" + std::to_string(nextValue++); }

  void scalarFunction(unsigned function);
  void bufferFunction(unsigned function);
  void tensorFunction(unsigned function);
  void branchFunction(unsigned function);
  void constantFunction(unsigned function, uint64_t elements);

  const GeneratorOptions &options;
  std::mt19937_64 random;
  llvm::raw_ostream &os;
  unsigned nextValue = 0;

  // The last function of each kind, for others to call.
  std::optional<unsigned> lastScalar;
  struct Shape {
    unsigned rows, columns;
    std::optional<unsigned> last;
  };
  std::array<Shape, 4> shapes = {
      {{4, 8, {}}, {8, 8, {}}, {16, 4, {}}, {2, 32, {}}}};
};

} // namespace

std::string Generator::attributes(unsigned function) {
  static constexpr llvm::StringRef stages[] = {"prologue", "body", "epilogue"};
  // One after the other: the order in which arguments are evaluated is open.
  llvm::StringRef stage = pick(stages);
  uint64_t weight = below(8);
  return llvm::formatv(
      "attributes {{stage = \"{0}\", weight = {1} : i64, origin "
      "= \"seed {2}, function {3}\"}",
      stage, weight, options.seed, function);
}

std::string Generator::chain(llvm::StringRef indent, std::string value,
                             llvm::StringRef other) {
  static constexpr llvm::StringRef binary[] = {"arith.addf", "arith.mulf",
                                               "arith.subf", "arith.maximumf",
                                               "arith.minimumf"};
  static constexpr llvm::StringRef unary[] = {"math.sqrt", "math.exp",
                                              "arith.negf", "math.absf"};
  for (uint64_t steps = 2 + below(6); steps; --steps) {
    std::string result = fresh();
    if (oneIn(4)) {
      os << indent << result << " = " << pick(unary) << " " << value
         << " : f32\n";
    } else {
      std::string operand = other.str();
      if (oneIn(2)) {
        operand = fresh();
        os << indent << operand << " = arith.constant " << number()
           << " : f32\n";
      }
      os << indent << result << " = " << pick(binary) << " " << value << ", "
         << operand << (oneIn(3) ? " fastmath<fast>" : "") << " : f32\n";
    }
    value = std::move(result);
  }
  return value;
}

void Generator::scalarFunction(unsigned function) {
  os << "func.func @f" << function << "(%a: f32, %b: f32, %n: index) -> f32 "
     << attributes(function) << " {\n"
     << "  %c0 = arith.constant 0 : index\n"
     << "  %c1 = arith.constant 1 : index\n";
  os << "  %loop = scf.for %i = %c0 to %n step %c1 iter_args(%x = %a) -> (f32) "
        "{\n";
  std::string end = chain("    ", "%x", "%b");
  os << "    %less = arith.cmpf olt, " << end << ", %b : f32\n"
     << "    %chosen = scf.if %less -> (f32) {\n";
  std::string taken = chain("      ", end, "%b");
  os << "      scf.yield " << taken << " : f32\n"
     << "    } else {\n"
     << "      scf.yield " << end << " : f32\n"
     << "    }\n"
     << "    scf.yield %chosen : f32\n"
     << "  }\n";
  std::string result = "%loop";
  if (lastScalar && oneIn(2)) {
    os << "  %called = func.call @f" << *lastScalar
       << "(%loop, %b, %n) : (f32, f32, index) -> f32\n";
    result = "%called";
  }
  os << "  return " << result << " : f32\n}\n";
  lastScalar = function;
}

void Generator::bufferFunction(unsigned function) {
  os << "func.func @f" << function
     << "(%in: memref<?xf32>, %out: memref<?xf32>) " << attributes(function)
     << " {\n"
     << "  %c0 = arith.constant 0 : index\n"
     << "  %c1 = arith.constant 1 : index\n"
     << "  %n = memref.dim %in, %c0 : memref<?xf32>\n"
     // Buffer deallocation inserts the end of it, and refuses one that is here.
     << "  %scratch = memref.alloc(%n) : memref<?xf32>\n"
     << "  memref.copy %in, %scratch : memref<?xf32> to memref<?xf32>\n"
     << "  scf.for %i = %c0 to %n step %c1 {\n"
     << "    %x = memref.load %scratch[%i] : memref<?xf32>\n"
     << "    %y = memref.load %out[%i] : memref<?xf32>\n";
  std::string end = chain("    ", "%x", "%y");
  if (lastScalar && oneIn(2)) {
    std::string called = fresh();
    os << "    " << called << " = func.call @f" << *lastScalar << "(" << end
       << ", %y, %c1) : (f32, f32, index) -> f32\n";
    end = called;
  }
  os << "    memref.store " << end << ", %out[%i] : memref<?xf32>\n"
     << "  }\n"
     << "  return\n}\n";
}

void Generator::tensorFunction(unsigned function) {
  Shape &shape = shapes[below(shapes.size())];
  std::string type =
      llvm::formatv("tensor<{0}x{1}xf32>", shape.rows, shape.columns);
  std::string square = llvm::formatv("tensor<{0}x{0}xf32>", shape.columns);
  os << "func.func @f" << function << "(%x: " << type << ") -> " << type << " "
     << attributes(function) << " {\n"
     << "  %zero = arith.constant 0.0 : f32\n"
     << "  %weights = arith.constant dense<" << number() << "> : " << square
     << "\n  %empty = tensor.empty() : " << type << "\n"
     << "  %filled = linalg.fill ins(%zero : f32) outs(%empty : " << type
     << ") -> " << type << "\n"
     << "  %product = linalg.matmul ins(%x, %weights : " << type << ", "
     << square << ") outs(%filled : " << type << ") -> " << type << "\n"
     << "  %mapped = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, "
        "j)>, affine_map<(i, j) -> (i, j)>], iterator_types = [\"parallel\", "
        "\"parallel\"]} ins(%product : "
     << type << ") outs(%empty : " << type << ") {\n"
     << "  ^bb0(%element: f32, %unused: f32):\n";
  std::string end = chain("    ", "%element", "%zero");
  os << "    linalg.yield " << end << " : f32\n"
     << "  } -> " << type << "\n";
  std::string result = "%mapped";
  if (shape.last && oneIn(2)) {
    os << "  %called = func.call @f" << *shape.last << "(%mapped) : (" << type
       << ") -> " << type << "\n";
    result = "%called";
  }
  os << "  return " << result << " : " << type << "\n}\n";
  shape.last = function;
}

void Generator::branchFunction(unsigned function) {
  // No loop among the blocks and no cf.switch: buffer deallocation refuses
  // both.
  os << "func.func @f" << function << "(%state: i64, %n: i64) -> i64 "
     << attributes(function) << " {\n"
     << "  %step = arith.constant " << 1 + below(9) << " : i64\n"
     << "  %mask = arith.constant " << 1 + below(255) << " : i64\n"
     << "  %key = arith.andi %state, %mask : i64\n"
     << "  cf.br ^test0\n";
  uint64_t cases = 2 + below(4);
  for (uint64_t i = 0; i < cases; ++i) {
    os << "^test" << i << ":\n"
       << "  %k" << i << " = arith.constant " << below(256) << " : i64\n"
       << "  %is" << i << " = arith.cmpi eq, %key, %k" << i << " : i64\n"
       << "  cf.cond_br %is" << i << ", ^case" << i << ", ";
    if (i + 1 < cases)
      os << "^test" << i + 1 << "\n";
    else
      os << "^next(%step : i64)\n";
    os << "^case" << i << ":\n"
       << "  %d" << i << " = arith.constant " << 1 + below(1000) << " : i64\n"
       << "  %m" << i << " = arith.muli %state, %d" << i << " : i64\n"
       << "  cf.br ^next(%m" << i << " : i64)\n";
  }
  os << "^next(%u: i64):\n"
     << "  %sum = arith.addi %state, %u : i64\n"
     << "  %less = arith.cmpi slt, %sum, %n : i64\n"
     << "  cf.cond_br %less, ^exit(%sum : i64), ^exit(%n : i64)\n"
     << "^exit(%result: i64):\n"
     << "  return %result : i64\n}\n";
}

void Generator::constantFunction(unsigned function, uint64_t elements) {
  std::string type = llvm::formatv("tensor<{0}xf32>", elements);
  os << "func.func @f" << function << "(%x: " << type << ") -> " << type << " "
     << attributes(function) << " {\n"
     << "  %weights = arith.constant dense<\"0x";
  for (uint64_t i = 0; i < elements; ++i) {
    // Numbers between 0.5 and 1 or between -1 and -0.5: any bits would make
    // some of them NaNs, which print otherwise than they were read.
    uint64_t bits = random();
    uint32_t value = 0x3F000000u | (bits & 0x007FFFFFu) |
                     (bits >> 32 & 1 ? 0x80000000u : 0u);
    for (unsigned shift = 0; shift < 32; shift += 8)
      os << llvm::format_hex_no_prefix(value >> shift & 0xFF, 2,
                                       /*Upper=*/true);
  }
  os << "\"> : " << type << "\n"
     << "  %empty = tensor.empty() : " << type << "\n"
     << "  %sum = linalg.add ins(%x, %weights : " << type << ", " << type
     << ") outs(%empty : " << type << ") -> " << type << "\n"
     << "  return %sum : " << type << "\n}\n";
}

void Generator::run() {
  os << "// PIPELINE: " << pipeline << "\n"
     << "// ctxpool-bench generate --functions=" << options.functions
     << " --seed=" << options.seed
     << " --constants-kib=" << options.constantsKib << "\n\n";

  // Constants are spread evenly over the functions, one in each of some.
  uint64_t totalElements = uint64_t(options.constantsKib) * 1024 / 4;
  uint64_t constants = std::min<uint64_t>(
      options.functions,
      (uint64_t(options.constantsKib) + maxConstantKib - 1) / maxConstantKib);
  uint64_t done = 0;
  for (unsigned function = 0; function < options.functions; ++function) {
    if (function)
      os << "\n";
    uint64_t next = constants * (function + 1) / options.functions;
    if (next != done) {
      constantFunction(function, totalElements * next / constants -
                                     totalElements * done / constants);
      done = next;
      continue;
    }
    switch (below(5)) {
    case 0:
      bufferFunction(function);
      break;
    case 1:
    case 2:
      tensorFunction(function);
      break;
    case 3:
      branchFunction(function);
      break;
    default:
      scalarFunction(function);
      break;
    }
  }
}

void ctxpool::bench::generateModule(const GeneratorOptions &options,
                                    llvm::raw_ostream &stream) {
  Generator(options, stream).run();
}
