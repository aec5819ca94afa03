// PIPELINE: builtin.module(canonicalize,cse,func.func(linalg-fuse-elementwise-ops),one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},buffer-deallocation-pipeline,convert-bufferization-to-memref,func.func(convert-linalg-to-affine-loops,affine-loop-invariant-code-motion,affine-loop-unroll{unroll-factor=4 unroll-up-to-factor=true unroll-num-reps=2}),lower-affine,canonicalize,cse,convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-arith-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)
//
// The first block of a small image classifier: a 3x3 convolution with fixed
// filters over a padded grey image, bias, rectifier and 2x2 max pooling, then a
// second convolution to eight channels. Filters and biases are dense constants,
// so each becomes a private global; the border has to be padded with zeros and
// the innermost loops of the filters are short enough to unroll.

#nhwc = affine_map<(n, h, w, c) -> (n, h, w, c)>
#c = affine_map<(n, h, w, c) -> (c)>

module @conv2d {
  // Horizontal and vertical Sobel edges, Laplacian, Gaussian blur.
  func.func private @edge_features(%image: tensor<1x28x28x1xf32>)
      -> tensor<1x28x28x4xf32> {
    %zero = arith.constant 0.0 : f32
    %filters = arith.constant dense<[
        [[[-1.0, -1.0, 0.0, 0.0625]], [[ 0.0, -2.0,  1.0, 0.125]],
         [[ 1.0, -1.0, 0.0, 0.0625]]],
        [[[-2.0,  0.0, 1.0, 0.125]],  [[ 0.0,  0.0, -4.0, 0.25]],
         [[ 2.0,  0.0, 1.0, 0.125]]],
        [[[-1.0,  1.0, 0.0, 0.0625]], [[ 0.0,  2.0,  1.0, 0.125]],
         [[ 1.0,  1.0, 0.0, 0.0625]]]]> : tensor<3x3x1x4xf32>
    %bias = arith.constant dense<[0.0, 0.0, 0.25, -0.5]> : tensor<4xf32>
    %canvas = tensor.empty() : tensor<1x30x30x1xf32>
    %blank = linalg.fill ins(%zero : f32) outs(%canvas : tensor<1x30x30x1xf32>)
        -> tensor<1x30x30x1xf32>
    %inside = tensor.extract_slice %blank[0, 1, 1, 0] [1, 28, 28, 1] [1, 1, 1, 1]
        : tensor<1x30x30x1xf32> to tensor<1x28x28x1xf32>
    %placed = linalg.copy ins(%image : tensor<1x28x28x1xf32>)
        outs(%inside : tensor<1x28x28x1xf32>) -> tensor<1x28x28x1xf32>
    %padded = tensor.insert_slice %placed into
        %blank[0, 1, 1, 0] [1, 28, 28, 1] [1, 1, 1, 1]
        : tensor<1x28x28x1xf32> into tensor<1x30x30x1xf32>
    %empty = tensor.empty() : tensor<1x28x28x4xf32>
    %start = linalg.broadcast ins(%bias : tensor<4xf32>)
        outs(%empty : tensor<1x28x28x4xf32>) dimensions = [0, 1, 2]
    %features = linalg.conv_2d_nhwc_hwcf
        {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
        ins(%padded, %filters : tensor<1x30x30x1xf32>, tensor<3x3x1x4xf32>)
        outs(%start : tensor<1x28x28x4xf32>) -> tensor<1x28x28x4xf32>
    return %features : tensor<1x28x28x4xf32>
  }

  func.func private @relu_pool(%x: tensor<1x28x28x4xf32>)
      -> tensor<1x14x14x4xf32> {
    %zero = arith.constant 0.0 : f32
    %lowest = arith.constant 0xFF800000 : f32
    %window = tensor.empty() : tensor<2x2xf32>
    %full = tensor.empty() : tensor<1x28x28x4xf32>
    %positive = linalg.generic {
        indexing_maps = [#nhwc, #nhwc],
        iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
        ins(%x : tensor<1x28x28x4xf32>) outs(%full : tensor<1x28x28x4xf32>) {
    ^bb0(%v: f32, %out: f32):
      %r = arith.maximumf %v, %zero : f32
      linalg.yield %r : f32
    } -> tensor<1x28x28x4xf32>
    %empty = tensor.empty() : tensor<1x14x14x4xf32>
    %init = linalg.fill ins(%lowest : f32) outs(%empty : tensor<1x14x14x4xf32>)
        -> tensor<1x14x14x4xf32>
    %pooled = linalg.pooling_nhwc_max
        {dilations = dense<1> : tensor<2xi64>, strides = dense<2> : tensor<2xi64>}
        ins(%positive, %window : tensor<1x28x28x4xf32>, tensor<2x2xf32>)
        outs(%init : tensor<1x14x14x4xf32>) -> tensor<1x14x14x4xf32>
    return %pooled : tensor<1x14x14x4xf32>
  }

  // Eight channels at half the resolution, with a filter of 1x1 that mixes
  // the four kinds of edges and a clamp to [0, 6].
  func.func private @mix_channels(%x: tensor<1x14x14x4xf32>)
      -> tensor<1x14x14x8xf32> {
    %zero = arith.constant 0.0 : f32
    %six = arith.constant 6.0 : f32
    %filter = arith.constant dense<[[[
        [ 0.50, -0.25,  0.125,  0.75, -0.50,  0.25,  1.00, -0.125],
        [-0.50,  0.25,  0.625, -0.75,  0.50,  0.25, -1.00,  0.375],
        [ 0.25,  0.50, -0.125,  0.25, -0.25, -0.75,  0.50,  0.875],
        [ 0.75, -1.00,  0.250,  0.50,  0.125, 0.625, -0.25, 0.500]]]]>
        : tensor<1x1x4x8xf32>
    %bias = arith.constant dense<
        [0.1, -0.1, 0.2, -0.2, 0.05, -0.05, 0.0, 0.15]> : tensor<8xf32>
    %empty = tensor.empty() : tensor<1x14x14x8xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<1x14x14x8xf32>)
        -> tensor<1x14x14x8xf32>
    %conv = linalg.conv_2d_nhwc_hwcf
        {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
        ins(%x, %filter : tensor<1x14x14x4xf32>, tensor<1x1x4x8xf32>)
        outs(%init : tensor<1x14x14x8xf32>) -> tensor<1x14x14x8xf32>
    %clamped = linalg.generic {
        indexing_maps = [#nhwc, #c, #nhwc],
        iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
        ins(%conv, %bias : tensor<1x14x14x8xf32>, tensor<8xf32>)
        outs(%empty : tensor<1x14x14x8xf32>) {
    ^bb0(%v: f32, %b: f32, %out: f32):
      %biased = arith.addf %v, %b : f32
      %low = arith.maximumf %biased, %zero : f32
      %high = arith.minimumf %low, %six : f32
      linalg.yield %high : f32
    } -> tensor<1x14x14x8xf32>
    return %clamped : tensor<1x14x14x8xf32>
  }

  func.func @conv2d(%image: tensor<1x28x28x1xf32>) -> tensor<1x14x14x8xf32>
      attributes {llvm.emit_c_interface} {
    %edges = call @edge_features(%image)
        : (tensor<1x28x28x1xf32>) -> tensor<1x28x28x4xf32>
    %pooled = call @relu_pool(%edges)
        : (tensor<1x28x28x4xf32>) -> tensor<1x14x14x4xf32>
    %mixed = call @mix_channels(%pooled)
        : (tensor<1x14x14x4xf32>) -> tensor<1x14x14x8xf32>
    return %mixed : tensor<1x14x14x8xf32>
  }
}
