// PIPELINE: builtin.module(canonicalize,cse,func.func(linalg-fuse-elementwise-ops),eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},buffer-results-to-out-params{hoist-static-allocs=true modify-public-functions=true},func.func(buffer-hoisting,promote-buffers-to-stack{max-alloc-size-in-bytes=4096}),buffer-deallocation-pipeline,convert-bufferization-to-memref,func.func(convert-linalg-to-loops),canonicalize,cse,convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-math-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)
//
// Causal multi-head self-attention for one short prompt: rotary embedding of
// queries and keys, scaled scores with the upper triangle masked, softmax, and
// the weighted sum of the values, for 2 sequences, 4 heads, 16 positions and 8
// channels a head. The frequencies of the embedding are a constant, positions
// and mask come from linalg.index, and the temporaries between the four stages
// are what a compiler should fuse away.

#bhqk = affine_map<(b, h, q, k) -> (b, h, q, k)>
#bhq = affine_map<(b, h, q, k) -> (b, h, q)>
#scores_q = affine_map<(b, h, q, k, d) -> (b, h, q, d)>
#scores_k = affine_map<(b, h, q, k, d) -> (b, h, k, d)>
#scores = affine_map<(b, h, q, k, d) -> (b, h, q, k)>
#mix_v = affine_map<(b, h, q, d, k) -> (b, h, k, d)>
#mix_p = affine_map<(b, h, q, d, k) -> (b, h, q, k)>
#mix = affine_map<(b, h, q, d, k) -> (b, h, q, d)>
#rope = affine_map<(b, h, s, half, d) -> (b, h, s, half, d)>
#rope_half = affine_map<(b, h, s, half, d) -> (b, h, s, d)>
#rope_d = affine_map<(b, h, s, half, d) -> (d)>

