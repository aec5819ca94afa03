// PIPELINE: builtin.module(sparsifier{enable-runtime-library=false})
//
// Products with a sparse matrix, whose positions, coordinates and values the
// caller hands over as plain arrays:
//   @csr_matvec             y += A x     compressed rows, a gather
//   @csr_transposed_matvec  y += A^T x   the same rows, which can only scatter
//   @bsr_matvec             y += A x     compressed rows of blocks of 2 x 2
//   @sparse_dot             r += u . v   sparse vectors, coordinates merged
// The kernels are written as if everything were dense, and the loops have to be
// derived from the format: nothing else is told.

#CSR = #sparse_tensor.encoding<{
  map = (i, j) -> (i : dense, j : compressed)
}>

#BSR = #sparse_tensor.encoding<{
  map = (i, j) -> (i floordiv 2 : dense, j floordiv 2 : compressed,
                   i mod 2 : dense, j mod 2 : dense)
}>

#SparseVector = #sparse_tensor.encoding<{ map = (i) -> (i : compressed) }>

#times_vector = {
  indexing_maps = [affine_map<(i, j) -> (i, j)>,
                   affine_map<(i, j) -> (j)>,
                   affine_map<(i, j) -> (i)>],
  iterator_types = ["parallel", "reduction"]
}

#transposed_times_vector = {
  indexing_maps = [affine_map<(i, j) -> (i, j)>,
                   affine_map<(i, j) -> (i)>,
                   affine_map<(i, j) -> (j)>],
  iterator_types = ["reduction", "parallel"]
}

#dot = {
  indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>,
                   affine_map<(i) -> ()>],
  iterator_types = ["reduction"]
}

