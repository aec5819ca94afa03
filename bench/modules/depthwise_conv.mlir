// PIPELINE: builtin.module(canonicalize,cse,eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},canonicalize,buffer-deallocation-pipeline,convert-bufferization-to-memref,fold-memref-alias-ops,func.func(convert-linalg-to-loops,scf-for-loop-canonicalization,loop-invariant-code-motion),canonicalize,cse,convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-arith-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)
//
// A depthwise separable block as mobile vision networks have it: a 3x3 filter
// for each channel with stride two, clamp to [0, 6], then a matrix product over
// the channels at each point. The product sees the image as a matrix by way of
// reshapes that must not become copies, and the data is reused so little that
// memory traffic is all that counts.

#nhwc = affine_map<(n, h, w, c) -> (n, h, w, c)>
#c = affine_map<(n, h, w, c) -> (c)>

module @depthwise_conv {
  func.func @depthwise_conv(
      %X: memref<1x33x33x16xf32>, %Spatial: memref<3x3x16xf32>,
      %Bias: memref<16xf32>, %Pointwise: memref<16x24xf32>,
      %Y: memref<1x16x16x24xf32>) attributes {llvm.emit_c_interface} {
    %x = bufferization.to_tensor %X restrict
        : memref<1x33x33x16xf32> to tensor<1x33x33x16xf32>
    %spatial = bufferization.to_tensor %Spatial restrict
        : memref<3x3x16xf32> to tensor<3x3x16xf32>
    %bias = bufferization.to_tensor %Bias restrict
        : memref<16xf32> to tensor<16xf32>
    %pointwise = bufferization.to_tensor %Pointwise restrict
        : memref<16x24xf32> to tensor<16x24xf32>
    %zero = arith.constant 0.0 : f32
    %six = arith.constant 6.0 : f32
    %empty = tensor.empty() : tensor<1x16x16x16xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<1x16x16x16xf32>)
        -> tensor<1x16x16x16xf32>
    %filtered = linalg.depthwise_conv_2d_nhwc_hwc
        {dilations = dense<1> : tensor<2xi64>, strides = dense<2> : tensor<2xi64>}
        ins(%x, %spatial : tensor<1x33x33x16xf32>, tensor<3x3x16xf32>)
        outs(%init : tensor<1x16x16x16xf32>) -> tensor<1x16x16x16xf32>
    %activated = linalg.generic {
        indexing_maps = [#nhwc, #c, #nhwc],
        iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
        ins(%filtered, %bias : tensor<1x16x16x16xf32>, tensor<16xf32>)
        outs(%empty : tensor<1x16x16x16xf32>) {
    ^bb0(%v: f32, %b: f32, %out: f32):
      %biased = arith.addf %v, %b : f32
      %low = arith.maximumf %biased, %zero : f32
      %high = arith.minimumf %low, %six : f32
      linalg.yield %high : f32
    } -> tensor<1x16x16x16xf32>
    %pixels = tensor.collapse_shape %activated [[0, 1, 2], [3]]
        : tensor<1x16x16x16xf32> into tensor<256x16xf32>
    %rows = tensor.empty() : tensor<256x24xf32>
    %rows_init = linalg.fill ins(%zero : f32) outs(%rows : tensor<256x24xf32>)
        -> tensor<256x24xf32>
    %mixed = linalg.matmul
        ins(%pixels, %pointwise : tensor<256x16xf32>, tensor<16x24xf32>)
        outs(%rows_init : tensor<256x24xf32>) -> tensor<256x24xf32>
    %Rows = memref.collapse_shape %Y [[0, 1, 2], [3]]
        : memref<1x16x16x24xf32> into memref<256x24xf32>
    bufferization.materialize_in_destination %mixed in restrict writable %Rows
        : (tensor<256x24xf32>, memref<256x24xf32>) -> ()
    return
  }
}
