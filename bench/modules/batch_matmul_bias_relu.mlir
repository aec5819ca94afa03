// PIPELINE: builtin.module(canonicalize,cse,func.func(linalg-fuse-elementwise-ops),eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},buffer-results-to-out-params{hoist-static-allocs=true modify-public-functions=true},buffer-deallocation-pipeline,convert-bufferization-to-memref,func.func(convert-linalg-to-loops),canonicalize,cse,convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-arith-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)
//
// relu(X W + b) for a batch of eight: batched matmul, a bias broadcast over
// batch and row, and a rectifier. The two elementwise operations ought to fuse
// into one loop nest, and no temporary should be left for the result, which
// becomes an out parameter.

#batch_row_col = affine_map<(b, m, n) -> (b, m, n)>
#col = affine_map<(b, m, n) -> (n)>

module @batch_matmul_bias_relu {
  func.func @batch_matmul_bias_relu(
      %x: tensor<8x32x64xf32>, %w: tensor<8x64x16xf32>)
      -> tensor<8x32x16xf32> attributes {llvm.emit_c_interface} {
    %zero = arith.constant 0.0 : f32
    %bias = arith.constant dense<[
        0.125, -0.250, 0.500, 0.0625, -0.125, 0.375, -0.500, 0.250,
        1.000, -0.750, 0.875, -0.0625, 0.1875, -0.3125, 0.4375, -1.000]>
        : tensor<16xf32>
    %empty = tensor.empty() : tensor<8x32x16xf32>
    %acc = linalg.fill ins(%zero : f32) outs(%empty : tensor<8x32x16xf32>)
        -> tensor<8x32x16xf32>
    %xw = linalg.batch_matmul
        ins(%x, %w : tensor<8x32x64xf32>, tensor<8x64x16xf32>)
        outs(%acc : tensor<8x32x16xf32>) -> tensor<8x32x16xf32>
    %biased = linalg.generic {
        indexing_maps = [#batch_row_col, #col, #batch_row_col],
        iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%xw, %bias : tensor<8x32x16xf32>, tensor<16xf32>)
        outs(%empty : tensor<8x32x16xf32>) {
    ^bb0(%v: f32, %b: f32, %out: f32):
      %sum = arith.addf %v, %b : f32
      linalg.yield %sum : f32
    } -> tensor<8x32x16xf32>
    %relu = linalg.generic {
        indexing_maps = [#batch_row_col, #batch_row_col],
        iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%biased : tensor<8x32x16xf32>) outs(%empty : tensor<8x32x16xf32>) {
    ^bb0(%v: f32, %out: f32):
      %positive = arith.maximumf %v, %zero : f32
      linalg.yield %positive : f32
    } -> tensor<8x32x16xf32>
    return %relu : tensor<8x32x16xf32>
  }
}
