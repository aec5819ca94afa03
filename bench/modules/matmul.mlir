// PIPELINE: builtin.module(canonicalize,eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},canonicalize,func.func(convert-linalg-to-affine-loops,affine-loop-tile{tile-sizes=32,32,16},affine-scalrep,affine-loop-invariant-code-motion),lower-affine,canonicalize,cse,convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-arith-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)
//
// The three matrix products every tensor compiler meets first:
//   @matmul          C = A B      static f32 shapes, C overwritten in place
//   @matmul_nt       y = x W^T    transposed right operand, as in a linear layer
//   @matmul_mixed    C += A B     bf16 operands, f32 accumulation, dynamic sizes
// The caller owns every buffer. Bufferization has to see that the destination
// is free to hold the accumulator, or it allocates and copies a whole matrix.
// The loops are then tiled as affine loops.

module @matmul {
  func.func @matmul(%A: memref<128x256xf32>, %B: memref<256x64xf32>,
                    %C: memref<128x64xf32>)
      attributes {llvm.emit_c_interface} {
    %zero = arith.constant 0.0 : f32
    %a = bufferization.to_tensor %A restrict
        : memref<128x256xf32> to tensor<128x256xf32>
    %b = bufferization.to_tensor %B restrict
        : memref<256x64xf32> to tensor<256x64xf32>
    %empty = tensor.empty() : tensor<128x64xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<128x64xf32>)
        -> tensor<128x64xf32>
    %product = linalg.matmul
        ins(%a, %b : tensor<128x256xf32>, tensor<256x64xf32>)
        outs(%init : tensor<128x64xf32>) -> tensor<128x64xf32>
    bufferization.materialize_in_destination %product in restrict writable %C
        : (tensor<128x64xf32>, memref<128x64xf32>) -> ()
    return
  }

  func.func @matmul_nt(%X: memref<32x384xf32>, %W: memref<96x384xf32>,
                       %Y: memref<32x96xf32>)
      attributes {llvm.emit_c_interface} {
    %zero = arith.constant 0.0 : f32
    %x = bufferization.to_tensor %X restrict
        : memref<32x384xf32> to tensor<32x384xf32>
    %w = bufferization.to_tensor %W restrict
        : memref<96x384xf32> to tensor<96x384xf32>
    %empty = tensor.empty() : tensor<32x96xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<32x96xf32>)
        -> tensor<32x96xf32>
    %product = linalg.matmul
        indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
                         affine_map<(m, n, k) -> (n, k)>,
                         affine_map<(m, n, k) -> (m, n)>]
        ins(%x, %w : tensor<32x384xf32>, tensor<96x384xf32>)
        outs(%init : tensor<32x96xf32>) -> tensor<32x96xf32>
    bufferization.materialize_in_destination %product in restrict writable %Y
        : (tensor<32x96xf32>, memref<32x96xf32>) -> ()
    return
  }

  func.func @matmul_mixed(%A: memref<?x?xbf16>, %B: memref<?x?xbf16>,
                          %C: memref<?x?xf32>)
      attributes {llvm.emit_c_interface} {
    %a = bufferization.to_tensor %A restrict
        : memref<?x?xbf16> to tensor<?x?xbf16>
    %b = bufferization.to_tensor %B restrict
        : memref<?x?xbf16> to tensor<?x?xbf16>
    %c = bufferization.to_tensor %C restrict writable
        : memref<?x?xf32> to tensor<?x?xf32>
    %sum = linalg.matmul ins(%a, %b : tensor<?x?xbf16>, tensor<?x?xbf16>)
        outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
    bufferization.materialize_in_destination %sum in writable %C
        : (tensor<?x?xf32>, memref<?x?xf32>) -> ()
    return
  }
}