module @sparse_matvec {
  func.func @csr_matvec(
      %Positions: memref<65xindex>, %Coordinates: memref<?xindex>,
      %Values: memref<?xf64>, %X: memref<64xf64>, %Y: memref<64xf64>)
      attributes {llvm.emit_c_interface} {
    %positions = bufferization.to_tensor %Positions restrict
        : memref<65xindex> to tensor<65xindex>
    %coordinates = bufferization.to_tensor %Coordinates restrict
        : memref<?xindex> to tensor<?xindex>
    %values = bufferization.to_tensor %Values restrict
        : memref<?xf64> to tensor<?xf64>
    %x = bufferization.to_tensor %X restrict : memref<64xf64> to tensor<64xf64>
    %y = bufferization.to_tensor %Y restrict writable
        : memref<64xf64> to tensor<64xf64>
    %A = sparse_tensor.assemble (%positions, %coordinates), %values
        : (tensor<65xindex>, tensor<?xindex>), tensor<?xf64>
        to tensor<64x64xf64, #CSR>
    %r = linalg.generic #times_vector
        ins(%A, %x : tensor<64x64xf64, #CSR>, tensor<64xf64>)
        outs(%y : tensor<64xf64>) {
    ^bb0(%a: f64, %v: f64, %acc: f64):
      %av = arith.mulf %a, %v : f64
      %s = arith.addf %acc, %av : f64
      linalg.yield %s : f64
    } -> tensor<64xf64>
    bufferization.materialize_in_destination %r in writable %Y
        : (tensor<64xf64>, memref<64xf64>) -> ()
    return
  }

  func.func @csr_transposed_matvec(
      %Positions: memref<65xindex>, %Coordinates: memref<?xindex>,
      %Values: memref<?xf64>, %X: memref<64xf64>, %Y: memref<64xf64>)
      attributes {llvm.emit_c_interface} {
    %positions = bufferization.to_tensor %Positions restrict
        : memref<65xindex> to tensor<65xindex>
    %coordinates = bufferization.to_tensor %Coordinates restrict
        : memref<?xindex> to tensor<?xindex>
    %values = bufferization.to_tensor %Values restrict
        : memref<?xf64> to tensor<?xf64>
    %x = bufferization.to_tensor %X restrict : memref<64xf64> to tensor<64xf64>
    %y = bufferization.to_tensor %Y restrict writable
        : memref<64xf64> to tensor<64xf64>
    %A = sparse_tensor.assemble (%positions, %coordinates), %values
        : (tensor<65xindex>, tensor<?xindex>), tensor<?xf64>
        to tensor<64x64xf64, #CSR>
    %r = linalg.generic #transposed_times_vector
        ins(%A, %x : tensor<64x64xf64, #CSR>, tensor<64xf64>)
        outs(%y : tensor<64xf64>) {
    ^bb0(%a: f64, %v: f64, %acc: f64):
      %av = arith.mulf %a, %v : f64
      %s = arith.addf %acc, %av : f64
      linalg.yield %s : f64
    } -> tensor<64xf64>
    bufferization.materialize_in_destination %r in writable %Y
        : (tensor<64xf64>, memref<64xf64>) -> ()
    return
  }

  // Row 2 r + p and column 2 c + q of the block at (r, c) are at
  // values[4 b + 2 p + q], b being the number of the block.
  func.func @bsr_matvec(
      %Positions: memref<33xindex>, %Coordinates: memref<?xindex>,
      %Values: memref<?xf64>, %X: memref<64xf64>, %Y: memref<64xf64>)
      attributes {llvm.emit_c_interface} {
    %positions = bufferization.to_tensor %Positions restrict
        : memref<33xindex> to tensor<33xindex>
    %coordinates = bufferization.to_tensor %Coordinates restrict
        : memref<?xindex> to tensor<?xindex>
    %values = bufferization.to_tensor %Values restrict
        : memref<?xf64> to tensor<?xf64>
    %x = bufferization.to_tensor %X restrict : memref<64xf64> to tensor<64xf64>
    %y = bufferization.to_tensor %Y restrict writable
        : memref<64xf64> to tensor<64xf64>
    %A = sparse_tensor.assemble (%positions, %coordinates), %values
        : (tensor<33xindex>, tensor<?xindex>), tensor<?xf64>
        to tensor<64x64xf64, #BSR>
    %r = linalg.generic #times_vector
        ins(%A, %x : tensor<64x64xf64, #BSR>, tensor<64xf64>)
        outs(%y : tensor<64xf64>) {
    ^bb0(%a: f64, %v: f64, %acc: f64):
      %av = arith.mulf %a, %v : f64
      %s = arith.addf %acc, %av : f64
      linalg.yield %s : f64
    } -> tensor<64xf64>
    bufferization.materialize_in_destination %r in writable %Y
        : (tensor<64xf64>, memref<64xf64>) -> ()
    return
  }

  func.func @sparse_dot(
      %UPositions: memref<2xindex>, %UCoordinates: memref<?xindex>,
      %UValues: memref<?xf64>, %VPositions: memref<2xindex>,
      %VCoordinates: memref<?xindex>, %VValues: memref<?xf64>,
      %R: memref<f64>) attributes {llvm.emit_c_interface} {
    %u_positions = bufferization.to_tensor %UPositions restrict
        : memref<2xindex> to tensor<2xindex>
    %u_coordinates = bufferization.to_tensor %UCoordinates restrict
        : memref<?xindex> to tensor<?xindex>
    %u_values = bufferization.to_tensor %UValues restrict
        : memref<?xf64> to tensor<?xf64>
    %v_positions = bufferization.to_tensor %VPositions restrict
        : memref<2xindex> to tensor<2xindex>
    %v_coordinates = bufferization.to_tensor %VCoordinates restrict
        : memref<?xindex> to tensor<?xindex>
    %v_values = bufferization.to_tensor %VValues restrict
        : memref<?xf64> to tensor<?xf64>
    %r = bufferization.to_tensor %R restrict writable
        : memref<f64> to tensor<f64>
    %u = sparse_tensor.assemble (%u_positions, %u_coordinates), %u_values
        : (tensor<2xindex>, tensor<?xindex>), tensor<?xf64>
        to tensor<1024xf64, #SparseVector>
    %v = sparse_tensor.assemble (%v_positions, %v_coordinates), %v_values
        : (tensor<2xindex>, tensor<?xindex>), tensor<?xf64>
        to tensor<1024xf64, #SparseVector>
    %product = linalg.generic #dot
        ins(%u, %v : tensor<1024xf64, #SparseVector>,
                     tensor<1024xf64, #SparseVector>)
        outs(%r : tensor<f64>) {
    ^bb0(%a: f64, %b: f64, %acc: f64):
      %ab = arith.mulf %a, %b : f64
      %s = arith.addf %acc, %ab : f64
      linalg.yield %s : f64
    } -> tensor<f64>
    bufferization.materialize_in_destination %product in writable %R
        : (tensor<f64>, memref<f64>) -> ()
    return
  }
}
