// PIPELINE: builtin.module(transform-interpreter,symbol-dce,canonicalize,cse,eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},canonicalize,fold-memref-alias-ops,canonicalize,cse,convert-vector-to-scf{full-unroll=true},canonicalize,cse,convert-linalg-to-loops,convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-vector-to-llvm{vector-contract-lowering=outerproduct},convert-math-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,convert-ub-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)
//
// gelu(A B) on tensors, together with its schedule: the activation is tiled,
// the product fused into the tile, the reduction cut into steps of eight, and
// all of it made vectors. The schedule is part of the module and is erased
// after it has run, so one context must hold both the payload's dialects and
// those of the program that rewrites it.

#id = affine_map<(m, n) -> (m, n)>

module @transform_schedule attributes {transform.with_named_sequence} {
  func.func @matmul_gelu(%A: memref<64x128xf32>, %B: memref<128x48xf32>,
                         %Y: memref<64x48xf32>)
      attributes {llvm.emit_c_interface} {
    %zero = arith.constant 0.0 : f32
    %half = arith.constant 0.5 : f32
    %one = arith.constant 1.0 : f32
    %cubic = arith.constant 4.471500e-02 : f32
    %root = arith.constant 0.797884583 : f32
    %a = bufferization.to_tensor %A restrict
        : memref<64x128xf32> to tensor<64x128xf32>
    %b = bufferization.to_tensor %B restrict
        : memref<128x48xf32> to tensor<128x48xf32>
    %empty = tensor.empty() : tensor<64x48xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x48xf32>)
        -> tensor<64x48xf32>
    %product = linalg.matmul
        ins(%a, %b : tensor<64x128xf32>, tensor<128x48xf32>)
        outs(%init : tensor<64x48xf32>) -> tensor<64x48xf32>
    %gelu = linalg.generic {
        indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%product : tensor<64x48xf32>) outs(%empty : tensor<64x48xf32>) {
    ^bb0(%v: f32, %out: f32):
      %v2 = arith.mulf %v, %v : f32
      %v3 = arith.mulf %v2, %v : f32
      %bent = math.fma %v3, %cubic, %v : f32
      %scaled = arith.mulf %bent, %root : f32
      %t = math.tanh %scaled : f32
      %gate = arith.addf %t, %one : f32
      %v_half = arith.mulf %v, %half : f32
      %g = arith.mulf %gate, %v_half : f32
      linalg.yield %g : f32
    } -> tensor<64x48xf32>
    bufferization.materialize_in_destination %gelu in restrict writable %Y
        : (tensor<64x48xf32>, memref<64x48xf32>) -> ()
    return
  }

  transform.named_sequence private @__transform_main(
      %module: !transform.any_op {transform.readonly}) {
    %activation = transform.structured.match ops{["linalg.generic"]} in %module
        : (!transform.any_op) -> !transform.any_op
    %product = transform.structured.match ops{["linalg.matmul"]} in %module
        : (!transform.any_op) -> !transform.any_op
    %fill = transform.structured.match ops{["linalg.fill"]} in %module
        : (!transform.any_op) -> !transform.any_op
    %tile, %outer:2 = transform.structured.tile_using_for %activation
        tile_sizes [8, 16]
        : (!transform.any_op)
        -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %fused, %with_product = transform.structured.fuse_into_containing_op
        %product into %outer#1
        : (!transform.any_op, !transform.any_op)
        -> (!transform.any_op, !transform.any_op)
    %fused_fill, %with_fill = transform.structured.fuse_into_containing_op
        %fill into %with_product
        : (!transform.any_op, !transform.any_op)
        -> (!transform.any_op, !transform.any_op)
    %step, %reduction = transform.structured.tile_using_for %fused
        tile_sizes [0, 0, 8]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %func = transform.structured.match ops{["func.func"]} in %module
        : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %func {
      transform.apply_patterns.canonicalization
      transform.apply_patterns.linalg.tiling_canonicalization
    } : !transform.any_op
    %vectorized = transform.structured.vectorize_children_and_apply_patterns
        %func : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %vectorized {
      transform.apply_patterns.vector.reduction_to_contract
      transform.apply_patterns.vector.transfer_permutation_patterns
      transform.apply_patterns.canonicalization
    } {apply_cse} : !transform.any_op
    %loops = transform.structured.match ops{["scf.for"]} in %vectorized
        : (!transform.any_op) -> !transform.any_op
    transform.loop.hoist_loop_invariant_subsets %loops : !transform.any_op
    transform.yield
  }
}
