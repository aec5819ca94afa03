// PIPELINE: builtin.module(canonicalize,cse,one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},buffer-deallocation-pipeline,convert-bufferization-to-memref,func.func(convert-linalg-to-parallel-loops,scf-parallel-loop-fusion),canonicalize,cse,convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-math-to-llvm,convert-arith-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)
//
// Row-wise softmax and log-softmax of a matrix of unknown size, the numerically
// stable way: subtract the maximum of the row, exponentiate, normalise by the
// sum. Two reductions with two elementwise passes between them, which read the
// rows that the first pass has just written. Both functions share helpers.

#matrix = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

module @softmax {
  // x[i, j] - max_j x[i, j]
  func.func private @shift_by_row_max(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %lowest = arith.constant 0xFF800000 : f32
    %rows = tensor.dim %x, %c0 : tensor<?x?xf32>
    %cols = tensor.dim %x, %c1 : tensor<?x?xf32>
    %max_empty = tensor.empty(%rows) : tensor<?xf32>
    %max_init = linalg.fill ins(%lowest : f32) outs(%max_empty : tensor<?xf32>)
        -> tensor<?xf32>
    %max = linalg.reduce ins(%x : tensor<?x?xf32>)
        outs(%max_init : tensor<?xf32>) dimensions = [1]
        (%v: f32, %m: f32) {
          %greater = arith.maximumf %v, %m : f32
          linalg.yield %greater : f32
        }
    %empty = tensor.empty(%rows, %cols) : tensor<?x?xf32>
    %shifted = linalg.generic {
        indexing_maps = [#matrix, #row, #matrix],
        iterator_types = ["parallel", "parallel"]}
        ins(%x, %max : tensor<?x?xf32>, tensor<?xf32>)
        outs(%empty : tensor<?x?xf32>) {
    ^bb0(%v: f32, %m: f32, %out: f32):
      %d = arith.subf %v, %m : f32
      linalg.yield %d : f32
    } -> tensor<?x?xf32>
    return %shifted : tensor<?x?xf32>
  }

  // sum_j exp(x[i, j])
  func.func private @row_sum_exp(%x: tensor<?x?xf32>) -> tensor<?xf32> {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %rows = tensor.dim %x, %c0 : tensor<?x?xf32>
    %empty = tensor.empty(%rows) : tensor<?xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?xf32>)
        -> tensor<?xf32>
    %sum = linalg.generic {
        indexing_maps = [#matrix, #row],
        iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<?x?xf32>) outs(%init : tensor<?xf32>) {
    ^bb0(%v: f32, %acc: f32):
      %e = math.exp %v : f32
      %s = arith.addf %acc, %e : f32
      linalg.yield %s : f32
    } -> tensor<?xf32>
    return %sum : tensor<?xf32>
  }

  func.func @softmax(%logits: tensor<?x?xf32>) -> tensor<?x?xf32>
      attributes {llvm.emit_c_interface} {
    %shifted = call @shift_by_row_max(%logits)
        : (tensor<?x?xf32>) -> tensor<?x?xf32>
    %sum = call @row_sum_exp(%shifted) : (tensor<?x?xf32>) -> tensor<?xf32>
    %probabilities = linalg.generic {
        indexing_maps = [#row, #matrix],
        iterator_types = ["parallel", "parallel"]}
        ins(%sum : tensor<?xf32>) outs(%shifted : tensor<?x?xf32>) {
    ^bb0(%s: f32, %v: f32):
      %e = math.exp %v : f32
      %p = arith.divf %e, %s : f32
      linalg.yield %p : f32
    } -> tensor<?x?xf32>
    return %probabilities : tensor<?x?xf32>
  }

  func.func @log_softmax(%logits: tensor<?x?xf32>) -> tensor<?x?xf32>
      attributes {llvm.emit_c_interface} {
    %shifted = call @shift_by_row_max(%logits)
        : (tensor<?x?xf32>) -> tensor<?x?xf32>
    %sum = call @row_sum_exp(%shifted) : (tensor<?x?xf32>) -> tensor<?xf32>
    %log_probabilities = linalg.generic {
        indexing_maps = [#row, #matrix],
        iterator_types = ["parallel", "parallel"]}
        ins(%sum : tensor<?xf32>) outs(%shifted : tensor<?x?xf32>) {
    ^bb0(%s: f32, %v: f32):
      %l = math.log %s : f32
      %p = arith.subf %v, %l : f32
      linalg.yield %p : f32
    } -> tensor<?x?xf32>
    return %log_probabilities : tensor<?x?xf32>
  }
}
