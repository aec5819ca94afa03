// PIPELINE: builtin.module(canonicalize,cse,eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},canonicalize,buffer-deallocation-pipeline,convert-bufferization-to-memref,func.func(convert-linalg-to-parallel-loops,scf-parallel-loop-tiling{parallel-loop-tile-sizes=64,64}),canonicalize,cse,func.func(scf-parallel-loop-fusion),convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-math-to-llvm,convert-arith-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)
//
// Reductions over a matrix of unknown size, each with its own difficulty:
//   @sum_rows      over the contiguous dimension
//   @sum_columns   over the strided dimension, where the loop order decides
//   @argmax        two results at once, a value and where it stands
//   @norm          over everything, to a tensor without dimensions
//   @count_above   boolean to integer, with a threshold as a scalar argument

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#none = affine_map<(i, j) -> ()>

module @reduction {
  func.func @sum_rows(%X: memref<?x?xf32>, %Sums: memref<?xf32>)
      attributes {llvm.emit_c_interface} {
    %zero = arith.constant 0.0 : f32
    %x = bufferization.to_tensor %X restrict : memref<?x?xf32> to tensor<?x?xf32>
    %sums = bufferization.to_tensor %Sums restrict writable
        : memref<?xf32> to tensor<?xf32>
    %init = linalg.fill ins(%zero : f32) outs(%sums : tensor<?xf32>)
        -> tensor<?xf32>
    %r = linalg.reduce { arith.addf } ins(%x : tensor<?x?xf32>)
        outs(%init : tensor<?xf32>) dimensions = [1]
    bufferization.materialize_in_destination %r in writable %Sums
        : (tensor<?xf32>, memref<?xf32>) -> ()
    return
  }

  func.func @sum_columns(%X: memref<?x?xf32>, %Sums: memref<?xf32>)
      attributes {llvm.emit_c_interface} {
    %zero = arith.constant 0.0 : f32
    %x = bufferization.to_tensor %X restrict : memref<?x?xf32> to tensor<?x?xf32>
    %sums = bufferization.to_tensor %Sums restrict writable
        : memref<?xf32> to tensor<?xf32>
    %init = linalg.fill ins(%zero : f32) outs(%sums : tensor<?xf32>)
        -> tensor<?xf32>
    %r = linalg.reduce { arith.addf } ins(%x : tensor<?x?xf32>)
        outs(%init : tensor<?xf32>) dimensions = [0]
    bufferization.materialize_in_destination %r in writable %Sums
        : (tensor<?xf32>, memref<?xf32>) -> ()
    return
  }

  func.func @argmax(%X: memref<?x?xf32>, %Value: memref<?xf32>,
                    %Where: memref<?xi64>) attributes {llvm.emit_c_interface} {
    %x = bufferization.to_tensor %X restrict : memref<?x?xf32> to tensor<?x?xf32>
    %value = bufferization.to_tensor %Value restrict writable
        : memref<?xf32> to tensor<?xf32>
    %where = bufferization.to_tensor %Where restrict writable
        : memref<?xi64> to tensor<?xi64>
    %lowest = arith.constant 0xFF800000 : f32
    %nowhere = arith.constant 0 : i64
    %value_init = linalg.fill ins(%lowest : f32) outs(%value : tensor<?xf32>)
        -> tensor<?xf32>
    %where_init = linalg.fill ins(%nowhere : i64) outs(%where : tensor<?xi64>)
        -> tensor<?xi64>
    %r:2 = linalg.generic {
        indexing_maps = [#ij, #i, #i],
        iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<?x?xf32>)
        outs(%value_init, %where_init : tensor<?xf32>, tensor<?xi64>) {
    ^bb0(%v: f32, %best: f32, %best_at: i64):
      %j = linalg.index 1 : index
      %here = arith.index_cast %j : index to i64
      %better = arith.cmpf ogt, %v, %best : f32
      %new_best = arith.select %better, %v, %best : f32
      %new_at = arith.select %better, %here, %best_at : i64
      linalg.yield %new_best, %new_at : f32, i64
    } -> (tensor<?xf32>, tensor<?xi64>)
    bufferization.materialize_in_destination %r#0 in writable %Value
        : (tensor<?xf32>, memref<?xf32>) -> ()
    bufferization.materialize_in_destination %r#1 in writable %Where
        : (tensor<?xi64>, memref<?xi64>) -> ()
    return
  }

  func.func @norm(%X: memref<?x?xf32>) -> f32
      attributes {llvm.emit_c_interface} {
    %x = bufferization.to_tensor %X restrict : memref<?x?xf32> to tensor<?x?xf32>
    %zero = arith.constant 0.0 : f32
    %empty = tensor.empty() : tensor<f32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<f32>)
        -> tensor<f32>
    %squares = linalg.generic {
        indexing_maps = [#ij, #none],
        iterator_types = ["reduction", "reduction"]}
        ins(%x : tensor<?x?xf32>) outs(%init : tensor<f32>) {
    ^bb0(%v: f32, %acc: f32):
      %vv = arith.mulf %v, %v : f32
      %s = arith.addf %acc, %vv : f32
      linalg.yield %s : f32
    } -> tensor<f32>
    %total = tensor.extract %squares[] : tensor<f32>
    %root = math.sqrt %total : f32
    return %root : f32
  }

  func.func @count_above(%X: memref<?x?xf32>, %threshold: f32) -> i64
      attributes {llvm.emit_c_interface} {
    %x = bufferization.to_tensor %X restrict : memref<?x?xf32> to tensor<?x?xf32>
    %zero = arith.constant 0 : i64
    %empty = tensor.empty() : tensor<i64>
    %init = linalg.fill ins(%zero : i64) outs(%empty : tensor<i64>)
        -> tensor<i64>
    %count = linalg.generic {
        indexing_maps = [#ij, #none],
        iterator_types = ["reduction", "reduction"]}
        ins(%x : tensor<?x?xf32>) outs(%init : tensor<i64>) {
    ^bb0(%v: f32, %acc: i64):
      %above = arith.cmpf ogt, %v, %threshold : f32
      %one = arith.extui %above : i1 to i64
      %c = arith.addi %acc, %one : i64
      linalg.yield %c : i64
    } -> tensor<i64>
    %n = tensor.extract %count[] : tensor<i64>
    return %n : i64
  }
}
