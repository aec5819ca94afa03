// PIPELINE: builtin.module(canonicalize,cse,eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},buffer-deallocation-pipeline,convert-bufferization-to-memref,canonicalize,func.func(convert-linalg-to-loops,loop-invariant-code-motion),canonicalize,cse,convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-math-to-llvm,convert-arith-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)
//
// A perceptron of three layers, 16 - 8 - 8 - 4, for any number of samples. Its
// weights are resources at the end of the file, as exporters write them, and
// its biases dense constants: six private globals, two of the same type. Blobs
// belong to the context and not to the module, and their names must be unique
// there, which is what is hard for a context that outlives its modules.

#ik = affine_map<(i, k) -> (i, k)>
#k = affine_map<(i, k) -> (k)>

module @mlp {
  // Rectified.
  func.func private @input_layer(%x: tensor<?x16xf32>) -> tensor<?x8xf32> {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %weight = arith.constant dense_resource<mlp_input_weight> : tensor<16x8xf32>
    %bias = arith.constant dense<
        [0.25, -0.125, 0.0, 0.5, -0.5, 0.0625, 0.375, -0.25]> : tensor<8xf32>
    %samples = tensor.dim %x, %c0 : tensor<?x16xf32>
    %empty = tensor.empty(%samples) : tensor<?x8xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x8xf32>)
        -> tensor<?x8xf32>
    %product = linalg.matmul
        ins(%x, %weight : tensor<?x16xf32>, tensor<16x8xf32>)
        outs(%init : tensor<?x8xf32>) -> tensor<?x8xf32>
    %y = linalg.generic {
        indexing_maps = [#ik, #k, #ik], iterator_types = ["parallel", "parallel"]}
        ins(%product, %bias : tensor<?x8xf32>, tensor<8xf32>)
        outs(%empty : tensor<?x8xf32>) {
    ^bb0(%v: f32, %b: f32, %out: f32):
      %sum = arith.addf %v, %b : f32
      %r = arith.maximumf %sum, %zero : f32
      linalg.yield %r : f32
    } -> tensor<?x8xf32>
    return %y : tensor<?x8xf32>
  }

  // v / (1 + exp(-v)), the sigmoid linear unit.
  func.func private @hidden_layer(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1.0 : f32
    %weight = arith.constant dense_resource<mlp_hidden_weight> : tensor<8x8xf32>
    %bias = arith.constant dense<
        [-0.25, 0.125, 0.75, 0.0, 0.3125, -0.625, 0.5, -0.0625]> : tensor<8xf32>
    %samples = tensor.dim %x, %c0 : tensor<?x8xf32>
    %empty = tensor.empty(%samples) : tensor<?x8xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x8xf32>)
        -> tensor<?x8xf32>
    %product = linalg.matmul
        ins(%x, %weight : tensor<?x8xf32>, tensor<8x8xf32>)
        outs(%init : tensor<?x8xf32>) -> tensor<?x8xf32>
    %y = linalg.generic {
        indexing_maps = [#ik, #k, #ik], iterator_types = ["parallel", "parallel"]}
        ins(%product, %bias : tensor<?x8xf32>, tensor<8xf32>)
        outs(%empty : tensor<?x8xf32>) {
    ^bb0(%v: f32, %b: f32, %out: f32):
      %sum = arith.addf %v, %b : f32
      %negative = arith.negf %sum : f32
      %e = math.exp %negative : f32
      %below = arith.addf %e, %one : f32
      %r = arith.divf %sum, %below : f32
      linalg.yield %r : f32
    } -> tensor<?x8xf32>
    return %y : tensor<?x8xf32>
  }

  // Linear: the caller takes the largest.
  func.func private @output_layer(%x: tensor<?x8xf32>) -> tensor<?x4xf32> {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %weight = arith.constant dense_resource<mlp_output_weight> : tensor<8x4xf32>
    %bias = arith.constant dense<
        [0.125, -0.5, 0.25, 0.0]> : tensor<4xf32>
    %samples = tensor.dim %x, %c0 : tensor<?x8xf32>
    %empty = tensor.empty(%samples) : tensor<?x4xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x4xf32>)
        -> tensor<?x4xf32>
    %product = linalg.matmul
        ins(%x, %weight : tensor<?x8xf32>, tensor<8x4xf32>)
        outs(%init : tensor<?x4xf32>) -> tensor<?x4xf32>
    %y = linalg.generic {
        indexing_maps = [#ik, #k, #ik], iterator_types = ["parallel", "parallel"]}
        ins(%product, %bias : tensor<?x4xf32>, tensor<4xf32>)
        outs(%empty : tensor<?x4xf32>) {
    ^bb0(%v: f32, %b: f32, %out: f32):
      %sum = arith.addf %v, %b : f32
      linalg.yield %sum : f32
    } -> tensor<?x4xf32>
    return %y : tensor<?x4xf32>
  }

  func.func @mlp(%Samples: memref<?x16xf32>, %Scores: memref<?x4xf32>)
      attributes {llvm.emit_c_interface} {
    %samples = bufferization.to_tensor %Samples restrict
        : memref<?x16xf32> to tensor<?x16xf32>
    %h1 = call @input_layer(%samples) : (tensor<?x16xf32>) -> tensor<?x8xf32>
    %h2 = call @hidden_layer(%h1) : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %scores = call @output_layer(%h2) : (tensor<?x8xf32>) -> tensor<?x4xf32>
    bufferization.materialize_in_destination %scores in restrict writable %Scores
        : (tensor<?x4xf32>, memref<?x4xf32>) -> ()
    return
  }
}

{-#
  dialect_resources: {
    builtin: {
      mlp_input_weight: "0x040000000000e03d0000a03e0000a8be0000e03d0000c03d000040be0000403e0000e0bd0000a0bd0000a03e0000b0be000080bd0000c03e0000103e000070be0000c0be0000a8be000088be000088be0000a0be0000c0be000098be0000003d0000b83e0000c03d0000c0be0000203e0000103e0000a0be0000b83e0000b8be0000b03e000070be000080bc0000a83e000090be000060be0000803e0000b83e0000203e000080bd000030be000050be000010be0000803c0000803e0000c03e0000a03d0000b8be000040bd0000b83e0000a0be0000103e000080bc000080bc000000bd0000403e0000b0be0000a03e0000a03d0000c0be0000c0bd0000983e0000b83e0000703e0000e03d0000a03d0000003e0000803e0000c03e0000903e000000be0000b8be0000003e0000903e0000c0be0000803e000000be0000a03d0000e0bd0000703e0000b8be0000983e0000c03d0000c0be0000a0bd0000a03e0000b03e0000403e0000003d000000bd0000803c0000103e0000a03e0000b83e0000403d0000b8be0000a0bd0000c03e000080be0000803c0000203e000050be0000403e000080bd000020be0000b83e000080be000060be0000983e0000a03e0000803c000080be0000b0be0000c0be0000b8be0000a0be000020be0000103e0000c03e0000e03d0000b8be0000803c0000a03e0000c0be0000a03e000080be0000803e",
      mlp_hidden_weight: "0x040000000000a83e0000a03d0000b8be0000a83e000050be0000e03d0000c0bd0000403e0000a8be0000b83e0000e0bd0000a0be0000603e0000b03e0000403d000070be0000b8be0000c0be0000c0be0000b8be000090be000040bd0000983e0000a03e000040be000088be0000b83e000010be000080bd0000303e000040be0000003e0000403d000090be0000b83e000080bc0000c0be000000bd0000a83e0000b83e0000603e0000e03d0000a03d0000203e0000903e0000c03e0000603e000060be0000a8be0000703e0000203e0000b8be0000b03e000090be0000803e000098be0000b83e0000b0be0000a03d0000a03e000070be0000a8be0000403d0000a03e",
      mlp_output_weight: "0x040000000000c03d0000c0be0000403e0000c03d000088be0000a83e0000a8be0000903e0000e0bd000030be0000c03e000010be0000b0be0000803d0000b83e0000a83e0000503e0000c03d0000a03d0000203e0000983e0000c03e0000203e000088be000088be0000a03e0000403d000098be0000c03e0000b8be0000b83e0000c0be"
    }
  }
#-}