module @attention {
  // Rotates channel d together with channel d + 4 by an angle which grows with
  // the position: the halves of a head are the two coordinates.
  func.func private @rotary_embedding(%x: tensor<2x4x16x8xf32>)
      -> tensor<2x4x16x8xf32> {
    %frequency = arith.constant dense<[1.0, 0.1, 0.01, 0.001]> : tensor<4xf32>
    %low = tensor.extract_slice %x[0, 0, 0, 0] [2, 4, 16, 4] [1, 1, 1, 1]
        : tensor<2x4x16x8xf32> to tensor<2x4x16x4xf32>
    %high = tensor.extract_slice %x[0, 0, 0, 4] [2, 4, 16, 4] [1, 1, 1, 1]
        : tensor<2x4x16x8xf32> to tensor<2x4x16x4xf32>
    %empty = tensor.empty() : tensor<2x4x16x2x4xf32>
    %turned = linalg.generic {
        indexing_maps = [#rope_half, #rope_half, #rope_d, #rope],
        iterator_types = ["parallel", "parallel", "parallel", "parallel",
                          "parallel"]}
        ins(%low, %high, %frequency
            : tensor<2x4x16x4xf32>, tensor<2x4x16x4xf32>, tensor<4xf32>)
        outs(%empty : tensor<2x4x16x2x4xf32>) {
    ^bb0(%re: f32, %im: f32, %omega: f32, %out: f32):
      %zero = arith.constant 0 : index
      %position = linalg.index 2 : index
      %half = linalg.index 3 : index
      %position_i64 = arith.index_cast %position : index to i64
      %position_f32 = arith.sitofp %position_i64 : i64 to f32
      %angle = arith.mulf %position_f32, %omega : f32
      %cos = math.cos %angle : f32
      %sin = math.sin %angle : f32
      %re_cos = arith.mulf %re, %cos : f32
      %im_sin = arith.mulf %im, %sin : f32
      %re_sin = arith.mulf %re, %sin : f32
      %im_cos = arith.mulf %im, %cos : f32
      %new_re = arith.subf %re_cos, %im_sin : f32
      %new_im = arith.addf %re_sin, %im_cos : f32
      %is_low = arith.cmpi eq, %half, %zero : index
      %new = arith.select %is_low, %new_re, %new_im : f32
      linalg.yield %new : f32
    } -> tensor<2x4x16x2x4xf32>
    %joined = tensor.collapse_shape %turned [[0], [1], [2], [3, 4]]
        : tensor<2x4x16x2x4xf32> into tensor<2x4x16x8xf32>
    return %joined : tensor<2x4x16x8xf32>
  }

  // q k^T / sqrt(d), and minus infinity where a key lies in the future.
  func.func private @causal_scores(
      %q: tensor<2x4x16x8xf32>, %k: tensor<2x4x16x8xf32>)
      -> tensor<2x4x16x16xf32> {
    %zero = arith.constant 0.0 : f32
    %scale = arith.constant 0.353553385 : f32
    %masked = arith.constant 0xFF800000 : f32
    %empty = tensor.empty() : tensor<2x4x16x16xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x4x16x16xf32>)
        -> tensor<2x4x16x16xf32>
    %products = linalg.generic {
        indexing_maps = [#scores_q, #scores_k, #scores],
        iterator_types = ["parallel", "parallel", "parallel", "parallel",
                          "reduction"]}
        ins(%q, %k : tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>)
        outs(%init : tensor<2x4x16x16xf32>) {
    ^bb0(%a: f32, %b: f32, %acc: f32):
      %ab = arith.mulf %a, %b : f32
      %sum = arith.addf %acc, %ab : f32
      linalg.yield %sum : f32
    } -> tensor<2x4x16x16xf32>
    %scores = linalg.generic {
        indexing_maps = [#bhqk, #bhqk],
        iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
        ins(%products : tensor<2x4x16x16xf32>)
        outs(%empty : tensor<2x4x16x16xf32>) {
    ^bb0(%v: f32, %out: f32):
      %query = linalg.index 2 : index
      %key = linalg.index 3 : index
      %visible = arith.cmpi ule, %key, %query : index
      %scaled = arith.mulf %v, %scale : f32
      %score = arith.select %visible, %scaled, %masked : f32
      linalg.yield %score : f32
    } -> tensor<2x4x16x16xf32>
    return %scores : tensor<2x4x16x16xf32>
  }

  func.func private @softmax(%scores: tensor<2x4x16x16xf32>)
      -> tensor<2x4x16x16xf32> {
    %zero = arith.constant 0.0 : f32
    %lowest = arith.constant 0xFF800000 : f32
    %row_empty = tensor.empty() : tensor<2x4x16xf32>
    %max_init = linalg.fill ins(%lowest : f32)
        outs(%row_empty : tensor<2x4x16xf32>) -> tensor<2x4x16xf32>
    %max = linalg.reduce { arith.maximumf } ins(%scores : tensor<2x4x16x16xf32>)
        outs(%max_init : tensor<2x4x16xf32>) dimensions = [3]
    %empty = tensor.empty() : tensor<2x4x16x16xf32>
    %exponentials = linalg.generic {
        indexing_maps = [#bhqk, #bhq, #bhqk],
        iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
        ins(%scores, %max : tensor<2x4x16x16xf32>, tensor<2x4x16xf32>)
        outs(%empty : tensor<2x4x16x16xf32>) {
    ^bb0(%v: f32, %m: f32, %out: f32):
      %shifted = arith.subf %v, %m : f32
      %e = math.exp %shifted : f32
      linalg.yield %e : f32
    } -> tensor<2x4x16x16xf32>
    %sum_init = linalg.fill ins(%zero : f32)
        outs(%row_empty : tensor<2x4x16xf32>) -> tensor<2x4x16xf32>
    %sum = linalg.reduce { arith.addf }
        ins(%exponentials : tensor<2x4x16x16xf32>)
        outs(%sum_init : tensor<2x4x16xf32>) dimensions = [3]
    %probabilities = linalg.generic {
        indexing_maps = [#bhqk, #bhq, #bhqk],
        iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
        ins(%exponentials, %sum : tensor<2x4x16x16xf32>, tensor<2x4x16xf32>)
        outs(%empty : tensor<2x4x16x16xf32>) {
    ^bb0(%e: f32, %s: f32, %out: f32):
      %p = arith.divf %e, %s : f32
      linalg.yield %p : f32
    } -> tensor<2x4x16x16xf32>
    return %probabilities : tensor<2x4x16x16xf32>
  }

  func.func @attention(
      %query: tensor<2x4x16x8xf32>, %key: tensor<2x4x16x8xf32>,
      %value: tensor<2x4x16x8xf32>)
      -> tensor<2x4x16x8xf32> attributes {llvm.emit_c_interface} {
    %zero = arith.constant 0.0 : f32
    %q = call @rotary_embedding(%query)
        : (tensor<2x4x16x8xf32>) -> tensor<2x4x16x8xf32>
    %k = call @rotary_embedding(%key)
        : (tensor<2x4x16x8xf32>) -> tensor<2x4x16x8xf32>
    %scores = call @causal_scores(%q, %k)
        : (tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>) -> tensor<2x4x16x16xf32>
    %probabilities = call @softmax(%scores)
        : (tensor<2x4x16x16xf32>) -> tensor<2x4x16x16xf32>
    %empty = tensor.empty() : tensor<2x4x16x8xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x4x16x8xf32>)
        -> tensor<2x4x16x8xf32>
    %mixed = linalg.generic {
        indexing_maps = [#mix_p, #mix_v, #mix],
        iterator_types = ["parallel", "parallel", "parallel", "parallel",
                          "reduction"]}
        ins(%probabilities, %value
            : tensor<2x4x16x16xf32>, tensor<2x4x16x8xf32>)
        outs(%init : tensor<2x4x16x8xf32>) {
    ^bb0(%p: f32, %v: f32, %acc: f32):
      %pv = arith.mulf %p, %v : f32
      %sum = arith.addf %acc, %pv : f32
      linalg.yield %sum : f32
    } -> tensor<2x4x16x8xf32>
    return %mixed : tensor<2x4x16x8xf32>
  }
}
