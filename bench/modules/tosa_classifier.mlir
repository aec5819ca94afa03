// PIPELINE: builtin.module(func.func(tosa-infer-shapes,tosa-make-broadcastable,tosa-to-linalg-named,canonicalize,tosa-layerwise-constant-fold,tosa-make-broadcastable,tosa-to-linalg,tosa-to-arith,tosa-to-tensor),canonicalize,cse,func.func(linalg-fuse-elementwise-ops),eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},buffer-results-to-out-params{hoist-static-allocs=true modify-public-functions=true},buffer-deallocation-pipeline,convert-bufferization-to-memref,func.func(convert-linalg-to-loops),canonicalize,cse,convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-math-to-llvm,convert-arith-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)
//
// A small classifier of grey images of 14 x 14 in three classes, as a model
// converter hands it over in TOSA: convolution, rectifier, pooling, a fully
// connected layer and softmax. Before any of it is a loop it passes through
// five dialects; zero points, shifts and shapes are operands, and so constants
// which the lowering has to see through.

module @tosa_classifier {
  func.func @tosa_classifier(%image: tensor<1x14x14x1xf32>) -> tensor<1x3xf32>
      attributes {llvm.emit_c_interface} {
    %no_zero_point = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}>
        : () -> tensor<1xf32>
    %no_shift = "tosa.const"() <{values = dense<0> : tensor<1xi8>}>
        : () -> tensor<1xi8>
    // A bright spot and a diagonal, one channel each.
    %filters = "tosa.const"() <{values = dense<[
        [[[-0.125], [-0.125], [-0.125]],
         [[-0.125], [ 1.000], [-0.125]],
         [[-0.125], [-0.125], [-0.125]]],
        [[[ 0.500], [-0.250], [-0.250]],
         [[-0.250], [ 0.500], [-0.250]],
         [[-0.250], [-0.250], [ 0.500]]]]> : tensor<2x3x3x1xf32>}>
        : () -> tensor<2x3x3x1xf32>
    %filter_bias = "tosa.const"() <{values = dense<[0.0, 0.125]>
        : tensor<2xf32>}> : () -> tensor<2xf32>
    %conv = tosa.conv2d %image, %filters, %filter_bias, %no_zero_point,
        %no_zero_point {acc_type = f32, dilation = array<i64: 1, 1>,
        pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>}
        : (tensor<1x14x14x1xf32>, tensor<2x3x3x1xf32>, tensor<2xf32>,
           tensor<1xf32>, tensor<1xf32>) -> tensor<1x12x12x2xf32>
    %relu = tosa.clamp %conv {min_val = 0.0 : f32, max_val = 3.0e+38 : f32}
        : (tensor<1x12x12x2xf32>) -> tensor<1x12x12x2xf32>
    %pooled = tosa.max_pool2d %relu {kernel = array<i64: 4, 4>,
        pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 4, 4>}
        : (tensor<1x12x12x2xf32>) -> tensor<1x3x3x2xf32>
    %flat_shape = tosa.const_shape {values = dense<[1, 1, 18]> : tensor<3xindex>}
        : () -> !tosa.shape<3>
    %flat = tosa.reshape %pooled, %flat_shape
        : (tensor<1x3x3x2xf32>, !tosa.shape<3>) -> tensor<1x1x18xf32>
    %weight = "tosa.const"() <{values = dense<[[
        [ 0.50, -0.25,  0.00], [-0.50,  0.75,  0.25],
        [ 0.25,  0.00, -0.25], [ 0.00, -0.50,  0.50],
        [ 0.75, -0.75,  0.25], [-0.25,  0.50,  0.00],
        [ 0.00,  0.25,  0.50], [ 0.25,  0.25, -0.50],
        [ 1.00, -1.00,  0.00], [-1.00,  1.00,  0.25],
        [ 0.00,  0.25,  0.50], [ 0.25,  0.25, -0.50],
        [ 0.75, -0.75,  0.25], [-0.25,  0.50,  0.00],
        [ 0.25,  0.00, -0.25], [ 0.00, -0.50,  0.50],
        [ 0.50, -0.25,  0.00], [-0.50,  0.75,  0.25]]]>
        : tensor<1x18x3xf32>}> : () -> tensor<1x18x3xf32>
    %weight_bias = "tosa.const"() <{values = dense<[[[0.1, -0.2, 0.3]]]>
        : tensor<1x1x3xf32>}> : () -> tensor<1x1x3xf32>
    %product = tosa.matmul %flat, %weight, %no_zero_point, %no_zero_point
        : (tensor<1x1x18xf32>, tensor<1x18x3xf32>, tensor<1xf32>, tensor<1xf32>)
        -> tensor<1x1x3xf32>
    %logits = tosa.add %product, %weight_bias
        : (tensor<1x1x3xf32>, tensor<1x1x3xf32>) -> tensor<1x1x3xf32>
    %largest = tosa.reduce_max %logits {axis = 2 : i32}
        : (tensor<1x1x3xf32>) -> tensor<1x1x1xf32>
    %shifted = tosa.sub %logits, %largest
        : (tensor<1x1x3xf32>, tensor<1x1x1xf32>) -> tensor<1x1x3xf32>
    %exponentials = tosa.exp %shifted
        : (tensor<1x1x3xf32>) -> tensor<1x1x3xf32>
    %sum = tosa.reduce_sum %exponentials {axis = 2 : i32}
        : (tensor<1x1x3xf32>) -> tensor<1x1x1xf32>
    %inverse = tosa.reciprocal %sum : (tensor<1x1x1xf32>) -> tensor<1x1x1xf32>
    %probabilities = tosa.mul %exponentials, %inverse, %no_shift
        : (tensor<1x1x3xf32>, tensor<1x1x1xf32>, tensor<1xi8>)
        -> tensor<1x1x3xf32>
    %class_shape = tosa.const_shape {values = dense<[1, 3]> : tensor<2xindex>}
        : () -> !tosa.shape<2>
    %classes = tosa.reshape %probabilities, %class_shape
        : (tensor<1x1x3xf32>, !tosa.shape<2>) -> tensor<1x3xf32>
    return %classes : tensor<1x3xf32>
  }
}
