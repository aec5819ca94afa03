// PIPELINE: builtin.module(inline,symbol-dce,func.func(linalg-generalize-named-ops,linalg-fuse-elementwise-ops),eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},canonicalize,buffer-deallocation-pipeline,convert-bufferization-to-memref,func.func(convert-linalg-to-loops),canonicalize,cse,convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-math-to-llvm,convert-arith-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)
//
// Layer normalisation over the last dimension of a batch x sequence x hidden
// activation, and the root-mean-square form of it that newer language models
// use. Written as small helpers which the inliner has to dissolve before the
// elementwise operations can fuse; mean and variance are two passes, for
// precision, so the input is read three times.

#bsh = affine_map<(b, s, h) -> (b, s, h)>
#bs = affine_map<(b, s, h) -> (b, s)>
#h = affine_map<(b, s, h) -> (h)>
#id2 = affine_map<(b, s) -> (b, s)>

module @layer_norm {
  func.func private @mean(%x: tensor<2x16x64xf32>) -> tensor<2x16xf32> {
    %zero = arith.constant 0.0 : f32
    %inverse_size = arith.constant 1.562500e-02 : f32
    %empty = tensor.empty() : tensor<2x16xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x16xf32>)
        -> tensor<2x16xf32>
    %sum = linalg.reduce { arith.addf } ins(%x : tensor<2x16x64xf32>)
        outs(%init : tensor<2x16xf32>) dimensions = [2]
    %mean = linalg.generic {
        indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
        ins(%sum : tensor<2x16xf32>) outs(%empty : tensor<2x16xf32>) {
    ^bb0(%s: f32, %out: f32):
      %m = arith.mulf %s, %inverse_size : f32
      linalg.yield %m : f32
    } -> tensor<2x16xf32>
    return %mean : tensor<2x16xf32>
  }

  func.func private @mean_of_squares(%x: tensor<2x16x64xf32>)
      -> tensor<2x16xf32> {
    %empty = tensor.empty() : tensor<2x16x64xf32>
    %squares = linalg.square ins(%x : tensor<2x16x64xf32>)
        outs(%empty : tensor<2x16x64xf32>) -> tensor<2x16x64xf32>
    %mean = call @mean(%squares) : (tensor<2x16x64xf32>) -> tensor<2x16xf32>
    return %mean : tensor<2x16xf32>
  }

  // 1 / sqrt(power + epsilon)
  func.func private @inverse_deviation(%power: tensor<2x16xf32>)
      -> tensor<2x16xf32> {
    %epsilon = arith.constant 1.0e-05 : f32
    %one = arith.constant 1.0 : f32
    %empty = tensor.empty() : tensor<2x16xf32>
    %inverse = linalg.generic {
        indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
        ins(%power : tensor<2x16xf32>) outs(%empty : tensor<2x16xf32>) {
    ^bb0(%p: f32, %out: f32):
      %shifted = arith.addf %p, %epsilon : f32
      %root = math.sqrt %shifted : f32
      %r = arith.divf %one, %root : f32
      linalg.yield %r : f32
    } -> tensor<2x16xf32>
    return %inverse : tensor<2x16xf32>
  }

  func.func @layer_norm(
      %X: memref<2x16x64xf32>, %Gamma: memref<64xf32>, %Beta: memref<64xf32>,
      %Y: memref<2x16x64xf32>) attributes {llvm.emit_c_interface} {
    %x = bufferization.to_tensor %X restrict
        : memref<2x16x64xf32> to tensor<2x16x64xf32>
    %gamma = bufferization.to_tensor %Gamma restrict
        : memref<64xf32> to tensor<64xf32>
    %beta = bufferization.to_tensor %Beta restrict
        : memref<64xf32> to tensor<64xf32>
    %mean = call @mean(%x) : (tensor<2x16x64xf32>) -> tensor<2x16xf32>
    %empty = tensor.empty() : tensor<2x16x64xf32>
    %centred = linalg.generic {
        indexing_maps = [#bsh, #bs, #bsh],
        iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%x, %mean : tensor<2x16x64xf32>, tensor<2x16xf32>)
        outs(%empty : tensor<2x16x64xf32>) {
    ^bb0(%v: f32, %m: f32, %out: f32):
      %d = arith.subf %v, %m : f32
      linalg.yield %d : f32
    } -> tensor<2x16x64xf32>
    %variance = call @mean_of_squares(%centred)
        : (tensor<2x16x64xf32>) -> tensor<2x16xf32>
    %inverse = call @inverse_deviation(%variance)
        : (tensor<2x16xf32>) -> tensor<2x16xf32>
    %normal = linalg.generic {
        indexing_maps = [#bsh, #bs, #h, #h, #bsh],
        iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%centred, %inverse, %gamma, %beta
            : tensor<2x16x64xf32>, tensor<2x16xf32>, tensor<64xf32>,
              tensor<64xf32>)
        outs(%empty : tensor<2x16x64xf32>) {
    ^bb0(%v: f32, %r: f32, %g: f32, %b: f32, %out: f32):
      %scaled = arith.mulf %v, %r : f32
      %weighted = arith.mulf %scaled, %g : f32
      %shifted = arith.addf %weighted, %b : f32
      linalg.yield %shifted : f32
    } -> tensor<2x16x64xf32>
    bufferization.materialize_in_destination %normal in restrict writable %Y
        : (tensor<2x16x64xf32>, memref<2x16x64xf32>) -> ()
    return
  }

  func.func @rms_norm(
      %X: memref<2x16x64xf32>, %Gamma: memref<64xf32>, %Y: memref<2x16x64xf32>)
      attributes {llvm.emit_c_interface} {
    %x = bufferization.to_tensor %X restrict
        : memref<2x16x64xf32> to tensor<2x16x64xf32>
    %gamma = bufferization.to_tensor %Gamma restrict
        : memref<64xf32> to tensor<64xf32>
    %empty = tensor.empty() : tensor<2x16x64xf32>
    %power = call @mean_of_squares(%x)
        : (tensor<2x16x64xf32>) -> tensor<2x16xf32>
    %inverse = call @inverse_deviation(%power)
        : (tensor<2x16xf32>) -> tensor<2x16xf32>
    %normal = linalg.generic {
        indexing_maps = [#bsh, #bs, #h, #bsh],
        iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%x, %inverse, %gamma
            : tensor<2x16x64xf32>, tensor<2x16xf32>, tensor<64xf32>)
        outs(%empty : tensor<2x16x64xf32>) {
    ^bb0(%v: f32, %r: f32, %g: f32, %out: f32):
      %scaled = arith.mulf %v, %r : f32
      %weighted = arith.mulf %scaled, %g : f32
      linalg.yield %weighted : f32
    } -> tensor<2x16x64xf32>
    bufferization.materialize_in_destination %normal in restrict writable %Y
        : (tensor<2x16x64xf32>, memref<2x16x64xf32>) -> ()
    return
  }
}
