// PIPELINE: builtin.module(canonicalize,cse,func.func(linalg-generalize-named-ops,linalg-fuse-elementwise-ops),eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},buffer-deallocation-pipeline,convert-bufferization-to-memref,func.func(convert-linalg-to-loops,loop-invariant-code-motion),int-range-optimizations,canonicalize,cse,convert-scf-to-cf,expand-strided-metadata,lower-affine,arith-expand,convert-arith-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)
//
// A quantised linear layer: 8-bit operands with zero points, 32-bit
// accumulation, a bias, and requantisation to 8 bits in integers alone. Every
// output channel has its own multiplier (a fraction of 2^31) and shift, held in
// dense constants; the product needs 64 bits, is rounded, shifted, moved by the
// zero point of the result and saturated.

#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>

module @quantized_matmul {
  func.func private @accumulate(
      %x: tensor<16x64xi8>, %w: tensor<64x8xi8>) -> tensor<16x8xi32> {
    %zero = arith.constant 0 : i32
    %x_zero_point = arith.constant -3 : i32
    %w_zero_point = arith.constant 2 : i32
    %empty = tensor.empty() : tensor<16x8xi32>
    %init = linalg.fill ins(%zero : i32) outs(%empty : tensor<16x8xi32>)
        -> tensor<16x8xi32>
    %sums = linalg.quantized_matmul
        ins(%x, %w, %x_zero_point, %w_zero_point
            : tensor<16x64xi8>, tensor<64x8xi8>, i32, i32)
        outs(%init : tensor<16x8xi32>) -> tensor<16x8xi32>
    return %sums : tensor<16x8xi32>
  }

  func.func private @requantize(%sums: tensor<16x8xi32>) -> tensor<16x8xi8> {
    %bias = arith.constant dense<[
        120, -340, 75, 0, -1024, 512, 33, -7]> : tensor<8xi32>
    %multiplier = arith.constant dense<[
        1340545408, 1073741824, 2040109440, 1518500224,
        1181116032, 1717986944, 1288490240, 1932735232]> : tensor<8xi32>
    // The number of bits below the point: 31 of the fraction and some more.
    %shift = arith.constant dense<[39, 38, 40, 39, 38, 40, 39, 38]>
        : tensor<8xi8>
    %out_zero_point = arith.constant 5 : i64
    %one = arith.constant 1 : i64
    %lowest = arith.constant -128 : i64
    %highest = arith.constant 127 : i64
    %wide_empty = tensor.empty() : tensor<16x8xi32>
    %biased = linalg.generic {
        indexing_maps = [#mn, #n, #mn],
        iterator_types = ["parallel", "parallel"]}
        ins(%sums, %bias : tensor<16x8xi32>, tensor<8xi32>)
        outs(%wide_empty : tensor<16x8xi32>) {
    ^bb0(%acc: i32, %b: i32, %out: i32):
      %s = arith.addi %acc, %b : i32
      linalg.yield %s : i32
    } -> tensor<16x8xi32>
    %empty = tensor.empty() : tensor<16x8xi8>
    %narrow = linalg.generic {
        indexing_maps = [#mn, #n, #n, #mn],
        iterator_types = ["parallel", "parallel"]}
        ins(%biased, %multiplier, %shift
            : tensor<16x8xi32>, tensor<8xi32>, tensor<8xi8>)
        outs(%empty : tensor<16x8xi8>) {
    ^bb0(%acc: i32, %mul: i32, %bits: i8, %out: i8):
      %acc_wide = arith.extsi %acc : i32 to i64
      %mul_wide = arith.extsi %mul : i32 to i64
      %bits_wide = arith.extui %bits : i8 to i64
      %product = arith.muli %acc_wide, %mul_wide : i64
      %bits_less = arith.subi %bits_wide, %one : i64
      %half = arith.shli %one, %bits_less : i64
      %nudged = arith.addi %product, %half : i64
      %scaled = arith.shrsi %nudged, %bits_wide : i64
      %moved = arith.addi %scaled, %out_zero_point : i64
      %not_low = arith.maxsi %moved, %lowest : i64
      %saturated = arith.minsi %not_low, %highest : i64
      %byte = arith.trunci %saturated : i64 to i8
      linalg.yield %byte : i8
    } -> tensor<16x8xi8>
    return %narrow : tensor<16x8xi8>
  }

  func.func @quantized_matmul(%X: memref<16x64xi8>, %W: memref<64x8xi8>,
                              %Y: memref<16x8xi8>)
      attributes {llvm.emit_c_interface} {
    %x = bufferization.to_tensor %X restrict
        : memref<16x64xi8> to tensor<16x64xi8>
    %w = bufferization.to_tensor %W restrict : memref<64x8xi8> to tensor<64x8xi8>
    %sums = call @accumulate(%x, %w)
        : (tensor<16x64xi8>, tensor<64x8xi8>) -> tensor<16x8xi32>
    %y = call @requantize(%sums) : (tensor<16x8xi32>) -> tensor<16x8xi8>
    bufferization.materialize_in_destination %y in restrict writable %Y
        : (tensor<16x8xi8>, memref<16x8xi8>) -> ()
    return
  }
}
